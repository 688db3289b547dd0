package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/policy"
)

// pieces of conditions; among them are some that fail for some inputs.
var pieces = []string{
	`true`, `false`, `event.tool == "a"`, `event.tool == "b"`, `event.depth > 2`, `event.payload.n > 1`,
	`event.payload.s.startsWith("a")`,
	`event.payload.list.exists(x, x == "a")`, `1 / event.depth > 0`, `event.payload.n * 2 == 4`,
	`event.payload.n / 4 > 0.4`, `event.payload.n % 2 == 0`, `has(event.payload.s)`, `recent.actions("1m") > 1`,
	`"a" == event.tool`, `event.tool in ["a", "c", "a"]`, `event.tool in []`, `event.tool == event.payload.s`,
	`agent.name == "a"`, `event.tool == ""`,
	`"a" in event.tools`, `event.tool == "b" || "a" in event.tools`, `agent.name in event.tools`,
	`event.payload.list[0] == event.payload.s`, `event.payload.deep.x.y && event.payload.list == []`,
	`agent.labels.team == "a"`, `size(event.payload.list) == event.depth`,
	`event.opaque`, `"eval" in event.opaque_reasons`, `event.deletes.covers("/")`, `event.writes.outside([".", "/tmp"])`,
	`event.paths.within([event.payload.s])`, `size(event.hosts) > 0`, `event.hosts.exists(h, h.startsWith("a"))`,
	`event.commands.exists(c, c.name == "rm" && "-r" in c.flags)`,
	`event.commands.exists(c, c.name == "git" && "push" in c.args)`,
	`event.commands.exists(c, "push" in c.targets && (c.name == "git" || c.name == "tee"))`,
	`event.commands.exists(c, event.commands.exists(c, c.name == "git") && "push" in c.args)`,
}

type draftRule struct {
	Name, When, Then string
	Shadow           bool
}

func (r draftRule) String() string {
	mode := "enforce"
	if r.Shadow {
		mode = "shadow"
	}
	return fmt.Sprintf("  - {name: %s, on: [action], when: '%s', then: %s, mode: %s}\n", r.Name, r.When, r.Then, mode)
}

var anyRules = rapid.Custom(func(t *rapid.T) []draftRule {
	rules := make([]draftRule, rapid.IntRange(0, 6).Draw(t, "rules"))
	for i := range rules {
		when := rapid.SampledFrom(pieces).Draw(t, "piece")
		for range rapid.IntRange(0, 2).Draw(t, "more") {
			operator := rapid.SampledFrom([]string{"&& ", "|| ", "&& !", "|| !"}).Draw(t, "operator")
			when = fmt.Sprintf("(%s) %s(%s)", when, operator, rapid.SampledFrom(pieces).Draw(t, "piece"))
		}
		rules[i] = draftRule{
			fmt.Sprintf("r%d", i), when,
			rapid.SampledFrom([]string{"allow", "block", "defer", "gate"}).Draw(t, "then"), rapid.Bool().Draw(t, "shadow"),
		}
	}
	return rules
})

var anyValue = rapid.OneOf(
	rapid.Just[any](nil), rapid.Just[any]("a"), rapid.Just[any]("b"), rapid.Just[any](true), rapid.Just[any](int64(2)),
	rapid.Just[any](1.5), rapid.Just[any](2.0), rapid.Just[any](1),
	rapid.Just[any](math.NaN()), rapid.Just[any]([]any{"a", nil, int64(1)}),
	rapid.Just[any](map[string]any{"x": map[string]any{"y": true}}), rapid.Just[any]([]any{}),
)

var anyInput = rapid.Custom(func(t *rapid.T) policy.Input {
	payload := map[string]any{}
	for _, key := range []string{"n", "s", "list", "deep"} {
		if rapid.Bool().Draw(t, "has "+key) {
			payload[key] = anyValue.Draw(t, key)
		}
	}
	return policy.Input{
		Event: &policy.Event{
			Point: rapid.SampledFrom([]policy.Point{"action", "action", "action", "prompt", "nowhere", ""}).Draw(t, "point"),
			Tool:  rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "tool"), Depth: rapid.Int64Range(0, 4).Draw(t, "depth"),
			Command: rapid.SampledFrom([]string{
				"", "ls b", "rm -rf /", "curl a.example >x", "eval $x", "git pull | tee push",
				"git push",
			}).Draw(t, "command"),
			Payload: payload,
			Tools:   rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, "tools"),
		},
		Agent: policy.Agent{
			Name:   rapid.SampledFrom([]string{"", "a"}).Draw(t, "agent"),
			Labels: map[string]string{"team": rapid.SampledFrom([]string{"", "a"}).Draw(t, "team")},
		},
		Counts: policy.Counts{"actions": {"1m": rapid.Float64Range(0, 3).Draw(t, "actions")}},
		Now:    time.Unix(0, 0),
	}
})

func draft(tb rapid.TB, rules []draftRule) *policy.Policy {
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for _, r := range rules {
		b.WriteString(r.String())
	}
	p, err := policy.Parse([]byte(b.String()))
	if err != nil {
		tb.Fatalf("%v\n%s", err, b.String())
	}
	return p
}

// alone is what a rule says when it is the only one: nil if it does not match.
func alone(t *rapid.T, r draftRule, in policy.Input) *policy.Verdict {
	r.Shadow = false
	v := draft(t, []draftRule{r}).Decide(t.Context(), in)
	if v.Rule == policy.DefaultRule {
		return nil
	}
	return &v
}

func withoutShadow(v policy.Verdict) policy.Verdict {
	v.Shadow = nil
	return v
}

func TestLawTheFirstMatchingRuleDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, in := anyRules.Draw(t, "rules"), anyInput.Draw(t, "input")
		got := draft(t, rules).Decide(t.Context(), in)
		want := draft(t, nil).Decide(t.Context(), in)
		var shadows []policy.Shadow
		if in.Event.Point == policy.OnAction {
			for _, r := range rules {
				v := alone(t, r, in)
				if v != nil && r.Shadow {
					shadows = append(shadows, policy.Shadow{Rule: r.Name, Action: v.Action, Failed: v.Failed})
				}
				if v != nil && !r.Shadow {
					want = *v
					break
				}
			}
		}
		want.Shadow = shadows
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestLawARuleAfterTheOneThatDecidedChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, in := anyRules.Draw(t, "rules"), anyInput.Draw(t, "input")
		before := draft(t, rules).Decide(t.Context(), in)
		if before.Rule == policy.DefaultRule {
			t.Skip("no rule decided")
		}
		extra := draftRule{"extra", rapid.SampledFrom(pieces[:6]).Draw(t, "when"), "allow", rapid.Bool().Draw(t, "shadow")}
		after := draft(t, append(rules, extra)).Decide(t.Context(), in)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}

func TestLawShadowRulesNeverChangeTheOutcome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, in := anyRules.Draw(t, "rules"), anyInput.Draw(t, "input")
		before := draft(t, rules).Decide(t.Context(), in)
		at := rapid.IntRange(0, len(rules)).Draw(t, "at")
		trial := draftRule{"trial", rapid.SampledFrom(pieces[:10]).Draw(t, "when"), "block", true}
		more := append(append(append([]draftRule{}, rules[:at]...), trial), rules[at:]...)
		after := draft(t, more).Decide(t.Context(), in)
		if diff := cmp.Diff(withoutShadow(before), withoutShadow(after)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}

func TestLawNothingIsAllowedWhenEvaluationFailed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, in := anyRules.Draw(t, "rules"), anyInput.Draw(t, "input")
		v := draft(t, rules).Decide(t.Context(), in)
		if v.Failed && v.Action != policy.Block {
			t.Errorf("failed and %s", v.Action)
		}
		if v.Rule == "" || (v.Reason == "" && v.Action != policy.Allow) {
			t.Errorf("a verdict without a rule or a reason: %+v", v)
		}
		if (v.Action == policy.Gate) != (v.Gate != nil) {
			t.Errorf("a gate says how to ask, and nothing else does: %+v", v)
		}
	})
}

func TestLawAStoredInputIsDecidedAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, in := anyRules.Draw(t, "rules"), anyInput.Draw(t, "input")
		stored, err := json.Marshal(in)
		if err != nil {
			t.Skip("NaN is no JSON")
		}
		var again policy.Input
		if err := policy.DecodeData(stored, &again); err != nil {
			t.Fatal(err)
		}
		p := draft(t, rules)
		if diff := cmp.Diff(p.Decide(t.Context(), in), p.Decide(t.Context(), again)); diff != "" {
			t.Errorf("(-live +stored):\n%s", diff)
		}
	})
}

func TestLawParsingIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("version: 1\nrules:\n")
		for _, r := range anyRules.Draw(t, "rules") {
			b.WriteString(r.String())
		}
		source := []byte(b.String())
		for range rapid.IntRange(0, 3).Draw(t, "mistakes") {
			i := rapid.IntRange(0, len(source)-1).Draw(t, "where")
			source[i] = rapid.SampledFrom([]byte("xX:{}[]'\" \n&*!#|>-,.\x00\xff")).Draw(t, "what")
		}
		p, err := policy.Parse(source)
		again, errAgain := policy.Parse(source)
		if diff := cmp.Diff(policy.Problems(err), policy.Problems(errAgain)); diff != "" {
			t.Error(diff)
		}
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("%v, and then %v", err, errAgain)
		}
		for _, problem := range policy.Problems(err) {
			if problem.Line < 1 || problem.Column < 1 || problem.Message == "" || problem.Hint == "" {
				t.Errorf("%+v", problem)
			}
		}
		if err == nil && (p.Version() != again.Version() || cmp.Diff(p.Rules(), again.Rules()) != "") {
			t.Error("the same source gave two policies")
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(string(policy.Default()))
	f.Add(ordered)
	f.Add("version: 1\nrules: [{name: a, on: [action], when: \"event.tool == " +
		"\\\"x\\u0041\\\"\", then: modify, set: {a: [1, .5, null]}}]")
	f.Add("version: 1\nrules:\n  - name: a\n    when: >-\n      event.tol\n\n      == 'x'\n")
	f.Fuzz(func(t *testing.T, source string) {
		p, err := policy.Parse([]byte(source))
		if err != nil {
			for _, problem := range policy.Problems(err) {
				if problem.Line < 1 || problem.Column < 1 {
					t.Errorf("%+v", problem)
				}
			}
			return
		}
		for _, point := range policy.Points {
			in := something
			in.Event.Point = point
			if v := p.Decide(t.Context(), in); v.Failed && v.Action != policy.Block {
				t.Errorf("%+v", v)
			}
		}
	})
}

// Rules that are found by what they cannot hold without decide as if each were tried. What
// stands behind two negations is not seen by who looks for that.
func TestFindingRulesByWhatTheyNeedChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules, in := anyRules.Draw(t, "rules"), anyInput.Draw(t, "input")
		tried := slices.Clone(rules)
		for i := range tried {
			tried[i].When = "!(!(" + tried[i].When + "))"
		}
		found, all := draft(t, rules).Decide(t.Context(), in), draft(t, tried).Decide(t.Context(), in)
		if diff := cmp.Diff(all, found); diff != "" {
			t.Fatalf("each tried, and found:\n%s", diff)
		}
	})
}
