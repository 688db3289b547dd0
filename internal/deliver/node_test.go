package deliver_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// clock is a time that a test moves.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

func (c *clock) move(d time.Duration) { c.offset.Add(int64(d)) }

var (
	migrations = []store.Migrations{ledger.Migrations, deliver.Migrations}
	masterKey  = bytes.Repeat([]byte("k"), 32)
)

func projections() []ledger.Projection { return []ledger.Projection{deliver.Projection()} }

// node is a server with a ledger and an outbox, of which several may share a database.
type node struct {
	*deliver.Outbox
	clock  *clock
	ledger *ledger.Ledger
	db     *store.DB
	stop   func() // the runner ends first, then the ledger
	kill   func() // the database is gone, whatever is under way
}

// quick are options with which a test does not have to wait. A try has all the time that
// a busy machine takes for it.
func quick(o *deliver.Options) {
	o.Timeout, o.Poll, o.Grace = 20*time.Second, 10*time.Millisecond, 50*time.Millisecond
	o.Pauses = []time.Duration{20 * time.Millisecond, 50 * time.Millisecond}
	o.Allow = []string{"127.0.0.0/8"}
}

// mortal is for tests that kill runners, and wait until others take their lanes over.
func mortal(o *deliver.Options) { o.Timeout, o.Lease = time.Second, mortalLease }

const mortalLease = 2 * time.Second

func start(t testing.TB, address string, options ...func(*deliver.Options)) *node {
	t.Helper()
	n := open(t, address, &clock{}, options...)
	n.run(t)
	return n
}

// open makes a node whose runner does not run.
func open(t testing.TB, address string, c *clock, options ...func(*deliver.Options)) *node {
	t.Helper()
	n := &node{clock: c, db: storetest.Open(t, address, migrations...)}
	var err error
	n.ledger, err = ledger.Open(context.Background(), ledger.Options{
		DB: n.db, Dir: t.TempDir(), Origin: "test.example/deliver", Now: c.now, Projections: projections(),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := deliver.Options{DB: n.db, Ledger: n.ledger, Key: masterKey, Now: c.now}
	quick(&o)
	for _, option := range options {
		option(&o)
	}
	if n.Outbox, err = deliver.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = n.ledger.Run(ctx) }()
	n.stop = sync.OnceFunc(func() { cancel(); <-done; n.db.Close() })
	t.Cleanup(func() { n.stop() })
	return n
}

// run runs the runner.
func (n *node) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stopLedger := n.stop
	end := func(before func()) func() {
		return func() {
			before()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			stopLedger()
		}
	}
	var once sync.Once
	n.stop = func() { once.Do(end(func() {})) }
	n.kill = func() { once.Do(end(n.db.Close)) }
	t.Cleanup(n.stop)
}

// queue queues deliveries in one transaction.
func (n *node) queue(t testing.TB, all ...deliver.Delivery) (ids []string) {
	t.Helper()
	err := n.ledger.Write(context.Background(), func(tx *ledger.Tx) error {
		ids = nil
		for _, d := range all {
			id, err := deliver.Queue(tx, d)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func hook(target string) deliver.Delivery {
	return deliver.Delivery{Workspace: "default", Target: target, Receiver: "billing", Generation: 1, Payload: []byte(`{"gate_id":"gate_1"}`)}
}

func (n *node) get(t testing.TB, id string) deliver.Detail {
	t.Helper()
	d, err := n.Get(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// becomes waits until the delivery has the status.
func (n *node) becomes(t testing.TB, id, status string) deliver.Detail {
	t.Helper()
	var d deliver.Detail
	testbed.Until(t, id+" to be "+status, func() bool { d = n.get(t, id); return d.Status == status })
	return d
}

// tried waits until the delivery has failed that many times.
func (n *node) tried(t testing.TB, id string, times int64) deliver.Detail {
	t.Helper()
	var d deliver.Detail
	testbed.Until(t, "the next try", func() bool { d = n.get(t, id); return d.Attempts >= times })
	return d
}

// checkRebuild compares the tables with what the ledger says.
func (n *node) checkRebuild(t testing.TB) {
	t.Helper()
	check, err := ledger.CheckRebuild(context.Background(), n.db, migrations, projections(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range check.Differences {
		t.Errorf("%s\n live    %s\n rebuilt %s", d.Table, d.Live, d.Built)
	}
}
