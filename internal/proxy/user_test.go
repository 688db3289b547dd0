package proxy_test

import (
	"fmt"
	"testing"

	"signalbox/internal/roster"
)

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
