package rulebook_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

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
		report, err := n.book.Replay(t.Context(), mustParse(t, "  []\n"), time.Time{}, func(int64, int64) {})
		if err != nil || report.Changed != 0 || report.OtherRule != 0 || report.Decisions < 100 {
			t.Errorf("the record says otherwise than the policy: %+v %v", report, err)
		}
	})
}

// Nothing that agents report makes what was used of a handoff smaller, however large it is.
func TestWhatWasUsedOfAHandoffDoesNotOverflow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply(`  - {name: r, on: [action], when: 'recent.tokens("day") >= 5', then: block}` + "\n")
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
			return d.Rule == "r" && seen(d, "tokens", "day") == 1e19
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

		report, err := n.book.ReplayLayer(t.Context(), ws, mustParseAll(t, wsSource), time.Time{}, func(int64, int64) {})
		if err != nil || report.Changed != 0 || report.OtherRule != 0 || report.Decisions < 5 {
			t.Errorf("the record says otherwise than the policy: %+v %v", report, err)
		}
		// A budget that was never in force is counted anew, with what was reserved.
		another := mustParseAll(t, "budgets: [{name: ws-hour, per: workspace, each: hour, usd: 0.9}]\n")
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
