package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An expression stands at 3:34, so that its first character is 3:35.
func TestAMistakeInAnExpressionIsToldWithItsPlaceInside(t *testing.T) {
	for _, c := range []struct{ when, want string }{
		{`evnt.tool == "x"`, `3:36 There is no variable "evnt". Did you mean "event"?`},
		{`tool == "x"`, `3:36 There is no variable "tool". Did you mean "event.tool"?`},
		{`event.summry == "x"`, `3:42 event has no field "summry". Did you mean "summary"?`},
		{`true && event.proposedaction == "x"`, `3:50 event has no field "proposedaction". Did you mean "proposed_action"?`},
		{`has(event.comand)`, `3:46 event has no field "comand". Did you mean "command"?`},
		{`agent.nam == "x"`, `3:42 agent has no field "nam". Did you mean "name"?`},
		{`event.command.startWith("x")`, `3:50 There is no function "startWith". Did you mean "startsWith"?`},
		{`sise(event.command) > 3`, `3:36 There is no function "sise". Did you mean "size"?`},
		{
			`event.payload.items.exist(i, i == 1)`,
			"3:56 There is no function \"exist\". Did you mean \"exists\"?\n" +
				"3:62 There is no variable \"i\". Choose one of: event, agent, user, delegation, recent, now.\n" +
				"3:65 There is no variable \"i\". Choose one of: event, agent, user, delegation, recent, now.",
		},
		{
			`event.tool == 3`,
			`3:47 == does not take (string, int). A text stands in quotes, a number and true or false do not.`,
		},
		{
			`event.tokens > "3"`,
			`3:49 > does not take (int, string). A text stands in quotes, a number and true or false do not.`,
		},
		{`event.cost_usd == 5`, `3:51 == does not take (double, int). Write the whole number with a point, as in 5.0.`},
		{`event.cost_usd * 2 > 5`, `3:51 * does not take (double, int). Write the whole number with a point, as in 5.0.`},
		{
			`event.tool in [1, 2]`,
			`3:47 in does not take (string, list(int)). A text stands in quotes, a number and true or false do not.`,
		},
		{
			`event.payload.a in [1, "x"]`,
			`3:59 The list holds a whole number and text. The items of a list should be of one type.`,
		},
		{
			`event.tool && true`,
			`3:42 Expected bool, found string. Compare it with something, as in event.tool == "bash".`,
		},
		{
			`true && 5`, `3:44 Expected bool, found int. Compare it with something, as in event.tool == "bash".`,
		},
		{`event.tool == nulll`, `3:50 There is no variable "nulll". Choose one of: event, agent, user, delegation, recent, now.`},
		{
			`event.tool == "a".b`,
			`3:54 Type 'string' does not support field selection. See the list of fields and functions in the ` +
				`documentation of policies.`,
		},
		{
			`event.tool.foo == "a"`,
			`3:47 Type 'string' does not support field selection. See the list of fields and functions in the ` +
				`documentation of policies.`,
		},
		{`!event.tool`, `3:36 ! does not take (string). Compare it with something first, as in event.tool == "bash".`},
		{
			`event.tool.size() && true`,
			`3:51 Expected bool, found int. Compare it with something, as in event.tool == "bash".`,
		},
		{
			`event.tool.exists(x, x == "a")`,
			`3:42 This is neither a list nor a map. all, exists, exists_one, map and filter go over the items of a list ` +
				`or the names of a map.`,
		},
		{`event.command.contains(5)`, `3:50 contains does not take string.(int). It is called as string.contains(string).`},
		{
			`event.tool`, `3:36 The expression should be true or false, and is text. Compare it with something, as in ` +
				`event.tool == "bash".`,
		},
		{
			`event.payload.urgent`,
			`3:36 The expression should be true or false, and is a value of any type. A value from data may be anything. ` +
				`Compare it, as in event.payload.urgent == true.`,
		},
		{
			`event.tool = "x"`,
			`3:47 The expression is not complete or not CEL: token recognition error at: '= '. Compare with ==.`,
		},
		{
			`event.tool == "x" and true`,
			`3:54 The expression is not complete or not CEL: mismatched input 'and'. Write && for and, || for or, ! for not.`,
		},
		{
			strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300),
			`3:36 The expression is too long or too deeply nested: expression recursion limit exceeded: 250. Split it into ` +
				`several rules.`,
		},
		{
			strings.Repeat("true && ", 1100) + "true",
			`3:36 The expression is too long or too deeply nested: expression code point size exceeds limit: size: 8804, ` +
				`limit 8192. Split it into several rules.`,
		},
		{
			`event.tool == "x" &&`,
			`3:56 The expression is not complete or not CEL: mismatched input '<EOF>'. Look for a missing quote, bracket ` +
				`or operator. Texts stand in double quotes, and && means and.`,
		},
		{
			`event.command.matches("[")`,
			"3:58 Missing closing ]: `[`. Patterns are those of RE2. A backslash in quotes is " +
				"written twice, as in \"\\\\.\", or use r\"\\.\".",
		},
		{
			`event.command.matches("(abc){1,999}")`,
			`3:58 The pattern is too large: it compiles to 5995 steps, and may have 1000. Repeat less, as in {1,20}, or ` +
				`use several patterns.`,
		},
		{
			`event.command.matches(event.tool)`,
			`3:63 The pattern of matches should be written in the rule, in quotes. Use contains or startsWith to look ` +
				`for a text that comes from elsewhere.`,
		},
		{
			`recent.actions("10x") > 1`,
			`3:51 The window of recent.actions should be a length of time in quotes. Write one such as "90s", "10m", ` +
				`"24h" or "7d", from 1s to 31d, or "hour", "day" or "month" of UTC.`,
		},
		{
			`recent.actions("32d") > 1`,
			`3:51 The window of recent.actions should be a length of time in quotes. Write one such as "90s", "10m", ` +
				`"24h" or "7d", from 1s to 31d, or "hour", "day" or "month" of UTC.`,
		},
		{
			`recent.actions(event.tool) > 1`,
			`3:56 The window of recent.actions should be a length of time in quotes. Write one such as "90s", "10m", ` +
				`"24h" or "7d", from 1s to 31d, or "hour", "day" or "month" of UTC.`,
		},
		{`recent.actions > 1`, `3:43 recent has no field "actions", only functions. Write recent.actions("10m").`},
		{`recent.action("1m") > 1`, `3:43 There is no function "action". Did you mean "actions"?`},
		{`recent.cost("1m") == 1`, `3:54 == does not take (double, int). Write the whole number with a point, as in 5.0.`},
		{
			`now > timestamp("soon")`,
			`3:52 Invalid timestamp argument. A time is written as "2026-05-01T12:00:00Z", a length of time as "90s" or "24h".`,
		},
		{`Event{} == event`, `3:41 An expression cannot make objects. Compare fields one by one.`},
		{
			`event.payload.a.all(x, event.payload.b.exists(y, x == y))`,
			`3:36 The expression may take too long: its cost is up to 106007004, and may be 2000000. Do not go over one ` +
				`list inside of another, and search less text.`,
		},
	} {
		source := "version: 1\nrules:\n  - {name: r, on: [action], when: '" + c.when + "', then: block}\n"
		if diff := cmp.Diff(c.want, strings.Join(problemsOf(t, source), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.when, diff)
		}
	}
}

func TestACommentDoesNotSwallowTheRestOfACondition(t *testing.T) {
	const swallows = "This comment also covers the lines after it. Write when: | and the condition below " +
		"it, which keeps the lines apart."
	for _, c := range []struct {
		name, when string
		want       []string
	}{
		{"folded", " >\n      event.tool == \"x\" // why\n      && event.path == \"y\"", []string{"6:25 " + swallows}},
		{"plain", " event.tool == \"x\" // why\n      && event.path == \"y\"", []string{"5:29 " + swallows}},
		{"double quotes", " \"event.tool == 'x' // why\n      && event.path == 'y'\"", []string{"5:30 " + swallows}},
		{"literal", " |\n      event.tool == \"x\" // why\n      && event.path == \"y\" // and why", nil},
		{"at the end", " event.tool == \"x\" // why", nil},
		{"inside of a text", " >\n      event.url == \"https://example.com\"\n      || event.tool == \"x\"", nil},
	} {
		source := "version: 1\nrules:\n  - name: r\n    on: [action]\n    when:" + c.when + "\n    then: block\n"
		if diff := cmp.Diff(c.want, problemsOf(t, source)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// However the expression is written in YAML, the place is that of the mistake.
func TestThePlaceIsRightHoweverTheTextIsQuotedOrFolded(t *testing.T) {
	const name, function = `event has no field "tol". Did you mean "to"?`, `There is no function "startWith". Did ` +
		`you mean "startsWith"?`
	for _, c := range []struct {
		name, when string
		want       []string
	}{
		{"plain", ` event.tol == "x"`, []string{"5:17 " + name}},
		{
			"plain over lines", " event.tool == \"x\" &&\n      event.tol == \"x\" ||\n      event.path.startWith(\"x\")",
			[]string{"6:13 " + name, "7:18 " + function},
		},
		{"single quotes", ` 'event.tol == "x"'`, []string{"5:18 " + name}},
		{"single quotes with a quote inside", ` 'event.tool == ''x'' || event.tol == "x"'`, []string{"5:41 " + name}},
		{
			"double quotes with escapes", ` "event.tool == \"x\" || \u0065vent.tol == \"\x41\" || event.path.startWith(\"x\")"`,
			[]string{"5:46 " + name, "5:76 " + function},
		},
		{
			"double quotes over lines",
			" \"event.tool == \\\"x\\\" ||\n      event.tol == \\\"x\\\" \\\n      || event.path.startWith(\\\"x\\\")\"",
			[]string{"6:13 " + name, "7:21 " + function},
		},
		{
			"literal", " |\n      event.tool == \"x\" ||\n        event.tol == \"x\"\n      || event.path.startWith(\"x\")",
			[]string{"7:15 " + name, "8:21 " + function},
		},
		{
			"literal with a comment and empty lines", " |- # why\n\n      event.tool == \"x\" ||\n\n      event.tol == \"x\"",
			[]string{"9:13 " + name},
		},
		{
			"folded", " >\n      event.tool == \"x\" ||\n      event.tol == \"x\"\n\n      || event.path.startWith(\"x\")",
			[]string{"7:13 " + name, "9:21 " + function},
		},
		{
			"folded and indented further", " >-\n          event.tool == \"x\" ||\n            event.tol == \"x\"",
			[]string{"7:19 " + name},
		},
		{"characters of several bytes", ` event.tool == "äöü☂" || event.tol == "x"`, []string{"5:41 " + name}},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := "version: 1\nrules:\n  - name: r\n    on: [action]\n    when:" + c.when + "\n    then: block\n"
			if diff := cmp.Diff(c.want, problemsOf(t, source)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, source)
			}
			if diff := cmp.Diff(c.want, problemsOf(t, strings.ReplaceAll(source, "\n", "\r\n"))); diff != "" {
				t.Errorf("with carriage returns (-want +got):\n%s", diff)
			}
		})
	}
}
