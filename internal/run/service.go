package run

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/behalf"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

// Name is the protocol's name.
const Name = "run"

// Protocol is runs of agent CLIs, for the server's list.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Runs", Migrations: Migrations, Projection: Projection(),
		Counters: Counters(), Readers: Readers(), Said: []string{kindOpened, kindStarted, kindActed, kindCompleted},
	}
}

// Options are what an operator sets, and what runs need from the server. They do not
// change after New.
type Options struct {
	Budget Budget // the most a run may use; 0 is no limit
	// Mode is what the agent of an engine may do, "" for one that is not known, of a run that the server starts.
	Mode func(engine string, asked engine.Mode) engine.Mode
	// Sandboxed reports whether runs of an engine are in a sandbox about which nobody has said anything.
	Sandboxed func(engine string) bool
	// Limits are how long a run of an engine may take that the server starts and that says nothing of it.
	Limits func(engine string) Limits
	Daily  Budget // the most the runs of a workspace may use in a day
	// Folders are where the server may start runs, with all folders below. Empty means that
	// it starts none.
	Folders []string
	// Supervise starts a process that watches the run and outlives this one (RUN-40).
	Supervise func(id string) error
	// Lease is how long a supervisor counts as alive after a sign of life; 30s when zero
	// (RUN-35).
	Lease time.Duration
	// AgentOf is the id of the agent that a run is counted for, "" if there is none.
	AgentOf func(ctx context.Context, r Run) string
	// Vault reports whether the model proxy has a key of a provider for a workspace. nil means that there is no proxy.
	Vault func(ctx context.Context, workspace, provider string) bool
	// KeyOwner is the agent that a provider's key stands for in the model proxy, by its roster.KeySum; nobody if for none.
	KeyOwner func(ctx context.Context, sum string) (roster.Identity, error)
	// Addresses are those under which this server can be reached, for the environment of runs that it starts.
	Addresses []string
	// HooksOf is the agent as which the hooks of a run ask that names an agent, or, with "", of one that the server
	// starts. nil hands on nothing.
	HooksOf func(ctx context.Context, workspace, named string) (roster.Identity, error)
}

// Runs records runs. The server makes one and calls Run beside its listeners. It keeps
// no run in memory, so any node may answer any call.
type Runs struct {
	Options
	core   protocol.Core
	ending *ledger.Waiters // for the order to stop a run, or its end, by its id
	// trouble is why runs are held up whose supervisors have told this node, by their ids.
	trouble sync.Map
}

// New makes the service over a core whose ledger has Projection.
func New(core protocol.Core, o Options) *Runs {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	// Waiters are woken by the entries that a supervisor waits for, on whichever node they
	// were written, and by a gate at which somebody is awaited.
	ending := func(e *ledger.Entry) string {
		if e.Kind == kindStopped || e.Kind == kindCompleted || e.Kind == kindMetered {
			return e.Subject
		}
		return gate.AskedAt(e)
	}
	s := &Runs{Options: o, core: core, ending: core.Ledger.Waiters(ending)}
	core.Gates.PromptOf(func(ctx context.Context, workspace, run string) string {
		if found, err := s.Get(wire.WithScope(ctx, workspace), run); err == nil { // or there is none to name
			return found.Prompt
		}
		return ""
	})
	core.Gates.NamedBy(s.isAgent)
	return s
}

// Timers returns no timers: Run looks for supervisors that went silent.
func (s *Runs) Timers() map[string]clock.Handler { return nil }

// prefix is that of the ids of runs.
const prefix = "run"

// Open opens a run, and starts it unless the caller runs it (Request.Recorded). A run
// that cannot be started is completed as failed, so that no run stays open that nobody
// runs.
func (s *Runs) Open(ctx context.Context, who roster.Identity, n Request) (Run, error) {
	run := id.New(prefix)
	b, workspace, err := s.check(ctx, who, n)
	if err != nil {
		return Run{}, err
	}
	hands, err := s.handing(ctx, who, workspace, n, b.Of)
	if err == nil {
		b.Task, err = s.core.Handoffs.WorkOf(hands.by.Under.ID, "task")
	}
	if err != nil {
		return Run{}, err
	}
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		today, err := s.today(tx, workspace, tx.Now())
		if err != nil {
			return err
		}
		// RUN-32: a used-up day refuses new runs too.
		if reason := spentDay(today, s.Daily); reason != "" {
			return fault.New(fault.Conflict,
				"No run can start: %s. The budget is runs.daily_usd and runs.daily_tokens in the configuration.", reason)
		}
		tx.Append(ledger.Event{Workspace: workspace, Kind: kindOpened, Actor: who.Actor(), Subject: run, Trace: run, Body: b})
		if n.With != nil {
			if err := n.With(tx, run); err != nil {
				return err
			}
		}
		return hands.open(ctx, tx, run)
	})
	s.core.Handoffs.Forget()
	if err != nil {
		return Run{}, err
	}
	// The first sign of life is ours: the supervisor needs a moment to start.
	if err := s.claim(ctx, "run:"+run, run, s.Lease); err != nil {
		return Run{}, err
	}
	if b.Launched {
		if err := s.Supervise(run); err != nil {
			s.failRun(ctx, run, "the run could not be started: "+fault.From(err).Message)
			return Run{}, err
		}
	}
	opened, err := s.Get(ctx, run)
	if err == nil && !b.Launched {
		opened.Handoff = s.core.Handoffs.Give(hands.opened)
	}
	return opened, err
}

// Check refuses a run that Open would refuse now, and opens none.
func (s *Runs) Check(ctx context.Context, who roster.Identity, n Request) error {
	_, _, err := s.check(ctx, who, n)
	return err
}

// check checks a request, and returns it as the body of run.opened.
func (s *Runs) check(ctx context.Context, who roster.Identity, n Request) (b opened, workspace string, err error) {
	workspace = cmp.Or(who.Workspace, roster.DefaultWorkspace)
	if b, err = n.opening(); err != nil {
		return b, workspace, err
	}
	if b.Sandbox, err = s.sandboxed(ctx, n, b); err != nil {
		return b, workspace, err
	}
	if b.Launched {
		if b, err = s.checkLaunch(ctx, b, n.Folders); err != nil {
			return b, workspace, err
		}
	}
	b.Budget = b.Budget.within(s.Budget)
	if err := s.checkLimited(ctx, workspace, n, b); err != nil {
		return b, workspace, err
	}
	if b.Launched && s.Limits != nil {
		b.Limits = b.Limits.or(s.Limits(b.Engine))
	}
	if b, err = s.checkBudget(ctx, workspace, n, b); err != nil {
		return b, workspace, err
	}
	b.Of, err = s.onBehalf(ctx, workspace, n)
	return b, workspace, err
}

// onBehalf is for whom a run is: the user that the operator names who opens it, or the owner of the agent that it is
// counted for.
func (s *Runs) onBehalf(ctx context.Context, workspace string, n Request) (of behalf.Of, err error) {
	if n.User == "" {
		if s.AgentOf != nil {
			of.User, err = s.core.Roster.OwnerOf(ctx, s.AgentOf(ctx, Run{Workspace: workspace, Host: n.Host, Resume: n.Resume}))
		}
		return of, err
	}
	user, err := s.core.Roster.Called(ctx, workspace, n.User)
	if err == nil && user == nil {
		err = fault.New(fault.InvalidPayload,
			"There is no user %.80q in the workspace %s. `signalbox users ls` lists them.", n.User, workspace).About("user")
	}
	if user != nil {
		of.User = user.ID
	}
	return of, err
}

// within is the budget, lowered to the most that the configuration allows. A request
// without a limit gets the configuration's.
func (b Budget) within(most Budget) Budget {
	if most.USD > 0 && (b.USD == 0 || b.USD > most.USD) {
		b.USD = most.USD
	}
	if most.Tokens > 0 && (b.Tokens == 0 || b.Tokens > most.Tokens) {
		b.Tokens = most.Tokens
	}
	return b
}

// today is what the runs of a workspace have used on the day of now, in UTC.
func (s *Runs) today(tx *ledger.Tx, workspace string, now time.Time) (d spent, err error) {
	err = tx.QueryRow("SELECT tokens, nanos FROM run_day WHERE workspace = $1 AND day = $2", []any{workspace, day(now)},
		&d.Tokens, &d.Nanos)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return d, err
}

// findRow reads the row of a run inside a write.
func findRow(tx *ledger.Tx, run string) (r row, err error) {
	err = tx.QueryRow("SELECT workspace, engine, thread, status, stop, cause, events, tokens, nanos, "+
		"max_tokens, max_nanos, meter, calls, called, said_tokens, said_nanos FROM run WHERE id = $1", []any{run},
		&r.workspace, &r.engine, &r.thread, &r.status, &r.stop, &r.cause, &r.events, &r.tokens, &r.nanos, &r.maxTokens, &r.maxNanos,
		&r.meter, &r.calls, &r.called, &r.said.Tokens, &r.said.Nanos)
	if errors.Is(err, sql.ErrNoRows) {
		return r, noRun(run)
	}
	return r, err
}

// findRowInScope is findRow for a caller who may be confined to a workspace: a run of another one is not found.
func findRowInScope(ctx context.Context, tx *ledger.Tx, run string) (row, error) {
	r, err := findRow(tx, run)
	if err == nil && !wire.InScope(ctx, r.workspace) {
		err = noRun(run)
	}
	return r, err
}

// noRun is the error about a run that does not exist, or that the caller may not see.
func noRun(run string) error {
	return fault.New(fault.NotFound, "There is no run %.80q. `signalbox runs ls` lists those there are.", run)
}

// Report records events and returns orders. Events that are recorded already are
// skipped, so a report whose answer was lost can be sent again (RUN-33). A run that has
// ended frees its session.
func (s *Runs) Report(ctx context.Context, who roster.Identity, run string, report Report) (Orders, error) {
	events := make([]read, len(report.Events))
	for i, e := range report.Events {
		var err error
		if events[i], err = readEvent(e); err != nil {
			return Orders{}, err
		}
	}
	var o Orders
	by := s.reporter(ctx, who, run)
	err := s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		r, err := findRowInScope(ctx, tx, run)
		if err != nil {
			return err
		}
		o, err = s.append(tx, by, run, r, report.From, events)
		return err
	})
	if err == nil && o.Ended {
		s.trouble.Delete(run)
		s.core.Handoffs.Forget()
		if err := s.release(ctx, run); err != nil {
			s.core.Log.Warn("cannot release a run's session; its lease will end", "error", err.Error())
		}
	}
	return o, err
}

// reporter is who reports events, and whom they are counted for.
type reporter struct {
	who          roster.Identity
	actor, agent string
	actions      bool // of a supervised run they are counted by its hooks
	supervised   bool
	of           behalf.Of // that of the run
}

// reporter finds out for whom the events of a run are counted.
func (s *Runs) reporter(ctx context.Context, who roster.Identity, run string) reporter {
	by := reporter{who: who, actor: who.Actor()}
	found, err := s.Get(ctx, run)
	by.supervised, by.of = found.Supervised, found.Of
	if err != nil || s.AgentOf == nil {
		return by
	}
	by.agent, by.actions = s.AgentOf(ctx, found), !found.Supervised
	return by
}

// append appends the events that are new, with what each has used, and the order to
// stop if a budget is used up. All of it is one transaction (RUN-32): the order is
// there as soon as the event is.
func (s *Runs) append(tx *ledger.Tx, by reporter, run string, r row, from int64, events []read) (Orders, error) {
	if from < 1 || from > r.events+1 {
		return Orders{}, fault.New(fault.Conflict,
			"The next event of the run has the number %d, and the report begins with %d.", r.events+1, from).With("events",
			r.events).About("from")
	}
	// RUN-33: what is left after this has numbers that are not recorded yet.
	events = events[min(int64(len(events)), r.events+1-from):]
	if r.status != Running && len(events) > 0 {
		return Orders{}, fault.New(fault.Conflict, "The run is completed; nothing is added to it.").With("events", r.events)
	}
	today, err := s.today(tx, r.workspace, tx.Now())
	if err != nil {
		return Orders{}, err
	}
	for _, e := range events {
		if r.status != Running {
			return Orders{}, fault.New(fault.InvalidPayload, "Nothing may follow the completed event.").About("events")
		}
		body := e.body
		body.Of = by.of
		r.events++
		body.N = r.events
		// The session is stored when it becomes known or changes, and not with every event.
		if body.Session == r.thread {
			body.Session = ""
		} else if body.Session != "" {
			r.thread = body.Session
		}
		// What was ended after an order, by a supervisor that does not say why, was ended by the order.
		if body.Status == Failed && r.cause != "" {
			body.Cause, body.Status = r.cause, outcome(false, r.cause)
		}
		if body.Status != "" {
			r.status = body.Status
		}
		if err := s.count(tx, run, &r, &body); err != nil {
			return Orders{}, err
		}
		today.Tokens += body.Spent.Tokens
		today.Nanos += body.Spent.Nanos
		if acts := e.acts && by.actions; by.agent != "" && (acts || !body.Spent.isZero() || body.Status != "") {
			body.Counts = &counted{Agent: by.agent, Session: r.thread}
			if acts {
				body.Counts.Actions = 1
			}
		}
		tx.Append(ledger.Event{Workspace: r.workspace, Kind: e.kind, Actor: by.actor, Subject: run, Trace: run, Body: body})
		if e.unasked != "" && by.supervised {
			if err := raiseUnasked(tx, by, run, &r, e.unasked); err != nil {
				return Orders{}, err
			}
		}
	}
	if r.status != Running && len(events) > 0 {
		if err := s.core.Gates.Withdraw(tx, r.workspace, run); err != nil {
			return Orders{}, err
		}
		if err := handoff.EndWorkIn(tx, by.who, r.workspace, run, "the run is "+string(r.status)); err != nil {
			return Orders{}, err
		}
	}
	s.stopAtBudget(tx, run, &r, today, by.of)
	return Orders{Events: r.events, Stop: r.stop, Cause: r.cause, Ended: r.status != Running}, nil
}

// stopAtBudget orders a run to stop that has used up its budget, or that of the day.
func (s *Runs) stopAtBudget(tx *ledger.Tx, run string, r *row, today spent, of behalf.Of) {
	if reason := r.overBudget(today, s.Daily); reason != "" && r.stop == "" && r.status == Running {
		r.stop, r.cause = reason, engine.ByBudget
		tx.Append(ledger.Event{
			Workspace: r.workspace, Kind: kindStopped, Actor: "system", Subject: run, Trace: run,
			Body: stopped{of, reason, r.cause},
		})
	}
}

// raiseUnasked tells people of a supervised run whose agent went past its hooks.
func raiseUnasked(tx *ledger.Tx, by reporter, run string, r *row, why string) error {
	return alarm.Raise(tx, alarm.Alarm{
		Workspace: r.workspace, Kind: "run_unasked", Agent: by.agent,
		Title: "A supervised run did something that nobody was asked about, and was stopped.",
		Detail: fmt.Sprintf("Run %s of %s, session %s: %s. Look at what it did, and whether its CLI still asks its hooks.",
			run, r.engine, r.thread, why),
	})
}

// Cancel orders a run to stop. The supervisor hears it with its next report or pulse,
// ends the CLI and reports the end; until then the run is still running.
func (s *Runs) Cancel(ctx context.Context, who roster.Identity, run, reason string) (Run, error) {
	if len(reason) > maxReason {
		return Run{}, fault.New(fault.InvalidPayload, "reason should have at most %d bytes.", maxReason).About("reason")
	}
	if reason == "" {
		reason = "cancelled by " + who.Name
	}
	found, err := s.Get(ctx, run)
	if err != nil {
		return Run{}, err
	}
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		r, err := findRowInScope(ctx, tx, run)
		if err != nil {
			return err
		}
		if r.status != Running {
			return fault.New(fault.Conflict, "The run is over already: it is %s.", r.status)
		}
		tx.Append(ledger.Event{
			Workspace: r.workspace, Kind: kindStopped, Actor: who.Actor(), Subject: run, Trace: run,
			Body: stopped{found.Of, reason, engine.ByPerson},
		})
		return nil
	})
	if err != nil {
		return Run{}, err
	}
	return s.Get(ctx, run)
}
