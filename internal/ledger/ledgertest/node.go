// Package ledgertest runs a ledger on a database of its own, for the tests of what stands on
// it, with a clock that tests can move. It also reaches into the ledger's tables, which
// nothing else names. It knows no package that stands on the ledger but those that its
// caller names.
package ledgertest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

// Clock is the time with an offset. Nodes may share one.
type Clock struct{ offset atomic.Int64 }

// Now is the time.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// Move moves the clock, also back.
func (c *Clock) Move(d time.Duration) { c.offset.Add(int64(d)) }

// Set makes the clock differ from the time by so much.
func (c *Clock) Set(d time.Duration) { c.offset.Store(int64(d)) }

// Part is a package that stands on the ledger: its tables, if it has some, and what entries
// do to tables.
type Part struct {
	Migrations store.Migrations
	Projection ledger.Projection
}

// Node is a process with a ledger.
type Node struct {
	*Clock
	T      testing.TB
	DB     *store.DB
	Ledger *ledger.Ledger
	Stop   func() // ends what runs, the ledger last; it is called at the end of the test too

	parts []Part
}

// Open opens a ledger with these parts on the database. Nothing runs before Run. change may
// change how the ledger is opened.
func Open(t testing.TB, address string, clock *Clock, parts []Part, change ...func(*ledger.Options)) *Node {
	t.Helper()
	if clock == nil {
		clock = &Clock{}
	}
	n := &Node{T: t, Clock: clock, parts: parts}
	n.DB = storetest.Open(t, address, n.sets()...)
	o := ledger.Options{DB: n.DB, Origin: "test.example/ledger", Now: clock.Now, Projections: n.projections()}
	for _, fn := range change {
		fn(&o)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	var err error
	n.Ledger, err = ledger.Open(context.Background(), o)
	n.Must(err)
	return n
}

func (n *Node) sets() []store.Migrations {
	sets := []store.Migrations{ledger.Migrations}
	for _, p := range n.parts {
		if p.Migrations.Package != "" {
			sets = append(sets, p.Migrations)
		}
	}
	return sets
}

func (n *Node) projections() []ledger.Projection {
	var all []ledger.Projection
	for _, p := range n.parts {
		all = append(all, p.Projection)
	}
	return all
}

// Run runs the ledger and what stands on it until Stop. The second call adds to what the
// first one runs.
func (n *Node) Run(all ...func(context.Context) error) {
	if n.Stop == nil {
		n.Stop = n.start(n.Ledger.Run)
		n.T.Cleanup(func() { n.Stop() })
	}
	before := n.Stop
	after := n.start(all...)
	n.Stop = sync.OnceFunc(func() { after(); before() })
}

// start runs functions, and returns what ends them.
func (n *Node) start(all ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range all {
		running.Go(func() {
			if err := run(ctx); err != nil {
				n.T.Error(err)
			}
		})
	}
	return sync.OnceFunc(func() { cancel(); running.Wait() })
}

// Must ends the test when there is an error.
func (n *Node) Must(err error) {
	n.T.Helper()
	if err != nil {
		n.T.Fatal(err)
	}
}

// Append writes entries, in one transaction.
func (n *Node) Append(events ...ledger.Event) {
	n.T.Helper()
	n.Must(n.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
		for _, e := range events {
			tx.Append(e)
		}
		return nil
	}))
}

// Entries are the entries of some kinds, or all.
func (n *Node) Entries(kinds ...string) []ledger.Entry {
	n.T.Helper()
	all, err := n.Ledger.Entries(context.Background(), ledger.Query{Kinds: kinds, Limit: 100_000})
	n.Must(err)
	return all
}

// Head is the number of the last entry.
func (n *Node) Head() int64 {
	n.T.Helper()
	seq, err := n.Ledger.Head(context.Background())
	n.Must(err)
	return seq
}

// Count is the number that a query finds.
func (n *Node) Count(query string, args ...any) (found int) {
	n.T.Helper()
	n.Must(n.DB.Read.QueryRowContext(context.Background(), query, args...).Scan(&found))
	return found
}

// WantClean wants the tables to be what the ledger makes of them, and those that are named to have rows: two empty
// tables are alike, too.
func (n *Node) WantClean(filled ...string) {
	n.T.Helper()
	for _, table := range filled {
		if n.Count("SELECT count(*) FROM "+table) == 0 {
			n.T.Errorf("%s has no rows", table)
		}
	}
	got, err := ledger.CheckRebuild(context.Background(), n.DB, n.sets(), n.projections(), nil)
	n.Must(err)
	for _, d := range got.Differences {
		n.T.Errorf("%s\n live    %s\n rebuilt %s", d.Table, d.Live, d.Built)
	}
}

// Dir keeps the ledger's files in a folder, for nodes that share one.
func Dir(dir string) func(*ledger.Options) { return func(o *ledger.Options) { o.Dir = dir } }
