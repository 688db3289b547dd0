package federation_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

const meshSecret = "a secret that two hosts have"

// meshOf starts two hosts of one provider.
func meshOf(t *testing.T, one, two string) (*mailtest.Node, *mailtest.Node) {
	t.Helper()
	m := mailtest.NewMesh(t, one, two)
	return m.Start(0), m.Start(1)
}

func TestMailGoesToTheHostThatHasTheRecipient(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		one, two := meshOf(t, address, another(t, address))
		alice, bob := one.Register("alice", "acme"), two.Register("bob", "acme")
		if sent := exchange(t, alice, bob, mail.ByMesh, mail.Verified); sent.RemoteHost != "host-b" {
			t.Errorf("%+v", sent)
		}
		if _, err := one.Mail.Route(t.Context(), alice.Who(),
			alice.Letter("nobody@acme.signalbox.local", "s", "m", "")); mailtest.Code(err) != fault.NotFound {
			t.Errorf("an agent that no host has: %v", err)
		}
		// An address may name the host, for agents of its default tenant.
		carol := two.Register("carol", roster.DefaultWorkspace)
		if _, err := one.Mail.Route(t.Context(), alice.Who(), alice.Letter("carol@host-b.signalbox.local", "s", "m",
			"")); mailtest.Code(err) != fault.NotFound {
			t.Errorf("an agent behind a wall: %v", err)
		}
		one.Open(roster.DefaultWorkspace, "acme") // on both hosts, each of which has its own walls
		two.Open(roster.DefaultWorkspace, "acme")
		if named := alice.Send("carol@host-b.signalbox.local", "Hello", "by host"); named.Method != mail.ByMesh ||
			len(carol.Inbox()) != 1 {
			t.Errorf("%+v", named)
		}
		rotated(t, alice, bob, mail.ByMesh)
		one.WantClean()
		two.WantClean()
	})
}

func TestAHostThatIsAwayIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := mailtest.Start(t, storetest.SQLite(t), func(o *mail.Options) {
		o.WebhookWait = time.Hour // a try that fails ends it
		o.Mesh = federation.Mesh{Host: "host-a", Hosts: map[string]federation.Host{"host-b": {URL: "http://" + testbed.FreeAddress(t)}}}
	})
	alice := n.Register("alice", "acme")
	if _, err := n.Mail.Route(t.Context(), alice.Who(),
		alice.Letter("bob@acme.signalbox.local", "s", "m", "")); mailtest.Code(err) != fault.HostUnavailable {
		t.Errorf("a host that may have the recipient does not answer: %v", err)
	}
	n.Open(roster.DefaultWorkspace, "acme")
	sent := alice.Send("bob@host-b.signalbox.local", "s", "m")
	if sent.Status != mail.Queued || sent.Method != mail.ByRelay || sent.RemoteHost != "host-b" {
		t.Errorf("%+v", sent)
	}
	if got := n.Shown(sent.ID); got.Status != mail.Queued {
		t.Errorf("%+v", got)
	}
}

// proof is that of a host that knows the secret, made apart from the code under test.
func proof(secret, at, host string, body []byte) string {
	sum := sha256.Sum256(body)
	h := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(h, "%s.%s.%s", at, host, hex.EncodeToString(sum[:]))
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}

func TestWhatAnotherHostMaySend(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		var open []netip.Prefix
		n := mailtest.Start(t, address, func(o *mail.Options) {
			o.Mesh = federation.Mesh{
				Host: "host-a", Open: open,
				Hosts: map[string]federation.Host{
					"host-b": {URL: "http://" + testbed.FreeAddress(t), Secret: wire.NewSecret(meshSecret)},
					"host-c": {URL: "http://" + testbed.FreeAddress(t)},
				},
			}
		})
		bob := n.Register("bob", "acme")
		_, key, _ := ed25519.GenerateKey(nil)
		_, other, _ := ed25519.GenerateKey(nil)
		message := func(from, text string) []byte {
			payload := fmt.Sprintf(`{"message":%q,"type":"request"}`, text)
			return fmt.Appendf(nil, `{"to":"bob","from":%q,"subject":"Hi","priority":"normal","payload":%s,"signature":%q,
"_forwarded":{"original_from":%q,"original_to":%q,"forwarded_by":"host-b","forwarded_at":"2026-01-02T03:04:05Z"}}`,
				from, payload, mailtest.SignText(key, from, bob.Address, "Hi", payload), from, bob.Address)
		}
		now := strconv.FormatInt(n.Now().Unix(), 10)
		claim(t, n, "host-b", meshSecret, "zoe@acme.signalbox.local", key, 200)
		good := message("zoe@acme.signalbox.local", "forwarded")
		signed := func(at string, body []byte) map[string]string {
			return map[string]string{
				"X-Forwarded-From": "host-b", "X-AMP-Timestamp": at, "X-AMP-Mesh-Auth": proof(meshSecret, at, "host-b", body),
				"X-AMP-Envelope-Id": "msg_1_first", "X-AMP-Sender-Key": hex.EncodeToString(key.Public().(ed25519.PublicKey)),
			}
		}
		with := func(name, value string, body []byte) map[string]string {
			h := signed(now, body)
			h[name] = value
			return h
		}
		second, forged := message("zoe@acme.signalbox.local", "another"), bytes.Replace(good, []byte("forwarded"),
			[]byte("forwarder"), 1)
		for _, c := range []struct {
			name   string
			header map[string]string
			body   []byte
			status int
			code   fault.Code
		}{
			{
				"a header that names a host, and no more",
				map[string]string{"X-Forwarded-From": "host-b"},
				good, 401,
				"unauthorized",
			},
			{
				"a host without a secret",
				map[string]string{
					"X-Forwarded-From": "host-c", "X-AMP-Timestamp": now,
					"X-AMP-Mesh-Auth": proof("", now, "host-c", good),
				},
				good, 401, "unauthorized",
			},
			{"a host that is not known", with("X-Forwarded-From", "host-x", good), good, 401, "unauthorized"},
			{"another secret", with("X-AMP-Mesh-Auth", proof("guess", now, "host-b", good), good), good, 401, "unauthorized"},
			{
				"another host's proof", with("X-AMP-Mesh-Auth", proof(meshSecret, now, "host-c", good), good), good, 401,
				"unauthorized",
			},
			{"another body", signed(now, good), forged, 401, "unauthorized"},
			{"an old call", signed("1706648400", good), good, 400, fault.TimestampExpired},
			{"another text than was signed by the agent", signed(now, forged), forged, 403, fault.SignatureInvalid},
			{
				"for an agent of this host", signed(now, message(bob.Address, "x")), message(bob.Address, "x"), 403,
				fault.Forbidden,
			},
			{
				"for another provider's agent", signed(now, message("x@y.other.test", "x")), message("x@y.other.test", "x"), 403,
				fault.Forbidden,
			},
			{"what is right", signed(now, good), good, 200, ""},
			{"the same again", signed(now, good), good, 409, fault.DuplicateMessage},
			{"the same under another id", with("X-AMP-Envelope-Id", "msg_1_again", good), good, 409, fault.DuplicateMessage},
			{"another under the same id", signed(now, second), second, 409, fault.DuplicateMessage},
			{"another key", func() map[string]string {
				h := with("X-AMP-Envelope-Id", "msg_1_second", second)
				h["X-AMP-Sender-Key"] = hex.EncodeToString(other.Public().(ed25519.PublicKey))
				return h
			}(), second, 409, fault.KeyConflict},
		} {
			if status, word := forward(t, n, c.header, c.body); status != c.status || word != string(c.code) {
				t.Errorf("%s: %d %s, want %d %s", c.name, status, word, c.status, c.code)
			}
		}
		if got := bob.Mailbox(); len(got) != 1 || got[0].ID != "msg_1_first" || got[0].Local.Security.Trust != mail.Verified {
			t.Errorf("%+v", got)
		}
		n.WantClean()
	})
}

// claim has a host claim an address at the registrar, as it does when an agent registers with it.
func claim(t *testing.T, n *mailtest.Node, host, secret, address string, key ed25519.PrivateKey, want int) string {
	t.Helper()
	body := fmt.Appendf(nil, `{"to":"host-a","registrar":"host-a","claims":[{"address":%q,"key":%q}]}`, address,
		roster.Fingerprint(key.Public().(ed25519.PublicKey)))
	at := strconv.FormatInt(n.Now().Unix(), 10)
	status, answer, _ := testbed.Call(t, http.DefaultClient, http.MethodPost, n.Web.URL+"/v1/mesh/addresses", string(body),
		map[string]string{"X-Forwarded-From": host, "X-AMP-Timestamp": at, "X-AMP-Mesh-Auth": proof(secret, at, host, body)})
	if status != want {
		t.Errorf("a claim of %s by %s: %d %s", address, host, status, answer)
	}
	return answer
}

// forward calls the route of agents with headers of a host.
func forward(t *testing.T, n *mailtest.Node, header map[string]string, body []byte) (int, string) {
	t.Helper()
	status, text, _ := testbed.Call(t, http.DefaultClient, http.MethodPost, n.Web.URL+"/api/v1/route", string(body), header)
	var answer struct{ Error string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Error(err)
	}
	return status, answer.Error
}

// TestAnOpenNetworkIsBelievedLess: a host that cannot prove itself is let in by where it
// is, when an operator has said so, and nothing that it says is verified.
func TestAnOpenNetworkIsBelievedLess(t *testing.T) {
	t.Parallel()
	n := mailtest.Start(t, storetest.SQLite(t), func(o *mail.Options) {
		o.Mesh = federation.Mesh{
			Host: "host-a", Open: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			Hosts: map[string]federation.Host{"host-b": {URL: "http://" + testbed.FreeAddress(t), Secret: wire.NewSecret(meshSecret)}},
		}
	})
	bob := n.Register("bob", "acme")
	_, key, _ := ed25519.GenerateKey(nil)
	payload := `{"message":"m","type":"request"}`
	body := fmt.Appendf(
		nil, `{"to":%q,"from":"zoe@acme.signalbox.local","subject":"Hi","payload":%s,"signature":%q,"_forwarded":{}}`,
		bob.Address, payload, mailtest.SignText(key, "zoe@acme.signalbox.local", bob.Address, "Hi", payload),
	)
	header := map[string]string{
		"X-Forwarded-From": "host-b", "X-AMP-Envelope-Id": "msg_1_open",
		"X-AMP-Sender-Key": hex.EncodeToString(key.Public().(ed25519.PublicKey)),
	}
	if status, word := forward(t, n, header, body); status != 200 {
		t.Fatal(status, word)
	}
	if got := bob.Mailbox(); len(got) != 1 || got[0].Local.Security.Trust != mail.External {
		t.Errorf("%+v", got)
	}
}
