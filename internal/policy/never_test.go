package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/policy"
	"signalbox/internal/policy/trial"
)

// TestCheckFindsRulesThatWouldDoNothing: each of these can be run, and would not do what is written.
func TestCheckFindsRulesThatWouldDoNothing(t *testing.T) {
	for _, c := range []struct{ rules, want string }{
		{
			"[{name: a, on: [action], then: allow}, {name: b, on: [action], when: event.depth > 1, then: block}]",
			`The rule "b" is never reached: the rule "a" on line 2 matches everything on action.`,
		},
		{"[{name: a, on: [action], when: 'false', then: block}]", "The condition never holds on action."},
		{
			`[{name: a, on: [action], when: 'event.tool == "a" && event.depth > 1 && event.tool == "b"', then: block}]`,
			"The condition never holds on action.",
		},
		{
			"[{name: a, on: [message], when: 'event.deletes.covers(\"/\")', then: block}]",
			"The condition never holds on message.",
		},
		{
			`[{name: a, on: [signal], when: 'event.opaque || event.commands.exists(c, c.name == "rm")', then: block}]`,
			"The condition never holds on signal.",
		},
		{
			"[{name: a, on: [action], when: 'event.does == \"shel\"', then: block}]",
			`event.does is never "shel" here. Did you mean "shell"?`,
		},
		{
			"[{name: a, on: [action], when: 'event.does in [\"read\", \"wrte\"]', then: block}]",
			`event.does is never "wrte" here.`,
		},
		{"[{name: a, on: [action], when: 'event.point == \"signal\"', then: block}]", `event.point is never "signal" here.`},
		{
			"[{name: a, on: [action], when: '\"downlaod\" in event.opaque_reasons', then: block}]",
			`event.opaque_reasons is never "downlaod" here. Did you mean "download"?`,
		},
		{
			`[{name: a, on: [action], when: 'now.getHours("Europe/Berlim") < 6', then: block}]`,
			`There is no time zone "Europe/Berlim".`,
		},
		{
			"[{name: a, on: [action], then: modify, set: {argumnets: {x: 1}}}]",
			`The payload has no member "argumnets" on action. Did you mean "arguments"?`,
		},
		{"[{name: a, on: [prompt], then: modify, set: {prompt: 7}}]", `"prompt" should be text on prompt, and is`},
		{"[{name: a, on: [action], then: modify, set: {arguments: ls}}]", `"arguments" should be a map on action, and is`},
		{
			"[{name: a, on: [action], then: modify, replace: [{in: argument.command, pattern: a, with: b}]}]",
			`The payload has no member "argument" on action. Did you mean "arguments"?`,
		},
	} {
		p := parse(t, "version: 1\nrules: "+c.rules+"\n")
		problems := policy.Problems(p.Check())
		if len(problems) != 1 || !strings.Contains(problems[0].Message+" "+problems[0].Hint, c.want) {
			t.Errorf("%s: %v", c.rules, problems)
		}
	}
}

func TestCheckLeavesRulesThatMayMatchAlone(t *testing.T) {
	for _, rules := range []string{
		`[{name: a, on: [action], when: 'event.path.startsWith(event.cwd + "/")', then: allow}]`,
		`[{name: a, on: [action], when: 'event.command.split("/").exists(p, p == "..")', then: block}]`,
		"[{name: a, on: [action], then: allow, mode: shadow}, {name: b, on: [action], then: block}]",
		"[{name: a, on: [action], then: allow}, {name: b, on: [action, prompt], then: block}]",
		`[{name: a, on: [message, action], when: 'event.deletes.covers("/")', then: block}]`,
		`[{name: a, on: [message], when: 'event.opaque || event.external', then: block}]`,
		`[{name: a, on: [message], when: '!event.opaque && size(event.writes) == 0', then: block}]`,
		`[{name: a, on: [action], when: 'event.tool == "a" || event.tool == "b"', then: block}]`,
		`[{name: a, on: [action], when: 'now.getHours("+02:00") < 6 && now.getDayOfWeek("UTC") == 1', then: block}]`,
		"[{name: a, on: [action], then: modify, set: {arguments: null, my_own_member: 1}}]",
		"[{name: a, on: [context], then: modify, set: {scope_hints: [x]}}]",
	} {
		if err := parse(t, "version: 1\nrules: "+rules+"\n").Check(); err != nil {
			t.Errorf("%s: %v", rules, policy.Problems(err))
		}
	}
}

func TestAModifyReplacesAndRedacts(t *testing.T) {
	p := parse(t, `version: 1
rules:
  - {name: r, on: [action], then: modify, set: {arguments: {dry_run: true}},
     replace: [{in: arguments.command, pattern: '--force\b', with: --force-with-lease},
       {in: arguments.files, pattern: '^/tmp/(.*)$', with: '/var/tmp/$1'}], redact: [arguments.command]}
`)
	token := "ghp_" + strings.Repeat("a1B2", 9)
	payload := map[string]any{"arguments": map[string]any{
		"command": "TOKEN=" + token + " git push --force", "files": []any{"/tmp/a", "/srv/b"}, "token": token,
	}}
	v := p.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: policy.OnAction, Payload: payload}})
	got := v.Changes.Apply(payload, func(s string) string { return strings.ReplaceAll(s, token, "HIDDEN") })
	want := map[string]any{"arguments": map[string]any{
		"command": "TOKEN=HIDDEN git push --force-with-lease", "files": []any{"/var/tmp/a", "/srv/b"}, "token": token,
		"dry_run": true,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(payload["arguments"].(map[string]any)["command"].(string), "lease") {
		t.Error("the payload itself was changed")
	}
}

func TestTestsAssertWhatARuleChangesAsksAndSees(t *testing.T) {
	p := parse(t, `version: 1
rules:
  - {name: r, on: [action], when: event.does == "shell", then: modify, redact: true, set: {x: 1},
     gate: {quorum: 2, expires: 1h}}
`)
	const right = `version: 1
tests:
  - {name: all of it, point: action,
     event: {tool: Bash, arguments: {command: ls /}, payload: {a: "PGPASSWORD=tulip7frost psql"}},
     expect: {then: gate, set: {x: 1}, payload: {a: "PGPASSWORD=[secret:password] psql", x: 1},
       gate: {quorum: 2, expires: 1h, risk: medium},
       facts: {does: shell, commands: [ls], reads: [/], opaque: false, hosts: []}}}
`
	for wrong, want := range map[string]string{
		"":                     "",
		"set: {x: 2}":          `set should be {"x":2}, and is {"x":1}`,
		"quorum: 3":            `gate.quorum should be 3, and is 2`,
		"commands: [rm]":       `facts.commands should be ["rm"], and is ["ls"]`,
		"hosts: [example.com]": `facts.hosts should be ["example.com"], and is []`,
	} {
		text := right
		if name, _, _ := strings.Cut(wrong, ":"); wrong != "" {
			start := strings.LastIndex(text, name+":")
			if name == "set" {
				start = strings.Index(text, "set:")
			}
			end := start + strings.IndexAny(text[start:], "]}") + 1
			if name == "quorum" {
				end = start + strings.Index(text[start:], ",")
			}
			text = text[:start] + wrong + text[end:]
		}
		tests, err := trial.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, policy.Problems(err))
		}
		if got := tests.Run(p)[0]; got.Problem != want {
			t.Errorf("%q: %q", wrong, got.Problem)
		}
	}
}
