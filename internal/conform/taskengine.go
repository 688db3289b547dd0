package conform

import (
	"context"

	"signalbox/internal/task/amp"
)

// TaskEngine is a host without a server: the rules alone, with a clock that the cases
// move. It is how the vectors themselves are checked.
type TaskEngine struct {
	engine *amp.Engine
	now    int64 // microseconds
}

var _ TaskHost = (*TaskEngine)(nil)

// caseBegins is when every case begins, in microseconds. Deadlines are counted from
// there.
const caseBegins = 1_772_116_327_000_000

// Begin implements TaskHost.
func (e *TaskEngine) Begin(_ context.Context, requirePlan bool) error {
	p := amp.Defaults()
	p.RequirePlan = requirePlan
	e.engine, e.now = amp.NewEngine(p), caseBegins
	return nil
}

// MoveTo implements TaskHost. What becomes due on the way happens at its own time and
// in its order, as on a server whose clock was never moved.
func (e *TaskEngine) MoveTo(_ context.Context, seconds int64) error {
	until := caseBegins + seconds*1_000_000
	for {
		var due int64
		id := ""
		// The earliest deadline first: what it does may set or end others.
		for _, t := range e.engine.Tasks {
			if d := t.Due(); d > 0 && d <= until && (due == 0 || d < due) {
				due, id = d, t.ID
			}
		}
		if id == "" {
			e.now = max(e.now, until)
			return nil
		}
		e.now = max(e.now, due)
		e.engine.Do(amp.Input{Kind: amp.InTick, TaskID: id}, e.world())
	}
}

// world is what the rules see of the world: the time.
func (e *TaskEngine) world() amp.World { return amp.World{Now: e.now} }

// Send implements TaskHost. A refusal that a person has to know about raises an
// escalation, as on a server.
func (e *TaskEngine) Send(_ context.Context, kind amp.Kind, raw []byte) (TaskAnswer, error) {
	in, refusal := e.engine.Policy.Read(kind, raw)
	var out amp.Outcome
	if refusal == nil {
		out, refusal = e.engine.Do(in, e.world())
	}
	if refusal != nil {
		if id, lost, matters := amp.LostOf(kind, raw, refusal); matters {
			e.engine.Do(amp.Input{Kind: amp.InRefusal, TaskID: id, Lost: &lost}, e.world())
		}
	}
	return TaskAnswer{Duplicate: out.Duplicate, Refusal: refusal, Warnings: out.Warnings}, nil
}

// Look implements TaskHost.
func (e *TaskEngine) Look(_ context.Context, taskID string) (TaskLook, error) {
	t := e.engine.Tasks[taskID]
	if t == nil {
		return TaskLook{}, nil
	}
	return TaskLook{Status: t.Status(), Count: t.Count, Streak: t.Streak, Open: t.Open}, nil
}

// Settle implements TaskHost: everything has happened already.
func (e *TaskEngine) Settle(_ context.Context, fn func() error) error { return fn() }
