package run

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/run/engine"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Beat takes a sign of life of a supervisor and returns orders. It holds the session
// for the run if it is free (RUN-36). It waits, while ctx lasts, for an order to stop
// or for the end of the run. A supervisor that does not have its session yet is
// answered at once, and asks again: nothing wakes it when another run lets go.
func (s *Runs) Beat(ctx context.Context, run string, p Pulse) (Orders, error) {
	if p.Thread != "" && !strings.Contains(p.Thread, ":") {
		return Orders{}, fault.New(fault.InvalidPayload,
			"thread should be an engine and the id of a session, such as amp:T-1.").About("thread")
	}
	alive := context.WithoutCancel(ctx) // it is only the waiting that ends with ctx
	r, err := s.Get(alive, run)
	if err != nil {
		return Orders{}, err
	}
	if p.Trouble != nil { // before anything that may fail for the same reason
		s.noteTrouble(r, *p.Trouble)
	}
	o := Orders{Held: p.Thread == ""}
	if r.Status == Running {
		if p.Supervisor != "" {
			err := s.claim(alive, supervisorOf+run, p.Supervisor, forGood)
			if errors.Is(err, errTaken) {
				err = fault.New(fault.Conflict, "Another process watches the run %s.", run)
			}
			if err != nil {
				return Orders{}, err
			}
		}
		if err := s.claim(alive, "run:"+run, run, s.Lease); err != nil {
			return Orders{}, err
		}
		if p.Thread != "" {
			err := s.claim(alive, "thread:"+p.Thread, run, s.Lease)
			if err != nil && !errors.Is(err, errTaken) {
				return Orders{}, err
			}
			o.Held = err == nil
		}
	}
	err = s.ending.Await(ctx, run, func(ctx context.Context) (bool, error) {
		var awaited []Awaited
		var err error
		if p.Awaited { // before the run: gates that end with it are gone then, and nobody has decided them
			if awaited, err = s.awaited(ctx, r); err != nil {
				return false, err
			}
		}
		r, err := s.Get(ctx, run)
		o.Events, o.Stop, o.Cause, o.Ended, o.Calls = r.Events, r.Stop, r.Cause, r.Status != Running, r.Calls
		if err == nil && !o.Ended {
			o.Awaited = awaited
		}
		news := p.Awaited && others(o.Awaited, p.Known)
		return news || !o.Held || o.Stop != "" || o.Ended || p.Calls > 0 && r.Calls >= p.Calls, err
	})
	if err == nil && p.Handoff && !o.Ended {
		o.Handoff, err = s.handed(alive, r)
	}
	if err != nil {
		return Orders{}, err
	}
	return o, nil
}

// noteTrouble keeps in memory, where a full disk does not matter, why a run is held up, and tells the operator.
func (s *Runs) noteTrouble(r Run, why string) {
	if why == r.Trouble || r.Status != Running {
		return
	}
	if why = why[:min(len(why), maxReason)]; why == "" {
		s.trouble.Delete(r.ID)
		s.core.Log.Info("a run is recorded again", "run", r.ID)
		return
	}
	s.trouble.Store(r.ID, strings.ToValidUTF8(why, ""))
	s.core.Log.Warn("a run is held up, since nothing of it can be recorded", "run", r.ID, "reason", why)
}

// decidedWait is how long it takes at the most until a supervisor hears that a person has decided.
const decidedWait = 2 * time.Second

// maxWait is the longest that a call for orders may wait.
const maxWait = time.Minute

// Wait is Beat with a time limit. The wait is always shorter than the lease, so a
// supervisor that asks again right away counts as alive throughout.
func (s *Runs) Wait(ctx context.Context, run string, p Pulse, most time.Duration) (Orders, error) {
	if len(p.Known) > 0 {
		most = min(most, decidedWait) // nothing wakes it when a gate is decided
	}
	waiting, cancel := wire.Waiting(ctx, min(most, maxWait, s.Lease/3))
	defer cancel()
	return s.Beat(waiting, run, p)
}

// errTaken says that another run holds the name.
var errTaken = errors.New("another run holds it")

// supervisorOf begins the name that the process holds that watches a run, for good: a run has one.
const (
	supervisorOf = "supervisor:"
	forGood      = 100 * 365 * 24 * time.Hour
)

// claim holds a name, "run:ID" or "thread:ENGINE:SESSION", for the run until the lease
// ends, or renews the hold. A name whose holder went silent for a lease is free. The
// statement decides in one step, so two nodes cannot both win.
func (s *Runs) claim(ctx context.Context, name, run string, lease time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	now, holder := s.core.Now(), ""
	err := s.core.DB.Bookkeep(ctx, "ledger_tree", func(tx *store.Tx) error {
		return tx.QueryRow(`INSERT INTO run_pulse (name, run, until) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET run = excluded.run, until = excluded.until
WHERE run_pulse.run = excluded.run OR run_pulse.until < $4 RETURNING run`,
			[]any{name, run, now.Add(lease).UnixMicro(), now.UnixMicro()}, &holder)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return errTaken
	}
	return err
}

// release frees everything that the run holds. If it fails, the lease frees it.
func (s *Runs) release(ctx context.Context, run string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.core.DB.Bookkeep(ctx, "ledger_tree", func(tx *store.Tx) error {
		tx.Exec("DELETE FROM run_pulse WHERE run = $1 OR name = $2", run, supervisorOf+run)
		return nil
	})
}

// Run completes runs whose supervisor went silent, and counts what the proxy carries for runs, on one node at a time,
// until ctx ends.
func (s *Runs) Run(ctx context.Context) error {
	var all errgroup.Group
	all.Go(func() error { return s.core.Ledger.Consume(ctx, "runs.metered", isCalled, s.meterCalls) })
	all.Go(func() error { return s.completeSilent(ctx) })
	return all.Wait()
}

// completeSilent completes runs whose supervisor went silent.
func (s *Runs) completeSilent(ctx context.Context) error {
	return s.core.Ledger.Hold(ctx, "runs", func(ctx context.Context) error {
		again := map[string]bool{} // the runs for which another supervisor was started
		// RUN-35: after a start, supervisors get two leases to come back. They could not reach
		// a server that was down, and are not to blame for it.
		for wait := 2 * s.Lease; ; wait = s.Lease / 3 {
			if ledger.Pause(ctx, nil, wait) {
				return nil
			}
			if err := s.completeLost(ctx, again); err != nil && ctx.Err() == nil {
				s.core.Log.Warn("cannot look for runs that went silent", "error", err.Error())
			}
		}
	})
}

// completeLost completes the runs whose supervisor went silent. One that no supervisor has taken, since the server or the
// supervisor was killed at that moment, is started after all, once (RUN-58).
func (s *Runs) completeLost(ctx context.Context, again map[string]bool) error {
	lost, err := s.unwatched(ctx)
	if err != nil {
		return err
	}
	for _, id := range lost {
		if !again[id] {
			again[id] = true
			if started, err := s.startAgain(ctx, id); err != nil || started {
				if err != nil {
					s.core.Log.Warn("cannot start a run that nobody watches; will retry", "run", id, "error", err.Error())
				}
				continue
			}
		}
		s.failRun(ctx, id, "the supervisor of the run is gone, and the agent with it")
	}
	return nil
}

// startAgain starts the supervisor of a run that has none and never had one. Of two that come, one has the run.
func (s *Runs) startAgain(ctx context.Context, id string) (started bool, err error) {
	r, err := s.Get(ctx, id)
	if err != nil || !r.Launched || r.Events > 0 {
		return false, err
	}
	var taken int64
	err = s.core.DB.QueryRow(ctx, "SELECT count(*) FROM run_pulse WHERE name = $1", []any{supervisorOf + id}, &taken)
	if err != nil || taken > 0 {
		return false, err
	}
	if err := s.claim(ctx, "run:"+id, id, s.Lease); err != nil {
		return false, err
	}
	return true, s.Supervise(id)
}

// unwatched are the ids of running runs whose hold has ended. A supervisor has a lease for its first sign of life too.
func (s *Runs) unwatched(ctx context.Context) (ids []string, err error) {
	now := s.core.Now()
	return store.All(s.core.DB.Reading(ctx), store.Text,
		`SELECT run.id FROM run LEFT JOIN run_pulse ON run_pulse.name = 'run:' || run.id
WHERE run.status = 'running' AND ((run_pulse.until IS NULL AND run.opened_at < $1) OR run_pulse.until < $2)`,
		now.Add(-s.Lease).UnixMicro(), now.UnixMicro())
}

// failRun completes a run as failed in the supervisor's place (RUN-1). A supervisor that
// comes back later hears that the run has ended, and stops its CLI.
func (s *Runs) failRun(ctx context.Context, run, reason string) {
	found, err := s.Get(context.WithoutCancel(ctx), run)
	if err != nil {
		s.core.Log.Warn("cannot complete a run", "run", run, "error", err.Error())
		return
	}
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		r, err := findRow(tx, run)
		if err != nil || r.status != Running {
			return err
		}
		no := false
		event := engine.Event{Type: engine.Completed, Engine: r.engine, OK: &no, Error: reason, Cause: r.cause}
		if r.thread != "" {
			event.Resume = &engine.Resume{Engine: r.engine, Value: r.thread}
		}
		text, err := wire.EncodeData(event)
		if err != nil {
			return err
		}
		_, err = s.append(tx, reporter{actor: "system", of: found.Of}, run, r, r.events+1,
			[]read{{
				kind: kindCompleted,
				body: reported{Event: wire.Raw(text), Status: Failed, Usage: engine.Usage{Source: r.engine}},
			}})
		return err
	})
	if err == nil {
		s.core.Handoffs.Forget()
		err = s.release(ctx, run)
	}
	if err != nil && ctx.Err() == nil {
		s.core.Log.Warn("cannot complete a run", "run", run, "error", err.Error())
	}
}
