package trial_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/policy"
	"signalbox/internal/policy/trial"
	"signalbox/internal/testbed"
)

const examples = `
version: 1
tests:
  - name: everything at once
    point: action
    event: {tool: bash, tokens: 3, cost_usd: 2, declared: true, tools: [a, b], artifacts: [{type: x}], payload: {n: 1, f: 1.5, at: 2026-05-01}}
    agent: {name: ann, labels: {team: ops}}
    recent: {actions: {10m: 4}, cost: {24h: 1.5}}
    now: 2026-05-01T12:00:00Z
    expect: {then: block, rule: all, reason: Enough}
  - {name: nothing, point: signal, expect: {then: allow, rule: default}}
`

const tested = `
version: 1
rules:
  - name: all
    on: [action]
    when: |
      event.tool == "bash" && event.tokens == 3 && event.cost_usd == 2.0 && event.declared && "b" in event.tools
      && event.artifacts[0].type == "x" && event.payload.n == 1 && event.payload.f > 1 && event.payload.at == "2026-05-01"
      && agent.name == "ann" && agent.labels.team == "ops" && recent.actions("10m") == 4 && recent.cost("24h") > 1.0
      && now == timestamp("2026-05-01T12:00:00Z")
    then: block
    reason: Enough of that.
`

func TestATestFileGivesInputsAndExpectations(t *testing.T) {
	tests, err := trial.Parse([]byte(examples))
	if err != nil {
		t.Fatal(err, policy.Problems(err))
	}
	for _, r := range tests.Run(parse(t, tested)) {
		if !r.Passed {
			t.Errorf("line %d, %s: %s", r.Line, r.Name, r.Problem)
		}
	}
	if tests[0].Line != 4 || tests[1].Input.Now != time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) {
		t.Errorf("got %+v", tests)
	}
}

func TestATestThatFailsSaysWhatCameInstead(t *testing.T) {
	p := parse(t, "version: 1\nrules:\n  - {name: no-root, on: [action], when: 1 / event.depth == 1, then: block}\n"+
		"  - {name: rest, on: [signal], when: true, then: gate, reason: Ask.}\n")
	for _, c := range []struct{ point, expect, want string }{
		{"prompt", "{then: block}", `then should be block, and is allow by the rule "default"`},
		{
			"signal", "{then: gate, rule: rset}",
			`the rule should be "rset", and is "rest" (there is no "rset"; did you mean "rest"?)`,
		},
		{"signal", "{then: gate, rule: default}", `the rule should be "default", and is "rest"`},
		{"signal", "{then: gate, reason: Please}", `the reason should contain "Please", and is "Ask."`},
		{
			"action", "{then: allow}",
			`then should be allow, and is block by the rule "no-root"; This is blocked because the rule "no-root" could ` +
				`not be evaluated: division by zero.`,
		},
	} {
		tests, err := trial.Parse([]byte("version: 1\ntests:\n  - {name: x, point: " + c.point + ", expect: " +
			c.expect + "}\n"))
		if err != nil {
			t.Fatal(err)
		}
		r := tests.Run(p)[0]
		if diff := cmp.Diff(c.want, r.Problem); diff != "" || r.Passed {
			t.Errorf("passed %v: %s", r.Passed, diff)
		}
	}
}

func TestAMistakeInATestFileIsToldWithItsPlace(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"", `1:1 The test file is empty. It begins with "version: 1".`},
		{"version: 1\n", `1:1 There are no tests. Write a list of tests, each beginning with "- name: …".`},
		{
			"version: 1\ntest: []\n",
			"1:1 There are no tests. Write a list of tests, each beginning with \"- name: …\".\n" +
				`2:1 The test file has no field "test". Did you mean "tests"?`,
		},
		{
			"version: 1\ntests: [a]\n",
			`2:9 A test should be a mapping, and is text. Write fields, one a line, as in "name: value".`,
		},
		{
			"version: 1\ntests: [{name: x, point: action}]\n",
			`2:9 The test has no "expect". A test has a name, a point and what to expect, as in expect: {then: block}.`,
		},
		{
			"version: 1\ntests: [{name: x, point: acton, expect: {then: blok}}]\n",
			"2:26 \"point\" cannot be \"acton\". Did you mean \"action\"?\n" +
				`2:48 "then" cannot be "blok". Did you mean "block"?`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, expect: {rule: x}}]\n",
			`2:42 "expect" has no "then". Write expect: {then: block}.`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, event: {tol: x}, expect: {then: block}}]\n",
			`2:42 event has no field "tol". Did you mean "to"?`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, event: {tool: 3}, expect: {then: block}}]\n",
			`2:48 "event.tool" should be text, and is a number. Rules see it as text.`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, event: {tokens: 1.5}, expect: {then: block}}]\n",
			`2:50 "event.tokens" should be a whole number, and is a number. Rules see it as a whole number.`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, agent: {labels: {a: 1}}, expect: {then: block}}]\n",
			`2:50 "agent.labels" should be a map, and is a mapping. Rules see it as a map.`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, recent: {action: {1m: 1}}, expect: {then: block}}]\n",
			`2:43 There is no counter "action". Did you mean "actions"? A counter of one tool, session, tier, user, run, deck or workspace is written ` +
				`"actions.tool", that of a rule "by_rule.NAME".`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, recent: {actions: {soon: 1}}, expect: {then: block}}]\n",
			`2:53 "soon" is not a length of time. Write a length of time such as 10m, 24h or 7d, or hour, day or month.`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, recent: {actions: {1m: many}}, expect: {then: block}}]\n",
			`2:57 "recent.actions" is text. Write a number.`,
		},
		{
			"version: 1\ntests: [{name: x, point: action, now: today, expect: {then: block}}]\n",
			`2:39 "now" cannot be "today". Write a time such as 2026-05-01T12:00:00Z.`,
		},
	} {
		_, err := trial.Parse([]byte(c.source))
		if diff := cmp.Diff(c.want, strings.Join(lines(policy.Problems(err)), "\n")); diff != "" {
			t.Errorf("%s(-want +got):\n%s", c.source, diff)
		}
	}
}

func FuzzParseTests(f *testing.F) {
	f.Add(examples)
	p := parse(f, tested)
	f.Fuzz(func(_ *testing.T, source string) {
		tests, err := trial.Parse([]byte(source))
		if err == nil {
			tests.Run(p)
		}
	})
}

func TestAStoredInputIsDecidedAsItWas(t *testing.T) {
	p := parse(t, tested)
	tests, err := trial.Parse([]byte(examples))
	if err != nil {
		t.Fatal(err)
	}
	want := p.Decide(t.Context(), tests[0].Input)
	stored, err := json.Marshal(tests[0].Input)
	if err != nil {
		t.Fatal(err)
	}
	var in policy.Input
	if err := policy.DecodeData(stored, &in); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, p.Decide(t.Context(), in)); diff != "" || want.Rule != "all" {
		t.Errorf("%+v: %s", want, diff)
	}
}

func lines(problems []policy.Problem) (out []string) {
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%d:%d %s %s", p.Line, p.Column, p.Message, p.Hint))
	}
	return out
}

// parse reads a policy that is right.
func parse(t testing.TB, source string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The page for people who write tests lists every key.
func TestThePageListsEveryKeyOfATest(t *testing.T) {
	page := testbed.Read(t, "../../../docs/policy.md")
	_, table, _ := strings.Cut(string(page), "| key of a test |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, key := range trial.Keys {
		if !strings.Contains(table, "`"+key+"`") {
			t.Errorf("docs/policy.md does not explain the key %s of a test", key)
		}
	}
}
