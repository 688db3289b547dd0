package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Options say what is audited, and how fast.
type Options struct {
	DB          *store.DB
	Ledger      *ledger.Ledger
	Sets        []store.Migrations
	Projections []ledger.Projection
	// Power are the names of projections whose tables grant power, in groups: the fast round compares one group after
	// the other, so that the first does not wait for what is long.
	Power [][]string
	// Shared are tables of theirs that the entries of other projections change too. The whole round compares them.
	Shared    []string
	Followers []Follower
	Folder    string // where tables are built; it is the audit's own, and is emptied
	Data      string // the data folder, with the checkpoint file
	// Share is how much of a processor the audit takes, 0.02 for 2 %. Fast is within what time the fast round is
	// through, and Whole the least time from one beginning of the whole round to the next.
	Share       float64
	Fast, Whole time.Duration
	// Tell tells people of an alarm that cannot be recorded, without the ledger; nil tells nobody.
	Tell func(ctx context.Context, one alarm.Alarm)
	Now  func() time.Time
	Log  *slog.Logger
}

// Follower is a table that follows the ledger beside the writes: rows are made of entries, some time later.
type Follower struct {
	Table ledger.Table
	// Seq is the column with the number of the entry that made the row. Cursor is a query for the number up to which
	// there are all rows.
	Seq    string
	Cursor string
	Apply  ledger.Apply
}

// Audit is the audit of one server. New makes it, Run works until its context ends. It is safe for concurrent use.
type Audit struct {
	Options
	pace  *pace
	began time.Time

	mu       sync.Mutex // guards what follows
	findings map[place]*found
	told     map[string]bool // kinds and places that an entry was appended for
	count    map[Kind]int64  // findings since the start, by kind
	status   Status
	seen     int64  // the last entry that this process has seen
	should   string // what the schema should be, "" if nobody knows yet
}

// Status is how far the audit is.
type Status struct {
	// At and Of say how far the whole round is, in entries; Doing is what it does now.
	At    int64  `json:"at"`
	Of    int64  `json:"of"`
	Doing string `json:"doing" example:"entries"`
	// Last is the last whole round that came to its end, nil if none has; Fast the last fast one.
	Last *Pass `json:"last"`
	Fast *Pass `json:"fast"`
	// Problem is why a part cannot be audited, such as a full disk.
	Problem    string    `json:"problem,omitempty"`
	Processor  float64   `json:"processor_seconds"` // what both rounds have taken since the start
	Share      float64   `json:"share"`             // what they may take of one processor
	Findings   []Finding `json:"findings"`
	FoundTotal int64     `json:"found_total"` // since the start
}

// Pass is a round that has ended.
type Pass struct {
	At      time.Time `json:"at"`
	Entries int64     `json:"entries"`
	Tables  int       `json:"tables"`
	Rows    int64     `json:"rows"`
	Seconds float64   `json:"seconds"`
	// Processor is what it took of a processor, in seconds.
	Processor float64 `json:"processor_seconds"`
	Findings  int     `json:"findings"`
}

// What the whole round does.
const (
	doingRest     = "resting"
	doingEntries  = "entries"
	doingTables   = "tables"
	doingIndexes  = "indexes"
	waitsForOther = "another node does it"
)

// New makes an audit. Nothing is looked at before Run.
func New(o Options) *Audit {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	beside := besideSQLite
	if o.DB.Name() != "sqlite" {
		beside = besidePostgres
	}
	return &Audit{
		Options: o, began: o.Now(), pace: &pace{share: o.Share, beside: beside, at: time.Now()}, findings: map[place]*found{},
		told: map[string]bool{}, count: map[Kind]int64{}, status: Status{Doing: doingRest, Share: o.Share},
	}
}

// round is one round under way. It belongs to one goroutine.
type round struct {
	a      *Audit
	w      *worker
	number int64
	// These outlive the round.
	erased *erasures
	heard  int64 // the entry after the last that another node's finding was looked for in
	file   bool  // the checkpoint file was there
	out    Pass
}

// Run audits until ctx ends.
func (a *Audit) Run(ctx context.Context) error {
	if err := os.RemoveAll(a.Folder); err != nil {
		a.problem(err)
	}
	var g errgroup.Group
	g.Go(func() error { a.fastLoop(ctx); return nil })
	g.Go(func() error {
		if a.DB.Name() == "sqlite" { // there is no other node
			return a.wholeLoop(ctx)
		}
		a.doing(waitsForOther, 0, 0)
		return a.Ledger.Hold(ctx, "audit", a.wholeLoop)
	})
	return errors.Join(g.Wait(), os.RemoveAll(a.Folder))
}

// fastLoop makes the fast round again and again. It begins the next after three quarters of the time in which one has
// to be through, so that what is changed just after it was looked at is found within that time.
func (a *Audit) fastLoop(ctx context.Context) {
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
	r := &round{a: a, w: a.pace.worker(true), erased: &erasures{}}
	var copies []*built
	defer func() { drop(copies) }()
	for every := a.Fast * 3 / 4; !ledger.Pause(ctx, nil, every/4); {
		began := time.Now()
		a.pace.first.Store(true)
		err := r.begin(ctx)
		if err == nil {
			err = r.fast(ctx, &copies)
		}
		a.pace.first.Store(false)
		a.ended(r, began, err)
		if ledger.Pause(ctx, nil, every*3/4-time.Since(began)) {
			return
		}
	}
}

// wholeLoop makes the whole round again and again, while this node holds the lease.
func (a *Audit) wholeLoop(ctx context.Context) error {
	runtime.LockOSThread()
	if last, err := a.recorded(ctx); err == nil {
		a.mu.Lock()
		a.status.Last = last
		a.mu.Unlock()
	}
	r := &round{a: a, w: a.pace.worker(false), erased: &erasures{}}
	defer a.doing(waitsForOther, 0, 0)
	for pause := a.Fast / 2; !ledger.Pause(ctx, nil, pause); {
		began := time.Now()
		err := r.begin(ctx)
		if err == nil {
			err = r.whole(ctx)
		}
		a.ended(r, began, err)
		a.doing(doingRest, 0, 0)
		pause = max(a.Whole-time.Since(began), a.Fast/2)
	}
	return nil
}

// begin begins a round.
func (r *round) begin(ctx context.Context) error {
	r.number++
	r.out, r.w.used = Pass{}, 0
	return r.w.rest(ctx)
}

// ended notes the end of a round. What could not be looked at is a problem and no finding.
func (a *Audit) ended(r *round, began time.Time, err error) {
	if err != nil {
		if store.IsDamaged(err) {
			r.report(context.Background(), Pages, "", "%s.", err)
		}
		if !errors.Is(err, context.Canceled) {
			a.problem(err)
		}
		return
	}
	r.forget()
	r.out.At, r.out.Seconds = a.Now().UTC(), time.Since(began).Seconds()
	r.out.Processor = r.w.used.Seconds()
	out := r.out
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := range a.findings {
		if at.fast == r.w.fast {
			out.Findings++
		}
	}
	if r.w.fast {
		a.status.Fast = &out
		return
	}
	a.status.Last, a.status.Problem = &out, ""
}

// problem notes why something cannot be audited.
func (a *Audit) problem(err error) {
	a.Log.Warn("cannot audit; will try again", "error", err.Error())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Problem = err.Error()
	if known, ok := errors.AsType[*fault.Error](store.Explain(err)); ok {
		a.status.Problem = known.Message
	}
}

// doing notes how far the whole round is.
func (a *Audit) doing(what string, at, of int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Doing, a.status.At, a.status.Of = what, at, of
}

// Status is how far the audit is, and what it has found.
func (a *Audit) Status() Status {
	all := a.Findings()
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.status
	s.Findings, s.Processor = all, a.pace.used().Seconds()
	for _, n := range a.count {
		s.FoundTotal += n
	}
	return s
}

// Total counts what was found of a kind since the start.
func (a *Audit) Total(k Kind) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[k]
}

// kindPassed records that a whole round has ended.
const kindPassed = "audit.passed"

// passedEvery is the least time between two such entries.
const passedEvery = time.Hour

// recorded is the whole round that was recorded last, on any node, nil if none was.
func (a *Audit) recorded(ctx context.Context) (*Pass, error) {
	last, err := a.Ledger.Entries(ctx, ledger.Query{Kinds: []string{kindPassed}, Newest: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return nil, err
	}
	p := &Pass{}
	_ = last[0].Decode(p) // an erased body leaves the time
	p.At = last[0].At
	return p, nil
}

// record records that a whole round has ended, unless one was recorded within the hour.
func (r *round) record(ctx context.Context) error {
	last, err := r.a.recorded(ctx)
	if err != nil || last != nil && r.a.Now().Sub(last.At) < passedEvery || r.a.Ledger.Mismatch() != nil {
		return err
	}
	return r.a.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Kind: kindPassed, Actor: "system", Body: r.out})
		return nil
	})
}

// path is the file in which tables of a name are built.
func (a *Audit) path(name string) string {
	return filepath.Join(a.Folder, name, fmt.Sprintf("%s.db", name))
}
