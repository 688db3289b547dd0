package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/policy"
)

func TestABudgetIsARuleThatComesFirst(t *testing.T) {
	p := parse(t, `version: 1
rules:
  - {name: allow-all, on: [prompt, tool_call, action], then: allow}
budgets:
  - {name: a, per: agent, each: hour, usd: 10}
  - {name: b, per: run, usd: 0.25, tokens: 1000, only: 'event.tool == "x" || event.model == "y" // either'}
  - {name: c, per: workspace, each: month, tokens: 5, then: gate, gate: {approvers: [ann]}, mode: shadow}
`)
	points := []policy.Point{policy.OnPrompt, policy.OnToolCall, policy.OnAction}
	want := []policy.RuleSummary{
		{Name: "a", When: `recent.cost("hour") >= 10.0`, Then: policy.Block, Mode: "enforce", Line: 5},
		{Name: "b", When: "(event.tool == \"x\" || event.model == \"y\" // either\n) && " +
			`(recent.cost("31d", "run") >= 0.25 || recent.tokens("31d", "run") >= 1000)`, Then: policy.Block, Mode: "enforce", Line: 6},
		{
			Name: "c", When: `recent.tokens("month", "workspace") >= 5`, Then: policy.Gate, Mode: "shadow", Line: 7,
			Approvers: []string{"ann"},
		},
		{Name: "allow-all", When: "true", Then: policy.Allow, Mode: "enforce", Line: 3},
	}
	for i := range want {
		want[i].Points, want[i].Budget = points, i < 3
	}
	if diff := cmp.Diff(want, p.Rules()); diff != "" {
		t.Error(diff)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	if all := p.Budgets(); len(all) != 3 || all[1].Only == "" || all[2].Per != "workspace" || all[0].USD != 10 {
		t.Errorf("%+v", all)
	}
	if !p.Reads("b", "event.model") || !p.Reads("a", "recent.cost") || p.Reads("a", "event.text") {
		t.Error("what the rules of budgets read is not known")
	}
	for _, c := range []struct {
		name    string
		in      policy.Input
		then    policy.Action
		rule    string
		reason  string
		shadows int
	}{
		{"nothing was used", policy.Input{Event: &policy.Event{Point: "prompt"}}, policy.Allow, "allow-all", "", 0},
		{
			"the rule before it in the file loosens nothing",
			policy.Input{
				Event: &policy.Event{Point: "action"}, Agent: policy.Agent{Name: "scout"}, Counts: policy.Counts{"cost": {"hour": 10}},
				Now: time.Date(2026, 12, 31, 23, 15, 0, 0, time.UTC),
			},
			policy.Block, "a",
			`The budget "a" of the agent "scout" is used up: $10 of $10 in this hour. It begins anew at 2027-01-01 00:00 UTC.`, 0,
		},
		{
			"only says what it is about",
			policy.Input{
				Event:  &policy.Event{Point: "prompt", Model: "z", Run: "r"},
				Counts: policy.Counts{"cost.run": {"31d": 9}},
			},
			policy.Allow, "allow-all", "", 0,
		},
		{
			"tokens count beside money",
			policy.Input{
				Event:  &policy.Event{Point: "prompt", Model: "y", Run: "r"},
				Counts: policy.Counts{"tokens.run": {"31d": 1001}, "cost.run": {"31d": 0.1}},
			},
			policy.Block, "b",
			`The budget "b" of the run "r" is used up: 1001 of 1000 tokens. It does not begin anew; ask a person for more.`, 0,
		},
		{
			"a budget on trial stops nobody",
			policy.Input{Event: &policy.Event{Point: "prompt"}, Counts: policy.Counts{"tokens.workspace": {"month": 5}}},
			policy.Allow, "allow-all", "", 1,
		},
		{
			"a signal is none of its business",
			policy.Input{Event: &policy.Event{Point: "signal"}, Counts: policy.Counts{"cost": {"hour": 10}}},
			policy.Allow, "default", "", 0,
		},
	} {
		if v := p.Decide(t.Context(), c.in); v.Action != c.then || v.Rule != c.rule || v.Reason != c.reason ||
			len(v.Shadow) != c.shadows {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestAMistakeInABudgetIsToldWithItsPlace(t *testing.T) {
	for _, c := range []struct{ budget, want string }{
		{
			"{name: a, per: agent, each: day}",
			`3:5 The budget has neither "usd" nor "tokens". Write usd: 20, or tokens: 1000000, or both.`,
		},
		{"{name: a, per: agent, usd: 1}", `3:5 The budget has no "each". Write each: with one of hour, day, month.`},
		{
			"{name: a, each: day, usd: 1}",
			`3:5 The budget has no "per". Write per: with one of agent, user, run, deck, workspace.`,
		},
		{
			"{per: agent, each: day, usd: 1}",
			`3:5 The budget has no "name". Every decision names its rule. Write name: day-of-a-deck.`,
		},
		{"{name: a, per: agnet, each: day, usd: 1}", `3:20 "per" cannot be "agnet". Did you mean "agent"?`},
		{
			"{name: a, per: run, each: day, usd: 1}",
			`3:31 "each" has no effect with per: run. Leave it out: a run has one budget, for as long as it lasts.`,
		},
		{
			"{name: a, per: user, each: week, usd: 1}",
			`3:32 "each" cannot be "week". Choose one of: hour, day, month.`,
		},
		{
			"{name: a, per: user, each: day, usd: -1}",
			`3:42 "usd" is -1. Write dollars, such as 20 or 0.5: more than 0, and at most 1000000.`,
		},
		{
			"{name: a, per: user, each: day, usd: .nan}",
			`3:42 "usd" is .nan. Write dollars, such as 20 or 0.5: more than 0, and at most 1000000.`,
		},
		{
			"{name: a, per: user, each: day, usd: ten}",
			`3:42 "usd" is text. Write dollars, such as 20 or 0.5: more than 0, and at most 1000000.`,
		},
		{
			"{name: a, per: user, each: day, tokens: 1.5}",
			`3:45 "tokens" is a number. It is a whole number from 1 to 1000000000000.`,
		},
		{
			"{name: a, per: user, each: day, usd: 1, then: allow}",
			`3:51 "then" cannot be "allow". Choose one of: block, gate.`,
		},
		{
			"{name: a, per: user, each: day, usd: 1, gate: {}}",
			`3:51 "gate" has no effect with then: block. It goes with then: gate.`,
		},
		{
			"{name: a, per: user, each: day, usd: 1, on: [prompt]}",
			`3:45 A budget has no field "on". Choose one of: name, per, each, usd, tokens, only, then, gate, ` +
				`reason, mode.`,
		},
		{
			"{name: a, per: user, each: day, usd: 1, only: event.tol == 'x'}",
			`3:57 event has no field "tol". Did you mean "to"?`,
		},
		{
			"{name: a, per: user, each: day, usd: 1, only: 3}",
			`3:51 "only" is a number. Write a condition such as event.tool == "bash", or true.`,
		},
		{
			"{name: r, per: user, each: day, usd: 1}",
			`5:12 The name "r" is taken by the rule on line 3. Every decision names its rule, so give each a ` +
				`name of its own.`,
		},
		{
			"{name: default, per: user, each: day, usd: 1}",
			`3:12 A rule cannot be called "default". That is what decides when no rule matches. Choose another.`,
		},
		{"5", `3:5 A budget should be a mapping, and is a number. Write fields, one a line, as in "name: value".`},
	} {
		got := problemsOf(t, "version: 1\nbudgets:\n  - "+c.budget+"\nrules:\n  - {name: r, on: [action], then: block}\n")
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.budget, got, c.want)
		}
	}
	got := problemsOf(t, "version: 1\nbudgets: {a: 1}\n")
	if len(got) != 1 || !strings.Contains(got[0], `"budgets" should be a list`) {
		t.Errorf("%q", got)
	}
	never := parse(t, "version: 1\nbudgets:\n  - {name: a, per: user, each: day, usd: 1, only: 'event.does == \"fly\"'}\n")
	if err := never.Check(); err == nil {
		t.Error("a condition that never holds is not found")
	}
}

// A budget that leaves it to a person takes no power away from the rules.
func TestABudgetThatAsksAPersonLoosensNoRule(t *testing.T) {
	const source = `version: 1
budgets: [{name: b, per: agent, each: day, usd: 1, then: gate, reason: Over the budget.}]
rules:
  - {name: blocked, on: [action], when: event.tool == "block", then: block}
  - {name: deferred, on: [action], when: event.tool == "defer", then: defer}
  - {name: failing, on: [action], when: event.tool == "fail" && event.payload.x > 1, then: allow}
  - {name: asked, on: [action], when: event.tool == "gate", then: gate, reason: Two people., gate: {quorum: 2}}
  - {name: changed, on: [action], when: event.tool == "modify", then: modify, set: {tool: other}}
  - {name: allowed, on: [action], when: event.tool == "allow", then: allow}
`
	p := parse(t, source)
	for tool, want := range map[string]struct {
		then   policy.Action
		rule   string
		quorum int
	}{
		"block": {policy.Block, "blocked", 0}, "defer": {policy.Defer, "deferred", 0}, "fail": {policy.Block, "failing", 0},
		"gate": {policy.Gate, "asked", 2}, "modify": {policy.Gate, "b", 1}, "allow": {policy.Gate, "b", 1},
		"other": {policy.Gate, "b", 1},
	} {
		in := policy.Input{
			Event:  &policy.Event{Point: "action", Tool: tool, Payload: map[string]any{"x": "text"}},
			Counts: policy.Counts{"cost": {"day": 1}},
		}
		v := p.Decide(t.Context(), in)
		if v.Action != want.then || v.Rule != want.rule || v.Action == policy.Gate && v.Gate.Quorum != want.quorum {
			t.Errorf("%s: %+v", tool, v)
		}
		if v.Action == policy.Gate && !strings.Contains(v.Reason, "Over the budget.") {
			t.Errorf("%s: the reason is %q", tool, v.Reason)
		}
		if tool == "modify" && v.Changes.Set["tool"] != "other" {
			t.Errorf("what the rule changes is forgotten: %+v", v)
		}
	}
	if v := parse(t, strings.ReplaceAll(source, "rules:", "defaults: {action: block}\nrules:")).Decide(t.Context(), policy.Input{
		Event: &policy.Event{Point: "action", Tool: "other"}, Counts: policy.Counts{"cost": {"day": 1}},
	}); v.Action != policy.Block || v.Rule != "default" {
		t.Errorf("a default that blocks: %+v", v)
	}
}

func TestWhatIsOnlyReservedIsDeferred(t *testing.T) {
	p := parse(t, `version: 1
budgets: [{name: b, per: deck, each: day, usd: 1}]
rules:
  - {name: rule, on: [prompt], when: 'recent.tokens("1h") > 100', then: block}
  - {name: ask, on: [prompt], when: 'recent.tokens("2h") > 100', then: gate}
  - {name: never, on: [prompt], when: event.tool == "never", then: block}
`)
	counts := func(what, window string, n float64) policy.Counts { return policy.Counts{what: {window: n}} }
	for _, c := range []struct {
		name             string
		tool             string
		counts, reserved policy.Counts
		then             policy.Action
		rule             string
	}{
		{"spent", "", counts("cost.deck", "day", 1), nil, policy.Block, "b"},
		{"spent, and something reserved", "", counts("cost.deck", "day", 1.5), counts("cost.deck", "day", 0.5), policy.Block, "b"},
		{"reserved", "", counts("cost.deck", "day", 1.2), counts("cost.deck", "day", 0.2000001), policy.Defer, "b"},
		{"exactly spent, and rounded", "", counts("cost.deck", "day", 1.2), counts("cost.deck", "day", 0.2), policy.Block, "b"},
		{"by a rule", "", counts("tokens", "1h", 200), counts("tokens", "1h", 100), policy.Defer, "rule"},
		{"by a rule that asks", "", counts("tokens", "2h", 200), counts("tokens", "2h", 100), policy.Defer, "ask"},
		{"something else is reserved", "", counts("cost.deck", "day", 1), counts("cost", "day", 5), policy.Block, "b"},
		{"another rule blocks anyway", "never", counts("cost.deck", "day", 1.2), counts("cost.deck", "day", 1), policy.Block, "b"},
		{"nothing is reached", "", counts("cost.deck", "day", 0.9), counts("cost.deck", "day", 0.9), policy.Allow, "default"},
	} {
		in := policy.Input{Event: &policy.Event{Point: "prompt", Tool: c.tool}, Counts: c.counts, Reserved: c.reserved}
		v := p.Decide(t.Context(), in)
		if v.Action != c.then || v.Rule != c.rule {
			t.Errorf("%s: %+v", c.name, v)
		}
		if v.Action == policy.Defer && (v.RetrySeconds() != 5 || !strings.Contains(v.Reason, "reserved for calls under way")) {
			t.Errorf("%s: %+v", c.name, v)
		}
		if x := p.Explain(t.Context(), in); x.Then != c.then || x.Rule != c.rule || x.Reason != v.Reason {
			t.Errorf("%s is explained as %+v", c.name, x)
		}
	}
	in := policy.Input{
		Event: &policy.Event{Point: "prompt"},
		Delegation: &policy.Delegation{Verified: true, ID: "h", Hops: []policy.Hop{{
			ID: "h", Budget: policy.Budget{CostUSD: 1}, Spent: policy.Budget{CostUSD: 1.2}, Reserved: policy.Budget{CostUSD: 0.3},
		}}},
	}
	if v := p.Decide(t.Context(), in); v.Action != policy.Defer || v.Rule != policy.HandoffRule {
		t.Errorf("of a handoff: %+v", v)
	}
	in.Delegation.Hops[0].Spent.CostUSD = 1.3
	if v := p.Decide(t.Context(), in); v.Action != policy.Block || v.Rule != policy.HandoffRule {
		t.Errorf("of a handoff that is spent: %+v", v)
	}
}

// The law: what is reserved lets nothing pass, and without anything reserved nothing changes.
func TestReservesOnlyMakeADecisionStricterOrADefer(t *testing.T) {
	p := parse(t, `version: 1
budgets:
  - {name: b, per: agent, each: day, usd: 5}
  - {name: g, per: agent, each: hour, usd: 3, then: gate}
rules:
  - {name: r, on: [prompt], when: 'recent.cost("1h") > 2.0', then: defer}
  - {name: s, on: [prompt], when: 'recent.cost("2h") > 4.0', then: block}
`)
	rapid.Check(t, func(t *rapid.T) {
		all, reserved, spent := policy.Counts{}, policy.Counts{}, policy.Counts{}
		for _, w := range []string{"day", "hour", "1h", "2h"} {
			s, h := float64(rapid.IntRange(0, 6).Draw(t, "spent")), float64(rapid.IntRange(0, 6).Draw(t, "reserved"))
			all["cost"], reserved["cost"] = with(all["cost"], w, s+h), with(reserved["cost"], w, h)
			spent["cost"] = with(spent["cost"], w, s)
		}
		decide := func(counts, held policy.Counts) policy.Verdict {
			return p.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: "prompt"}, Counts: counts, Reserved: held})
		}
		got, without, full := decide(all, reserved), decide(spent, nil), decide(all, nil)
		switch {
		case full.Action == policy.Block && without.Action == policy.Block, full.Action == policy.Allow, full.Action == policy.Defer:
			if got.Action != full.Action || got.Rule != full.Rule {
				t.Fatalf("%+v, want %+v", got, full)
			}
		case got.Action == policy.Allow:
			t.Fatalf("%+v passes, although all together says %+v", got, full)
		case without.Action == policy.Allow && got.Action != policy.Defer:
			t.Fatalf("%+v, although without what is reserved it says %+v", got, without)
		}
	})
}

func with(m map[string]float64, name string, n float64) map[string]float64 {
	if m == nil {
		m = map[string]float64{}
	}
	m[name] = n
	return m
}
