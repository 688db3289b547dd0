package signal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/counter"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/signal"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// count counts until the returned function is called.
func (n *node) count() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.counters.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	n.T.Cleanup(stop)
	return stop
}

func (n *node) report() counter.Report {
	n.T.Helper()
	now := n.Now().UTC()
	r, err := n.counters.Report(context.Background(),
		counter.Filter{From: now.AddDate(0, 0, -30).Format(time.DateOnly), To: now.Format(time.DateOnly)})
	if err != nil {
		n.T.Fatal(err)
	}
	r.OldestWaitingSeconds = nil
	return r
}

// counted waits until everything is counted.
func (n *node) counted() counter.Report {
	n.T.Helper()
	head, r := n.head(), counter.Report{}
	testbed.Until(n.T, "the counting", func() bool { r = n.report(); return r.Seq >= head })
	return r
}

// week is a week of three agents in two decks, with what should be counted of it.
type week struct {
	*node
	agents   []roster.Identity
	deciders []roster.Identity
	want     map[string]*counter.Sum // by "total", deck, agent's name and day
	waits    map[string][]time.Duration
}

func newWeek(n *node) *week {
	w := &week{
		node: n, agents: []roster.Identity{n.agent, n.Agent("cover-letter"), n.Agent("scout")},
		want: map[string]*counter.Sum{}, waits: map[string][]time.Duration{},
	}
	w.deciders = append(w.deciders, n.Operator("ada"))
	n.Apply("rules: [{name: soon, on: [signal], when: 'event.summary == \"expires\"', then: gate, gate: {expires: 1m}}, " +
		"{name: ask, on: [signal], when: 'true', then: gate}]")
	return w
}

// note adds to what should be counted.
func (w *week) note(keys []string, add func(*counter.Sum)) {
	for _, k := range keys {
		if w.want[k] == nil {
			w.want[k] = &counter.Sum{}
		}
		add(w.want[k])
	}
}

// run sends one signal in one of many ways, and decides its gate.
func (w *week) run(i int) {
	t, ctx := w.T, context.Background()
	t.Helper()
	who, deck := w.agents[i%3], []string{"job-search", "default"}[i%2]
	keys := func() []string { return []string{"total", deck, who.Name, w.Now().UTC().Format(time.DateOnly)} }
	project := any(deck)
	if deck == "default" {
		project = absent
	}
	status := []string{"completed", "failed", "interrupted", "completed"}[i%4]
	summary := "Did it"
	if i%10 == 9 {
		summary = "expires"
	}
	body := encode(payload("agent_id", who.Name, "run_id", fmt.Sprint("run-", i), "project_id", project, "status", status,
		"summary", summary,
		"gate_required", i%5 != 0, "input_tokens", i, "output_tokens", 2*i, "cost_usd", float64(i)/1000))
	got, err := w.signals.Receive(ctx, who, "", body)
	if err != nil {
		t.Fatal(err)
	}
	w.note(keys(), func(s *counter.Sum) {
		*map[string]*int64{
			"completed": &s.Runs.Completed, "failed": &s.Runs.Failed,
			"interrupted": &s.Runs.Interrupted,
		}[status]++
		s.InputTokens, s.OutputTokens, s.CostUSD = s.InputTokens+int64(i), s.OutputTokens+int64(2*i), s.CostUSD+
			float64(i)/1000
	})
	if i%7 == 0 { // duplicates do not count, and neither do those that are refused
		_, _ = w.signals.Receive(ctx, who, "", body)
		_, _ = w.signals.Receive(ctx, who, "", encode(payload("agent_id", who.Name, "run_id", fmt.Sprint("run-", i))))
	}
	if got.GateID == nil {
		return
	}
	w.note(keys(), func(s *counter.Sum) { s.Gates.Opened++ })
	if i%10 == 9 {
		resolved := len(w.Entries("gate.resolved"))
		w.Move(2 * time.Minute)
		testbed.Until(t, "the expiry", func() bool { return len(w.Entries("gate.resolved")) > resolved })
		w.note(keys(), func(s *counter.Sum) { s.Gates.Expired++ })
		return
	}
	if i%11 == 1 {
		for _, k := range keys()[:3] {
			w.note([]string{k}, func(s *counter.Sum) { s.Gates.Waiting++ })
		}
		return
	}
	w.Move(time.Duration(i) * time.Second)
	g, err := w.Gates.Vote(ctx, w.deciders[0], *got.GateID, gate.Ballot{Approve: i%3 != 0, Note: "n"})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys() {
		w.waits[k] = append(w.waits[k], g.ResolvedAt.Sub(g.OpenedAt))
	}
	w.note(keys(), func(s *counter.Sum) {
		s.Decisions++
		if i%3 != 0 {
			s.Gates.Approved++
		} else {
			s.Gates.Rejected++
		}
	})
}

// check compares a report with what should be counted.
func (w *week) check(r counter.Report) {
	w.T.Helper()
	got := map[string]*counter.Sum{"total": &r.Total}
	for i := range r.Decks {
		got[r.Decks[i].Name] = &r.Decks[i].Counts
	}
	for i := range r.Agents {
		got[r.Agents[i].Name] = &r.Agents[i].Counts
	}
	for i := range r.Days {
		got[r.Days[i].Day] = &r.Days[i].Counts
	}
	for k, s := range w.want {
		if waits := slices.Sorted(slices.Values(w.waits[k])); len(waits) > 0 {
			median := (waits[(len(waits)-1)/2].Seconds() + waits[len(waits)/2].Seconds()) / 2
			s.MedianSeconds = &median
		}
		if got[k] == nil {
			w.T.Errorf("of %s nothing is counted", k)
			continue
		}
		if verdicts := got[k].Costs; verdicts.Verified+verdicts.Under+verdicts.Over+verdicts.Zero+
			verdicts.UnknownModel != s.Runs.Completed+s.Runs.Failed+s.Runs.Interrupted {
			w.T.Errorf("of %s the costs are %+v", k, verdicts)
		}
		got[k].Costs = counter.Costs{}
	}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })
	if diff := cmp.Diff(w.want, got, near); diff != "" {
		w.T.Error(diff)
	}
}

// fill writes more entries than a page holds, none of which counts.
func (n *node) fill() {
	n.T.Helper()
	err := n.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
		for range 700 {
			tx.Append(ledger.Event{Workspace: "default", Kind: "thing.done", Actor: "system"})
		}
		return nil
	})
	if err != nil {
		n.T.Fatal(err)
	}
}

func TestTheCountersAreWhatHappenedHoweverOftenTheCountingIsKilled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		w := newWeek(n)
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // two count, and are stopped at any moment
			for {
				a, b := n.count(), n.count()
				select {
				case <-done:
					a()
					b()
					return
				case <-time.After(time.Duration(rand.IntN(60)) * time.Millisecond):
				}
				a()
				b()
			}
		})
		for i := range 120 {
			w.run(i)
			if i%40 == 39 {
				n.Move(24 * time.Hour)
				n.fill()
			}
		}
		close(done)
		wg.Wait()
		stop := n.count()
		first := n.counted()
		w.check(first)
		if first.OldestWaiting == nil || first.Total.Gates.Waiting == 0 {
			t.Errorf("nothing waits: %+v", first)
		}
		first = n.counted()

		// Counted again from the beginning, it is the same; also while it is counted.
		for range 3 {
			if err := counter.Reset(t.Context(), n.DB); err != nil {
				t.Fatal(err)
			}
			again := n.counted()
			first.Seq = again.Seq
			if diff := cmp.Diff(first, again); diff != "" {
				t.Error(diff)
			}
		}
		stop()
		n.WantClean()
	})
}

func TestSumsStopAtTheLargestNumberAndGoOnCounting(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.Apply(allowRule)
		n.count()
		for i := range 12 {
			n.send("run_id", fmt.Sprint(i), "cost_usd", 1e9, "input_tokens", int64(1)<<53-1)
			n.counted()
		}
		r := n.counted()
		if r.Total.Runs.Completed != 12 || r.Total.CostUSD < 4e9 || r.Total.InputTokens != 12*(1<<53-1) {
			t.Errorf("%+v", r.Total)
		}
	})
}

// What the model proxy has counted of a run is shown beside what its signal says, and not added: not to the counters, and
// not to what rules count. Of a run that the proxy has not seen, the signal is all there is.
func TestWhatTheProxyHasCountedIsNotAddedAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.count()
		n.Apply("rules: [{name: spent, on: [signal], when: 'recent.cost(\"24h\") > 0.0', then: block, reason: Spent.}]")
		proxied := signal.New(n.Core, signal.Options{Carried: func(_ context.Context, agentID, run string) (bool, error) {
			return agentID == n.agent.ID && run != "alone", nil
		}})
		send := func(run string) signal.Received {
			t.Helper()
			got, err := proxied.Receive(t.Context(), n.agent, "", encode(payload("run_id", run)))
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		send("a")
		send("b")
		r := n.counted()
		if r.Total.Runs.Completed != 2 || r.Total.CostUSD != 0 || r.Total.InputTokens+r.Total.OutputTokens != 0 {
			t.Errorf("%+v", r.Total)
		}
		if got := send("alone"); got.Status == gate.Rejected {
			t.Errorf("%+v", got)
		}
		if got := send("c"); got.Status != gate.Rejected || n.counted().Total.CostUSD == 0 {
			t.Errorf("%+v", got)
		}
	})
}
