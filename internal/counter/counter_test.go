package counter_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/clock"
	"signalbox/internal/counter"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/passkey"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// node is a process that counts gates, and things that a protocol does.
type node struct {
	*counter.Counters
	core *ledgertest.Node
	log  testbed.Buffer
}

// readThing counts a thing as a run. A thing without a name counts for nothing, and one
// that is bad cannot be read.
func readThing(e *ledger.Entry) ([]counter.Count, error) {
	switch e.Subject {
	case "":
		return nil, nil
	case "bad":
		return nil, errors.New("it is bad")
	}
	return []counter.Count{{Agent: e.Subject, Counts: counter.Counts{Completed: 1, CostNano: 1_500_000_000}}}, nil
}

func start(t testing.TB, address string, look time.Duration) *node {
	t.Helper()
	n := &node{core: ledgertest.Open(t, address, nil, []ledgertest.Part{
		{Migrations: clock.Migrations, Projection: clock.Projection()},
		{Migrations: roster.Migrations, Projection: roster.Projection()},
		{Migrations: passkey.Migrations, Projection: passkey.Projection()},
		{Migrations: gate.Migrations, Projection: gate.Projection()},
		{Migrations: counter.Migrations, Projection: counter.Projection()},
	})}
	log := slog.New(slog.NewTextHandler(&n.log, nil))
	r := roster.New(roster.Options{
		DB: n.core.DB, Ledger: n.core.Ledger, Now: time.Now, Log: log,
		Provider: "signalbox.local",
	})
	n.Counters = counter.New(counter.Options{
		DB: n.core.DB, Ledger: n.core.Ledger, Look: look, Roster: r, Gates: gate.New(n.core.DB, n.core.Ledger, r, log),
		Now: time.Now, Log: log, Readers: map[string]counter.Reader{"thing.done": readThing, "toy.called": readCall},
	})
	n.core.Run(n.Run)
	return n
}

// counted is the report when everything is counted.
func (n *node) counted() (r counter.Report) {
	n.core.T.Helper()
	head := n.core.Head()
	var err error
	today := time.Now().UTC()
	testbed.Until(n.core.T, "the counting", func() bool {
		if err == nil {
			r, err = n.Report(context.Background(),
				counter.Filter{From: today.AddDate(0, 0, -1).Format(time.DateOnly), To: today.Format(time.DateOnly)})
		}
		return err != nil || r.Seq >= head
	})
	n.core.Must(err)
	return r
}

func TestAnEntryThatCannotBeReadIsPassedOverAndSaid(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, 0)
		for _, subject := range []string{"a", "bad", "", "a", "b"} {
			n.core.Append(ledger.Event{Workspace: "default", Kind: "thing.done", Actor: "system", Subject: subject})
		}
		r := n.counted()
		if r.Total.Runs.Completed != 3 || r.Total.CostUSD != 4.5 || len(r.Agents) != 2 ||
			r.Agents[0].Counts.Runs.Completed != 2 || r.Agents[0].Name != "" {
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
			n.core.Append(ledger.Event{Workspace: "default", Kind: "thing.done", Actor: "system", Subject: "a"})
			n.counted()
		}
	})
}

func TestGatesOfEveryProtocolAreCounted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, 0)
		opened := func(id, project, agent string) ledger.Event {
			return ledger.Event{
				Workspace: "default", Kind: "gate.opened", Actor: "system", Subject: id,
				Body: gate.Opening{Project: project, Agent: agent, Rules: gate.Rules{}.Normal()},
			}
		}
		n.core.Append(opened("g-1", "", ""), opened("g-2", "deck", "x"), opened("g-3", "deck", "x"),
			opened("g-4", "deck", "x"))
		resolved := func(seq int64, status gate.Status, cause gate.Cause, waited time.Duration) ledger.Event {
			return ledger.Event{
				Workspace: "default", Kind: "gate.resolved", Actor: "system", Subject: "g",
				Body: gate.Resolution{
					Opened: seq, OpenedAt: time.Now().Add(-waited).UnixMicro(), Project: "deck", Agent: "x", Status: status, By: "ada",
					Cause: cause,
				},
			}
		}
		n.core.Append(resolved(2, gate.Approved, gate.ByVote, time.Hour),
			resolved(3, gate.Approved, gate.ByExpiry, time.Hour), resolved(4, gate.Rejected, gate.ByRule, time.Hour))
		r := n.counted()
		want := map[string]counter.Tallies{
			"deck":    {Opened: 3, Approved: 1, Rejected: 1, Expired: 1},
			"default": {Opened: 1, Waiting: 1},
		}
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
