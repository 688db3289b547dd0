package harness_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

const gateBash = `
rules:
  - {name: bash-needs-a-person, on: [action], when: event.tool == "bash", then: gate,
     reason: A shell can do anything., gate: {expires: 1h}}
`

func bash(command string) map[string]any {
	return map[string]any{"tool_name": "bash", "arguments": map[string]any{"command": command}}
}

// vote decides the one gate that waits, when there is one.
func (n *node) vote(b gate.Ballot) gate.Gate {
	n.T.Helper()
	testbed.Until(n.T, "a gate", func() bool { return len(n.Pending()) == 1 })
	g, err := n.Gates.Vote(context.Background(), n.operator, n.Pending()[0].ID, b)
	if err != nil {
		n.T.Fatal(err)
	}
	return g
}

// askAgain asks until there is a decision: a machine that is busy may not write one down in the time
// that a client waits, and the answer is then a refusal that nobody decided.
func (n *node) askAgain(c *harness.Conn, typ, session string, payload any) (a answer) {
	n.T.Helper()
	testbed.Until(n.T, "a decision", func() bool {
		a = n.ask(c, typ, session, payload)
		metadata, _ := a.Result["metadata"].(map[string]any)
		return metadata["fail_closed"] != true
	})
	return a
}

// soon is a configuration whose clients wait so long.
func soon(d time.Duration) harness.Config { return harness.Config{Timeout: d} }

// startSoon starts a node under the rules, with an agent's connection, that answers after that time at the latest.
func startSoon(t *testing.T, address string, d time.Duration, rules string) (*node, *harness.Conn) {
	t.Helper()
	n := start(t, address, soon(d))
	n.Apply(rules)
	return n, n.conn(harness.TransportSocket)
}

func TestACallIsHeldUntilAPersonHasDecided(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		n.Apply(gateBash)
		c := n.conn(harness.TransportSocket)
		for _, b := range []struct {
			ballot gate.Ballot
			want   string
		}{
			{gate.Ballot{Approve: true}, "allow"},
			{gate.Ballot{Approve: true, Modified: wire.Raw(`{"tool_name":"bash","arguments":{"command":"ls -l"}}`)}, "modify"},
			{gate.Ballot{Note: "not on a Sunday"}, "block"},
			{gate.Ballot{}, "block"}, // a rejection stands: nobody is asked again
		} {
			got := make(chan answer, 1)
			go func() { got <- n.ask(c, "pre_action", "s1", bash("make release")) }()
			if b.want != "block" || b.ballot.Note != "" {
				g := n.vote(b.ballot)
				if g.Title != "bash: make release" || g.Reason != "A shell can do anything." || g.Agent != "coder" ||
					g.ActionDigest == "" {
					t.Errorf("an operator is shown %+v", g)
				}
			}
			a := <-got
			if a.Result["decision"] != b.want {
				t.Fatalf("%+v, want %s", a, b.want)
			}
			if b.want == "block" && !strings.Contains(a.Result["reason"].(string), "Sunday") {
				t.Errorf("the reason is %v", a.Result["reason"])
			}
			if b.want == "modify" &&
				a.Result["modified_payload"].(map[string]any)["arguments"].(map[string]any)["command"] != "ls -l" {
				t.Errorf("%+v", a.Result)
			}
		}
		if held, settled := n.Entries("step.held"), n.Entries("step.settled"); len(held) != 3 || len(settled) != 4 {
			t.Errorf("%d held, %d settled", len(held), len(settled))
		}
		n.WantClean()
	})
}

func TestACallThatNobodyDecidesIsPutOffAndFindsItsGateAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, c := startSoon(t, address, 8*time.Second, gateBash)
		began := time.Now()
		a := n.ask(c, "pre_action", "s1", bash("make release"))
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("held for %s", took)
		}
		if a.Result["decision"] != "defer" || a.Result["retry_after_ms"].(float64) < 1 {
			t.Fatalf("%+v", a)
		}
		// The same, written otherwise, and other sessions and payloads.
		other := `{"jsonrpc":"2.0","id":7,"method":"ahp/event","params":{"session_id":"s1",` +
			`"payload":{"arguments":{"command":"make release"}, "tool_name":"bash"},"agent_id":"zz",` +
			`"timestamp":"later","depth":1,"event_type":"pre_action"}}`
		n.harness.Handle(t.Context(), c, []byte(other))
		if waiting := n.Pending(); len(waiting) != 1 {
			t.Fatalf("%d gates", len(waiting))
		}
		n.ask(c, "pre_action", "s2", bash("make release"))
		n.ask(c, "pre_action", "s1", bash("make release "))
		waiting := n.Pending()
		if len(waiting) != 3 {
			t.Fatalf("%d gates", len(waiting))
		}
		for _, g := range waiting {
			if _, err := n.Gates.Vote(t.Context(), n.operator, g.ID, gate.Ballot{Approve: true}); err != nil {
				t.Fatal(err)
			}
		}
		if a := n.ask(c, "pre_action", "s1", bash("make release")); a.Result["decision"] != "allow" {
			t.Errorf("%+v", a)
		}
		// It was good once.
		if a := n.ask(c, "pre_action", "s1", bash("make release")); a.Result["decision"] != "defer" {
			t.Errorf("%+v", a)
		}
		n.WantClean()
	})
}

// Numbers that a computer's own would make one are two.
func TestAnApprovalIsGoodForEveryDigit(t *testing.T) {
	t.Parallel()
	n, c := startSoon(t, storetest.SQLite(t), 8*time.Second, "rules: [{name: r, on: [action], then: gate}]\n")
	n.ask(c, "pre_action", "s1", json.RawMessage(`{"amount":9007199254740993}`))
	n.vote(gate.Ballot{Approve: true})
	if a := n.ask(c, "pre_action", "s1", json.RawMessage(`{"amount":9007199254740992}`)); a.Result["decision"] != "defer" {
		t.Errorf("%+v", a)
	}
	if a := n.ask(c, "pre_action", "s1",
		json.RawMessage(`{"amount": 9007199254740993}`)); a.Result["decision"] != "allow" {
		t.Errorf("%+v", a)
	}
}

func TestAGateThatExpiresBlocks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, c := startSoon(t, address, 8*time.Second, gateBash)
		n.ask(c, "pre_action", "s1", bash("make release"))
		n.Move(2 * time.Hour)
		testbed.Until(t, "the expiry", func() bool { return len(n.Pending()) == 0 })
		a := n.ask(c, "pre_action", "s1", bash("make release"))
		if a.Result["decision"] != "block" || !strings.Contains(a.Result["reason"].(string), "expired") {
			t.Errorf("%+v", a)
		}
	})
}

func TestAnApprovalIsGoodForTheWindowOfItsRule(t *testing.T) {
	t.Parallel()
	n, c := startSoon(t, storetest.SQLite(t), 8*time.Second,
		"rules: [{name: r, on: [action], then: gate, gate: {window: 10m}}]\n")
	n.ask(c, "pre_action", "s1", bash("ls"))
	n.vote(gate.Ballot{Approve: true})
	for range 3 {
		if a := n.askAgain(c, "pre_action", "s1", bash("ls")); a.Result["decision"] != "allow" {
			t.Errorf("%+v", a)
		}
		n.Move(3 * time.Minute)
	}
	n.Move(2 * time.Minute)
	if a := n.askAgain(c, "pre_action", "s1", bash("ls")); a.Result["decision"] != "defer" {
		t.Errorf("after the window: %+v", a)
	}
	n.WantClean()
}

// However many ask for the same at once, one approval lets one of them through.
func TestOneApprovalLetsOneCallThrough(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, c := startSoon(t, address, 5*time.Second, gateBash)
		var through atomic.Int64
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
				if n.ask(c, "pre_action", "s1", bash("make release")).Result["decision"] == "allow" {
					through.Add(1)
				}
			})
		}
		n.vote(gate.Ballot{Approve: true})
		asking.Wait()
		if through.Load() != 1 {
			t.Errorf("%d calls went through", through.Load())
		}
		n.WantClean()
	})
}

func TestAConfirmationIsAPersonsEvenWithoutARule(t *testing.T) {
	t.Parallel()
	n, c := startSoon(t, storetest.SQLite(t), 5*time.Second, "rules: []\n")
	ask := func(message string) answer {
		return n.ask(c, "confirmation", "s1",
			map[string]any{"session_id": "s1", "confirmation_type": "safety_confirm", "message": message})
	}
	if a := ask("a"); a.Result["decision"] != "escalate" || a.Result["reason"] == nil {
		t.Errorf("nobody decided: %+v", a)
	}
	n.vote(gate.Ballot{Approve: true})
	if a := ask("a"); a.Result["decision"] != "approve" {
		t.Errorf("%+v", a)
	}
	got := make(chan answer, 1)
	go func() { got <- ask("b") }()
	n.vote(gate.Ballot{Note: "no"})
	if a := <-got; a.Result["decision"] != "reject" || !strings.Contains(a.Result["reason"].(string), "no") {
		t.Errorf("%+v", a)
	}
}

// However many events of a batch wait for people, they have the time of one call.
func TestABatchThatWaitsHasTheTimeOfOneCall(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), soon(5*time.Second))
	n.Apply(gateBash)
	var events []json.RawMessage
	const many = 20
	for i := range many {
		var m struct{ Params json.RawMessage }
		if err := json.Unmarshal(event("r", "pre_action", "s1", bash(strings.Repeat("x", i+1))), &m); err != nil {
			t.Fatal(err)
		}
		events = append(events, m.Params)
	}
	text, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": "b", "method": "ahp/batch",
		"params": map[string]any{"events": events},
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	a := n.read(n.harness.Handle(t.Context(), n.conn(harness.TransportSocket), text).JSON)
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("took %s", took)
	}
	for _, d := range a.Result["decisions"].([]any) {
		if d.(map[string]any)["decision"] != "defer" {
			t.Errorf("%+v", d)
		}
	}
	if got := len(n.Pending()); got != many {
		t.Errorf("%d gates", got)
	}
}

func TestAPersonApprovesWhatARuleHasChanged(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply(`
rules:
  - {name: safer-push, on: [action], when: 'event.command.contains("push --force")', then: modify,
     replace: [{in: arguments.command, pattern: '--force\b', with: --force-with-lease}], redact: true,
     gate: {expires: 1h}}
`)
	c := n.conn(harness.TransportSocket)
	got := make(chan answer, 1)
	token := "ghp_" + strings.Repeat("a1B2", 9)
	go func() { got <- n.ask(c, "pre_action", "s1", bash("TOKEN="+token+" git push --force")) }()
	g := n.vote(gate.Ballot{Approve: true})
	if !strings.Contains(g.Title, "git push --force-with-lease") || strings.Contains(g.Title, token) {
		t.Errorf("an operator is shown %q", g.Title)
	}
	a := <-got
	if a.Result["decision"] != "modify" {
		t.Fatalf("%+v", a)
	}
	text, err := json.Marshal(a.Result["modified_payload"])
	if err != nil || !strings.Contains(string(text), "[secret:github-token:") ||
		!strings.Contains(string(text), "--force-with-lease") || strings.Contains(string(text), token) {
		t.Errorf("the agent goes on with %s, %v", text, err)
	}
}

func TestAnApprovalIsFoundWhateverTheDescriptionSays(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply(gateBash)
	c := n.conn(harness.TransportSocket)
	described := func(description, command string) map[string]any {
		return map[string]any{
			"tool_name": "bash", "arguments": map[string]any{"command": command, "description": description},
		}
	}
	got := make(chan answer, 1)
	go func() { got <- n.ask(c, "pre_action", "s1", described("Publish it", "make release")) }()
	n.vote(gate.Ballot{Note: "not today"})
	first := <-got
	again := n.ask(c, "pre_action", "s1", described("Publish the release", "make release"))
	if first.Result["decision"] != "block" || again.Result["decision"] != "block" || len(n.Pending()) != 0 {
		t.Errorf("first %+v, again %+v, and %d gates wait", first.Result, again.Result, len(n.Pending()))
	}
	go func() { got <- n.ask(c, "pre_action", "s1", described("Publish it", "make release FORCE=1")) }()
	if g := n.vote(gate.Ballot{Approve: true}); !strings.Contains(g.Title, "FORCE=1") {
		t.Errorf("another command asks about %q", g.Title)
	}
	<-got
}
