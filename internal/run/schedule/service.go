package schedule

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"slices"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

const (
	prefix = "sched"
	// grace is how late a time may be and still count as on time.
	grace = time.Minute
	// maxCaughtUp is how many missed times All starts at the most, and maxMissed how many are counted.
	maxCaughtUp = 100
	maxMissed   = 100_000
	// maxSchedules is how many a workspace may have.
	maxSchedules = 1000
	// patience is how long a time is tried whose run cannot be opened for a reason of ours.
	patience = time.Hour
	gap      = 50 * time.Millisecond
	retry    = 2 * time.Second
)

// Schedule is a run that starts again and again, as it is shown.
type Schedule struct {
	ID        string      `json:"id"`
	Workspace string      `json:"workspace"`
	Cron      string      `json:"cron"`
	Zone      string      `json:"timezone"`
	CatchUp   CatchUp     `json:"catch_up"`
	Run       run.Request `json:"run"`
	SetBy     string      `json:"set_by"`
	SetAt     time.Time   `json:"set_at"`
	NextAt    *time.Time  `json:"next_at"`
	// LastAt is the last time that has come, LastRun its run, and LastReason why it has none.
	LastAt     *time.Time `json:"last_at,omitempty"`
	LastRun    string     `json:"last_run,omitempty"`
	LastReason string     `json:"last_reason,omitempty"`
}

// Request is the body of POST /runs/schedules.
type Request struct {
	Cron    string      `json:"cron" example:"30 9 * * mon-fri"`
	Zone    string      `json:"timezone,omitempty" example:"Europe/Berlin"` // UTC if absent
	CatchUp CatchUp     `json:"catch_up,omitempty"`                         // skip if absent, once or all
	Run     run.Request `json:"run"`
}

// List is the answer of GET /runs/schedules.
type List struct {
	Schedules []Schedule `json:"schedules"`
}

// Protocol is the part of the server's list that schedules are. What they say is the prompts of their runs.
func Protocol() protocol.Protocol {
	return protocol.Protocol{Migrations: Migrations, Projection: Projection(), Said: []string{kindSet}}
}

// Schedules starts runs at their times. The server makes one and calls Run beside its listeners.
type Schedules struct {
	core protocol.Core
	runs *run.Runs
}

// New makes the service over a core whose ledger has Projection. now is that of the core: times are those of the
// server's clock.
func New(core protocol.Core, runs *run.Runs) *Schedules { return &Schedules{core, runs} }

// Timers are the handlers of the timers.
func (s *Schedules) Timers() map[string]clock.Handler { return map[string]clock.Handler{timer: s.due} }

// Set sets a schedule. The run is checked as if it were to start now.
func (s *Schedules) Set(ctx context.Context, who roster.Identity, n Request) (Schedule, error) {
	c, err := Parse(n.Cron, n.Zone)
	if err != nil {
		return Schedule{}, err
	}
	switch n.CatchUp = cmp.Or(n.CatchUp, Skip); n.CatchUp {
	case Skip, Once, All:
	default:
		return Schedule{}, fault.New(fault.InvalidPayload, "catch_up should be skip, once or all, and is %.40q.", n.CatchUp).
			About("catch_up")
	}
	switch {
	case n.Run.Recorded || n.Run.Metered != "" || n.Run.MeterAgent != "" || n.Run.MeterKey != "" || n.Run.Keyed || n.Run.Host != "":
		return Schedule{}, fault.New(fault.InvalidPayload, "The server starts the run of a schedule: leave out recorded, host, keyed "+
			"and what begins with meter.").About("run")
	case n.Run.Delegation != "":
		return Schedule{}, fault.New(fault.InvalidPayload, "A schedule outlasts every handoff: leave out delegation.").About("run.delegation")
	case n.Run.Resume != "":
		return Schedule{}, fault.New(fault.InvalidPayload, "The runs of a schedule begin sessions: leave out resume.").About("run.resume")
	case who.Kind == roster.HolderAgent || who.ID == "":
		return Schedule{}, fault.New(fault.Forbidden, "Only operators set schedules.")
	}
	if err := s.runs.Check(ctx, who, n.Run); err != nil {
		return Schedule{}, err
	}
	name, workspace := id.New(prefix), cmp.Or(who.Workspace, roster.DefaultWorkspace)
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var many int64
		if err := tx.QueryRow("SELECT count(*) FROM schedule WHERE workspace = $1", []any{workspace}, &many); err != nil {
			return err
		}
		if many >= maxSchedules {
			return fault.New(fault.Conflict, "The workspace has %d schedules already, which is the most. Remove one.", maxSchedules)
		}
		tx.Append(ledger.Event{Workspace: workspace, Kind: kindSet, Actor: who.Actor(), Subject: name, Body: setBody{
			Cron: n.Cron, Zone: cmp.Or(n.Zone, "UTC"), CatchUp: n.CatchUp, Run: n.Run, Operator: who.ID,
			Next: micro(c.Next(tx.Now())),
		}})
		return nil
	})
	if err != nil {
		return Schedule{}, err
	}
	return s.Get(ctx, name)
}

// micro is a time as entries have it, 0 for none.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Remove ends a schedule. Runs that it has started go on; times that have come and have no run yet get none.
func (s *Schedules) Remove(ctx context.Context, who roster.Identity, name string) error {
	return s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var workspace string
		err := tx.QueryRow("SELECT workspace FROM schedule WHERE id = $1", []any{name}, &workspace)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !wire.InScope(ctx, workspace) {
			return noSchedule(name)
		}
		if err == nil {
			tx.Append(ledger.Event{Workspace: workspace, Kind: kindRemoved, Actor: who.Actor(), Subject: name, Body: empty{}})
		}
		return err
	})
}

func noSchedule(name string) error {
	return fault.New(fault.NotFound, "There is no schedule %.80q. `signalbox runs schedule ls` lists those there are.", name)
}

// columns are those that scan reads, with the entry that set the schedule.
const columns = "SELECT s.id, s.next_at, s.last_at, s.last_run, s.last_reason, " + ledger.EntryColumns +
	" FROM schedule s JOIN " + ledger.EntryTable + " ON e.seq = s.seq"

func scan(read store.Scan) (one Schedule, err error) {
	var next, last int64
	var setting ledger.Row
	if err := read(setting.After(&one.ID, &next, &last, &one.LastRun, &one.LastReason)...); err != nil {
		return one, err
	}
	e, err := setting.Entry()
	if err != nil {
		return one, err
	}
	b, err := ledger.Read[setBody](&e)
	if err != nil {
		return one, err
	}
	one.Workspace, one.SetBy, one.SetAt, one.NextAt, one.LastAt = e.Workspace, e.Actor, e.At, store.Moment(next), store.Moment(last)
	one.Cron, one.Zone, one.CatchUp, one.Run = b.Cron, b.Zone, b.CatchUp, b.Run
	return one, nil
}

// Get reads a schedule. One of a workspace that the caller may not see does not exist for the caller.
func (s *Schedules) Get(ctx context.Context, name string) (Schedule, error) {
	one, err := scan(s.core.DB.Read.QueryRowContext(ctx, columns+" WHERE s.id = $1", name).Scan)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !wire.InScope(ctx, one.Workspace) {
		return Schedule{}, noSchedule(name)
	}
	return one, store.Explain(err)
}

// List lists the schedules that the caller may see, in the order in which they were set.
func (s *Schedules) List(ctx context.Context) (List, error) {
	var where store.Where
	where.Equal("s.workspace", wire.Scope(ctx))
	where.And("s.id <> ''")
	all, err := store.All(s.core.DB.Reading(ctx), scan, columns+" WHERE "+where.String()+" ORDER BY s.id", where.Args()...)
	if all == nil {
		all = []Schedule{}
	}
	return List{all}, store.Explain(err)
}

// setting is how a schedule was set, as its entry says.
func setting(p ledger.Prover, name string) (b *setBody, e ledger.Entry, err error) {
	entries, err := p.Entries(ledger.Query{Subject: name, Kinds: []string{kindSet}, Limit: 1})
	if err == nil && len(entries) == 0 {
		err = noSchedule(name)
	}
	if err != nil {
		return nil, e, err
	}
	b, err = ledger.Read[setBody](&entries[0])
	return b, entries[0], err
}

// due records which times are to start a run, when a timer is due.
func (s *Schedules) due(tx *ledger.Tx, t clock.Timer) error {
	var one int64
	err := tx.QueryRow("SELECT count(*) FROM schedule WHERE id = $1", []any{t.Subject}, &one)
	if err != nil || one == 0 {
		return err
	}
	b, e, err := setting(tx.Prover(), t.Subject)
	if err != nil {
		return err
	}
	c, err := Parse(b.Cron, b.Zone)
	if err != nil {
		return err
	}
	body := passed(c, b.CatchUp, t.Due, tx.Now())
	tx.Append(ledger.Event{Workspace: e.Workspace, Kind: kindDue, Actor: "system", Subject: t.Subject, Body: body})
	return nil
}

// passed are the times from the first that was due until now, and what becomes of them by the catch-up rule.
func passed(c Cron, rule CatchUp, due, now time.Time) dueBody {
	body := dueBody{Times: []int64{}}
	var missed, prompt []int64
	for at := due; ; at = c.Next(at) {
		if at.IsZero() || at.After(now) {
			body.Next = micro(at)
			break
		}
		if now.Sub(at) <= grace {
			prompt = append(prompt, at.UnixMicro())
			continue
		}
		body.Missed++
		if body.Missed > maxMissed { // of years: nobody counts them one by one
			at = now.Add(-grace)
		}
		if missed = append(missed, at.UnixMicro()); len(missed) > maxCaughtUp {
			missed = missed[1:]
		}
	}
	switch {
	case rule == All:
		body.Times = slices.Concat(missed, prompt)
	case rule == Once && len(missed)+len(prompt) > 0:
		body.Times = slices.Concat(missed, prompt)[len(missed)+len(prompt)-1:]
	case len(prompt) > 0:
		body.Times = prompt
	}
	return body
}

// Run opens the runs of times that have come, on one node at a time, until ctx ends.
func (s *Schedules) Run(ctx context.Context) error {
	return s.core.Ledger.Hold(ctx, "schedules", func(ctx context.Context) error {
		for {
			news, pause := s.core.Ledger.News(), retry
			if err := s.startDue(ctx); err != nil && ctx.Err() == nil {
				s.core.Log.Warn("cannot start the runs of schedules; will retry", "error", err.Error())
				news = nil
			}
			if ledger.Pause(ctx, nil, gap) || ledger.Pause(ctx, news, pause) {
				return nil
			}
		}
	})
}

// startDue starts what is due. One that cannot be started now holds up no other.
func (s *Schedules) startDue(ctx context.Context) (failed error) {
	type dueTime struct {
		schedule string
		at       int64
	}
	all, err := store.All(s.core.DB.Reading(ctx), func(read store.Scan) (one dueTime, err error) {
		err = read(&one.schedule, &one.at)
		return one, err
	}, "SELECT schedule, at FROM schedule_due ORDER BY at, schedule LIMIT 200")
	if err != nil {
		return err
	}
	for _, one := range all {
		if err := s.start(ctx, one.schedule, one.at); err != nil && !errors.Is(err, errOver) {
			failed = err
		}
	}
	return failed
}

// errOver says that a time has its run, or will have none.
var errOver = errors.New("the time is over")

// start opens the run of a time. What no second try can change is recorded as the reason why there is none.
func (s *Schedules) start(ctx context.Context, name string, at int64) error {
	b, e, err := setting(s.core.Ledger.Prover(ctx), name)
	if err != nil {
		return err
	}
	over := func(tx *ledger.Tx) error {
		var open int64
		err := tx.QueryRow("SELECT count(*) FROM schedule_due WHERE schedule = $1 AND at = $2", []any{name, at}, &open)
		if err == nil && open == 0 {
			return errOver
		}
		return err
	}
	who, err := s.core.Roster.OperatorByID(ctx, b.Operator)
	if err == nil {
		switch {
		case !who.Role.Allows(roster.Operator):
			err = fault.New(fault.Forbidden, "%s, who has set the schedule, has the role %s, and runs need the role operator.", who.Name, who.Role)
		case who.Workspace != "" && who.Workspace != e.Workspace:
			err = fault.New(fault.Forbidden, "%s, who has set the schedule, is confined to another workspace.", who.Name)
		default:
			who.Workspace = e.Workspace
			n := b.Run
			n.Origin = "schedule:" + name
			n.With = func(tx *ledger.Tx, run string) error {
				if err := over(tx); err != nil {
					return err
				}
				tx.Append(ledger.Event{
					Workspace: e.Workspace, Kind: kindStarted, Actor: "system", Subject: name, Trace: run, Body: startedBody{at, run},
				})
				return nil
			}
			_, err = s.runs.Open(wire.WithScope(ctx, e.Workspace), who, n)
		}
	}
	known := fault.From(err)
	if err == nil || errors.Is(err, errOver) || ctx.Err() != nil || known.Code.Status() >= http.StatusInternalServerError &&
		s.core.Now().Sub(time.UnixMicro(at)) < patience {
		return err
	}
	// The run was not opened, or it was and could not be started: then it has failed, and the time is over.
	return s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		if err := over(tx); err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: e.Workspace, Kind: kindRefused, Actor: "system", Subject: name, Body: refusedBody{at, known.Message},
		})
		return nil
	})
}

// Routes are the calls of schedules.
func (s *Schedules) Routes() []wire.Route {
	return []wire.Route{
		{
			Method: "POST", Path: "/runs/schedules", Summary: "Set a schedule: a run that the server starts again and again",
			Auth: wire.Operator, Request: Request{}, Answer: Schedule{}, Status: http.StatusCreated,
			Handle: wire.Take(http.StatusCreated, maxRequest, func(r *http.Request, in Request) (Schedule, error) {
				return s.Set(r.Context(), roster.From(r.Context()), in)
			}),
		},
		{
			Method: "GET", Path: "/runs/schedules", Summary: "List schedules", Auth: wire.Viewer, Answer: List{},
			Handle: wire.Answer(http.StatusOK, func(r *http.Request) (List, error) { return s.List(r.Context()) }),
		},
		{
			Method: "DELETE", Path: "/runs/schedules/{id}", Summary: "Remove a schedule; what it has started goes on",
			Auth: wire.Operator, Status: http.StatusNoContent, Handle: wire.Do(func(r *http.Request) error {
				return s.Remove(r.Context(), roster.From(r.Context()), r.PathValue("id"))
			}),
		},
	}
}

// maxRequest bounds a schedule as it is sent.
const maxRequest = 2 << 20
