package rulebook_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/policy"
	"signalbox/internal/policy/window"
	"signalbox/internal/roster"
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

// settle decides and records an action as protocols do, and returns how it was recorded.
func (n *node) settle(who roster.Identity, e policy.Event) (recorded rulebook.Decision, err error) {
	if e.Point == "" {
		e.Point = policy.OnAction
	}
	err = rulebook.Settle(n.book.Decide(n.T.Context(), who, e), func(d rulebook.Decision) error {
		recorded = d
		return d.Write(n.T.Context(), n.Ledger, who, "session-1", "")
	})
	return recorded, err
}

// burst has calls made at once, spread over nodes, and counts those that were allowed.
func burst(t *testing.T, nodes []*node, calls int, who func(i int) roster.Identity) int {
	t.Helper()
	var allowed atomic.Int64
	testbed.AtOnce(calls, func(i int) {
		d, err := nodes[i%len(nodes)].settle(who(i), policy.Event{})
		switch {
		case err != nil:
			t.Error(err)
		case d.Action == policy.Allow:
			allowed.Add(1)
		}
	})
	return int(allowed.Load())
}

const limit60 = `  - {name: limit, on: [action], when: 'recent.allowed("1h") >= 60', then: block}
`

func TestALimitLetsThroughExactlyWhatItSays(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		for name, nodes := range map[string]int{"one node": 1, "three nodes": 3} {
			if nodes > 1 && !strings.HasPrefix(address, "postgres") {
				continue // SQLite is for one
			}
			t.Run(name, func(t *testing.T) {
				var all []*node
				for range nodes {
					all = append(all, start(t, address, t.TempDir()))
				}
				all[0].apply(limit60)
				for _, n := range all {
					n.Must(n.book.Await(t.Context(), all[0].book.InForce()))
				}
				for round := range 10 {
					who := agent(fmt.Sprintf("%d-%d", nodes, round))
					if got := burst(t, all, 100, func(int) roster.Identity { return who }); got != 60 {
						t.Errorf("round %d: %d of 100 were allowed, want 60", round, got)
					}
				}
				report, err := all[0].book.Replay(t.Context(), mustParse(t, "rules:\n"+limit60), time.Time{}, func(int64, int64) {})
				if err != nil || report.Changed != 0 || report.OtherRule != 0 {
					t.Errorf("the record says otherwise than the policy: %+v %v", report, err)
				}
			})
		}
	})
}

// withDana is a node with a user.
func withDana(t *testing.T, address string) (*node, roster.User) {
	t.Helper()
	n := start(t, address, t.TempDir())
	dana, _, err := n.roster.AddUser(t.Context(), roster.Identity{}, roster.NewUser{Name: "dana"})
	if err != nil {
		t.Fatal(err)
	}
	return n, dana
}

func TestAgentsOfOneUserShareItsCounters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, dana := withDana(t, address)
		n.apply(`  - {name: limit, on: [action], when: 'recent.allowed("1h", "user") >= 60', then: block}
`)
		two := []roster.Identity{agent("x"), agent("y")}
		for i := range two {
			two[i].Kind, two[i].Owner = roster.HolderAgent, dana.ID
		}
		if got := burst(t, []*node{n}, 100, func(i int) roster.Identity { return two[i%2] }); got != 60 {
			t.Errorf("two agents of one user: %d of 100 were allowed, want 60", got)
		}
		if d, err := n.settle(two[1], policy.Event{}); err != nil || d.Rule != "limit" || d.Record.User.Name != "dana" {
			t.Errorf("%+v %v", d, err)
		}
		strangers := []roster.Identity{agent("a"), agent("b")}
		if got := burst(t, []*node{n}, 140, func(i int) roster.Identity { return strangers[i%2] }); got != 120 {
			t.Errorf("two agents of nobody: %d of 140 were allowed, want 60 each", got)
		}
	})
}

func TestTiersCountApart(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply(`  - {name: background, on: [action], then: block,
     when: 'event.tier == "background" && recent.allowed("1h", "tier") >= 2'}
  - {name: all, on: [action], when: 'recent.allowed("1h") >= 5', then: block}
`)
		for i, c := range []struct {
			tier policy.Tier
			rule string
		}{
			{policy.Background, "default"},
			{policy.Background, "default"},
			{policy.Background, "background"},
			{policy.Interactive, "default"},
			{policy.Subagent, "default"},
			{"", "default"},
			{policy.API, "all"},
			{policy.Background, "background"},
		} {
			if d, err := n.settle(agent("x"), policy.Event{Tier: c.tier}); err != nil || d.Rule != c.rule {
				t.Errorf("%d: %s was decided by %s, want %s: %v %v", i, c.tier, d.Rule, c.rule, d.Record.Recent, err)
			}
		}
	})
}

func TestAUsersAgentsShareTheLimitOfATierAndOfATool(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, dana := withDana(t, address)
		n.apply(`  - {name: background, on: [action], then: block,
     when: 'event.tier == "background" && recent.allowed("1h", "user.tier") >= 2'}
  - {name: mail, on: [action], when: 'event.tool == "mail" && recent.actions("1h", "user.tool") >= 1', then: block}
`)
		one, other, nobody := agent("one"), agent("other"), agent("nobody")
		one.Kind, one.Owner, other.Kind, other.Owner = roster.HolderAgent, dana.ID, roster.HolderAgent, dana.ID
		for i, c := range []struct {
			who  roster.Identity
			tier policy.Tier
			tool string
			rule string
		}{
			{one, policy.Background, "", "default"},
			{other, policy.Interactive, "", "default"},
			{other, policy.Background, "", "default"},
			{one, policy.Background, "", "background"},
			{other, policy.Background, "", "background"},
			{other, policy.Interactive, "", "default"},
			{one, policy.Interactive, "mail", "default"},
			{other, policy.API, "mail", "mail"},
			{other, policy.API, "read", "default"},
			// An agent that is nobody's has its own.
			{nobody, policy.Background, "mail", "default"},
			{nobody, policy.Background, "", "default"},
			{nobody, policy.Background, "", "background"},
			{nobody, policy.Interactive, "mail", "mail"},
		} {
			if d, err := n.settle(c.who, policy.Event{Tier: c.tier, Tool: c.tool}); err != nil || d.Rule != c.rule {
				t.Errorf("%d: %s was decided by %s, want %s: %v %v", i, c.tier, d.Rule, c.rule, d.Record.Recent, err)
			}
		}
	})
}

// A function of a batch may append and fail, and the batch may run again. What others count is what is committed.
func TestWhatWasTakenBackDoesNotCount(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply(limit60)
		changed := errors.New("changed its mind")
		var allowed atomic.Int64
		testbed.AtOnce(300, func(i int) {
			first := n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction})
			err := rulebook.Settle(first, func(d rulebook.Decision) error {
				err := n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
					d, err := d.Recheck(tx)
					if err != nil {
						return err
					}
					tx.Append(d.Entry(agent("x"), "session-1", ""))
					if i%3 == 1 { // a read sends what is queued, so that it cannot be taken back alone
						var one int
						if err := tx.QueryRow("SELECT 1", nil, &one); err != nil {
							return err
						}
					}
					if i%3 > 0 {
						return changed
					}
					return nil
				})
				if err == nil && d.Action == policy.Allow {
					allowed.Add(1)
				}
				return err
			})
			if err != nil && !errors.Is(err, changed) {
				t.Error(err)
			}
		})
		if allowed.Load() != 60 {
			t.Errorf("%d were allowed, want 60", allowed.Load())
		}
	})
}

// The law: whatever agents do at once, in whatever order it is committed, each recorded decision is what a simple
// count of the entries before it says, and has that count on record.
func TestEveryRecordedDecisionIsRightForItsPlaceInTheLedger(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply(`  - {name: rm, on: [action], when: 'event.tool == "rm" && recent.actions("1h", "tool") >= 3', then: block}
  - {name: defer, on: [action], when: 'recent.allowed("1h") >= 9 && recent.blocks("1h") < 4', then: defer}
  - {name: limit, on: [action], when: 'recent.actions("1h") >= 20', then: block}
`)
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			if round > 20 { // each commits some fifty entries
				return
			}
			agents := []roster.Identity{agent(fmt.Sprintf("a%d", round)), agent(fmt.Sprintf("b%d", round))}
			after, err := n.Ledger.Head(t.Context())
			n.Must(err)
			kinds := rapid.SliceOfN(rapid.IntRange(0, 5), 10, 60).Draw(rt, "calls")
			testbed.AtOnce(len(kinds), func(i int) {
				tool := []string{"rm", "ls", "cat"}[kinds[i]/2]
				if _, err := n.settle(agents[kinds[i]%2], policy.Event{Tool: tool}); err != nil {
					t.Error(err)
				}
			})
			n.checkLaw(rt, after)
		})
	})
}

// checkLaw goes through the entries after a number with a count of its own.
func (n *node) checkLaw(t *rapid.T, after int64) {
	entries, err := n.Ledger.Entries(n.T.Context(),
		ledger.Query{After: after, Kinds: []string{"action.decided"}, Limit: 1000})
	n.Must(err)
	count := map[string]float64{}
	for i := range entries {
		r, err := rulebook.ReadDecision(&entries[i])
		n.Must(err)
		d := r.Decision
		of := func(what string) float64 { return count[d.AgentID+" "+what] }
		want := "default"
		switch {
		case d.Event.Tool == "rm" && of("rm") >= 3:
			want = "rm"
		case of("allow") >= 9 && of("block") < 4:
			want = "defer"
		case of("all") >= 20:
			want = "limit"
		}
		if d.Rule != want {
			t.Fatalf("entry %d of %s was decided by %s, want %s: %v on record, %v counted", entries[i].Seq, d.AgentID, d.Rule,
				want, d.Recent, count)
		}
		for counter, what := range map[string]string{
			"actions": "all", "actions.tool": d.Event.Tool, "allowed": "allow", "blocks": "block",
		} {
			if seen, ok := d.Recent.Find(counter, window.Last(time.Hour)); ok && seen != of(what) {
				t.Fatalf("entry %d has %s %v on record, want %v", entries[i].Seq, counter, seen, of(what))
			}
		}
		for _, what := range []string{"all", d.Event.Tool, string(d.Then)} {
			count[d.AgentID+" "+what]++
		}
	}
}

// BenchmarkDecide measures what a decision costs before it is recorded, and BenchmarkRecheck what is added to the
// transaction that records it when 500 share one.
// Run them with: scripts/with-postgres go test -run '^$' -bench 'Decide|Recheck' ./internal/rulebook
func BenchmarkDecide(b *testing.B) {
	for name, rules := range map[string]string{
		"plain":    "  - {name: no-rm, on: [action], when: 'event.tool == \"rm\"', then: block}\n",
		"counting": "  - {name: many, on: [action], when: 'recent.actions(\"1m\") >= 1000000', then: block}\n",
	} {
		b.Run(name, func(b *testing.B) {
			n := start(b, storetest.Databases["sqlite"](b), b.TempDir())
			n.apply(rules)
			who, e := agent("x"), policy.Event{Point: policy.OnAction, Tool: "ls"}
			b.ReportAllocs()
			for b.Loop() {
				n.book.Decide(b.Context(), who, e)
			}
		})
	}
}

func BenchmarkRecheck(b *testing.B) {
	for database, address := range storetest.Databases {
		b.Run(database, func(b *testing.B) {
			n := start(b, address(b), b.TempDir())
			n.apply("  - {name: many, on: [action], when: 'recent.actions(\"1m\") >= 1000000000', then: block}\n")
			for _, recheck := range []bool{false, true} {
				b.Run(fmt.Sprintf("recheck=%v", recheck), func(b *testing.B) {
					for b.Loop() {
						testbed.AtOnce(500, func(i int) {
							who := agent(fmt.Sprint(i % 50))
							d := n.book.Decide(b.Context(), who, policy.Event{Point: policy.OnAction, Tool: "ls"})
							if err := n.write(d, who, recheck); err != nil {
								b.Error(err)
							}
						})
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/500, "us/decision")
				})
			}
		})
	}
}

// write records a decision, as it is or exact.
func (n *node) write(d rulebook.Decision, who roster.Identity, recheck bool) error {
	if recheck {
		return d.Write(n.T.Context(), n.Ledger, who, "session-1", "")
	}
	return n.Ledger.Write(n.T.Context(), func(tx *ledger.Tx) error {
		tx.Append(d.Entry(who, "session-1", ""))
		return nil
	})
}
