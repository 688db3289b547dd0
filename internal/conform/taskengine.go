package conform

import (
	"context"

	"signalbox/internal/task/amp"
)

// TaskEngine is a host without a server: the rules alone, with a clock that the cases
// move. It is how the vectors themselves are checked.
type TaskEngine struct {
	engine *amp.Engine
	now    int64             // microseconds
	kept   map[string][]byte // dispatches that wait to be approved, by their ids
}

var _ TaskHost = (*TaskEngine)(nil)

// caseBegins is when every case begins, in microseconds. Deadlines are counted from
// there.
const caseBegins = 1_772_116_327_000_000

// Begin implements TaskHost.
func (e *TaskEngine) Begin(_ context.Context, requirePlan bool) error {
	p := amp.Defaults()
	p.RequirePlan = requirePlan
	e.engine, e.now, e.kept = amp.NewEngine(p), caseBegins, map[string][]byte{}
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
// escalation, as on a server, and a dispatch that is not approved is kept.
func (e *TaskEngine) Send(_ context.Context, by amp.Role, kind amp.Kind, raw []byte) (TaskAnswer, error) {
	in, refusal := e.engine.Policy.Read(kind, raw)
	var out amp.Outcome
	if refusal == nil && by != "" {
		refusal = amp.MayPlay(in, by)
	}
	if refusal == nil {
		out, refusal = e.engine.Do(in, e.world())
	}
	if refusal != nil {
		if id, lost, matters := amp.LostOf(kind, raw, refusal); matters {
			e.engine.Do(amp.Input{Kind: amp.InRefusal, TaskID: id, Lost: &lost}, e.world())
			if lost.Plan != nil {
				e.kept[lost.Plan.MsgID] = raw
			}
		}
	}
	e.release(in.TaskID)
	return TaskAnswer{Duplicate: out.Duplicate, Refusal: refusal, Warnings: out.Warnings}, nil
}

// release has dispatches go out that were approved, as a server does.
func (e *TaskEngine) release(taskID string) {
	t := e.engine.Tasks[taskID]
	if t == nil {
		return
	}
	for _, p := range t.Plans {
		if !p.Approved {
			continue
		}
		w := e.world()
		w.Release = true
		in, refusal := e.engine.Policy.Read(amp.InMessage, e.kept[p.MsgID])
		if refusal == nil {
			_, refusal = e.engine.Do(in, w)
		}
		if refusal != nil {
			unsent := amp.Unsent{MsgID: p.MsgID, Problems: refusal.Problems}
			e.engine.Do(amp.Input{Kind: amp.InUnsent, TaskID: taskID, Unsent: &unsent}, e.world())
		}
	}
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
