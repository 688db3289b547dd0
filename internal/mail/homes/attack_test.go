package homes_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/mail/once"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// hostile is a host that has the secrets of a mesh and keeps to none of its rules.
type hostile struct {
	t      *testing.T
	name   string
	secret func(to int) string
}

// calls makes a proved call to a host, and returns the status and the code of the error.
func (h hostile) calls(to *mailtest.Node, i int, path string, header map[string]string, body []byte) (int, string) {
	h.t.Helper()
	at, sum := strconv.FormatInt(to.Now().Unix(), 10), sha256.Sum256(body)
	mac := hmac.New(sha256.New, []byte(h.secret(i)))
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", at, h.name, hex.EncodeToString(sum[:]))
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, to.Web.URL+path, bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	req.Header.Set("X-Forwarded-From", h.name)
	req.Header.Set("X-AMP-Timestamp", at)
	req.Header.Set("X-AMP-Mesh-Auth", "v1="+hex.EncodeToString(mac.Sum(nil)))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct{ Error string }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		h.t.Error(err)
	}
	return res.StatusCode, answer.Error
}

// sends forwards a message that is signed with a key.
func (h hostile) sends(to *mailtest.Node, i int, id, from, recipient, text string, key ed25519.PrivateKey, more string) (
	int, string,
) {
	h.t.Helper()
	return h.sendsPayload(to, i, id, from, recipient, fmt.Sprintf(`{"message":%q,"type":"request"}`, text), key, more)
}

// sendsPayload is sends with a payload that is canonical as it stands.
func (h hostile) sendsPayload(to *mailtest.Node, i int, id, from, recipient, payload string, key ed25519.PrivateKey,
	more string,
) (int, string) {
	h.t.Helper()
	body := fmt.Appendf(nil, `{"to":%q,"from":%q,"subject":"Hi","payload":%s,"signature":%q,"_forwarded":{`+
		`"original_from":%q,"original_to":%q,"forwarded_by":%q%s}}`, recipient, from, payload,
		mailtest.SignText(key, from, recipient, "Hi", payload), from, recipient, h.name, more)
	return h.calls(to, i, "/v1/mesh/route", map[string]string{
		"X-AMP-Envelope-Id": id, "X-AMP-Sender-Key": hex.EncodeToString(key.Public().(ed25519.PublicKey)),
	}, body)
}

// claims claims an address.
func (h hostile) claims(to *mailtest.Node, i int, address string, key ed25519.PrivateKey) string {
	h.t.Helper()
	body := fmt.Appendf(nil, `{"to":"host-%c","registrar":"host-a","claims":[{"address":%q,"host":%q,"key":%q}]}`, 'a'+i,
		address, h.name, roster.Fingerprint(key.Public().(ed25519.PublicKey)))
	_, code := h.calls(to, i, "/v1/mesh/addresses", nil, body)
	return code
}

// rotation is a proof that old was replaced by fresh, signed with signer.
func rotation(old, fresh, signer ed25519.PrivateKey) string {
	pem := roster.EncodePublicKey(fresh.Public().(ed25519.PublicKey))
	text, _ := json.Marshal([]amp.Rotation{{
		Old: old.Public().(ed25519.PublicKey), New: fresh.Public().(ed25519.PublicKey), Sent: pem,
		Proof: base64.StdEncoding.EncodeToString(ed25519.Sign(signer, []byte(pem))),
	}})
	return `,"key_rotations":` + string(text)
}

func newKey() ed25519.PrivateKey {
	_, key, _ := ed25519.GenerateKey(nil)
	return key
}

// TestAHostileHostIsNotBelieved: host-b has every secret that it should have, and is not what it was. host-a decides
// about addresses and has alice; carol is on host-c. Nothing that host-b does reads as verified mail of alice, or of
// its own agent with a key that the agent has not changed itself, and no answer for alice goes to it.
func TestAHostileHostIsNotBelieved(t *testing.T) {
	eachMesh(t, 3, func(t *testing.T, m *mailtest.Mesh) {
		a, c := m.Start(0), m.Start(2)
		b := hostile{t, m.Name(1), func(to int) string { return m.Secret(1, to) }}
		alice, carol := a.Register("alice", "acme"), c.Register("carol", "acme")
		zoe, key, other := "zoe@acme.signalbox.local", newKey(), newKey()
		b.claims(a, 0, zoe, key)
		sends := func(what, id, from, text string, key ed25519.PrivateKey, more string, status int, code string) {
			t.Helper()
			if got, word := b.sends(c, 2, id, from, carol.Address, text, key, more); got != status || word != code {
				t.Errorf("%s: %d %s, want %d %s", what, got, word, status, code)
			}
		}
		sends("its own agent", "msg_1_zoe", zoe, "one", key, "", 200, "")
		// It claims what host-a has, of the registrar and of another host.
		b.claims(a, 0, alice.Address, other)
		b.claims(c, 2, alice.Address, other)
		sends("an agent of host-a, with a key of its own", "msg_1_a", alice.Address, "x", other, "", 403, "forbidden")
		sends("an agent of the recipient's host", "msg_1_c", carol.Address, "x", other, "", 403, "forbidden")
		sends("the name of a host as a tenant", "msg_1_h", "eve@host-a.signalbox.local", "x", other, "", 404, "not_found")
		sends("an agent that nobody has claimed", "msg_1_n", "nora@acme.signalbox.local", "x", other, "", 200, "")
		// It has another key for its own agent, with proofs that are none.
		sends("another key", "msg_1_k1", zoe, "x", other, "", 409, "key_conflict")
		sends("the key that it says was replaced", "msg_1_k2", zoe, "x", other, `,"key_revoked":"`+
			roster.Fingerprint(key.Public().(ed25519.PublicKey))+`"`, 409, "key_conflict")
		sends("a proof by the new key", "msg_1_k3", zoe, "x", other, rotation(key, other, other), 409, "key_conflict")
		b.claims(a, 0, zoe, other)
		sends("the new key claimed", "msg_1_k4", zoe, "x", other, "", 409, "key_conflict")
		// It repeats what it has.
		sends("the same message", "msg_1_zoe", zoe, "one", key, "", 409, "duplicate_message")
		sends("the same under another id", "msg_1_again", zoe, "one", key, `,"x":1`, 409, "duplicate_message")
		// Its agent changes its key itself.
		sends("a proof by the old key", "msg_1_k5", zoe, "two", other, rotation(key, other, key), 200, "")
		sends("the old key again", "msg_1_k6", zoe, "x", key, rotation(key, other, key), 403, "key_revoked")
		verified := map[string]bool{"msg_1_zoe": true, "msg_1_k5": true}
		for _, got := range carol.Mailbox() {
			if trust := got.Local.Security.Trust; trust == mail.Verified != verified[got.ID] {
				t.Errorf("%s reads %s", got.ID, trust)
			}
		}
		// Answers for alice go to host-a, whatever host-b has said.
		if sent := carol.Send(alice.Address, "Re", "for alice"); sent.RemoteHost != "host-a" || len(alice.Inbox()) != 1 {
			t.Errorf("%+v", sent)
		}
		a.WantClean()
		c.WantClean()
	})
}

// TestASignedMessageOfTheMeshIsDeliveredOnce: host-b repeats the mail of its own agent, which it has with its signature.
// One with a nonce is good once for ever, another for as long as a message may wait; and what came over the mesh cannot
// be repeated by a third host.
func TestASignedMessageOfTheMeshIsDeliveredOnce(t *testing.T) {
	eachMesh(t, 3, func(t *testing.T, m *mailtest.Mesh) {
		a, c := m.Start(0), m.Start(2)
		b := hostile{t, m.Name(1), func(to int) string { return m.Secret(1, to) }}
		alice, carol := a.Register("alice", "acme"), c.Register("carol", "acme")
		zoe, key := "zoe@acme.signalbox.local", newKey()
		b.claims(a, 0, zoe, key)
		const (
			plain  = `{"message":"again and again","type":"request"}`
			single = `{"message":"once","nonce":"5f0c","type":"request"}`
			other  = `{"message":"once","nonce":"5f0d","type":"request"}`
		)
		tries := 0
		sends := func(what, payload, word string) {
			t.Helper()
			tries++ // each time under an id of its own
			_, got := b.sendsPayload(c, 2, fmt.Sprintf("msg_%d_z", tries), zoe, carol.Address, payload, key, "")
			if got != word {
				t.Errorf("%s: %q, want %q", what, got, word)
			}
		}
		sends("with a nonce", single, "")
		sends("the same", single, "duplicate_message")
		sends("the same text with another nonce", other, "")
		sends("without one", plain, "")
		sends("the same", plain, "duplicate_message")
		// Of copies that come at once one is delivered.
		testbed.AtOnce(8, func(n int) {
			b.sendsPayload(c, 2, fmt.Sprintf("msg_99_%d", n), zoe, carol.Address, `{"message":"at once","nonce":"5f0e","type":"request"}`,
				key, "")
		})
		if got := len(carol.Inbox()); got != 4 {
			t.Errorf("%d messages were delivered, want 4", got)
		}

		// An honest agent's own copy is refused at home, and the copy that its recipient has by every other host.
		payload := `{"message":"to carol","nonce":"5f0f","type":"request"}`
		signature := mailtest.SignText(alice.Private, alice.Address, carol.Address, "Hi", payload)
		letter := fmt.Sprintf(`{"to":%q,"subject":"Hi","payload":%s,"signature":%q}`, carol.Address, payload, signature)
		a.Want(200, alice.APIKey, "PATCH /v1/agents/me", alice.Demand(alice.Private), nil)
		a.Want(200, alice.APIKey, "POST /v1/route", letter, nil)
		a.Want(409, alice.APIKey, "POST /v1/route", letter, nil)
		if _, word := b.sendsPayload(c, 2, "msg_98_a", alice.Address, carol.Address, payload, alice.Private, ""); word == "" {
			t.Error("host-b has repeated a message of host-a's agent")
		}
		if got := len(carol.Inbox()); got != 5 {
			t.Errorf("%d messages were delivered, want 5", got)
		}

		a.Move(once.Window + time.Hour)
		c.Move(once.Window + time.Hour)
		sends("a week later, with a nonce", single, "duplicate_message")
		sends("a week later, without one", plain, "")
		sends("the same once more", plain, "duplicate_message")
		a.WantClean()
		c.WantClean()
	})
}

// TestAHostWithoutAProofClaimsNothing: a claim is not taken from a network that is believed without a secret, from a
// host that is not known, nor for another host.
func TestAHostWithoutAProofClaimsNothing(t *testing.T) {
	t.Parallel()
	m := mailtest.NewMesh(t, storetest.SQLite(t), storetest.SQLite(t))
	a := m.Start(0)
	address, key := "zoe@acme.signalbox.local", newKey()
	for name, c := range map[string]struct {
		host hostile
		to   int
		want string
	}{
		"another secret":     {hostile{t, "host-b", func(int) string { return "another secret, as long" }}, 0, "unauthorized"},
		"an unknown host":    {hostile{t, "host-x", func(int) string { return m.Secret(0, 1) }}, 0, "unauthorized"},
		"a call for another": {hostile{t, "host-b", func(int) string { return m.Secret(0, 1) }}, 1, "forbidden"},
		"as it should be":    {hostile{t, "host-b", func(int) string { return m.Secret(0, 1) }}, 0, ""},
	} {
		if code := c.host.claims(a, c.to, address, key); code != c.want {
			t.Errorf("%s: %s, want %s", name, code, c.want)
		}
	}
}

// TestARotationByItsOwnerIsFollowed: over hosts that hear of it late, and after two of them.
func TestARotationByItsOwnerIsFollowed(t *testing.T) {
	t.Parallel()
	m := mailtest.NewMesh(t, storetest.SQLite(t), storetest.SQLite(t))
	a, b := m.Start(0), m.Start(1)
	ann, ben := a.Register("ann", "acme"), b.Register("ben", "acme")
	ann.Send(ben.Address, "Hello", "the first key")
	ann.RotateKey()
	ann.RotateKey()
	ann.Send(ben.Address, "Hello", "the third key")
	// A key that an operator replaces was not changed by the agent: other hosts do not take it.
	token, _ := a.Operator("ines")
	ann.Private = newKey()
	a.Want(200, token, "POST /v1/register", mailtest.Registration("ann", "acme", ann.Private, ""), nil)
	if sent := ann.Send(ben.Address, "Hello", "a key of the operator"); sent.Status != mail.Failed {
		t.Errorf("%+v", sent)
	}
	got := ben.Mailbox()
	if len(got) != 2 || got[1].Local.Security.Trust != mail.Verified {
		t.Errorf("%+v", got)
	}
	a.WantClean()
	b.WantClean()
}
