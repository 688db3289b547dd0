package policy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
)

// problemsOf lists what is wrong with a source, as a compiler prints it.
func problemsOf(tb testing.TB, source string) []string {
	tb.Helper()
	_, err := policy.Parse([]byte(source))
	if err == nil {
		return nil
	}
	if !fault.Is(err, fault.InvalidPolicy) {
		tb.Fatalf("the error is %v", err)
	}
	return lines(policy.Problems(err))
}

func lines(problems []policy.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%d:%d %s %s", p.Line, p.Column, p.Message, p.Hint))
	}
	return out
}

func TestAMistakeInTheFormOfAPolicyIsToldWithItsPlace(t *testing.T) {
	const head = "version: 1\nrules:\n  - name: r\n    on: [action]\n    when: true\n"
	for _, c := range []struct{ name, source, want string }{
		{"nothing", "", `1:1 The policy is empty. It begins with "version: 1".`},
		{"only a comment", "# hello\n", `1:1 The policy is empty. It begins with "version: 1".`},
		{
			"not YAML, said by the scanner", "version: 1\nrules: a: b\n",
			`2:1 This is not YAML: mapping values are not allowed in this context. Look at the indentation and the ` +
				`quotes of this line and the one before it.`,
		},
		{
			"not YAML, said by the parser", "version: 1\nrules:\n  - name: r\n   on: [action]\n",
			`3:3 This is not YAML: did not find expected '-' indicator. It is in the block that begins here: look at its ` +
				`indentation, brackets and quotes.`,
		},
		{"not UTF-8", "version: \xff\n", `1:1 The policy is not UTF-8 text. Save the file as UTF-8.`},
		{
			"too large", "version: 1 #" + strings.Repeat("x", 1<<20),
			`1:1 The policy has 1048588 bytes, and may have 1048576. Make it shorter.`,
		},
		{
			"a list", "- a\n",
			`1:1 The policy should be a mapping, and is a list. Write fields, one a line, as in "name: value".`,
		},
		{
			"two documents", "version: 1\n---\nversion: 1\n",
			`2:1 The policy has a second YAML document. Put everything into the first document.`,
		},
		{"no version", "rules: []\n", `1:1 The version is missing. Begin with "version: 1".`},
		{"another version", "version: 2\n", `1:10 Version 2 is not known. Write version: 1.`},
		{"a version in quotes", "version: \"1\"\n", `1:10 "version" is text. Write version: 1.`},
		{"an unknown field", "version: 1\nrule: []\n", `2:1 The policy has no field "rule". Did you mean "rules"?`},
		{
			"a field twice", "version: 1\nversion: 1\n",
			`2:1 The policy has the field "version" twice; the first is on line 1. Keep one of them.`,
		},
		{"an anchor", "version: 1\ndefaults: &a {}\n", `2:11 Anchors and aliases are not allowed here. Write the value out.`},
		{"a tag", "version: 1\ndefaults: !!map {}\n", `2:11 Tags such as !!map are not allowed here. Leave the tag out.`},
		{
			"an unknown control point", "version: 1\ndefaults: {signl: allow}\n",
			`2:12 defaults has no field "signl". Did you mean "signal"?`,
		},
		{
			"a default that cannot be", "version: 1\ndefaults: {signal: modify}\n",
			`2:20 "defaults.signal" cannot be "modify". Choose one of: allow, block, defer, gate.`,
		},
		{
			"rules that are no list", "version: 1\nrules: {name: r}\n",
			`2:8 "rules" should be a list, and is a mapping. Write a list of rules, each beginning with "- name: …".`,
		},
		{
			"a rule that is text", "version: 1\nrules:\n  - allow\n",
			`3:5 A rule should be a mapping, and is text. Write fields, one a line, as in "name: value".`,
		},
		{
			"an unknown field of a rule", head + "    then: block\n    reasn: x\n",
			`7:5 A rule has no field "reasn". Did you mean "reason"?`,
		},
		{
			"a rule without anything", "version: 1\nrules:\n  - mode: shadow\n",
			`3:5 The rule has no "name". Every decision names its rule. Write name: no-root-delete.` + "\n" +
				`3:5 The rule has no "on". Say where it applies, as in on: [action, tool_call].` + "\n" +
				`3:5 The rule has no "then". Write then: with one of allow, block, modify, defer, gate.`,
		},
		{
			"a name with spaces", "version: 1\nrules:\n  - {name: No Root, on: [action], when: true, then: block}\n",
			`3:12 A rule cannot be called "No Root". A name is 1 to 63 lower-case letters, digits, dots, hyphens and ` +
				`underscores, as in no-root-delete.`,
		},
		{
			"the name of the default", "version: 1\nrules:\n  - {name: default, on: [action], when: true, then: block}\n",
			`3:12 A rule cannot be called "default". That is what decides when no rule matches. Choose another.`,
		},
		{
			"a name twice", head + "    then: block\n  - {name: r, on: [action], when: true, then: block}\n",
			`7:12 The name "r" is taken by the rule on line 3. Every decision names its rule, so give each a name of its own.`,
		},
		{
			"a name that is a number", "version: 1\nrules:\n  - {name: 7, on: [action], when: true, then: block}\n",
			`3:12 "name" is a number. A name is 1 to 63 lower-case letters, digits, dots, hyphens and underscores, as in ` +
				`no-root-delete.`,
		},
		{
			"on is a word", "version: 1\nrules:\n  - {name: r, on: action, when: true, then: block}\n",
			`3:19 "on" should be a list, and is text. Write a list of control points, as in on: [action, tool_call].`,
		},
		{
			"on is empty", "version: 1\nrules:\n  - {name: r, on: [], when: true, then: block}\n",
			`3:19 "on" is an empty list. Write a list of control points, as in on: [action, tool_call].`,
		},
		{
			"on with a typing mistake", "version: 1\nrules:\n  - {name: r, on: [signal, tool_cal], when: true, then: block}\n",
			`3:28 "on" cannot be "tool_cal". Did you mean "tool_call"?`,
		},
		{
			"on with a point twice", "version: 1\nrules:\n  - {name: r, on: [action, action], when: true, then: block}\n",
			`3:28 Duplicate control point "action". Name each once.`,
		},
		{"an unknown then", head + "    then: blok\n", `6:11 "then" cannot be "blok". Did you mean "block"?`},
		{
			"an unknown mode", head + "    then: block\n    mode: shadwo\n",
			`7:11 "mode" cannot be "shadwo". Did you mean "shadow"?`,
		},
		{
			"an empty reason", head + "    then: block\n    reason: \"\"\n",
			`7:13 "reason" is empty. Write a sentence for whoever must act on it.`,
		},
		{
			"a when that is a number", "version: 1\nrules:\n  - {name: r, on: [action], when: 1, then: block}\n",
			`3:35 "when" is a number. Write a condition such as event.tool == "bash", or true.`,
		},
		{
			"an empty when", "version: 1\nrules:\n  - {name: r, on: [action], when: '', then: block}\n",
			`3:35 "when" is empty. Write a condition such as event.tool == "bash", or true.`,
		},
		{
			"set with block", head + "    then: block\n    set: {a: 1}\n",
			`7:10 "set" has no effect with then: block. It goes with then: modify, and with then: allow on intent, ` +
				`context, memory, planning, reasoning.`,
		},
		{
			"set with allow on an action", head + "    then: allow\n    set: {a: 1}\n",
			`7:10 "set" has no effect with then: allow. It goes with then: modify, and with then: allow on intent, ` +
				`context, memory, planning, reasoning.`,
		},
		{
			"retry_after with block", head + "    then: block\n    retry_after: 1m\n",
			`7:18 "retry_after" has no effect with then: block. It goes with then: defer.`,
		},
		{
			"gate with defer", head + "    then: defer\n    gate: {quorum: 1}\n",
			`7:11 "gate" has no effect with then: defer. It goes with then: gate, and with then: modify.`,
		},
		{
			"modify without set", head + "    then: modify\n",
			`6:11 then: modify needs "set", "replace" or "redact". Add set: with the members to change, as in ` +
				`set: {arguments: {dry_run: true}}, replace: or redact:.`,
		},
		{
			"a set that is a list", head + "    then: modify\n    set: [a]\n",
			`7:10 "set" should be a mapping with members, and is a list. Write the members to change, as in set: ` +
				`{arguments: {dry_run: true}}.`,
		},
		{
			"a set with a field twice", head + "    then: modify\n    set: {a: {b: 1, b: 2}}\n",
			`7:21 "set.a" has the field "b" twice; the first is on line 7. Keep one of them.`,
		},
		{
			"a set with what JSON has not", head + "    then: modify\n    set: {a: .inf}\n",
			`7:14 "set.a" is .inf, which JSON has no form for. Put it in quotes if it is text.`,
		},
		{
			"modify on a signal", "version: 1\nrules:\n  - {name: r, on: [signal], when: true, then: modify, set: {a: 1}}\n",
			`3:47 then: modify is not possible on signal. A rule can modify on action, prompt, tool_call, task, context, ` +
				`planning.`,
		},
		{
			"a retry that is no time", head + "    then: defer\n    retry_after: soon\n",
			`7:18 "retry_after" cannot be "soon". Write a length of time such as 90s, 30m, 24h or 7d. At least 1s and at ` +
				`most 366d.`,
		},
		{
			"a retry that is a number", head + "    then: defer\n    retry_after: 30\n",
			`7:18 "retry_after" is a number. Write a length of time such as 90s, 30m, 24h or 7d.`,
		},
		{
			"a retry that goes back", head + "    then: defer\n    retry_after: -5m\n",
			`7:18 "retry_after" cannot be "-5m". Write a length of time such as 90s, 30m, 24h or 7d. At least 1s and at ` +
				`most 366d.`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, strings.Join(problemsOf(t, c.source), "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAGateThatCouldNotWorkIsRefused(t *testing.T) {
	for _, c := range []struct{ gate, want string }{
		{`{}`, ``},
		{
			`{expires: 30m, on_expiry: approve, approvers: [admin, ann], quorum: 2, reject_needs: 2, remind_after: 5m, ` +
				`escalation: [{after: 10m, to: [admin]}, {after: 20m, to: [bob]}], even_if_undeclared: true, good_for: 1h, ` +
				`risk: low}`, ``,
		},
		{`{expire: 30m}`, `3:60 gate has no field "expire". Did you mean "expires"?`},
		{`[a]`, `3:59 gate should be a mapping, and is a list. Write fields, one a line, as in "name: value".`},
		{
			`{expires: 400d}`,
			`3:69 "expires" cannot be "400d". Write a length of time such as 90s, 30m, 24h or 7d. At least 1s and at most 366d.`,
		},
		{`{on_expiry: reject}`, `3:71 A gate that does not expire has no "on_expiry". Add expires, as in expires: 30m.`},
		{`{expires: 1h, on_expiry: allow}`, `3:84 "on_expiry" cannot be "allow". Choose one of: reject, approve.`},
		{`{quorum: 0}`, `3:68 "quorum" is 0. It is a whole number from 1 to 100.`},
		{`{quorum: two}`, `3:68 "quorum" is text. It is a whole number from 1 to 100.`},
		{`{quorum: 3, approvers: [ann, bob]}`, `3:68 "quorum" is 3, and only 2 may vote. Name more approvers, or a role.`},
		{
			`{reject_needs: 2, approvers: [ann]}`,
			`3:74 "reject_needs" is 2, and only 1 may vote. Name more approvers, or a role.`,
		},
		{
			`{approvers: []}`,
			`3:71 "approvers" is an empty list. Write a list of roles (operator, admin) or names of operators, as in ` +
				`[admin, ann].`,
		},
		{`{approvers: [viewer]}`, `3:72 A viewer may look and not decide. Name operator or admin, or an operator.`},
		{`{approvers: [ann, ann]}`, `3:77 Duplicate name "ann". Name each once.`},
		{
			`{expires: 1h, remind_after: 2h}`,
			`3:87 The reminder would come when the gate has expired, after 1h. Choose a shorter time.`,
		},
		{
			`{expires: 1h, escalation: [{after: 1h, to: [admin]}]}`,
			`3:85 The last step would come when the gate has expired, after 1h. Choose a shorter time.`,
		},
		{
			`{escalation: [{after: 2h, to: [ann]}, {after: 1h, to: [admin]}]}`,
			`3:105 This step comes no later than the one before it. Order the steps by time.`,
		},
		{
			`{escalation: [{after: 2h}]}`,
			`3:73 A step of escalation needs "after" and "to". Write a list of steps, as in [{after: 10m, to: [admin]}].`,
		},
		{
			`{uses: 2}`,
			`3:66 "uses" has no effect here. An approval of a signal, a message or a task is of that one. Leave it out.`,
		},
		{`{risk: huge}`, `3:66 "risk" cannot be "huge". Did you mean "high"?`},
		{`{even_if_undeclared: yes}`, `3:80 "even_if_undeclared" is text. Write true or false.`},
	} {
		source := "version: 1\nrules:\n  - {name: r, on: [signal], when: true, then: gate, gate: " + c.gate + "}\n"
		if diff := cmp.Diff(c.want, strings.Join(problemsOf(t, source), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.gate, diff)
		}
	}
	for _, c := range []struct{ gate, want string }{
		{`{uses: 3}`, ``},
		{`{uses: any, good_for: 1h}`, ``},
		{`{window: 1h, single_use: true}`, ``},
		{
			`{even_if_undeclared: true}`,
			`3:80 "even_if_undeclared" has no effect here. It is for rules on signal, where agents declare gates. Leave it out.`,
		},
		{`{uses: 0}`, `3:66 "uses" is 0. It is a whole number from 1 to 1000.`},
		{`{uses: -1}`, `3:66 "uses" is -1. It is a whole number from 1 to 1000.`},
		{`{uses: many}`, `3:66 "uses" is text. It is a whole number from 1 to 1000.`},
		{`{presence: passkey, expires: 1h, on_expiry: reject}`, ``},
		{`{presence: pin}`, `3:70 "presence" cannot be "pin". Choose one of: passkey.`},
		{
			`{presence: passkey, expires: 1h, on_expiry: approve}`,
			`3:70 A gate that asks for a person cannot approve itself. Write on_expiry: reject, or leave presence out.`,
		},
		{`{uses: any}`, `3:66 An approval for any number of uses would never end. Add good_for, as in good_for: 1h.`},
		{
			`{window: 1h, uses: 2}`,
			`3:68 "window" is an older word for what stands beside it. Write uses and good_for, and leave it out.`,
		},
	} {
		source := "version: 1\nrules:\n  - {name: r, on: [action], when: true, then: gate, gate: " + c.gate + "}\n"
		if diff := cmp.Diff(c.want, strings.Join(problemsOf(t, source), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.gate, diff)
		}
	}
}

func TestEveryProblemIsToldAtOnceAndTheFirstInTheMessage(t *testing.T) {
	_, err := policy.Parse([]byte("version: 3\nrules:\n  - {name: r, on: [acton], when: 'event.tol == 1', then: blok}\n"))
	e := fault.From(err)
	if diff := cmp.Diff(`Line 1, column 10: Version 3 is not known. Write version: 1. (And 3 more, in details.problems.)`,
		e.Message); diff != "" {
		t.Error(diff)
	}
	if got, ok := e.Details["problems"].([]policy.Problem); !ok || len(got) != 4 {
		t.Errorf("details: %v", e.Details)
	}
	many := "version: 1\nrules:\n" + strings.Repeat("  - x\n", 500)
	if got := problemsOf(t, many); len(got) != 50 {
		t.Errorf("%d problems are told", len(got))
	}
}

func TestAPolicyShowsWhatItIs(t *testing.T) {
	p := parse(t, ordered)
	sum := sha256.Sum256([]byte(ordered))
	if p.Version() != hex.EncodeToString(sum[:]) || string(p.Source()) != ordered {
		t.Errorf("version %s, source %q", p.Version(), p.Source())
	}
	got := p.Rules()
	want := policy.RuleSummary{
		Name: "trial", Points: []policy.Point{"action", "tool_call"}, When: `event.tool == "rm"`,
		Then: "block", Mode: "shadow", Line: 5,
	}
	if diff := cmp.Diff(want, got[0]); diff != "" || len(got) != 9 || got[2].Mode != "enforce" {
		t.Errorf("%s in %v", diff, got)
	}
	if d := p.Defaults(); d["tool_call"] != policy.Block || d["signal"] != policy.Allow ||
		d["confirmation"] != policy.Gate || len(d) != len(policy.Points) {
		t.Errorf("defaults %v", d)
	}
}

func TestRulesReadABoundedNumberOfCounters(t *testing.T) {
	source := func(n int) []byte {
		text := "version: 1\nrules:\n"
		for i := range n {
			text += fmt.Sprintf("  - {name: r%d, on: [action], when: 'recent.actions(\"%ds\") > 5', then: block}\n", i, i+1)
		}
		return []byte(text)
	}
	if _, err := policy.Parse(source(100)); err != nil {
		t.Error(err)
	}
	if _, err := policy.Parse(source(101)); !fault.Is(err, fault.InvalidPolicy) ||
		!strings.Contains(err.Error(), "101 counters of recent, and may read 100") {
		t.Errorf("got %v", err)
	}
}
