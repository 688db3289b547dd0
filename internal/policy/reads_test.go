package policy_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhatARuleReadsIsTakenFromItsSyntaxTree(t *testing.T) {
	fields := []string{
		"event.text", "event.payload", "event.tools", "event.toolset", "agent.labels", "agent.name",
		"recent.cost", "recent.tokens",
	}
	every := "event.text event.payload event.tools event.toolset"
	for when, want := range map[string]string{
		`true`:                                   "",
		`event.tool == "bash"`:                   "",
		`event.text == ""`:                       "event.text",
		`has(event.payload.text)`:                "event.payload",
		`event.payload["text"] == "event.tools"`: "event.payload",
		`agent.labels.text == "x"`:               "agent.labels",
		`event.tool == "text" || event.command.contains("event.payload")`: "",
		`event.toolset == "x" && event.query_type == ""`:                  "event.toolset",
		`event.tools.exists(text, text == "x")`:                           "event.tools",
		`event.arguments.payload == event.metadata.text`:                  "",
		`.event.text == ""`:       "event.text",
		`(event).text.size() > 3`: "event.text",
		`event.tool == "a" && (event.depth > 3 ? event.text != "" : now > timestamp("2026-01-01T00:00:00Z"))`: "event.text",
		`[event].exists(e, e.tool == "bash")`:     every,
		`event.tools.exists(event, event == "x")`: every,
		`dyn(agent) == event.arguments.a`:         "agent.labels agent.name",
		`recent.cost("10m") > 5.0`:                "recent.cost",
		`event.tools.exists(t, t == "x" && recent.tokens("1h") > 5 && agent.name == t)`: "event.tools agent.name " +
			"recent.tokens",
	} {
		p := parse(t, fmt.Sprintf("version: 1\nrules:\n  - {name: other, on: [action], when: 'event.text == \"\"', then: "+
			"block}\n  - {name: looks, on: [prompt], when: %q, then: block}\n", when))
		var got []string
		for _, field := range fields {
			if p.Reads("looks", field) {
				got = append(got, field)
			}
		}
		if found := strings.Join(got, " "); found != want {
			t.Errorf("%s reads %q, and should read %q", when, found, want)
		}
	}
	p := parse(t, "version: 1\nrules:\n  - {name: always, on: [prompt], then: block}\n")
	if p.Reads("always", "event.text") || p.Reads("nobody", "event.text") {
		t.Error("a rule without a condition, or that is not there, reads something")
	}
}
