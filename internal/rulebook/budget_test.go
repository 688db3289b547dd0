package rulebook_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// over is the body of an entry that says that a call is over, as the proxy writes it.
type over struct {
	Agent   string  `json:"agent"`
	Reserve string  `json:"reserve,omitzero"`
	USD     float64 `json:"usd,omitzero"`
	Tokens  float64 `json:"tokens,omitzero"`
	Project string  `json:"project,omitzero"`
	Run     string  `json:"run,omitzero"`
	User    string  `json:"user,omitzero"`
	Handoff string  `json:"handoff,omitzero"`
	// Hold is a reservation of a call that a person has approved.
	Hold *rulebook.Reservation `json:"hold,omitzero"`
}

func readOver(e *ledger.Entry) (reading rulebook.Reading, err error) {
	var b over
	if err := e.Decode(&b); err != nil {
		return reading, err
	}
	of := rulebook.Belongs{Agent: b.Agent, Project: b.Project, Run: b.Run, User: b.User, Handoff: b.Handoff}
	reading.Facts = []rulebook.Fact{
		{Belongs: of, Release: b.Reserve},
		{Belongs: of, What: "cost", N: b.USD},
		{Belongs: of, What: "tokens", N: b.Tokens},
		{Belongs: of, Reserve: b.Hold},
	}
	return reading, nil
}

// end records that a call is over.
func (n *node) end(who roster.Identity, b over) {
	n.T.Helper()
	n.Must(n.tryEnd(who, b))
}

func (n *node) tryEnd(who roster.Identity, b over) error {
	if b.Agent == "" {
		b.Agent = who.ID
	}
	return n.Ledger.Write(n.T.Context(), func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: "call.over", Actor: "agent:" + who.Name, Subject: "call", Body: b,
		})
		return nil
	})
}

// call has a model call decided and recorded as the proxy does.
func (n *node) call(who roster.Identity, e policy.Event) (rulebook.Decision, error) {
	e.Point = policy.OnPrompt
	return rulebook.Reserve(n.Ledger, []rulebook.Decision{n.book.Decide(n.T.Context(), who, e)},
		func(all []rulebook.Decision) rulebook.Decision { return all[0] },
		func(d rulebook.Decision) ledger.Event { return d.Entry(who, "call", "") })
}

// mustCall is call for one goroutine.
func (n *node) mustCall(who roster.Identity, e policy.Event) rulebook.Decision {
	n.T.Helper()
	d, err := n.call(who, e)
	n.Must(err)
	return d
}

// put applies a whole policy, and waits until it is in force.
func put(t *testing.T, nodes []*node, source string) {
	t.Helper()
	v, _, err := nodes[0].book.Apply(t.Context(), roster.Identity{}, []byte("version: 1\n"+source), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.Must(n.book.Await(t.Context(), v.Number))
	}
}

// nodesOf starts one node, and three where the database is for several.
func nodesOf(t *testing.T, address string, clock *ledgertest.Clock) [][]*node {
	t.Helper()
	all := [][]*node{{startAt(t, address, t.TempDir(), clock)}}
	if strings.HasPrefix(address, "postgres") {
		all = append(all, []*node{
			all[0][0], startAt(t, address, t.TempDir(), clock), startAt(t, address, t.TempDir(), clock),
		})
	}
	return all
}

// at makes a clock show a time, which goes on from there.
func at(clock *ledgertest.Clock, moment time.Time) { clock.Set(time.Until(moment)) }

const dollarADay = `budgets:
  - {name: day, per: PER, each: day, usd: 1}
`

func TestAHundredCallsAtOnceDoNotPassABudgetTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		for _, nodes := range nodesOf(t, address, &ledgertest.Clock{}) {
			for _, per := range []string{"agent", "run", "deck", "workspace"} {
				source := strings.ReplaceAll(dollarADay, "PER", per)
				if per == "run" {
					source = strings.ReplaceAll(source, ", each: day", "")
				}
				put(t, nodes, source)
				name := fmt.Sprintf("%d-%s", len(nodes), per)
				who := agent(name)
				who.Workspace = "w-" + name
				e := policy.Event{Run: name, Project: name, EstimateUSD: 0.02, EstimateTokens: 500}
				nodes[0].end(who, over{USD: 0.99, Run: e.Run, Project: e.Project})
				for round := range 3 {
					spent := 0.99 + float64(round)*0.001
					var mu sync.Mutex
					var passed []rulebook.Decision
					var deferred atomic.Int64
					testbed.AtOnce(100, func(i int) {
						d, err := nodes[i%len(nodes)].call(who, e)
						switch {
						case err != nil:
							t.Error(err)
						case d.Action == policy.Allow:
							mu.Lock()
							passed = append(passed, d)
							mu.Unlock()
						case d.Action == policy.Defer && d.Rule == "day" && d.RetrySeconds() == 5:
							deferred.Add(1)
						default:
							t.Errorf("%+v", d.Verdict)
						}
					})
					if len(passed) != 1 || deferred.Load() != 99 {
						t.Fatalf("%s, round %d, at $%g: %d calls passed and %d were deferred", name, round, spent, len(passed),
							deferred.Load())
					}
					r := passed[0].Record.Reserve
					if r == nil || r.CostNano != 2e7 || r.Tokens != 500 {
						t.Fatalf("reserved %+v", r)
					}
					nodes[len(nodes)-1].end(who, over{Reserve: r.ID, USD: 0.001, Run: e.Run, Project: e.Project})
				}
				nodes[0].end(who, over{USD: 0.007, Run: e.Run, Project: e.Project})
				if d := nodes[0].mustCall(who, e); d.Action != policy.Block || d.Rule != "day" ||
					!strings.Contains(d.Reason, "$1 of $1") {
					t.Errorf("%s: a budget that is spent: %+v", name, d.Verdict)
				}
				report, err := nodes[0].book.Replay(t.Context(), mustParse(t, source), time.Time{}, func(int64, int64) {})
				if err != nil || per == "agent" && (report.Changed != 0 || report.OtherRule != 0) {
					t.Errorf("the record says otherwise than the policy: %+v %v", report, err)
				}
			}
		}
	})
}

func mustParse(t *testing.T, source string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte("version: 1\n" + source))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestADayBeginsAtMidnightAndOutlivesARestart(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		clock, dir := &ledgertest.Clock{}, t.TempDir()
		midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 2)
		at(clock, midnight.Add(-26*time.Hour)) // the evening before
		n := startAt(t, address, dir, clock)
		put(t, []*node{n}, `budgets:
  - {name: day, per: agent, each: day, usd: 1}
  - {name: hour, per: agent, each: hour, usd: 0.9}
  - {name: month, per: agent, each: month, usd: 100}
`)
		x := agent("x")
		n.end(x, over{USD: 0.5}) // counts for another day
		restart := func() {
			n.Stop()
			n = startAt(t, address, dir, clock)
			n.Must(n.book.Bootstrap(t.Context()))
		}
		look := func(when string, rule string, day, hour float64) {
			t.Helper()
			d := n.book.Decide(t.Context(), x, policy.Event{Point: policy.OnAction})
			if d.Rule != rule || seen(d, "cost", "day") != day || seen(d, "cost", "hour") != hour && rule != "day" {
				t.Errorf("%s: %s decides, with %v", when, d.Rule, d.Record.Recent)
			}
		}
		until := func(day float64) {
			t.Helper()
			testbed.Until(t, "it was counted", func() bool {
				return seen(n.book.Decide(t.Context(), x, policy.Event{Point: policy.OnAction}), "cost", "day") == day
			})
		}
		at(clock, midnight.Add(-2*time.Hour))
		n.end(x, over{USD: 0.6})
		until(0.6)
		look("in the evening", "default", 0.6, 0.6)
		restart()
		look("after a restart", "default", 0.6, 0.6)
		at(clock, midnight.Add(-5*time.Minute))
		look("in another hour", "default", 0.6, 0)
		n.end(x, over{USD: 0.4})
		until(1)
		look("five minutes before midnight", "day", 1, 0)
		d := n.book.Decide(t.Context(), x, policy.Event{Point: policy.OnAction})
		if want := "It begins anew at " + midnight.Format("2006-01-02") + " 00:00 UTC."; !strings.Contains(d.Reason, want) {
			t.Errorf("%q does not say %q", d.Reason, want)
		}
		restart()
		look("after a restart before midnight", "day", 1, 0)
		at(clock, midnight.Add(time.Minute))
		look("after midnight", "default", 0, 0)
		restart()
		look("after a restart after midnight", "default", 0, 0)
		n.end(x, over{USD: 2})
		until(2)
		look("the next day is used up", "day", 2, 0)
	})
}

// What was under way when a server was killed ends by itself.
func TestWhatNobodyReleasesEndsAfterAQuarterOfAnHour(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		clock, dir := &ledgertest.Clock{}, t.TempDir()
		n := startAt(t, address, dir, clock)
		put(t, []*node{n}, strings.ReplaceAll(dollarADay, "PER", "workspace"))
		x, e := agent("x"), policy.Event{EstimateUSD: 5}
		if d := n.mustCall(x, e); d.Action != policy.Allow {
			t.Fatalf("%+v", d.Verdict)
		}
		n.Stop()
		n = startAt(t, address, dir, clock)
		n.Must(n.book.Bootstrap(t.Context()))
		clock.Move(14 * time.Minute)
		if d := n.mustCall(agent("y"), e); d.Action != policy.Defer || d.Record.Reserve != nil {
			t.Errorf("after 14 minutes: %+v", d.Verdict)
		}
		clock.Move(2 * time.Minute)
		if d := n.mustCall(agent("y"), e); d.Action != policy.Allow || d.Record.Reserve == nil {
			t.Errorf("after 16 minutes: %+v", d.Verdict)
		}
	})
}

func TestOnlyTheServerReleasesAndOnlyOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		put(t, []*node{n}, strings.ReplaceAll(dollarADay, "PER", "workspace"))
		x, y, e := agent("x"), agent("y"), policy.Event{EstimateUSD: 5}
		first := n.mustCall(x, e)
		id := first.Record.Reserve.ID
		reserved := func() float64 {
			all, err := n.book.Budgets(t.Context(), rulebook.Belongs{Workspace: "default"})
			n.Must(err)
			return all[0].ReservedUSD
		}
		for _, b := range []over{
			{Agent: y.ID, Reserve: id}, // another agent
			{Reserve: id + "x"},
			{Reserve: "reserve_00000000000000000000000000"},
		} {
			n.end(y, b)
			if d := n.mustCall(y, e); d.Action != policy.Defer {
				t.Errorf("after %+v: %+v", b, d.Verdict)
			}
		}
		n.end(x, over{Reserve: id, USD: 0.1})
		second := n.mustCall(y, e)
		if second.Action != policy.Allow || second.Record.Reserve.ID == id {
			t.Fatalf("after the release: %+v", second.Verdict)
		}
		n.end(x, over{Reserve: id}) // again
		if d := n.mustCall(x, e); d.Action != policy.Defer || reserved() != 5 {
			t.Errorf("the same release again: %+v, $%v reserved", d.Verdict, reserved())
		}
	})
}

// What a person has approved goes on without another decision, and is reserved with the entry that lets it go.
func TestAnApprovedCallReservesToo(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		put(t, []*node{n}, strings.ReplaceAll(dollarADay, "PER", "deck"))
		x, e := agent("x"), policy.Event{EstimateUSD: 5, Project: "website"}
		hold := n.book.ReserveFor(&e)
		n.end(x, over{Project: "website", Hold: hold})
		if d := n.mustCall(agent("y"), e); d.Action != policy.Defer {
			t.Errorf("%+v", d.Verdict)
		}
		if d := n.mustCall(agent("y"), policy.Event{EstimateUSD: 5}); d.Action != policy.Allow {
			t.Errorf("another deck: %+v", d.Verdict)
		}
		n.end(x, over{Reserve: hold.ID})
		if d := n.mustCall(agent("y"), e); d.Action != policy.Allow {
			t.Errorf("after it is over: %+v", d.Verdict)
		}
		put(t, []*node{n}, "rules: []\n")
		if r := n.book.ReserveFor(&e); r != nil {
			t.Errorf("nobody counts, and %+v is reserved", r)
		}
	})
}

// Agents name run and deck themselves.
func TestAnAgentThatLiesDoesNotEscapeABudget(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		for _, per := range []string{"agent", "workspace"} {
			put(t, []*node{n}, strings.ReplaceAll(dollarADay, "PER", per))
			x := agent("liar-" + per)
			x.Workspace = "w-" + per
			for i, lie := range []policy.Event{
				{Run: "run-1", Project: "a"},
				{Run: "run-2", Project: "b", Workspace: "elsewhere/folder"},
				{Run: strings.Repeat("x", 1<<16), Project: "\x00deck\x00w\x00c"},
				{Run: "", Project: "", Session: "another", Tool: "another"},
				{CostUSD: -100, Tokens: -1 << 62, EstimateUSD: -100, EstimateTokens: -1 << 62},
			} {
				n.end(x, over{USD: 0.2, Run: lie.Run, Project: strings.ReplaceAll(lie.Project, "\x00", "")})
				d := n.mustCall(x, lie)
				if want := i < 4; (d.Action == policy.Allow) != want {
					t.Errorf("per %s, lie %d: %+v %v", per, i, d.Verdict, d.Record.Recent)
				}
			}
			if d := n.mustCall(x, policy.Event{Run: "new", Project: "new"}); d.Action != policy.Block {
				t.Errorf("per %s: %+v", per, d.Verdict)
			}
			// Nobody pays for a run or a deck of another workspace.
			put(t, []*node{n}, "budgets:\n  - {name: r, per: run, usd: 0.1}\n  - {name: d, per: deck, each: day, usd: 0.1}\n")
			if d := n.mustCall(agent("other"), policy.Event{Run: "run-1", Project: "a"}); d.Action != policy.Allow {
				t.Errorf("the same names in another workspace: %+v", d.Verdict)
			}
			y := agent("y")
			y.Workspace = x.Workspace
			if d := n.mustCall(y, policy.Event{Run: "run-1"}); d.Rule != "r" {
				t.Errorf("the same run, another agent: %+v", d.Verdict)
			}
			if d := n.mustCall(y, policy.Event{Run: "run-9", Project: "b"}); d.Rule != "d" {
				t.Errorf("the same deck, another run: %+v", d.Verdict)
			}
			if d := n.mustCall(y, policy.Event{Project: "nowhere"}); d.Action != policy.Allow {
				t.Errorf("without a run: %+v", d.Verdict)
			}
			if d := n.mustCall(y, policy.Event{Project: "default"}); d.Rule != "d" {
				t.Errorf("what names no deck counts for the default one: %+v", d.Verdict)
			}
		}
	})
}

// The budget of a handoff has the same reserves as those of a policy, without any rule that counts.
func TestCallsAtOnceDoNotPassTheBudgetOfAHandoffTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, dana := withDana(t, address)
		n.apply("  []\n")
		who := map[string]roster.Identity{}
		for _, name := range []string{"lead", "helper"} {
			_, keys, err := n.roster.AddAgent(t.Context(), roster.Identity{Role: roster.Admin},
				roster.NewAgent{Name: name, Workspace: "default", Owner: "dana"})
			n.Must(err)
			who[name], err = n.roster.Authenticate(t.Context(), keys[0].Secret)
			n.Must(err)
		}
		for name, b := range map[string]policy.Budget{"dollars": {CostUSD: 1}, "tokens": {Tokens: 1000}} {
			h, err := n.handoffs.Open(t.Context(), handoff.By{Who: who["lead"], User: &dana, Proof: roster.ProofOwner},
				handoff.Opening{To: "helper", Budget: b})
			n.Must(err)
			e := policy.Event{
				EstimateUSD: 0.5, EstimateTokens: 600, Claim: policy.Claim{Token: n.handoffs.Token(h.ID)},
			}
			n.end(who["helper"], over{USD: 0.9, Tokens: 900, Handoff: h.ID})
			testbed.Until(t, "it was counted", func() bool { return n.book.Spent(h.ID).Tokens == 900 })
			var mu sync.Mutex
			var passed []rulebook.Decision
			testbed.AtOnce(50, func(int) {
				d, err := n.call(who["helper"], e)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case d.Action == policy.Allow:
					passed = append(passed, d)
				case d.Action != policy.Defer || d.Rule != policy.HandoffRule:
					t.Errorf("%s: %+v", name, d.Verdict)
				}
			})
			if len(passed) != 1 {
				t.Fatalf("%s: %d calls passed", name, len(passed))
			}
			if got := n.book.Spent(h.ID); got.CostUSD != 0.9 || got.Tokens != 900 {
				t.Errorf("%s: what is reserved is shown as spent: %+v", name, got)
			}
			n.end(who["helper"], over{Reserve: passed[0].Record.Reserve.ID, USD: 0.05, Tokens: 50, Handoff: h.ID})
			second := n.mustCall(who["helper"], e)
			if second.Action != policy.Allow {
				t.Fatalf("%s, after it is over: %+v", name, second.Verdict)
			}
			n.end(who["helper"], over{Reserve: second.Record.Reserve.ID, USD: 0.05, Tokens: 50, Handoff: h.ID})
			if d := n.mustCall(who["helper"], e); d.Action != policy.Block || d.Rule != policy.HandoffRule {
				t.Errorf("%s, spent: %+v", name, d.Verdict)
			}
		}
		report, err := n.book.Replay(t.Context(), mustParse(t, "rules: []\n"), time.Time{}, func(int64, int64) {})
		if err != nil || report.Changed != 0 || report.OtherRule != 0 || report.Decisions < 100 {
			t.Errorf("the record says otherwise than the policy: %+v %v", report, err)
		}
	})
}

// Nothing that agents report makes what was used of a handoff smaller, however large it is.
func TestWhatWasUsedOfAHandoffDoesNotOverflow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply(`  - {name: r, on: [action], when: 'recent.tokens("1h") >= 5', then: block}` + "\n")
		x := agent("x")
		n.Must(n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
			for range 10_000 { // 1e19 tokens, which is more than an int64 holds
				tx.Append(ledger.Event{
					Workspace: "default", Kind: "call.over", Actor: "agent:x", Subject: "call",
					Body: over{Agent: x.ID, Tokens: 1e15, USD: 1e300},
				})
			}
			return nil
		}))
		testbed.Until(t, "it was counted", func() bool {
			d := n.book.Decide(t.Context(), x, policy.Event{Point: policy.OnAction})
			return d.Rule == "r" && seen(d, "tokens", "1h") == 1e19
		})
	})
}

func TestBudgetsOfLayersHoldAndAreReplayedAndExplained(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := startLayered(t, address, t.TempDir())
		ws, user := rulebook.Layer{Workspace: "default"}, rulebook.Layer{Workspace: "default", User: n.alice.ID}
		const allowAll = "rules: [{name: all, on: [prompt], then: allow}]\n"
		put(t, []*node{n.node}, allowAll+"budgets: [{name: trial, per: deck, each: day, usd: 0.1, mode: shadow}]\n")
		wsSource := "budgets: [{name: ws-day, per: workspace, each: day, usd: 1}]\n"
		n.applyTo(ws, wsSource)
		n.applyTo(user, allowAll+"budgets: [{name: her-hour, per: user, each: hour, tokens: 500}]\n")
		alice, bob, eve := agentOf("a", n.alice), agent("b"), agentOf("e", n.eve)
		e := policy.Event{EstimateUSD: 2, EstimateTokens: 100}
		want := func(when string, who roster.Identity, then policy.Action, rule, layer string, shadows int) rulebook.Decision {
			t.Helper()
			d := n.mustCall(who, e)
			if d.Action != then || d.Rule != rule || d.Record.Layer != layer || len(d.Shadow) != shadows {
				t.Errorf("%s: %+v", when, d.Verdict)
			}
			return d
		}
		first := want("at first", alice, policy.Allow, "all", "", 0)
		want("what is reserved counts for the workspace", bob, policy.Defer, "ws-day", "workspace", 1)
		want("and not elsewhere", eve, policy.Allow, "all", "", 0)
		n.end(alice, over{Reserve: first.Record.Reserve.ID, USD: 0.2, Tokens: 600, User: n.alice.ID})
		want("her tokens", alice, policy.Block, "her-hour", "user", 1)
		last := want("which are hers", bob, policy.Allow, "all", "", 1)
		n.end(bob, over{Reserve: last.Record.Reserve.ID, USD: 0.8})
		want("spent", bob, policy.Block, "ws-day", "workspace", 1)

		report, err := n.book.ReplayLayer(t.Context(), ws, mustParse(t, wsSource), time.Time{}, func(int64, int64) {})
		if err != nil || report.Changed != 0 || report.OtherRule != 0 || report.Decisions < 5 {
			t.Errorf("the record says otherwise than the policy: %+v %v", report, err)
		}
		// A budget that was never in force is counted anew, with what was reserved.
		another := mustParse(t, "budgets: [{name: ws-hour, per: workspace, each: hour, usd: 0.9}]\n")
		report, err = n.book.ReplayLayer(t.Context(), ws, another, time.Time{}, func(int64, int64) {})
		if err != nil || report.Changed != 0 || report.OtherRule != 2 {
			t.Errorf("another budget: %+v %v", report, err)
		}
		entries, err := n.Ledger.Entries(t.Context(), ledger.Query{Kinds: []string{"prompt.decided"}, Limit: 100})
		n.Must(err)
		for i := range entries {
			r, err := rulebook.ReadDecision(&entries[i])
			n.Must(err)
			x, err := n.book.Explain(t.Context(), entries[i].Seq)
			if err != nil || x.Then != r.Decision.Then || x.Rule != r.Decision.Rule || x.Layer != r.Decision.Layer ||
				x.Reason != r.Decision.Reason {
				t.Errorf("entry %d, %s by %s of %q, is explained as %+v %v", entries[i].Seq, r.Decision.Then, r.Decision.Rule,
					r.Decision.Layer, x, err)
			}
		}

		list := func(ctx context.Context, of rulebook.Belongs) (got []string) {
			all, err := n.book.Budgets(ctx, of)
			n.Must(err)
			for _, b := range all {
				got = append(got, fmt.Sprint(b.Workspace, " ", b.Name, " ", b.Mode, " ", b.SpentUSD))
			}
			return got
		}
		of := rulebook.Belongs{Agent: alice.ID, User: n.alice.ID, Workspace: "default"}
		if diff := cmp.Diff([]string{" trial shadow 1", "default her-hour enforce 0", "default ws-day enforce 1"},
			list(t.Context(), of)); diff != "" {
			t.Error(diff)
		}
		confined := wire.WithScope(t.Context(), "default")
		if diff := cmp.Diff([]string{"default ws-day enforce 1"}, list(confined, rulebook.Belongs{})); diff != "" {
			t.Error(diff)
		}
		if _, err := n.book.Budgets(confined, rulebook.Belongs{Workspace: "other"}); err == nil {
			t.Error("somebody who is confined to a workspace sees the budgets of another")
		}
	})
}
