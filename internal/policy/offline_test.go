package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/policy"
)

func offlineRule(when, then, on, more string) string {
	return "version: 1\nrules:\n  - name: r\n    on: " + on + "\n    when: '" + when + "'\n    then: " + then +
		"\n    on_unreachable: allow\n" + more
}

func TestARuleSaysWhatIsAllowedWhileTheServerCannotBeReached(t *testing.T) {
	for _, when := range []string{
		`agent.name == "reviewer" && event.tool in ["Read", "Grep"]`,
		`event.tool in ["Read", "Grep"] && "reviewer" == agent.name`,
		`(agent.name in ["reviewer", "other"]) && (event.tool in ["Read", "Grep"])`,
	} {
		for _, on := range []string{"[action]", "[action, tool_call]"} {
			p, err := policy.Parse([]byte(offlineRule(when, "allow", on, "")))
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			if diff := cmp.Diff([]string{"Read", "Grep"}, p.Offline("reviewer")); diff != "" {
				t.Errorf("%s: %s", when, diff)
			}
			if tools := p.Offline("somebody"); tools != nil {
				t.Errorf("%s: another agent may use %v", when, tools)
			}
			if got := p.Rules()[0].OnUnreachable; got != policy.Allow {
				t.Errorf("%s: the rule is listed with %q", when, got)
			}
		}
	}
	p, err := policy.Parse([]byte("version: 1\nrules:\n  - {name: r, on: [action], then: allow}\n"))
	if err != nil || p.Offline("reviewer") != nil {
		t.Errorf("a rule that says nothing allows %v (%v)", p.Offline("reviewer"), err)
	}
}

func TestWhatIsAllowedWithoutTheServerHasToBeDecidableWithoutIt(t *testing.T) {
	const right = `agent.name == "reviewer" && event.tool == "Read"`
	for _, c := range []struct{ name, source, want string }{
		{"no agent", offlineRule(`event.tool == "Read"`, "allow", "[action]", ""), "has to name both"},
		{"no tool", offlineRule(`agent.name == "reviewer"`, "allow", "[action]", ""), "has to name both"},
		{"everything", offlineRule(`true`, "allow", "[action]", ""), "has to name both"},
		{"either", offlineRule(`agent.name == "reviewer" || event.tool == "Read"`, "allow", "[action]", ""), "has to name both"},
		{"neither", offlineRule(`agent.name != "reviewer" && event.tool == "Read"`, "allow", "[action]", ""), "has to name both"},
		{"not", offlineRule(`agent.name == "a" && !(event.tool in ["Read"])`, "allow", "[action]", ""), "has to name both"},
		{"twice", offlineRule(right+` && event.tool == "Grep"`, "allow", "[action]", ""), "has to name both"},
		{"a counter", offlineRule(right+` && recent.actions("1h") < 5`, "allow", "[action]", ""), "has to name both"},
		{"the user", offlineRule(right+` && user.name == "ada"`, "allow", "[action]", ""), "has to name both"},
		{"an argument", offlineRule(right+` && event.path == "/tmp"`, "allow", "[action]", ""), "has to name both"},
		{"a pattern", offlineRule(`agent.name == "a" && event.tool.startsWith("R")`, "allow", "[action]", ""), "has to name both"},
		{"an empty name", offlineRule(`agent.name == "a" && event.tool == ""`, "allow", "[action]", ""), "has to name both"},
		{"from the event", offlineRule(`agent.name == "a" && event.tool in event.tools`, "allow", "[action]", ""), "has to name both"},
		{"a block", offlineRule(right, "block", "[action]", ""), "goes with then: allow"},
		{"a gate", offlineRule(right, "gate", "[action]", "    gate: {prompt: sure}\n"), "goes with then: allow"},
		{"a shadow", offlineRule(right, "allow", "[action]", "    mode: shadow\n"), "goes with then: allow"},
		{"a prompt", offlineRule(right, "allow", "[action, prompt]", ""), "goes with on: [action]"},
		{"only tool calls", offlineRule(right, "allow", "[tool_call]", ""), "goes with on: [action]"},
		{"a shell", offlineRule(`agent.name == "a" && event.tool in ["Read", "Bash"]`, "allow", "[action]", ""), "Bash can do harm"},
		{"a shell in other letters", offlineRule(`agent.name == "a" && event.tool == "bASH"`, "allow", "[action]", ""), "can do harm"},
		{"the network", offlineRule(`agent.name == "a" && event.tool == "WebFetch"`, "allow", "[action]", ""), "can do harm"},
		{
			"another word", strings.Replace(offlineRule(right, "allow", "[action]", ""), "unreachable: allow", "unreachable: block", 1),
			"allow",
		},
	} {
		problems := problemsOf(t, c.source)
		if len(problems) == 0 || !strings.Contains(strings.Join(problems, "\n"), c.want) {
			t.Errorf("%s: the problems are %q, and should have %q", c.name, problems, c.want)
		}
		if c.want == "has to name both" && !strings.Contains(strings.Join(problems, "\n"), `agent.name == "reviewer" && event.tool in`) {
			t.Errorf("%s: no right rule is shown: %q", c.name, problems)
		}
	}
}
