package counter_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/clock"
	"signalbox/internal/counter"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func sets() []store.Migrations {
	return []store.Migrations{ledger.Migrations, clock.Migrations, roster.Migrations, gate.Migrations, counter.Migrations}
}

// node is a process that counts gates, and things that a protocol does.
type node struct {
	*counter.Counters
	t   *testing.T
	log testbed.Buffer
}

// readThing counts a thing as a run. A thing without a name counts for nothing, and one
// that is bad cannot be read.
func readThing(e *ledger.Entry) (*counter.Count, error) {
	switch e.Subject {
	case "":
		return nil, nil
	case "bad":
		return nil, errors.New("it is bad")
	}
	return &counter.Count{Agent: e.Subject, Counts: counter.Counts{Completed: 1, CostNano: 1_500_000_000}}, nil
}

func start(t *testing.T, address string, look time.Duration) *node {
	t.Helper()
	n := &node{t: t}
	db := storetest.Open(t, address, sets()...)
	l, err := ledger.Open(t.Context(), ledger.Options{
		DB: db, Dir: t.TempDir(), Origin: "test.example/counter",
		Projections: []ledger.Projection{clock.Projection(), roster.Projection(), gate.Projection(), counter.Projection()},
	})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&n.log, nil))
	r := roster.New(roster.Options{DB: db, Ledger: l, Now: time.Now, Log: log, Provider: "signalbox.local"})
	n.Counters = counter.New(counter.Options{
		DB: db, Ledger: l, Look: look, Roster: r, Gates: gate.New(db, l, r, log), Now: time.Now, Log: log, Readers: map[string]counter.Reader{"thing.done": readThing},
	})
	ctx, cancel := context.WithCancel(context.Background())
	core, stopCore := context.WithCancel(context.Background())
	var wg, users sync.WaitGroup
	wg.Go(func() { _ = l.Run(core) })
	users.Go(func() { _ = n.Run(ctx) })
	t.Cleanup(func() { cancel(); users.Wait(); stopCore(); wg.Wait() })
	return n
}

func (n *node) write(events ...ledger.Event) {
	n.t.Helper()
	err := n.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
		for _, e := range events {
			tx.Append(e)
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// counted is the report when everything is counted.
func (n *node) counted() (r counter.Report) {
	n.t.Helper()
	head, err := n.Ledger.Head(context.Background())
	today := time.Now().UTC()
	testbed.Until(n.t, "the counting", func() bool {
		if err == nil {
			r, err = n.Report(context.Background(), counter.Filter{From: today.AddDate(0, 0, -1).Format(time.DateOnly), To: today.Format(time.DateOnly)})
		}
		return err != nil || r.Seq >= head
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func TestAnEntryThatCannotBeReadIsPassedOverAndSaid(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, 0)
		for _, subject := range []string{"a", "bad", "", "a", "b"} {
			n.write(ledger.Event{Workspace: "default", Kind: "thing.done", Actor: "system", Subject: subject})
		}
		r := n.counted()
		if r.Total.Runs.Completed != 3 || r.Total.CostUSD != 4.5 || len(r.Agents) != 2 || r.Agents[0].Counts.Runs.Completed != 2 || r.Agents[0].Name != "" {
			t.Errorf("%+v", r)
		}
		if strings.Count(n.log.String(), "it is bad") != 1 {
			t.Errorf("the log says %s", n.log.String())
		}
	})
}

func TestEntriesWakeTheCounting(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, time.Hour)
		for range 5 {
			n.write(ledger.Event{Workspace: "default", Kind: "thing.done", Actor: "system", Subject: "a"})
			n.counted()
		}
	})
}

func TestGatesOfEveryProtocolAreCounted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, 0)
		opened := func(id, project, agent string) ledger.Event {
			return ledger.Event{Workspace: "default", Kind: "gate.opened", Actor: "system", Subject: id, Body: gate.Opening{Project: project, Agent: agent, Rules: gate.Rules{}.Normal()}}
		}
		n.write(opened("g-1", "", ""), opened("g-2", "deck", "x"), opened("g-3", "deck", "x"), opened("g-4", "deck", "x"))
		resolved := func(seq int64, status gate.Status, cause gate.Cause, waited time.Duration) ledger.Event {
			return ledger.Event{Workspace: "default", Kind: "gate.resolved", Actor: "system", Subject: "g", Body: gate.Resolution{
				Opened: seq, OpenedAt: time.Now().Add(-waited).UnixMicro(), Project: "deck", Agent: "x", Status: status, By: "ada", Cause: cause,
			}}
		}
		n.write(resolved(2, gate.Approved, gate.ByVote, time.Hour), resolved(3, gate.Approved, gate.ByExpiry, time.Hour), resolved(4, gate.Rejected, gate.ByRule, time.Hour))
		r := n.counted()
		want := map[string]counter.Tallies{"deck": {Opened: 3, Approved: 1, Rejected: 1, Expired: 1}, "default": {Opened: 1, Waiting: 1}}
		got := map[string]counter.Tallies{}
		for _, d := range r.Decks {
			got[d.Name] = d.Counts.Gates
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if m := r.Total.MedianSeconds; r.Total.Decisions != 1 || m == nil || *m < 3600 || *m > 3660 {
			t.Errorf("only people decide: %+v", r.Total)
		}
		if r.OldestWaiting == nil || time.Since(*r.OldestWaiting) > time.Minute {
			t.Errorf("%+v", r)
		}
	})
}
