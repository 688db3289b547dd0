package harness_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/secret/secrettest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// context opens the gate of a command in a session and is what led to it; the gate is rejected after.
func (n *node) context(c *harness.Conn, session, command string) map[string]string {
	n.T.Helper()
	g := n.asked(c, "pre_action", session, bash(command), gate.Ballot{Note: "no"})
	all := map[string]string{}
	for _, part := range g.Context {
		all[part.Name] = part.Value
	}
	return all
}

// asked is the gate of a step that waits for a person, who votes meanwhile.
func (n *node) asked(c *harness.Conn, typ, session string, payload any, b gate.Ballot) gate.Gate {
	n.T.Helper()
	done := make(chan answer, 1)
	go func() { done <- n.ask(c, typ, session, payload) }()
	g := n.vote(b)
	testbed.Receive(n.T, "the answer", done)
	return g
}

func TestAGateOfASessionShowsWhatLedToIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, c := startSoon(t, address, 10*time.Second, gateBash+
			`  - {name: no-curl, on: [action], when: event.tool == "curl", then: block, reason: No.}`+"\n")
		token := "ghp_" + secrettest.Alnum(36)
		n.ask(c, "pre_prompt", "s1", map[string]any{"prompt": "An older one"})
		n.ask(c, "pre_prompt", "s2", map[string]any{"prompt": "Of another session"})
		n.ask(c, "pre_prompt", "s1", map[string]any{"prompt": "Put it online with " + token})
		for i := range 12 {
			n.ask(c, "pre_action", "s1", map[string]any{"tool_name": fmt.Sprintf("read-%d", i), "arguments": map[string]any{}})
		}
		n.ask(c, "pre_action", "s1", map[string]any{"tool_name": "curl", "arguments": map[string]any{"command": "x\ny"}})
		got := n.context(c, "s1", "make deploy")
		if p := got["last prompt"]; !strings.HasPrefix(p, "Put it online with [secret:github-token") {
			t.Errorf("the prompt is %q", p)
		}
		want := strings.Split("allowed: read-3,allowed: read-4,allowed: read-5,allowed: read-6,allowed: read-7,"+
			"allowed: read-8,allowed: read-9,allowed: read-10,allowed: read-11,blocked: curl: x…", ",")
		if diff := cmp.Diff(want, strings.Split(got["steps before"], "\n")); diff != "" {
			t.Errorf("the steps before (-want +got):\n%s", diff)
		}
		if after := n.context(c, "s1", "make clean")["steps before"]; !strings.HasSuffix(after, "\nheld: bash: make deploy") {
			t.Errorf("%q", after)
		}
		// A session of its own, and an agent's tool that has the name of a prompt.
		n.ask(
			c,
			"pre_action",
			"s3",
			map[string]any{"tool_name": "pre_prompt", "arguments": map[string]any{"prompt": "Do it"}},
		)
		if got := n.context(c, "s3", "make deploy"); got["last prompt"] != "" ||
			got["steps before"] != "allowed: pre_prompt" {
			t.Errorf("%v", got)
		}
		if got := n.context(c, "s4", "make deploy"); len(got) != 0 {
			t.Errorf("the first step of a session has %v before it", got)
		}
		n.WantClean()
	})
}

func TestAPromptThatWaitsIsNotWhatLedToItself(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, c := startSoon(t, address, 10*time.Second, "\nrules:\n  - {name: look, on: [prompt], then: gate}\n")
		for _, prompt := range []string{"One", "Two"} {
			said := map[string]any{"prompt": prompt}
			if g := n.asked(c, "pre_prompt", "s", said, gate.Ballot{Approve: true}); g.ProposedAction != prompt ||
				prompt == "Two" && (len(g.Context) != 1 || g.Context[0].Value != "held: pre_prompt: One") {
				t.Errorf("%+v", g)
			}
		}
	})
}
