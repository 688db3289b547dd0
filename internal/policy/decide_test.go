package policy_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/policy"
	"signalbox/internal/policy/window"
	"signalbox/internal/testbed"
)

const ordered = `
version: 1
defaults: {tool_call: block, task: defer, message: gate}
rules:
  - {name: trial, on: [action, tool_call], when: 'event.tool == "rm"', then: block, mode: shadow}
  - {name: broken-trial, on: [action], when: '1 / event.depth == 1', then: allow, mode: shadow}
  - {name: first, on: [action], when: 'event.tool == "rm"', then: gate, reason: Ask first., gate: {expires: 30m, approvers: [ann], risk: high}}
  - {name: second, on: [action], when: 'event.tool.startsWith("r")', then: block}
  - {name: wait, on: [action], when: 'event.tool == "wait"', then: defer, retry_after: 2m}
  - {name: wait-a-little, on: [action], when: 'event.tool == "sleep"', then: defer}
  - {name: dry, on: [action], when: 'event.tool == "deploy"', then: modify, set: {arguments: {dry_run: true, count: 3, ratio: 0.5, tags: [a, null]}}}
  - {name: think, on: [reasoning], when: true, then: allow, set: {hints: [slowly]}}
  - {name: fine, on: [tool_call], when: 'event.tool == "read"', then: allow, reason: Reading is fine.}
`

func TestTheFirstRuleThatMatchesDecides(t *testing.T) {
	p := parse(t, ordered)
	shadow := []policy.Shadow{{Rule: "broken-trial", Action: policy.Block, Failed: true}}
	for _, c := range []struct {
		name  string
		event policy.Event
		want  policy.Verdict
	}{
		{"the first of two", policy.Event{Point: "action", Tool: "rm", Depth: 1}, policy.Verdict{
			Action: policy.Gate, Rule: "first", Reason: "Ask first.",
			Gate: &policy.GateSpec{
				Expires: 30 * time.Minute, OnExpiry: "reject", Approvers: []string{"ann"}, Quorum: 1,
				RejectNeeds: 1, Uses: 1, Risk: "high",
			},
			Shadow: []policy.Shadow{{Rule: "trial", Action: policy.Block}, {Rule: "broken-trial", Action: policy.Allow}},
		}},
		{
			"a reason where none is given",
			policy.Event{Point: "action", Tool: "rmdir"},
			policy.Verdict{Action: policy.Block, Rule: "second", Reason: `The rule "second" blocks this.`, Shadow: shadow},
		},
		{
			"a defer",
			policy.Event{Point: "action", Tool: "wait"},
			policy.Verdict{
				Action: policy.Defer, Rule: "wait", Reason: `The rule "wait" puts this off. Ask again later.`,
				RetryAfter: 2 * time.Minute, Shadow: shadow,
			},
		},
		{
			"a defer that does not say",
			policy.Event{Point: "action", Tool: "sleep"},
			policy.Verdict{
				Action: policy.Defer, Rule: "wait-a-little",
				Reason: `The rule "wait-a-little" puts this off. Ask again later.`, RetryAfter: 30 * time.Second, Shadow: shadow,
			},
		},
		{"a modify", policy.Event{Point: "action", Tool: "deploy"}, policy.Verdict{
			Action: policy.Modify, Rule: "dry", Reason: `The rule "dry" changes this.`, Shadow: shadow,
			Changes: policy.Changes{Set: map[string]any{"arguments": map[string]any{
				"dry_run": true, "count": int64(3), "ratio": 0.5,
				"tags": []any{"a", nil},
			}}},
		}},
		{
			"an allow with hints",
			policy.Event{Point: "reasoning"},
			policy.Verdict{
				Action: policy.Allow, Rule: "think", Changes: policy.Changes{Set: map[string]any{"hints": []any{"slowly"}}},
			},
		},
		{
			"an allow with a reason",
			policy.Event{Point: "tool_call", Tool: "read"},
			policy.Verdict{Action: policy.Allow, Rule: "fine", Reason: "Reading is fine."},
		},
		{
			"the default that was chosen",
			policy.Event{Point: "tool_call", Tool: "write"},
			policy.Verdict{
				Action: policy.Block, Rule: "default",
				Reason: "No rule allows this, and what no rule allows is blocked at tool_call.",
			},
		},
		{
			"a default that defers",
			policy.Event{Point: "task"},
			policy.Verdict{
				Action: policy.Defer, Rule: "default", Reason: "No rule decides this now. Ask again later.",
				RetryAfter: 30 * time.Second,
			},
		},
		{
			"a default that asks",
			policy.Event{Point: "message"},
			policy.Verdict{
				Action: policy.Gate, Rule: "default", Reason: "No rule decides this, so a person does.",
				Gate: &policy.GateSpec{
					OnExpiry: "reject", Approvers: []string{"operator"}, Quorum: 1, RejectNeeds: 1, Uses: 1,
					Risk: "medium",
				},
			},
		},
		{
			"the default that nobody chose",
			policy.Event{Point: "signal"},
			policy.Verdict{Action: policy.Allow, Rule: "default"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, p.Decide(t.Context(), policy.Input{Event: &c.event})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if a := p.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: "confirmation"}}).Action; a != policy.Gate {
		t.Errorf("a confirmation that nothing is said of is %s", a)
	}
}

type panics struct{}

func (panics) Count(string, window.Window) float64 { panic("counting went wrong") }

func TestWhatCannotBeEvaluatedIsBlocked(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	items := make([]any, 3_000_000)
	for i := range items {
		items[i] = "x"
	}
	for _, c := range []struct {
		name, when string
		ctx        context.Context
		in         policy.Input
		reason     string
	}{
		{"a division by zero", "10 / event.tokens > 1", t.Context(), policy.Input{Event: &policy.Event{}}, "division by zero"},
		{
			"a wrong type", "event.payload.n > 1", t.Context(),
			policy.Input{Event: &policy.Event{Payload: map[string]any{"n": "many"}}},
			"string > int",
		},
		{
			"a panic of what counts", `recent.actions("1m") > 1`, t.Context(),
			policy.Input{Event: &policy.Event{}, Recent: panics{}},
			"counting went wrong",
		},
		{
			"a value that is no data", "event.payload.c == 1", t.Context(),
			policy.Input{Event: &policy.Event{Payload: map[string]any{"c": make(chan int)}}},
			"could not be evaluated",
		},
		{
			"a huge list", `event.payload.items.all(i, i == "x")`, t.Context(),
			policy.Input{Event: &policy.Event{Payload: map[string]any{"items": items}}},
			"cost limit exceeded",
		},
		{
			"text that is built over and over", `event.payload.items.map(i, event.payload.text + i).size() == 0`, t.Context(),
			policy.Input{Event: &policy.Event{Payload: map[string]any{"items": items, "text": strings.Repeat("x", 1<<20)}}},
			"cost limit exceeded",
		},
		{"a context that ended", "true", ended, policy.Input{Event: &policy.Event{}}, "context canceled"},
		{"no context", "true", nil, policy.Input{Event: &policy.Event{}}, "could not be evaluated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := parse(t, "version: 1\nrules:\n  - name: r\n    on: [action]\n    when: "+c.when+"\n    then: allow\n")
			c.in.Event.Point = policy.OnAction
			began := time.Now()
			v := p.Decide(c.ctx, c.in)
			if v.Action != policy.Block || !v.Failed || !strings.Contains(v.Reason, c.reason) {
				t.Errorf("got %+v", v)
			}
			if took := time.Since(began); took > testbed.Patience {
				t.Errorf("it took %s", took)
			}
		})
	}
	if v := parse(t, "version: 1").Decide(t.Context(),
		policy.Input{Event: &policy.Event{Point: "acton"}}); v.Action != policy.Block || !v.Failed {
		t.Errorf("at a control point that there is not: %+v", v)
	}
}

func TestALoopStopsWhenTheContextEnds(t *testing.T) {
	p := parse(t, "version: 1\nrules:\n  - {name: r, on: [action], when: 'event.payload.items.all(i, "+
		"recent.actions(\"1m\") >= 0)', then: allow}\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	in := policy.Input{
		Event: &policy.Event{Point: "action", Payload: map[string]any{"items": make([]any, 100_000)}},
		Recent: counting(func() {
			cancel(errors.New("enough"))
		}),
	}
	if v := p.Decide(ctx, in); !v.Failed || v.Action != policy.Block || !strings.Contains(v.Reason, "enough") {
		t.Errorf("got %+v", v)
	}
}

type counting func()

func (c counting) Count(string, window.Window) float64 { c(); return 1 }

type asked map[string]window.Window

func (a asked) Count(what string, w window.Window) float64 {
	a[what] = w
	return 2.5
}

func TestRecentIsAskedForTheWindowsThatTheRulesName(t *testing.T) {
	p := parse(t, `
version: 1
rules:
  - {name: a, on: [action], when: 'recent.actions("10m") > 2 || recent.cost("7d") > 2.4 && recent.blocks("1h30m") == 2 && recent.actions("10m") == 2', then: block}
`)
	want := []policy.Count{
		{What: "actions", Window: window.Last(10 * time.Minute)},
		{What: "cost", Window: window.Last(7 * 24 * time.Hour)},
		{What: "blocks", Window: window.Last(90 * time.Minute)},
	}
	if diff := cmp.Diff(want, p.Counts()); diff != "" {
		t.Error(diff)
	}
	recent := asked{}
	if v := p.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: "action"}, Recent: recent}); v.Rule != "a" {
		t.Errorf("got %+v", v)
	}
	if diff := cmp.Diff(asked{
		"actions": window.Last(10 * time.Minute), "cost": window.Last(7 * 24 * time.Hour),
		"blocks": window.Last(90 * time.Minute),
	},
		recent); diff != "" {
		t.Error(diff)
	}
	in := policy.Input{Event: &policy.Event{Point: "action"}, Counts: policy.Counts{"actions": {"600s": 3}}}
	if v := p.Decide(t.Context(), in); v.Rule != "a" {
		t.Errorf("from stored counts: %+v", v)
	}
	if v := p.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: "action"}}); v.Rule != policy.DefaultRule {
		t.Errorf("without any: %+v", v)
	}
}

func TestAPolicyDecidesForManyAtOnce(t *testing.T) {
	p, in := parse(t, string(policy.Default())), benchInput()
	want := p.Decide(t.Context(), in)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				if diff := cmp.Diff(want, p.Decide(t.Context(), in)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	wg.Wait()
}

func TestNoFurtherRuleIsTriedWhenTheContextHasEnded(t *testing.T) {
	p := parse(t, "version: 1\nrules:\n  - {name: slow, on: [action], when: 'recent.actions(\"1m\") > 5', then: "+
		"block}\n  - {name: all, on: [action], when: true, then: allow}\n")
	ctx, cancel := context.WithCancel(t.Context())
	in := policy.Input{Event: &policy.Event{Point: "action"}, Recent: counting(cancel)}
	if v := p.Decide(ctx, in); !v.Failed || v.Action != policy.Block || v.Rule != "all" {
		t.Errorf("got %+v", v)
	}
}

// A rule without a condition is one that always applies, and a query says what it asks.
func TestARuleWithoutWhenAppliesAlways(t *testing.T) {
	p, err := policy.Parse([]byte("version: 1\nrules:\n  - {name: q, on: [query], when: event.query_type == " +
		"\"secrets\", then: block, reason: no}\n  - {name: all, on: [query, rate_limit], then: defer, reason: later}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for rule, e := range map[string]policy.Event{
		"q":                {Point: policy.OnQuery, QueryType: "secrets"},
		"all":              {Point: policy.OnRateLimit},
		policy.DefaultRule: {Point: policy.OnAction},
	} {
		if v := p.Decide(t.Context(), policy.Input{Event: &e}); v.Rule != rule {
			t.Errorf("%+v: decided by %s", e, v.Rule)
		}
	}
}
