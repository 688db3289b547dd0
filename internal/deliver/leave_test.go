package deliver_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// longLease outlasts every test, so that nothing is taken over because time has passed.
func longLease(o *deliver.Options) { o.Lease = time.Hour }

func TestARunnerThatStopsLeavesItsLanesToOthersAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		watcher := storetest.Open(t, address, ledger.Migrations, deliver.Migrations)
		reached, answering := make(chan struct{}, 1), atomic.Bool{}
		hanging := newReceiver(t, func(_ http.ResponseWriter, req *http.Request, _ call) {
			if !answering.Load() {
				reached <- struct{}{}
				<-req.Context().Done()
			}
		})
		n := start(t, address, longLease, func(o *deliver.Options) { o.Timeout = time.Minute })
		id := n.queue(t, hook(hanging.URL))[0]
		testbed.Receive(t, "the first try", reached)
		if held(t, watcher) == 0 {
			t.Fatal("a runner that sends holds nothing")
		}
		n.stop()
		if got := held(t, watcher); got != 0 {
			t.Errorf("after a stop %d rows say that the lane is held", got)
		}
		answering.Store(true)
		start(t, address, longLease).becomes(t, id, deliver.Delivered)
	})
}

func TestARunnerThatIsStoppedWhileItClaimsHoldsNothing(t *testing.T) {
	address := storetest.Postgres(t)
	watcher := storetest.Open(t, address, ledger.Migrations, deliver.Migrations)
	commit := storetest.HoldCommits(t, address, "delivery_claim")
	n := start(t, address, longLease)
	id := n.queue(t, hook(newReceiver(t, ok).URL))[0]
	commit.Reached()
	stopped := make(chan struct{})
	go func() { defer close(stopped); n.stop() }()
	select { // a runner that gives its claim up does so now
	case <-stopped:
	case <-time.After(100 * time.Millisecond):
	}
	commit.Release()
	testbed.Receive(t, "the runner's end", stopped)
	if got := held(t, watcher); got != 0 {
		t.Errorf("after a stop %d rows say that the lane is held", got)
	}
	start(t, address, longLease).becomes(t, id, deliver.Delivered)
}

// held counts the runners and their claims, after what is under way.
func held(t *testing.T, db *store.DB) (rows int) {
	t.Helper()
	tx, err := db.Begin(context.Background(), "delivery_lock")
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := tx.QueryRow("SELECT (SELECT count(*) FROM delivery_runner) + (SELECT count(*) "+
		"FROM delivery_claim WHERE holder <> '')", nil, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}
