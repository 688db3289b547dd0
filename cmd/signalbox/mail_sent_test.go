package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMailThatDoesNotArriveSaysSo: what fails for good has exit code 1 and its reason at once, in text, as JSON and over
// MCP; what is rejected later is told by every command that shows sent mail.
func TestMailThatDoesNotArriveSaysSo(t *testing.T) {
	t.Parallel()
	third, dir := newProvider(t, "third.test"), t.TempDir()
	third.refusal.Store(`{"accepted":false,"error":"recipient_not_allowed","message":"Zoe takes no mail."}`)
	configure(t, dir, "mail: {provider: first.test, federation: allowlist, peers: [third.test="+third.URL+"]}\n")
	p := up(t, dir)
	alice, bob := newMailer(t, p, "alice", ""), newMailer(t, p, "bob", "")
	of := func(args ...string) (int, string) {
		return run(t, dir, append([]string{"mail", "--dir", alice.dir}, args...)...)
	}
	const zoe = "zoe@theirs.third.test"

	if code, out := of("send", zoe, "Hello", "text"); code != 1 || !strings.Contains(out, "Zoe takes no mail.") ||
		strings.Contains(out, "delivered") {
		t.Errorf("%d %s", code, out)
	}
	code, out := of("send", zoe, "Hello", "json", "--json")
	var failed struct{ ID, Status, Error string }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&failed); err != nil || code != 1 || failed.Status != "failed" ||
		!strings.Contains(failed.Error, "Zoe takes no mail.") {
		t.Errorf("%d %s %v", code, out, err)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.StreamableClientTransport{
			Endpoint: p.url + "/mcp", DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: bearer{func() string { key, _, _ := alice.identity(); return key }()}},
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	for to, want := range map[string]string{zoe: "failed", "bob": "queued"} {
		said, err := session.CallTool(t.Context(), &sdk.CallToolParams{
			Name: "mail_send", Arguments: map[string]any{"to": to, "subject": "Hello", "message": "from a model"},
		})
		if err != nil {
			t.Fatal(err)
		}
		text := said.Content[0].(*sdk.TextContent).Text
		if said.IsError != (want == "failed") || !strings.Contains(text, `"status":"`+want+`"`) ||
			said.IsError && !strings.Contains(text, "Zoe takes no mail.") {
			t.Errorf("%s: %v %s", to, said.IsError, text)
		}
	}

	// Held, and rejected after its sender has its answer.
	mustRun(t, dir, "policy", "apply", writeFile(t, "version: 1\nrules: [{name: look, on: [message], then: gate}]\n"))
	var held struct {
		ID   string
		Gate string `json:"gate_id"`
	}
	if err := json.Unmarshal([]byte(alice.mail("send", "bob", "Hello", "look at it", "--json")), &held); err != nil {
		t.Fatal(err)
	}
	shown := func() (status, reason string) {
		t.Helper()
		var list struct {
			Messages []struct{ ID, Status, Error string }
		}
		if err := json.Unmarshal([]byte(alice.mail("inbox", "--sent", "--json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, one := range list.Messages {
			if one.ID == held.ID {
				status, reason = one.Status, one.Error
			}
		}
		return status, reason
	}
	if status, _ := shown(); status != "held" {
		t.Errorf("%q", status)
	}
	if out := alice.mail("read", "--sent", held.ID); !strings.Contains(out, "held") {
		t.Error(out)
	}
	mustRun(t, dir, "gates", "reject", held.Gate, "--note", "not to Bob")
	if code, out := of("fetch"); code != 0 || !strings.Contains(out, "was rejected: not to Bob") {
		t.Errorf("%d %s", code, out)
	}
	if status, reason := shown(); status != "rejected" || reason != "not to Bob" {
		t.Errorf("%q %q", status, reason)
	}
	if code, out := of("read", "--sent", held.ID); code != 1 || !strings.Contains(out, "not to Bob") ||
		!strings.Contains(out, "rejected") {
		t.Errorf("%d %s", code, out)
	}
	if all := bob.letters(t); len(all) != 0 {
		t.Errorf("%v", all)
	}
	if code, out := of("inbox", "--sent"); code != 0 || !strings.Contains(out, fmt.Sprintf("%s to bob@default.first.test was rejected", held.ID)) {
		t.Errorf("%d %s", code, out)
	}
}
