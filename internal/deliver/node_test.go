package deliver_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store"
	"signalbox/internal/testbed"
)

var masterKey = bytes.Repeat([]byte("k"), 32)

// node is a server with a ledger and an outbox, of which several may share a database.
type node struct {
	*deliver.Outbox
	*ledgertest.Clock
	core   *ledgertest.Node
	ledger *ledger.Ledger
	db     *store.DB
}

// stop ends the runner first, then the ledger.
func (n *node) stop() { n.core.Stop(); n.db.Close() }

// kill takes the database away, whatever is under way.
func (n *node) kill() { n.db.Close(); n.core.Stop() }

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
	n := open(t, address, &ledgertest.Clock{}, options...)
	n.core.Run(n.Run)
	return n
}

// open makes a node whose runner does not run.
func open(t testing.TB, address string, c *ledgertest.Clock, options ...func(*deliver.Options)) *node {
	t.Helper()
	core := ledgertest.Open(t, address, c,
		[]ledgertest.Part{{Migrations: deliver.Migrations, Projection: deliver.Projection()}})
	o := deliver.Options{DB: core.DB, Ledger: core.Ledger, Key: masterKey, Now: c.Now}
	quick(&o)
	for _, option := range options {
		option(&o)
	}
	outbox, err := deliver.New(o)
	core.Must(err)
	core.Run()
	return &node{Outbox: outbox, Clock: c, core: core, ledger: core.Ledger, db: core.DB}
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
	return deliver.Delivery{
		Workspace: "default", Target: target, Receiver: "billing", Generation: 1,
		Payload: []byte(`{"gate_id":"gate_1"}`),
	}
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
