package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/policy"
)

// conditions are what rules in earnest look like; none of them holds for benchInput.
var conditions = []string{
	`event.tool == "bash" && event.command.contains("rm -rf /")`,
	`event.tool == "write" && event.path.startsWith("/etc/")`,
	`event.arguments.path.startsWith("/etc") || event.arguments.amount > 100`,
	`event.command.matches("(?i)curl[^|]*[|] *(sudo )?sh")`,
	`agent.trust == "untrusted" && event.cost_usd > 5`,
	`recent.actions("10m") > 100 && agent.labels.team != "ops"`,
	`event.url.endsWith(".internal") && !has(event.metadata.ticket)`,
	`event.tool in ["deploy", "publish", "transfer"]`,
	`event.depth > 5 || event.tokens > 1000000`,
	`now.getHours("UTC") < 6 && event.project == "production"`,
}

func benchPolicy(tb testing.TB, here, elsewhere int) *policy.Policy {
	tb.Helper()
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for i := range here + elsewhere {
		point := "action"
		if i >= here {
			point = []string{"signal", "prompt", "message", "task", "tool_call"}[i%5]
		}
		fmt.Fprintf(&b, "  - {name: rule-%d, on: [%s], when: '%s', then: block}\n", i, point, conditions[i%len(conditions)])
	}
	p, err := policy.Parse([]byte(b.String()))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func benchInput() policy.Input {
	return policy.Input{
		Event: &policy.Event{
			Point: policy.OnAction, Protocol: "ahp", Tool: "bash",
			Command:   "go test ./internal/policy -run TestSomething -count=1",
			Arguments: map[string]any{"command": "go test ./...", "path": "/srv/app", "amount": 12.5},
			Session:   "s-1", Depth: 1, Tokens: 1200, Project: "website",
		},
		Agent: policy.Agent{
			Name: "builder", Workspace: "default", Trust: "standard",
			Labels: map[string]string{"team": "web"},
		},
		Now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
	}
}

// Every rule is tried, since none matches: the most that deciding can take.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name            string
		here, elsewhere int
	}{{"10", 10, 0}, {"1000", 10, 990}} {
		b.Run(c.name, func(b *testing.B) {
			p, in := benchPolicy(b, c.here, c.elsewhere), benchInput()
			if v := p.Decide(b.Context(), in); v.Rule != policy.DefaultRule {
				b.Fatalf("decided by %+v", v)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(b.Context(), in)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	source := benchPolicy(b, 10, 990).Source()
	for b.Loop() {
		if _, err := policy.Parse(source); err != nil {
			b.Fatal(err)
		}
	}
}

// The policy of a first start, on an ordinary step of 200 bytes of shell. All facts are found.
func BenchmarkDecideByDefault(b *testing.B) {
	const text = `cd services/billing && GOFLAGS=-mod=mod go test ./... -run 'TestInvoice|TestRefund' -count=1 2>&1 | ` +
		`tee /tmp/billing-test.log | tail -n 40 && git status --short && git diff --stat HEAD~1 -- internal/`
	p, in := parse(b, string(policy.Default())), benchInput()
	in.Event.Tool, in.Event.CWD, in.Event.Arguments = "Bash", "/srv/app", map[string]any{"command": text}
	if v := p.Decide(b.Context(), in); v.Rule != policy.DefaultRule || len(text) < 190 {
		b.Fatalf("%d bytes, decided by %+v", len(text), v)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(b.Context(), in)
	}
}

// What a replay does with every decision: read it back, and decide it again.
func BenchmarkReplay(b *testing.B) {
	p := benchPolicy(b, 10, 0)
	stored, err := json.Marshal(benchInput())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var in policy.Input
		if err := policy.DecodeData(stored, &in); err != nil {
			b.Fatal(err)
		}
		p.Decide(b.Context(), in)
	}
}

// A loop over more data than a rule may look at: how long until it is stopped.
func BenchmarkStopALoop(b *testing.B) {
	p := parse(b, "version: 1\nrules:\n  - {name: r, on: [action], when: "+
		"'event.payload.items.all(i, i == \"x\")', then: allow}\n")
	items := make([]any, 3_000_000)
	for i := range items {
		items[i] = "x"
	}
	in := policy.Input{Event: &policy.Event{Point: policy.OnAction, Payload: map[string]any{"items": items}}}
	for b.Loop() {
		if v := p.Decide(b.Context(), in); !v.Failed {
			b.Fatal("it was not stopped")
		}
	}
}
