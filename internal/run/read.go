package run

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/run/engine"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// selectRun reads runs together with the entries that opened them, which hold the
// prompt and the rest.
const selectRun = `SELECT run.id, run.workspace, run.engine, run.thread, run.status, run.stop, run.cause, ` +
	`run.opened_at, run.ended_at, run.silent_at, run.events, run.tokens, run.nanos, run.calls, run.said_tokens, run.said_nanos, ` +
	ledger.EntryColumns + " FROM run JOIN " + ledger.EntryTable + " ON e.seq = run.seq"

// scanRun reads one row of selectRun.
func scanRun(read store.Scan) (Run, error) {
	var r Run
	var openedAt, endedAt, silentAt, nanos int64
	var claims said
	var opening ledger.Row
	err := read(opening.After(&r.ID, &r.Workspace, &r.Engine, &r.Resume, &r.Status, &r.Stop, &r.Cause, &openedAt, &endedAt, &silentAt,
		&r.Events, &r.Tokens, &nanos, &r.Calls, &claims.Tokens, &claims.Nanos)...)
	if err != nil {
		return r, err
	}
	r.OpenedAt, r.EndedAt, r.CostUSD = time.UnixMicro(openedAt).UTC(), store.Moment(endedAt), dollars(nanos)
	r.SilentAt = store.Moment(silentAt)
	entry, err := opening.Entry()
	if err != nil {
		return r, err
	}
	var b opened
	if err := entry.Decode(&b); err != nil {
		return r, err
	}
	r.Prompt, r.Dir, r.Model, r.Budget, r.Of = b.Prompt, b.Dir, b.Model, b.Budget, b.Of
	r.Supervised, r.Launched, r.Host, r.OpenedBy, r.Origin = b.Supervised, b.Launched, b.Host, entry.Actor, b.Origin
	r.Metered, r.MeterAgent, r.Limits, r.Mode, r.Named, r.Task = b.Metered, b.MeterAgent, b.Limits, b.Mode, b.Named, b.Task
	r.Sandbox, r.Hosts, r.Worktree = b.Sandbox, b.Hosts, b.Worktree
	if claims != (said{}) {
		r.Said = &Budget{Tokens: claims.Tokens, USD: dollars(claims.Nanos)}
	}
	if e, err := engine.Find(r.Engine); err == nil && r.Resume != "" {
		r.Line, _ = e.FormatResume(engine.Resume{Engine: r.Engine, Value: r.Resume})
	}
	return r, nil
}

// Get reads one run. A run in a workspace that the caller may not see does not exist
// for the caller.
func (s *Runs) Get(ctx context.Context, id string) (Run, error) {
	r, err := scanRun(s.core.DB.Read.QueryRowContext(ctx, selectRun+" WHERE run.id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !wire.InScope(ctx, r.Workspace) {
		return Run{}, noRun(id)
	}
	if why, held := s.trouble.Load(id); held && r.Status == Running {
		r.Trouble, _ = why.(string)
	}
	return r, store.Explain(err)
}

// Latest is the newest run of a session, among those that the caller may see.
func (s *Runs) Latest(ctx context.Context, r engine.Resume) (Run, error) {
	found, err := scanRun(s.core.DB.Read.QueryRowContext(ctx,
		selectRun+` WHERE run.engine = $1 AND run.thread = $2 AND ($3 = '' OR run.workspace = $3)
ORDER BY run.id DESC LIMIT 1`, r.Engine, r.Value, wire.Scope(ctx)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Run{}, noRun(r.Thread())
	}
	return found, store.Explain(err)
}

// Filter selects runs; zero fields select everything. User is on whose behalf they are, as behalf.Query has it.
type Filter struct {
	Status, User string
	Claimed      bool
}

// List reads a page of runs, newest first, those that the filter selects. before
// is the id of the last run of the page before, "" for the first page. Ids sort by
// time.
func (s *Runs) List(ctx context.Context, f Filter, before string, limit int) (Page, error) {
	if f.Status != "" && !slices.Contains(statuses, Status(f.Status)) {
		return Page{}, fault.New(fault.InvalidRequest, "status should be running, completed, failed, cancelled or stopped, and "+
			"is %.40q.", f.Status).About("status")
	}
	var where store.Where
	where.Equal("run.status", f.Status)
	where.Equal("run.workspace", wire.Scope(ctx))
	if before != "" {
		where.And("run.id < %s", before)
	}
	var keys []string
	if f.User != "" {
		var err error
		if keys, err = s.core.Behalf.Keys(ctx, wire.Scope(ctx), f.User, f.Claimed); err != nil {
			return Page{}, err
		}
		behalf.Among(&where, "run.seq", keys)
	}
	where.And("run.id <> ''")
	runs, err := store.All(s.core.DB.Reading(ctx), scanRun,
		selectRun+" WHERE "+where.String()+" ORDER BY run.id DESC LIMIT "+where.Mark(limit+1), where.Args()...)
	if err != nil {
		return Page{}, store.Explain(err)
	}
	page := Page{Runs: runs[:min(len(runs), limit)]}
	if len(runs) > limit {
		page.Next = wire.Cursor(runs[limit-1].ID)
	}
	page.Runs = slices.DeleteFunc(page.Runs, func(r Run) bool { return !r.Among(keys) }) // as their entries say
	return page, nil
}

// pageOfEvents is how many events are read at once; one may have megabytes.
const pageOfEvents = 200

// Events reads recorded events with numbers above after, at most a page of them.
func (s *Runs) Events(ctx context.Context, run string, after int64) ([]Numbered, error) {
	entries, err := s.core.Ledger.Select(ctx,
		"JOIN run_event v ON v.seq = e.seq WHERE v.run = $1 AND v.n > $2 ORDER BY v.n LIMIT $3", run, after, pageOfEvents)
	if err != nil {
		return nil, store.Explain(err)
	}
	var all []Numbered
	for i := range entries {
		e, err := numbered(&entries[i])
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// numbered is the event of an entry, as readers get it.
func numbered(entry *ledger.Entry) (Numbered, error) {
	var b reported
	err := entry.Decode(&b)
	return Numbered{N: b.N, Seq: entry.Seq, At: entry.At, Event: b.Event, Usage: b.Usage}, err
}

// Follow hands the events above after to fn, in order, and goes on as they come, until
// the last one, an error of fn, or the end of ctx. No event is missed or handed over
// twice: the ledger's head is read first, then the table, then the entries after that
// head, and numbers that were seen are skipped.
func (s *Runs) Follow(ctx context.Context, run string, after int64, fn func([]Numbered) error) error {
	seen, err := s.core.Ledger.Head(ctx)
	if err != nil {
		return err
	}
	r, err := s.Get(ctx, run)
	if err != nil {
		return err
	}
	send := func(events []Numbered) error {
		if len(events) == 0 {
			return nil
		}
		after = events[len(events)-1].N
		return fn(events)
	}
	for full := true; full; {
		events, err := s.Events(ctx, run, after)
		if err == nil {
			err = send(events)
		}
		if err != nil {
			return err
		}
		full = len(events) == pageOfEvents
	}
	if r.Status != Running {
		return nil
	}
	for entries := range s.core.Ledger.FollowPages(ctx, seen) {
		var events []Numbered
		over := false
		for i := range entries {
			if entries[i].Subject != run || !slices.Contains(kindsOfEvents, entries[i].Kind) {
				continue // most of what happens is about other runs
			}
			e, err := numbered(&entries[i])
			if err != nil {
				return err
			}
			if e.N > after { // or it was among those that were read
				events = append(events, e)
			}
			over = over || entries[i].Kind == kindCompleted
		}
		if err := send(events); err != nil || over {
			return err
		}
	}
	return nil
}

// kindsOfEvents are the kinds of entries that hold an event.
var kindsOfEvents = []string{kindStarted, kindActed, kindCompleted}
