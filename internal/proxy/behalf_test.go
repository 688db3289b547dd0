package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/testbed"
)

// handed hands work on to the node's agent, and returns the handoff and its token.
func (n *node) handed(o handoff.Opening) (handoff.Handoff, string) {
	n.T.Helper()
	lead := n.Agent("lead-" + fmt.Sprint(len(n.Entries("agent.added"))))
	o.To = "coder"
	h, err := n.Handoffs.Open(n.T.Context(), handoff.By{Who: lead}, o)
	if err != nil {
		n.T.Fatal(err)
	}
	return h, n.Handoffs.Token(h.ID)
}

// Calls under a handoff are bound by it, whether or not a rule looks at them, and nothing that is forged passes.
func TestACallIsUnderAHandoff(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.Apply("rules: []\n")
		n.provider.json(formCases[0].reply) // which calls bash
		ask := fmt.Sprintf(messageAsk, false)
		_, every := n.handed(handoff.Opening{})
		_, noShell := n.handed(handoff.Opening{Tools: []string{"read"}})
		fewer, few := n.handed(handoff.Opening{Budget: policy.Budget{Tokens: 100}})
		ended, over := n.handed(handoff.Opening{})
		if _, err := n.Handoffs.End(t.Context(), roster.Identity{Role: roster.Admin}, ended.ID, ""); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what, token string
			status      int
			says        string
		}{
			{"everything", every, 200, "rm -r build"},
			{"a tool that was not handed on", noShell, 403, "does not include the tool bash"},
			{"the first call of a budget", few, 200, "rm -r build"},
			{"a budget that is spent", few, 403, "is spent: 100 tokens"},
			{"one that has ended", over, 403, "is over"},
			{"a forged one", every[:len(every)-1] + "x", 403, "not the token"},
			{"another user", every, 403, "is for nobody"},
		} {
			user := ""
			if c.what == "a budget that is spent" { // usage is recorded a moment after the reply
				testbed.Until(t, "the record of the call", func() bool {
					return slices.ContainsFunc(n.Entries("proxy.called"), func(e ledger.Entry) bool {
						return strings.Contains(string(e.Body), fewer.ID)
					})
				})
			}
			if c.what == "another user" {
				user = "bob"
			}
			before := n.provider.calls()
			got := n.call("POST", messagesPath, ask, "X-Amp-Delegation", c.token, "X-Amp-User", user)
			if got.status != c.status || !strings.Contains(got.body, c.says) {
				t.Errorf("%s: %d %s", c.what, got.status, got.body)
			}
			if c.status == 403 && c.what != "a tool that was not handed on" && n.provider.calls() != before {
				t.Errorf("%s: the provider was called", c.what)
			}
		}
		// A call about which no rule is asked.
		if got := n.call("GET", "/v1/proxy/v1/models", "", "X-Amp-Delegation", over); got.status != 403 {
			t.Errorf("models: %d %s", got.status, got.body)
		}
		for _, r := range n.provider.requests {
			if r.Header.Get("X-Amp-Delegation") != "" {
				t.Error("the provider was told the token")
			}
		}
		for _, e := range n.Entries() {
			if strings.Contains(string(e.Body), every) {
				t.Errorf("the token is in entry %d", e.Seq)
			}
		}
	})
}

// What a person approves is not given under a handoff that has ended while they thought.
func TestAReplyIsNotGivenUnderAHandoffThatHasEnded(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		n.provider.json(formCases[0].reply)
		h, token := n.handed(handoff.Opening{})
		waiting := n.begin("POST", messagesPath, fmt.Sprintf(messageAsk, false), "X-Amp-Delegation", token)
		g := n.gate()
		if _, err := n.Handoffs.End(t.Context(), roster.Identity{Role: roster.Admin}, h.ID, "enough"); err != nil {
			t.Fatal(err)
		}
		n.decide(g.ID, true, "")
		if got := <-waiting; got.status < 400 && strings.Contains(got.body, "rm -r build") {
			t.Errorf("%+v", got)
		}
		if got := len(n.Entries("proxy.released")); got != 0 {
			t.Errorf("%d releases", got)
		}
	})
}

// What only a rule of a narrower layer looks at is decoded for it, and a table of tools has replies judged.
func TestTheLayersOfAWorkspaceAndAUserAreAsked(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		alice, _, err := n.Roster.AddUser(t.Context(), roster.Identity{}, roster.NewUser{
			Name: "alice", Scopes: &[]string{"mail.read"},
		})
		must(err)
		users := []string{"alice"}
		_, err = n.Roster.ChangeAgent(t.Context(), roster.Identity{}, "default", "coder", roster.AgentChange{ActsFor: &users})
		must(err)
		layer := func(l rulebook.Layer, source string) {
			t.Helper()
			_, _, err := n.Book.ApplyLayer(t.Context(), roster.Identity{}, l, []byte("version: 1\n"+source), 0)
			must(err)
		}
		ask := func(user string) int {
			t.Helper()
			return n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false), "X-Amp-User", user).status
		}
		n.apply("  []\n")
		n.provider.json(formCases[0].reply)
		if got := ask("alice"); got != 200 {
			t.Fatalf("without layers: %d", got)
		}
		of := rulebook.Layer{Workspace: "default", User: alice.ID}
		layer(of, "rules: [{name: text, on: [prompt], when: 'size(event.text) > 0', then: block, reason: it has text}]\n")
		if theirs, others := ask("alice"), ask(""); theirs != 403 || others != 200 {
			t.Errorf("a rule that reads the text: %d for the user, %d for others", theirs, others)
		}
		layer(of, "tools: {'*': [tools.any]}\n")
		if theirs, others := ask("alice"), ask(""); theirs != 403 || others != 200 {
			t.Errorf("a table of tools: %d for the user, %d for others", theirs, others)
		}
		layer(of, "")
		layer(rulebook.Layer{Workspace: "default"}, "defaults: {tool_call: block}\n")
		if theirs, others := ask("alice"), ask(""); theirs != 403 || others != 403 {
			t.Errorf("a default of the workspace: %d for the user, %d for others", theirs, others)
		}
	})
}

// A call names the user on whose behalf it is. The provider does not hear of it, and who is only claimed gives the
// agent nothing.
func TestACallIsOnBehalfOfAUser(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for _, name := range []string{"alice", "bob"} {
			if _, _, err := n.Roster.AddUser(t.Context(), roster.Identity{}, roster.NewUser{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		users := []string{"alice"}
		if _, err := n.Roster.ChangeAgent(t.Context(), roster.Identity{}, "default", "coder",
			roster.AgentChange{ActsFor: &users}); err != nil {
			t.Fatal(err)
		}
		n.apply(`  - {name: not-for-others, on: [prompt], when: 'event.user != "" && user.name != event.user', then: block}
  - {name: alice-asks, on: [tool_call], when: 'user.name == "alice"', then: block}
`)
		n.provider.json(formCases[0].reply)
		for user, want := range map[string]int{"": 200, "bob": 403, "alice": 403} {
			before := n.provider.calls()
			got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false), "X-Amp-User", user)
			passed := n.provider.calls() - before
			if got.status != want || passed != map[string]int{"": 1, "bob": 0, "alice": 1}[user] {
				t.Errorf("%q: %d, %d calls passed: %s", user, got.status, passed, got.body)
			}
		}
		for _, r := range n.provider.requests {
			if r.Header.Get("X-Amp-User") != "" {
				t.Error("the provider was told for whom a call is")
			}
		}
	})
}
