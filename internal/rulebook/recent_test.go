package rulebook_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// recent is what a rule saw of a counter.
func seen(d rulebook.Decision, what, window string) float64 { return d.Record.Recent[what][window] }

const counting = `  - {name: many, on: [action], then: block,
     when: 'recent.actions("10m") >= 3 || recent.blocks("1h") > 100 || recent.cost("24h") > 100.0 ||
       recent.tokens("24h") < 0 || recent.rejections("7d") > 5'}
`

func TestRulesCountWhatTheLedgerSaysTheAgentDid(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		other := start(t, address, t.TempDir())
		n.apply(counting)
		x, y := agent("x"), agent("y")
		for range 3 {
			if d := n.act(x, policy.Event{CostUSD: 0.5, Tokens: 100}); d.Action != policy.Allow {
				t.Fatalf("%+v", d)
			}
		}
		for _, each := range []*node{n, other} {
			testbed.Until(t, "three actions were counted", func() bool {
				return each.book.Decide(t.Context(), x, policy.Event{Point: policy.OnAction}).Rule == "many"
			})
			if d := each.book.Decide(t.Context(), y, policy.Event{Point: policy.OnAction}); d.Action != policy.Allow {
				t.Errorf("another agent: %+v", d)
			}
		}
		n.act(x, policy.Event{})
		err := n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
			d := n.book.Decide(t.Context(), y, policy.Event{Point: policy.OnTask, Summary: "not stored here"})
			d.Record.Event = nil
			tx.Append(ledger.Event{
				Workspace: "default", Kind: "thing.done", Actor: "agent:y", Subject: "t",
				Body: thing{"in other words", d.Record},
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		// Other windows are asked for, so they are read from the ledger.
		n.apply(`  - {name: look, on: [action], then: block,
     when: 'recent.actions("1h") > 99 || recent.blocks("5m") > 99 || recent.cost("2d") > 99.0 ||
       recent.tokens("3h") > 999 || recent.tasks("1h") > 9 || recent.rejections("1h") > 9'}
`)
		d := n.book.Decide(t.Context(), x, policy.Event{Point: policy.OnAction})
		if seen(d, "actions", "1h") != 4 || seen(d, "blocks", "5m") != 1 || seen(d, "cost", "2d") != 1.5 ||
			seen(d, "tokens", "3h") != 300 {
			t.Errorf("counted anew: %v", d.Record.Recent)
		}
		if d := n.book.Decide(t.Context(), y, policy.Event{Point: policy.OnAction}); seen(d, "tasks", "1h") != 1 ||
			seen(d, "rejections", "1h") != 1 {
			t.Errorf("of an entry in a form of its own: %v", d.Record.Recent)
		}
	})
}

func TestCountersOutliveARestartAndEndWithTheirWindow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir, clock := t.TempDir(), &ledgertest.Clock{}
		n := startAt(t, address, dir, clock)
		n.apply(counting)
		for range 3 {
			n.act(agent("x"), policy.Event{})
		}
		n.Stop()
		n = startAt(t, address, dir, clock)
		if err := n.book.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			after time.Duration
			then  policy.Action
		}{{0, policy.Block}, {9 * time.Minute, policy.Block}, {11 * time.Minute, policy.Allow}, {-time.Hour, policy.Block}} {
			clock.Set(c.after)
			if d := n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction}); d.Action != c.then {
				t.Errorf("after %s: %+v", c.after, d)
			}
		}
	})
}

// Agents say themselves what something cost.
func TestNothingAnAgentSaysTakesOffWhatWasCounted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply("  - {name: budget, on: [action], when: 'recent.cost(\"1h\") > 5.0 || " +
			"recent.tokens(\"1h\") > 5', then: block}\n")
		x := agent("x")
		n.act(x, policy.Event{CostUSD: 6, Tokens: 6})
		n.act(x, policy.Event{CostUSD: -1e9, Tokens: -1e9})
		for range 3 { // the sum of these is none that JSON has a form for
			n.act(x, policy.Event{CostUSD: math.MaxFloat64})
		}
		n.act(x, policy.Event{Point: policy.OnTask})
		testbed.Until(t, "all of it was counted", func() bool {
			return seen(n.act(x, policy.Event{}), "cost", "1h") == 3e15+6
		})
	})
}

func TestAnEntryThatIsNotAsItShouldBeStopsNobody(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply("  - {name: many, on: [action], when: 'recent.actions(\"1h\") >= 1', then: block}\n")
		err := n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
			for _, body := range []any{
				map[string]any{},
				map[string]any{"decision": nil},
				map[string]any{"decision": map[string]any{"agent_id": "agent_x"}},
				[]int{},
			} {
				tx.Append(ledger.Event{Workspace: "default", Kind: "action.decided", Actor: "agent:x", Subject: "s", Body: body})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		n.act(agent("x"), policy.Event{})
		testbed.Until(t, "what came after was counted", func() bool {
			return n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction}).Rule == "many"
		})
	})
}

// Counters that another version asks for again are not read again, and lose nothing.
func TestEveryActionIsCountedOnceWhilePoliciesChange(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		nodes := []*node{start(t, address, t.TempDir()), start(t, address, t.TempDir())}
		rule := func(i int, also string) string {
			return fmt.Sprintf("  - {name: r%d, on: [action], when: 'recent.actions(\"1h\") > 1000000%s', then: block}\n", i,
				also)
		}
		nodes[0].apply(rule(0, ""))
		var acting sync.WaitGroup
		for _, n := range nodes {
			acting.Go(func() {
				for range 60 {
					if _, err := n.try(agent("x"), policy.Event{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for i := range 6 {
			nodes[0].apply(rule(i+1, ""))
			nodes[0].apply(rule(i+1, " || recent.blocks(\"5m\") > 1000000"))
		}
		acting.Wait()
		for _, n := range nodes {
			count := func() float64 {
				return seen(n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction}), "actions", "1h")
			}
			testbed.Until(t, "every action was counted", func() bool { return count() == 120 })
			nodes[0].apply(rule(99, "")) // and none twice, when that is followed too
			testbed.Until(t, "the last version", func() bool { return n.book.InForce() >= 14 })
			if got := count(); got != 120 {
				t.Errorf("%v", got)
			}
		}
	})
}

func TestCountersOfOneToolSessionAndRule(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply(`  - {name: no-rm, on: [action], then: block, when: event.tool == "rm"}
  - {name: look, on: [action], then: gate, when: 'recent.actions("1h", "tool") > 98 ||
       recent.actions("1h", "session") > 98 || recent.cost("1h", "session") > 98.0 ||
       recent.by_rule("no-rm", "1h") > 98'}
`)
		x := agent("x")
		for _, e := range []policy.Event{
			{Tool: "rm", Session: "a"}, {Tool: "rm", Session: "b"}, {Tool: "ls", Session: "a", CostUSD: 2},
		} {
			n.act(x, e)
		}
		for _, c := range []struct {
			tool, session                  string
			byTool, bySession, cost, noRmS float64
		}{
			{"ls", "a", 1, 2, 2, 2}, {"ls", "b", 1, 1, 0, 2}, {"cat", "c", 0, 0, 0, 2},
		} {
			var d rulebook.Decision
			testbed.Until(t, "everything was counted", func() bool {
				d = n.book.Decide(t.Context(), x, policy.Event{Point: policy.OnAction, Tool: c.tool, Session: c.session})
				return seen(d, "by_rule.no-rm", "1h") == c.noRmS && seen(d, "actions.tool", "1h") == c.byTool &&
					seen(d, "actions.session", "1h") == c.bySession
			})
			if seen(d, "cost.session", "1h") != c.cost {
				t.Errorf("%s in %s: %v", c.tool, c.session, d.Record.Recent)
			}
		}
	})
}
