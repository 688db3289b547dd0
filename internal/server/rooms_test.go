package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/mail"
)

// TestAgentsOfAnotherWorkspaceDoNotExist makes every call of mail as an agent of another workspace, about an agent that
// there is and about one that there is not. The answers are the same, and nothing arrives.
func TestAgentsOfAnotherWorkspaceDoNotExist(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		spy, victim, colleague := b.register("spy", "acme"), b.register("victim", "other"), b.register("friend", "other")
		sent := colleague.send(victim.address, "Between us", "The secret of other")
		var upload struct {
			ID string `json:"attachment_id"`
		}
		victim.amp(201, "POST /v1/attachments/upload", `{"filename":"a.txt","content_type":"text/plain","size":1,`+
			`"digest":"sha256:`+strings.Repeat("0", 64)+`"}`, &upload)
		names := strings.NewReplacer("NAME", "victim", "AGENT", victim.id, "MESSAGE", sent.ID, "FILE", upload.ID)
		nobody := strings.NewReplacer("NAME", "nobody", "AGENT", "agent_00000000000000000000000000", "MESSAGE",
			"msg_1706648400_000000000000", "FILE", "att_1706648400_0000000000000000")
		same := func(text string) string {
			return strings.NewReplacer("victim", "nobody", victim.id, "agent_00000000000000000000000000", sent.ID,
				"msg_1706648400_000000000000", upload.ID, "att_1706648400_0000000000000000").Replace(text)
		}
		const route = `{"to":"%s","subject":"s","payload":{"type":"request","message":"m"}}`
		tried := map[string]bool{}
		for _, c := range []struct{ route, call, body string }{
			{"POST /v1/route", "POST /v1/route", fmt.Sprintf(route, "NAME@other.signalbox.local")},
			{"POST /v1/route", "POST /v1/route", fmt.Sprintf(route, "NAME@other")},
			{"POST /v1/route", "POST /v1/route", fmt.Sprintf(route, "NAME@other.aimaestro.local")},
			{"POST /v1/route", "POST /v1/route", fmt.Sprintf(route, "NAME@OTHER.signalbox.local")},
			{"POST /v1/route", "POST /v1/route", fmt.Sprintf(route, "NAME@x.y.other.signalbox.local")},
			{"POST /v1/route", "POST /v1/route", fmt.Sprintf(route, "NAME")},
			{"POST /v1/route", "POST /v1/route", `{"to":"NAME@other","subject":"s","in_reply_to":"MESSAGE",` +
				`"payload":{"type":"response","message":"m"}}`},
			{"GET /v1/agents/resolve/{address}", "GET /v1/agents/resolve/NAME@other.signalbox.local", ""},
			{"GET /v1/agents/resolve/{address}", "GET /v1/agents/resolve/NAME%40other", ""},
			{"GET /v1/agents/resolve/{address}", "GET /v1/agents/resolve/AGENT", ""},
			{"GET /v1/agents/{address}", "GET /v1/agents/NAME@other.signalbox.local", ""},
			{"GET /v1/agents", "GET /v1/agents?search=NAME", ""},
			{"GET /v1/agents", "GET /v1/agents?tenant=other&search=NAME", ""},
			{"GET /v1/agents/by-name/{address}", "GET /v1/agents/by-name/NAME@other.signalbox.local", ""},
			{"POST /v1/messages/{id}/read", "POST /v1/messages/MESSAGE/read", ""},
			{"DELETE /v1/messages/pending/{id}", "DELETE /v1/messages/pending/MESSAGE", ""},
			{"DELETE /v1/messages/pending", "DELETE /v1/messages/pending?id=MESSAGE", ""},
			{"POST /v1/inbox/{id}/ack", "POST /v1/inbox/MESSAGE/ack", ""},
			{"POST /v1/messages/pending/ack", "POST /v1/messages/pending/ack", `{"ids":["MESSAGE"]}`},
			{"POST /v1/messages/pending", "POST /v1/messages/pending", `{"ids":["MESSAGE"]}`},
			{"GET /v1/messages/pending", "GET /v1/messages/pending", ""},
			{"GET /v1/messages/pending/count", "GET /v1/messages/pending/count", ""},
			{"GET /v1/inbox", "GET /v1/inbox", ""},
			{"GET /v1/messages", "GET /v1/messages", ""},
			{"GET /v1/attachments/{id}", "GET /v1/attachments/FILE", ""},
			{"GET /v1/attachments/{id}/download", "GET /v1/attachments/FILE/download", ""},
			{"GET /v1/attachments/{id}/file", "GET /v1/attachments/FILE/file", ""},
			{"POST /v1/attachments/{id}/confirm", "POST /v1/attachments/FILE/confirm", ""},
			{"PUT /v1/attachments/{id}/data", "PUT /v1/attachments/FILE/data", "x"},
			{"GET /v1/agents/{id}/{what}", "GET /v1/agents/AGENT/risk", ""},
			{"POST /v1/agents/{id}/suspend", "POST /v1/agents/AGENT/suspend", "{}"},
			{"POST /v1/agents/{id}/unsuspend", "POST /v1/agents/AGENT/unsuspend", ""},
			{"GET /v1/agents/owned", "GET /v1/agents/owned", ""},
			{"DELETE /v1/agents/owned/{agent_id}", "DELETE /v1/agents/owned/AGENT", ""},
			{"GET /v1/quarantine", "GET /v1/quarantine", ""},
			{"POST /mcp", "POST /mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mail_send",` +
				`"arguments":{"to":"NAME@other","subject":"s","message":"m"}}}`},
		} {
			tried[c.route] = true
			header := map[string]string{"Accept": "application/json, text/event-stream"}
			status, answer, _ := b.do(request{
				call: names.Replace(c.call), body: names.Replace(c.body), token: spy.key, header: header,
			})
			none, nothing, _ := b.do(request{
				call: nobody.Replace(c.call), body: nobody.Replace(c.body), token: spy.key, header: header,
			})
			if status != none || same(answer) != same(nothing) {
				t.Errorf("%s %s tells that there is one:\n%d %s\n%d %s", c.call, c.body, status, answer, none, nothing)
			}
			if strings.Contains(answer, `"online":true`) || strings.Contains(answer, "public_key") {
				t.Errorf("%s: %s", c.call, answer)
			}
		}
		if got := victim.inbox(); len(got) != 1 || got[0].ID != sent.ID {
			t.Errorf("something has arrived, or has gone: %+v", got)
		}
		// These are about the caller itself, or for everybody, or for other servers.
		for _, own := range []string{
			"GET /v1/info", "GET /v1/health", "GET /v1/organization", "GET /v1/ws", "GET /v1/agents/me", "PATCH /v1/agents/me",
			"DELETE /v1/agents/me", "GET /v1/agents/me/card", "POST /v1/auth/rotate-key", "POST /v1/auth/rotate-keys",
			"DELETE /v1/auth/revoke-key", "GET /v1/auth/user-key", "POST /v1/register", "POST /v1/attachments/upload",
			"POST /v1/federation/deliver", "POST /v1/mesh/route", "GET /v1/quarantine/{id}", "POST /v1/quarantine/{id}/approve",
			"POST /v1/quarantine/{id}/reject",
		} {
			tried[own] = true
		}
		_, document, _ := b.do(request{call: "GET /openapi.json"})
		var doc struct{ Paths map[string]map[string]any }
		if err := json.Unmarshal([]byte(document), &doc); err != nil {
			t.Fatal(err)
		}
		for path, methods := range doc.Paths {
			for method := range methods {
				call := strings.ToUpper(method) + " " + path
				if strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/proxy") && !tried[call] {
					t.Errorf("%s is not tried from another workspace", call)
				}
			}
		}
	})
}

func TestAWorkspaceIsOpenedToAnother(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		alice, bob := b.register("alice", "acme"), b.register("bob", "other")
		carol := b.register("carol", "third")
		var ofOther, ofAcme struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"olga","role":"admin","workspace":"other"}`, &ofOther)
		b.ops(201, "POST /ops/operators", `{"name":"anna","role":"admin","workspace":"acme"}`, &ofAcme)
		otto := b.operator("otto", "operator")
		before := b.head()
		for _, c := range []struct {
			name, token, call, body string
			status                  int
			says                    string
		}{
			{"who may not change anything", otto, "PATCH /ops/workspaces/other", `{"open_to":["acme"]}`, 403, "admin"},
			{"an admin of another", ofAcme.Token, "PATCH /ops/workspaces/other", `{"open_to":["acme"]}`, 404, "no workspace"},
			{"one that does not exist", b.token(), "PATCH /ops/workspaces/mars", `{"open_to":[]}`, 404, "no workspace"},
			{"to one that does not exist", b.token(), "PATCH /ops/workspaces/other", `{"open_to":["mars"]}`, 404, "mars"},
			{"to itself", b.token(), "PATCH /ops/workspaces/other", `{"open_to":["other"]}`, 400, "its own agents"},
			{"to a name that is none", ofOther.Token, "PATCH /ops/workspaces/other", `{"open_to":["*"]}`, 400, "open_to"},
			{"an agent", alice.key, "PATCH /ops/workspaces/other", `{"open_to":["acme"]}`, 403, ""},
			{"nothing", ofOther.Token, "PATCH /ops/workspaces/other", `{}`, 200, `"open_to":[]`},
		} {
			status, answer, _ := b.do(request{call: c.call, body: c.body, token: c.token})
			if status != c.status || !strings.Contains(answer, c.says) {
				t.Errorf("%s: %d, want %d: %s", c.name, status, c.status, answer)
			}
		}
		if wrote := b.head() - before; wrote != 0 {
			t.Errorf("%d entries", wrote)
		}
		letter := `{"to":"%s","subject":"s","payload":{"type":"request","message":"m"}}`
		alice.amp(404, "POST /v1/route", fmt.Sprintf(letter, bob.address), nil)

		b.want(200, request{call: "PATCH /ops/workspaces/other", token: ofOther.Token, body: `{"open_to":["acme","acme"]}`})
		sent := alice.send(bob.address, "Hello", "from acme")
		var found struct{ Address string }
		alice.amp(200, "GET /v1/agents/resolve/"+bob.address, "", &found)
		if sent.Status != mail.Queued || found.Address != bob.address {
			t.Errorf("%+v %+v", sent, found)
		}
		// One direction, and nobody else.
		bob.amp(404, "POST /v1/route", fmt.Sprintf(letter, alice.address), nil)
		bob.amp(404, "GET /v1/agents/resolve/"+alice.address, "", nil)
		carol.amp(404, "POST /v1/route", fmt.Sprintf(letter, bob.address), nil)
		var list struct {
			Workspaces []string
			OpenTo     map[string][]string `json:"open_to"`
		}
		b.ops(200, "GET /ops/workspaces", "", &list)
		if len(list.OpenTo) != 1 || len(list.OpenTo["other"]) != 1 || list.OpenTo["other"][0] != "acme" {
			t.Errorf("%+v", list)
		}
		if status, answer, _ := b.do(request{call: "GET /ops/workspaces", token: ofAcme.Token}); status != 200 ||
			strings.Contains(answer, "other") {
			t.Errorf("another workspace sees it: %s", answer)
		}

		// Closing takes effect at once; what was accepted is delivered.
		b.ops(200, "PATCH /ops/workspaces/other", `{"open_to":[]}`, nil)
		alice.amp(404, "POST /v1/route", fmt.Sprintf(letter, bob.address), nil)
		alice.amp(404, "GET /v1/agents/resolve/"+bob.address, "", nil)
		if got := bob.inbox(); len(got) != 1 || got[0].ID != sent.ID {
			t.Errorf("%+v", got)
		}
		if got := b.entryKinds("workspace.opened", "workspace.closed"); got !=
			"workspace.opened by operator:olga, workspace.closed by operator:admin" {
			t.Error(got)
		}
		b.stop()
		*b = *start(t, b.config.DB.Reveal(), map[string]string{"data": b.config.Data})
		alice.amp(404, "POST /v1/route", fmt.Sprintf(letter, bob.address), nil)
		b.wantRebuilt(5)
	})
}

// entryKinds are the entries of some kinds, with who did it.
func (b *box) entryKinds(kinds ...string) string {
	b.t.Helper()
	var all []string
	for _, kind := range kinds {
		var page struct {
			Entries []struct{ Kind, Actor string }
		}
		b.ops(200, "GET /ops/ledger?kind="+kind, "", &page)
		for _, e := range page.Entries {
			all = append(all, e.Kind+" by "+e.Actor)
		}
	}
	return strings.Join(all, ", ")
}
