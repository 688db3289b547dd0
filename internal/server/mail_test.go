package server_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/roster"
)

// mailAgent is an agent that speaks AMP messaging to the box.
type mailAgent struct {
	*box
	key, name, address, id string
	private                ed25519.PrivateKey
}

func publicPEM(private ed25519.PrivateKey) string {
	return roster.EncodePublicKey(private.Public().(ed25519.PublicKey))
}

// registration is the body of a registration, with the key that it is about.
func registration(name, tenant string) (body string, private ed25519.PrivateKey) {
	_, private, _ = ed25519.GenerateKey(nil)
	text, _ := json.Marshal(map[string]any{
		"name": name, "tenant": tenant, "public_key": publicPEM(private),
		"key_algorithm": "Ed25519",
	})
	return string(text), private
}

// register registers an agent with a new pair of keys.
func (b *box) register(name, tenant string) *mailAgent {
	b.t.Helper()
	body, private := registration(name, tenant)
	a := &mailAgent{box: b, name: name, private: private}
	var out directory.Registered
	a.amp(201, "POST /v1/register", body, &out)
	a.key, a.address, a.id = out.APIKey, out.Address, out.AgentID
	return a
}

// amp makes a call as the agent and decodes the answer.
func (a *mailAgent) amp(want int, call, body string, into any) string {
	a.t.Helper()
	status, answer, _ := a.do(request{call: call, body: body, token: a.key})
	if status != want {
		a.t.Fatalf("%s %.300s: %d, want %d: %s", call, body, status, want, answer)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			a.t.Fatalf("%s: %v\n%s", call, err, answer)
		}
	}
	return answer
}

// sign is the signature over a message whose payload is canonical as it stands.
func (a *mailAgent) sign(to, subject, payload string) string {
	sum := sha256.Sum256([]byte(payload))
	text := strings.Join([]string{a.address, to, subject, "normal", "", base64.StdEncoding.EncodeToString(sum[:])}, "|")
	return base64.StdEncoding.EncodeToString(ed25519.Sign(a.private, []byte(text)))
}

// send sends a signed message.
func (a *mailAgent) send(to, subject, message string) mail.Answer {
	a.t.Helper()
	payload := fmt.Sprintf(`{"message":%q,"type":"request"}`, message)
	var out mail.Answer
	a.amp(200, "POST /v1/route",
		fmt.Sprintf(`{"to":%q,"subject":%q,"payload":%s,"signature":%q}`, to, subject, payload, a.sign(to, subject, payload)),
		&out)
	return out
}

type mailMessage struct {
	ID       string
	Envelope amp.Envelope
	Payload  json.RawMessage
	Local    struct{ Security mail.Security }
}

// inbox is what waits for the agent.
func (a *mailAgent) inbox() []mailMessage {
	a.t.Helper()
	var out struct{ Messages []mailMessage }
	a.amp(200, "GET /v1/messages/pending", "", &out)
	return out.Messages
}

func TestMailGoesFromOneAgentToAnother(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		alice, bob := b.register("alice", "acme"), b.register("bob", "acme")
		if alice.address != "alice@acme.signalbox.local" {
			t.Errorf("the address is %s", alice.address)
		}
		sent := alice.send(bob.address, "Hello", "How are you?")
		if sent.Status != mail.Queued || sent.Method != mail.ByRelay || !strings.HasPrefix(sent.ID, "msg_") {
			t.Errorf("%+v", sent)
		}
		got := bob.inbox()
		if len(got) != 1 || got[0].ID != sent.ID || got[0].Local.Security.Trust != mail.Verified ||
			got[0].Envelope.From != alice.address {
			t.Fatalf("%+v", got)
		}
		bob.amp(200, "DELETE /v1/messages/pending/"+sent.ID, "", nil)
		if left := bob.inbox(); len(left) != 0 {
			t.Errorf("%+v", left)
		}
		var shown mail.Detail
		b.ops(200, "GET /ops/messages/"+sent.ID, "", &shown)
		if shown.Status != mail.Acknowledged || len(shown.Path) != 2 {
			t.Errorf("%+v", shown)
		}
	})
}
