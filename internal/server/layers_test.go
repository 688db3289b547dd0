package server_test

import (
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/rulebook"
)

// TestAnAdminOfAWorkspaceEditsItsLayer tries the rights of every role over HTTP and on the page, and what a workspace's
// admin cannot loosen.
func TestAnAdminOfAWorkspaceEditsItsLayer(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.ops(201, "POST /ops/workspaces", `{"name":"acme"}`, nil)
		b.ops(201, "POST /ops/users", `{"name":"alice","workspace":"acme"}`, nil)
		tokens := map[string]string{}
		for _, role := range []string{"viewer", "operator", "admin"} {
			var made struct{ Token string }
			b.ops(201, "POST /ops/operators", `{"name":"`+role+`-of-acme","role":"`+role+`","workspace":"acme"}`, &made)
			tokens[role] = made.Token
		}
		var agent struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"bot","workspace":"acme","owner":"alice"}`, &agent)
		b.ops(200, "PUT /ops/policy", "version: 1\nrules:\n  - {name: never, on: [signal], "+
			"when: 'event.summary.contains(\"never\")', then: block, reason: the server says no}\n", nil)

		call := func(want int, token, call, body string) string {
			t.Helper()
			status, answer, _ := b.do(request{call: call, body: body, token: token})
			if status != want {
				t.Errorf("%s: %d, want %d: %s", call, status, want, answer)
			}
			return answer
		}
		// It would allow everything, by a rule and by a default, and does not loosen the server.
		const loose = "version: 1\ndefaults: {signal: allow}\nrules:\n  - {name: no-mail, on: [signal], " +
			"when: 'event.summary.contains(\"mail\")', then: block, reason: acme sends no mail}\n" +
			"  - {name: all, on: [signal], then: allow}\n"
		for _, role := range []string{"viewer", "operator"} {
			for _, of := range []string{"", "?workspace=acme", "?user=alice", "?workspace=default"} {
				call(403, tokens[role], "PUT /ops/policy"+of, loose)
			}
			call(404, tokens[role], "GET /ops/policy", "")
		}
		call(404, tokens["admin"], "PUT /ops/policy?workspace=default", loose)
		call(200, tokens["admin"], "PUT /ops/policy", loose)
		call(200, tokens["admin"], "PUT /ops/policy?user=alice", "version: 1\nrules:\n  - {name: alice-mails, on: [signal], "+
			"when: 'event.summary.contains(\"mail to bob\")', then: allow}\n")
		if text := call(200, tokens["viewer"], "GET /ops/policy?workspace=acme", ""); text != loose {
			t.Errorf("the viewer sees %q", text)
		}
		signal := func(summary string) string {
			t.Helper()
			_, answer, _ := b.do(request{
				call: "POST /amp/signal", token: agent.Keys["signal"],
				body: strings.Replace(ampSignal("bot", "run-"+summary), "Rewrote it", summary, 1),
			})
			return answer
		}
		for summary, want := range map[string]string{
			"never do this": "the server says no", "never mail to bob": "the server says no",
			"mail to eve": "acme sends no mail",
		} {
			if answer := signal(summary); !strings.Contains(answer, want) {
				t.Errorf("%s: %s", summary, answer)
			}
		}
		if answer := signal("mail to bob"); strings.Contains(answer, "no mail") {
			t.Errorf("the user's layer comes before the workspace's: %s", answer)
		}
		published := call(200, agent.Keys["signal"], "GET /amp/policy", "")
		for _, rule := range []string{"never", "no-mail", "alice-mails"} {
			if !strings.Contains(published, `"`+rule+`"`) {
				t.Errorf("%s is not published: %s", rule, published)
			}
		}
		var all rulebook.LayerList
		b.ops(200, "GET /ops/policy/layers", "", &all)
		if len(all.Layers) != 3 || all.Layers[2].Name != "alice" {
			t.Errorf("%+v", all)
		}
		var page struct{ Entries []struct{ Seq int64 } }
		b.ops(200, "GET /ops/ledger?kind=signal.received&workspace=acme&limit=1000", "", &page)
		for _, e := range page.Entries {
			answer := call(200, tokens["viewer"], "GET /ops/policy/explain/"+fmt.Sprint(e.Seq), "")
			if strings.Contains(answer, `"name":"never"`) {
				t.Errorf("the rules of the server show: %s", answer)
			}
		}
		if len(page.Entries) == 0 {
			t.Error("no decision was found")
		}
		b.wantRebuilt(1)
	})
}
