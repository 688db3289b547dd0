package proxy_test

import (
	"fmt"
	"testing"

	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
)

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
