package mail_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/gate"
	"signalbox/internal/mail"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// became asks for a message that an agent has sent, over HTTP.
func became(a *mailtest.Agent, id string) (out mail.Answer) {
	a.T.Helper()
	a.Want(200, a.APIKey, "GET /v1/messages/"+id, "", &out)
	return out
}

// frameOf reads the next frame whole.
func frameOf(t *testing.T, conn *websocket.Conn) (kind string, data map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	_, text, err := conn.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Type string
		Data map[string]string
	}
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return f.Type, f.Data
}

// TestASenderLearnsWhatBecameOfAMessage: by a question, by a repetition with the same idempotency key, and on its socket.
func TestASenderLearnsWhatBecameOfAMessage(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address)
		alice, bob, carol := n.Register("alice", "acme"), n.Register("bob", "acme"), n.Register("carol", "acme")
		n.Apply(`rules: [{name: look, on: [message], when: 'event.subject == "held"', then: gate}]`)
		conn := connect(n, alice)
		send := func(to *mailtest.Agent, subject, more string) (body string, sent mail.Answer) {
			t.Helper()
			body = string(alice.Letter(to.Address, subject, "m", more+`,"idempotency_key":"idk_`+subject+to.LocalName+`"`))
			if status, text := n.Call(alice.APIKey, "POST /v1/route", body, &sent); status > 202 {
				t.Fatal(text)
			}
			return body, sent
		}
		// same checks that a question and a repetition say the same, and what.
		same := func(what, body string, sent mail.Answer, status, reason string) {
			t.Helper()
			got := became(alice, sent.ID)
			var again mail.Answer
			n.Call(alice.APIKey, "POST /v1/route", body, &again)
			if got.Status != status || !strings.Contains(got.Error, reason) || (got.Error == "") != (reason == "") ||
				fmt.Sprint(again) != fmt.Sprint(got) {
				t.Errorf("%s: %+v, and repeated %+v; want %s %q", what, got, again, status, reason)
			}
		}
		body, queued := send(bob, "one", "")
		same("queued", body, queued, mail.Queued, "")
		bob.Ack(queued.ID)
		same("acknowledged", body, queued, mail.Delivered, "")

		body, rejected := send(bob, "held", "")
		same("held", body, rejected, mail.Held, "")
		_, ines := n.Operator("ines")
		if _, err := n.Gates.Vote(t.Context(), ines, rejected.GateID, gate.Ballot{Note: "not that"}); err != nil {
			t.Fatal(err)
		}
		same("rejected", body, rejected, mail.Rejected, "not that")
		if kind, data := frameOf(t, conn); kind != "message.failed" || data["id"] != rejected.ID || data["status"] != mail.Rejected ||
			data["error"] != "not that" || data["to"] != bob.Address {
			t.Errorf("%s %v", kind, data)
		}

		body, expired := send(bob, "late", fmt.Sprintf(`,"expires_at":%q`, n.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
		n.Move(2 * time.Hour)
		if err := n.Mail.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		same("expired", body, expired, mail.Expired, "time was over")
		if kind, data := frameOf(t, conn); kind != "message.failed" || data["id"] != expired.ID || data["status"] != mail.Expired {
			t.Errorf("%s %v", kind, data)
		}

		body, lost := send(carol, "gone", "")
		n.Want(200, carol.APIKey, "DELETE /v1/agents/me", "", nil)
		same("undeliverable", body, lost, "undeliverable", "gone")

		// Nobody else learns anything, and not that there is such a message.
		for _, id := range []string{queued.ID, "msg_1_none", "../x"} {
			n.Want(404, bob.APIKey, "GET /v1/messages/"+id, "", nil)
		}
		n.WantClean()
	})
}

// A key that somebody else has put in place of an agent's is not the agent's word, nor is any that follows it.
func TestAKeyThatAnAgentDidNotComeToByItselfIsNotVerified(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address)
		alice, bob := n.Register("alice", "acme"), n.Register("bob", "acme")
		token, _ := n.Operator("ines")
		last := func() mail.Trust {
			all := bob.Mailbox()
			return all[len(all)-1].Local.Security.Trust
		}
		wants := func(what string, want mail.Trust) {
			t.Helper()
			alice.Send(bob.Address, what, "m")
			if last() != want {
				t.Errorf("%s: %s, want %s", what, last(), want)
			}
		}
		wants("the first key", mail.Verified)
		alice.RotateKey()
		wants("its own rotation", mail.Verified)
		replace := func() {
			t.Helper()
			_, alice.Private, _ = ed25519.GenerateKey(nil)
			n.Want(200, token, "POST /v1/register", mailtest.Registration("alice", "acme", alice.Private, ""), nil)
		}
		replace()
		wants("a key of the operator's", mail.External)
		alice.RotateKey()
		wants("its own rotation from that", mail.External)
		n.Stop()
		n = mailtest.Start(t, address)
		alice.Node, bob.Node = n, n
		wants("after a restart", mail.External)
		n.WantClean()
	})
}

// lagging is mail on a node that has not followed the ledger since it started.
type lagging struct{ *mail.Mail }

func (lagging) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// What an operator or an agent has demanded holds on every node from the answer on, however far its memory is behind.
func TestADemandHoldsOnANodeThatIsBehind(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	n := mailtest.Start(t, address)
	alice, bob := n.Register("alice", "acme"), n.Register("bob", "acme")
	behind := mailtest.StartBehind(t, address, func(m *mail.Mail) lagging { return lagging{m} })
	letter := alice.Letter(bob.Address, "s", "m", "")
	routes := func() error { _, err := behind.Route(t.Context(), alice.Who(), letter); return err }
	if err := routes(); err != nil {
		t.Fatal(err)
	}
	n.Want(200, alice.APIKey, "PATCH /v1/agents/me", alice.Demand(alice.Private), nil)
	if err := routes(); err != nil { // the first use that counts
		t.Fatal(err)
	}
	if err := routes(); mailtest.Code(err) != "duplicate_message" {
		t.Errorf("a copy of a signed message: %v", err)
	}
	token, _ := n.Operator("ines")
	n.Want(200, token, "PATCH /v1/agents/"+alice.AgentID,
		`{"communication_policy":{"mode":"restricted","allowed_recipients":["*@other.signalbox.local"]}}`, nil)
	if err := routes(); mailtest.Code(err) != "recipient_not_allowed" {
		t.Errorf("against the operator's policy: %v", err)
	}
}
