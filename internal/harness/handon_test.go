package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// handingOn is a node with a second agent, and tools that need scopes.
func handingOn(t *testing.T, address string) (n *node, lead, helper *harness.Conn) {
	t.Helper()
	n = start(t, address, harness.Config{})
	admin := roster.Identity{Role: roster.Admin}
	if _, _, err := n.Roster.AddUser(t.Context(), admin, roster.NewUser{
		Name: "alice", Scopes: &[]string{"mail.*"},
	}); err != nil {
		t.Fatal(err)
	}
	as := func(name string) *harness.Conn {
		_, keys, err := n.Roster.AddAgent(t.Context(), admin, roster.NewAgent{Name: name, Workspace: "default", Owner: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		return n.harness.NewConn(harness.TransportHTTP, func(ctx context.Context) (roster.Identity, error) {
			return n.Roster.Authenticate(ctx, keys[0].Secret)
		})
	}
	n.Apply(`tools: {send: [mail.send], read: [mail.read]}
rules:
  - {name: unverified, on: [action], when: delegation.unverified, then: block, reason: "Nobody knows who handed this on."}
  - {name: subagents, on: [action], when: 'event.depth > 0 && event.tool == "deploy"', then: block, reason: "Not here."}
  - {name: ask, on: [action], when: 'event.tool == "wipe"', then: gate}
`)
	return n, as("lead"), as("helper")
}

// query sends ahp/query of the type delegate.
func (n *node) delegate(c *harness.Conn, session, payload, metadata string) (a answer) {
	n.T.Helper()
	return n.read(n.harness.Handle(context.Background(), c, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"q","method":"ahp/query",`+
		`"params":{"session_id":%q,"agent_id":"a1","query_type":"delegate","payload":%s,"metadata":%s}}`, session, payload,
		metadata)).JSON)
}

// act asks about a tool, with metadata and a depth, and returns the decision and its reason.
func (n *node) act(c *harness.Conn, session, tool string, depth int, metadata string) string {
	n.T.Helper()
	a := n.read(n.harness.Handle(context.Background(), c, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"r","method":"ahp/event",`+
		`"params":{"event_type":"pre_action","session_id":%q,"agent_id":"a1","timestamp":"","depth":%d,"payload":{"tool_name":%q,`+
		`"arguments":{"x":1}},"metadata":%s}}`, session, depth, tool, metadata)).JSON)
	return fmt.Sprint(a.Result["decision"], " ", a.Result["reason"], a.Error)
}

func TestAnAgentHandsWorkOnOverAHP(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, lead, helper := handingOn(t, address)
		got := n.delegate(lead, "s", `{"to":"helper","scopes":["mail.read"],"bound":true}`, `{}`)
		token, _ := got.Result["token"].(string)
		if got.Result["answer"] != "yes" || token == "" {
			t.Fatalf("%+v", got)
		}
		under := fmt.Sprintf(`{"delegation":%q}`, token)
		for _, c := range []struct {
			what, tool, session string
			depth               int
			metadata, want      string
		}{
			{"what was handed on", "read", "h", 0, under, "allow"},
			{"what was not", "send", "h", 0, under, "needs the scope mail.send"},
			{"no depth is no way around a rule", "deploy", "h", 0, under, "Not here."},
			{"a false depth", "read", "h", 7, under, "The depth is 1"},
			{"another user", "read", "h", 0, fmt.Sprintf(`{"delegation":%q,"user":"bob"}`, token), "is for alice"},
			{"a replayed token", "read", "other", 0, under, "used by another session"},
			{"a forged token", "read", "h", 0, `{"delegation":"hof_01m7kzqd3me05rp8pg26r57t6w_00"}`, "not the token"},
			{"a forged chain", "read", "h2", 0, `{"delegation":[{"agent":"lead"},{"agent":"helper"}]}`, "Nobody knows"},
			{"the narrowing left out", "read", "h3", 0, `{}`, "Nobody knows"},
			{"the token left out in its session", "send", "h", 0, `{}`, "needs the scope mail.send"},
		} {
			if got := n.act(helper, c.session, c.tool, c.depth, c.metadata); !strings.Contains(got, c.want) {
				t.Errorf("%s: %s", c.what, got)
			}
		}
		if got := n.act(lead, "s", "read", 0, under); !strings.Contains(got, "given to another agent") {
			t.Errorf("a token of another agent: %s", got)
		}
		for what, c := range map[string][2]string{
			"a wider scope":     {`{"to":"lead","scopes":["mail.send"]}`, "cannot have more"},
			"an unknown member": {`{"to":"lead","power":1}`, "power"},
			"nobody":            {`{}`, "Name the agent"},
			"another user":      {`{"to":"lead","user":"bob"}`, "is for alice"},
		} {
			if got := n.delegate(helper, "h", c[0], under); got.Result["answer"] != "no" ||
				!strings.Contains(fmt.Sprint(got.Result["reason"]), c[1]) {
				t.Errorf("%s was handed on: %+v", what, got)
			}
		}
		for _, e := range n.Entries() {
			if strings.Contains(string(e.Body), token) {
				t.Errorf("the token is in entry %d", e.Seq)
			}
		}
		n.WantClean()
	})
}

// A person who approves what was asked under a handoff does not bring the handoff back.
func TestAnApprovalDoesNotOutliveTheHandoff(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, lead, helper := handingOn(t, address)
		given := n.delegate(lead, "s", `{"to":"helper"}`, `{}`)
		token := fmt.Sprint(given.Result["token"])
		done := make(chan string, 1)
		go func() { done <- n.act(helper, "h", "wipe", 0, fmt.Sprintf(`{"delegation":%q}`, token)) }()
		var g gate.Gate
		testbed.Until(t, "the gate", func() bool {
			all := n.Pending()
			if len(all) == 1 {
				g = all[0]
			}
			return len(all) == 1
		})
		handed, _ := given.Result["handoff"].(map[string]any)
		if _, err := n.Handoffs.End(t.Context(), roster.Identity{Role: roster.Admin}, fmt.Sprint(handed["id"]), "enough"); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Gates.Vote(t.Context(), n.operator, g.ID, gate.Ballot{Approve: true}); err != nil {
			t.Fatal(err)
		}
		if got := <-done; !strings.Contains(got, "is over: it was ended: enough") {
			t.Error(got)
		}
	})
}

// The hooks of Claude Code report which subagent a call is of. The tool that starts one opens a handoff.
func TestASubagentIsBoundByTheIDsOfTheHook(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, lead, _ := handingOn(t, address)
		hook := func(more string) string { return `{"hook":"claude-code","tool_use_id":"toolu_1"` + more + `}` }
		sub := func(id string) string { return hook(`,"subagent":"general-purpose","subagent_id":"` + id + `"`) }
		if got := n.act(lead, "s", "read", 0, sub("agent_x")); !strings.Contains(got, "Nobody knows") {
			t.Errorf("a subagent that nobody started: %s", got)
		}
		if got := n.act(lead, "s", "Task", 0, hook("")); !strings.Contains(got, "allow") {
			t.Fatal(got)
		}
		for _, c := range [][3]string{
			{"read", "agent_a", "allow"},        // takes the handoff
			{"deploy", "agent_a", "Not here."},  // it is deep, although the event says 0
			{"read", "agent_b", "Nobody knows"}, // there was one call and not two
			{"deploy", "", "allow"},             // the session itself
			{"send", "agent_a", "allow"},        // it has what the session has
		} {
			metadata := hook("")
			if c[1] != "" {
				metadata = sub(c[1])
			}
			if got := n.act(lead, "s", c[0], 0, metadata); !strings.Contains(got, c[2]) {
				t.Errorf("%s of %q: %s", c[0], c[1], got)
			}
		}
		// It ends when its call returns.
		ended, _ := json.Marshal(map[string]any{"tool": "Task", "arguments": map[string]any{}, "result": map[string]any{}})
		n.harness.Handle(context.Background(), lead, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"ahp/event","params":{"event_type":`+
			`"post_action","session_id":"s","agent_id":"a1","timestamp":"","depth":0,"payload":%s,"metadata":%s}}`, ended, hook("")))
		if got := n.act(lead, "s", "read", 0, sub("agent_a")); !strings.Contains(got, "Nobody knows") {
			t.Errorf("a subagent whose call has returned: %s", got)
		}
		n.WantClean()
	})
}
