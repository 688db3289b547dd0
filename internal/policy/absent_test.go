package policy_test

import (
	"fmt"
	"testing"
	"time"

	"signalbox/internal/policy"
)

// outcome is "true", "false" or "error".
func outcome(tb testing.TB, condition string, in policy.Input) string {
	tb.Helper()
	p := parse(tb, fmt.Sprintf("version: 1\nrules:\n  - name: r\n    on: [action]\n"+
		"    when: |\n      %s\n    then: gate\n", condition))
	event := policy.Event{}
	if in.Event != nil {
		event = *in.Event
	}
	event.Point, in.Event = policy.OnAction, &event
	v := p.Decide(tb.Context(), in)
	switch {
	case v.Failed && v.Action == policy.Block:
		return "error"
	case v.Action == policy.Gate && v.Rule == "r":
		return "true"
	case v.Action == policy.Allow && v.Rule == policy.DefaultRule:
		return "false"
	}
	tb.Fatalf("%s: %+v", condition, v)
	return ""
}

var something = policy.Input{
	Event: &policy.Event{
		Tool: "bash", Tools: []string{"bash", "edit"}, CostUSD: 1.5, Tokens: 10,
		EstimateUSD: 2.5, EstimateTokens: 9000, Unpriced: true,
		Payload: map[string]any{
			"amount": 150.5, "three": 3.0, "numbers": []any{2.0, 4}, "large": 1e301, "count": int64(3), "name": "Ann",
			"flag": true, "nothing": nil, "zero": int64(0), "blank": "",
			"items": []any{map[string]any{"name": "x", "n": int64(1)}, map[string]any{"n": int64(2)}, nil},
			"deep":  map[string]any{"a": map[string]any{"b": "c"}}, "words": []any{"rm", "-rf", "/"},
			"when": "2026-05-01T12:00:00Z",
		},
		Arguments: map[string]any{"path": "/etc/passwd"},
	},
	Agent: policy.Agent{Labels: map[string]string{"team": "ops"}},
	Now:   time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
}

// Each condition and its outcome: of an input that has nothing, and of one that has
// something.
func TestWhatIsAbsentIsEmptyAndNeverAnError(t *testing.T) {
	for _, c := range []struct{ condition, nothing, something string }{
		// fields with types
		{`event.tool == ""`, "true", "false"},
		{`event.cost_usd > 1`, "false", "true"},
		{`event.tokens == 0`, "true", "false"},
		{`event.estimate_usd > 1 && has(event.estimate_usd)`, "false", "true"},
		{`event.estimate_tokens == 0 && !has(event.estimate_tokens)`, "true", "false"},
		{`event.unpriced`, "false", "true"},
		{`has(event.tool)`, "false", "true"},
		{`has(event.cost_usd)`, "false", "true"},
		{`has(event.payload)`, "false", "true"},
		{`has(event.tools)`, "false", "true"},
		{`has(event.declared)`, "false", "false"},
		{`event.tools[0] == "bash"`, "false", "true"},
		{`event.tools[7] == ""`, "true", "true"},
		{`event.tools[0].startsWith("ba")`, "false", "true"},
		{`"edit" in event.tools`, "false", "true"},
		{`size(event.payload) == 0`, "true", "false"},
		{`event.artifacts.exists(a, a.type == "x")`, "false", "false"},
		// labels hold text
		{`agent.labels.team == "ops"`, "false", "true"},
		{`agent.labels["team"] == "ops"`, "false", "true"},
		{`agent.labels.nope == ""`, "true", "true"},
		{`agent.labels.nope.startsWith("x")`, "false", "false"},
		{`has(agent.labels.team)`, "false", "true"},
		{`"team" in agent.labels`, "false", "true"},
		// text out of data
		{`event.arguments.path.startsWith("/etc")`, "false", "true"},
		{`event.arguments["path"].startsWith("/etc")`, "false", "true"},
		{`event.payload.name.contains("n")`, "false", "true"},
		{`event.payload.name.endsWith("n")`, "false", "true"},
		{`event.payload.name.matches("^A")`, "false", "true"},
		{`event.payload.name.matches("^$")`, "true", "false"},
		{`matches(event.payload.name, "^A")`, "false", "true"},
		{`event.payload.name.lowerAscii() == "ann"`, "false", "true"},
		{`event.payload.words.join(" ").contains("rm -rf")`, "false", "true"},
		{`event.payload.name.split("n").size() > 1`, "false", "true"},
		{`"pre" + event.payload.name == "preAnn"`, "false", "true"},
		{`event.payload.name + "post" == "post"`, "true", "false"},
		{`event.payload.name.size() == 3`, "false", "true"},
		{`size(event.payload.name) == 0`, "true", "false"},
		{`string(event.payload.count) == "3"`, "false", "true"},
		{`string(event.payload.name) == ""`, "true", "false"},
		{`"Ann".startsWith(event.payload.name)`, "true", "true"},
		// numbers out of data
		{`event.payload.amount > 100`, "false", "true"},
		{`event.payload.amount > 100.0`, "false", "true"},
		{`100 < event.payload.amount`, "false", "true"},
		{`event.payload.amount < 100`, "true", "false"},
		{`event.payload.amount <= 0`, "true", "false"},
		{`event.payload.amount >= 150.5`, "false", "true"},
		{`event.payload.count == 3`, "false", "true"},
		{`event.payload.count == 3.0`, "false", "true"},
		{`event.payload.count != 3`, "true", "false"},
		{`event.payload.zero == 0`, "true", "true"},
		{`event.payload.count * 2 == 6`, "false", "true"},
		{`event.payload.count * 2.0 == 6.0`, "false", "true"},
		{`event.payload.amount * 2 > 300`, "false", "true"},
		{`event.payload.amount - event.payload.count > 147`, "false", "true"},
		{`event.payload.count % 2 == 1`, "false", "true"},
		{`event.payload.count / 2 > 1`, "false", "true"},
		{`event.payload.count / 2.0 == 1.5`, "false", "true"},
		{`int(event.payload.amount * 2) == 301`, "false", "true"},
		{`string(event.payload.count / 2) == "1.5"`, "false", "true"},
		{`event.payload.amount * 2 == 301`, "false", "true"},
		{`event.payload.amount * 2 in [301]`, "false", "true"},
		{`(event.payload.flag ? event.payload.amount * 2 : 1) > 300`, "false", "true"},
		{`-(event.payload.amount * 2) < -300`, "false", "true"},
		{`6 / event.payload.count == 2`, "error", "true"},
		{`1.5 / event.payload.amount < 1`, "error", "true"},
		{`event.payload.three % 2 == 1`, "false", "true"},
		{`event.payload.three == event.payload.count`, "true", "true"},
		{`event.payload.numbers.all(n, n % 2 == 0)`, "true", "true"},
		{`event.payload.large > 1e300`, "false", "true"},
		{`-event.payload.count == -3`, "false", "true"},
		{`int(event.payload.amount) == 150`, "false", "true"},
		{`double(event.payload.count) / 2.0 > 1.4`, "false", "true"},
		{`event.payload.amount > event.payload.count`, "false", "true"},
		{`event.payload.amount == event.payload.nope`, "true", "false"},
		{`event.payload.count in [1, 2, 3]`, "false", "true"},
		{`event.payload.name in ["Ann", "Bob"]`, "false", "true"},
		{`event.payload.name in [""]`, "true", "false"},
		{`"rm" in event.payload.words`, "false", "true"},
		{`event.payload.name in event.payload.words`, "false", "false"},
		{`"name" in event.payload`, "false", "true"},
		{`"a" in event.payload.deep`, "false", "true"},
		// true and false out of data
		{`event.payload.flag == true`, "false", "true"},
		{`event.payload.flag && true`, "false", "true"},
		{`true && event.payload.flag`, "false", "true"},
		{`event.payload.flag || false`, "false", "true"},
		{`!event.payload.flag`, "true", "false"},
		{`event.payload.flag ? true : false`, "false", "true"},
		{`(event.payload.flag ? event.payload.name : "none") == "Ann"`, "false", "true"},
		{`(event.tool == "" ? "none" : event.payload.nope).startsWith("none")`, "true", "false"},
		{`(event.payload.flag ? event.payload : event.metadata).name == "Ann"`, "false", "true"},
		// deeper, and lists
		{`event.payload.deep.a.b == "c"`, "false", "true"},
		{`event.payload.deep.x.y.z == ""`, "true", "true"},
		{`event.payload.deep["a"]["b"] == "c"`, "false", "true"},
		{`event.payload.items[0].name == "x"`, "false", "true"},
		{`event.payload.items[1].name == ""`, "true", "true"},
		{`event.payload.items[99].name.startsWith("x")`, "false", "false"},
		{`event.payload.items[event.payload.nope].name == ""`, "true", "true"},
		{`event.payload.items.exists(i, i.name == "x")`, "false", "true"},
		{`event.payload.items.exists(i, i.n > 1)`, "false", "true"},
		{`event.payload.items.all(i, i.n < 3)`, "true", "true"},
		{`event.payload.items.exists_one(i, i.n == 2)`, "false", "true"},
		{`event.payload.items.filter(i, has(i.name)).size() == 1`, "false", "true"},
		{`event.payload.items.filter(i, i.nope).size() == 0`, "true", "true"},
		{`event.payload.items.map(i, i.name)[0] == "x"`, "false", "true"},
		{`event.payload.items.map(i, i.n)[2] == 0`, "true", "true"},
		{`event.payload.nope.exists(i, i.name == "x")`, "false", "false"},
		{`event.payload.deep.exists(k, k == "a")`, "false", "true"},
		{`event.payload.exists(k, k == "amount")`, "false", "true"},
		{`size(event.payload.items) == 3`, "false", "true"},
		{`event.payload.words == ["rm", "-rf", "/"]`, "false", "true"},
		{`event.payload.words == []`, "true", "false"},
		{`event.payload.nope == {}`, "true", "true"},
		// telling absent from empty
		{`has(event.payload.zero)`, "false", "true"},
		{`has(event.payload.blank)`, "false", "true"},
		{`has(event.payload.nothing)`, "false", "false"},
		{`has(event.payload.deep.a.b)`, "false", "true"},
		{`has(event.payload.deep.x.y)`, "false", "false"},
		{`has(event.payload.name.x)`, "false", "false"},
		{`has(event.payload.items[0].name)`, "false", "true"},
		{`event.payload.zero == null`, "true", "false"},
		{`event.payload.nothing == null`, "true", "true"},
		{`event.payload.zero != null`, "false", "true"},
		// times
		{`timestamp(event.payload.when) < now`, "true", "false"},
		{`timestamp(event.payload.when).getFullYear() == 2026`, "false", "true"},
		{`now.getHours() == 12`, "true", "true"},
		// what is there and of the wrong type
		{`event.payload.name > 100`, "false", "error"},
		{`event.payload.amount.startsWith("x")`, "false", "error"},
		{`event.payload.name && true`, "false", "error"},
		{`event.payload.name.first == "x"`, "false", "error"},
		{`event.payload.items["x"] == ""`, "true", "error"},
		{`event.payload.amount.exists(x, x == 1)`, "false", "error"},
		{`event.payload.name * 2 == 0`, "true", "error"},
		{`event.payload.name + 2 == 2`, "true", "error"},
		{`"x" in event.payload.amount`, "false", "error"},
		{`event.payload.name == 5`, "false", "false"},
		{`[event.payload.name, "x"].join("") == "x"`, "true", "false"},
		{`10 / event.tokens == 1`, "error", "true"},
		{`10 / event.payload.count > 3.3`, "error", "true"},
		{`10 % event.payload.count == 1`, "error", "true"},
		{`int(event.payload.name) == 0`, "true", "error"},
		{`timestamp(event.payload.name) < now`, "true", "error"},
		// an error matters when the outcome depends on it
		{`event.tool == "x" && 1 / event.tokens == 0`, "false", "false"},
		{`1 / event.tokens == 0 && event.tool == "x"`, "false", "false"},
		{`1 / event.tokens == 0 || event.tool != "x"`, "true", "true"},
	} {
		if got := outcome(t, c.condition, policy.Input{Now: something.Now}); got != c.nothing {
			t.Errorf("%s of nothing is %s, and should be %s", c.condition, got, c.nothing)
		}
		if got := outcome(t, c.condition, something); got != c.something {
			t.Errorf("%s of something is %s, and should be %s", c.condition, got, c.something)
		}
	}
}
