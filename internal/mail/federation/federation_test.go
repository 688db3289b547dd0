package federation_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// noTXT is a domain name system that knows nothing.
func noTXT(context.Context, string) ([]string, error) { return nil, errors.New("no such host") }

// pairOf starts two providers that list one another.
func pairOf(t *testing.T, one, two string) (*mailtest.Node, *mailtest.Node) {
	t.Helper()
	peers := []map[string]string{{}, {}}
	provider := func(own string, i int) func(*mail.Options) {
		return func(o *mail.Options) {
			o.Domains = amp.Domains{Own: own}
			o.Peering = federation.Peering{Mode: federation.Listed, Peers: peers[i], LookupTXT: noTXT}
		}
	}
	a, b := mailtest.Start(t, one, provider("first.test", 0)), mailtest.Start(t, two, provider("second.test", 1))
	peers[0]["second.test"], peers[1]["first.test"] = b.Web.URL, a.Web.URL
	return a, b
}

// another is a further database of the same kind.
func another(t *testing.T, address string) string {
	if strings.HasPrefix(address, "postgres") {
		return storetest.Postgres(t)
	}
	return storetest.SQLite(t)
}

// exchange has alice write to bob, who is on another server, and bob answer into the same
// thread.
func exchange(t *testing.T, alice, bob *mailtest.Agent, way string, trust mail.Trust) mail.Answer {
	t.Helper()
	sent := alice.Send(bob.Address, "Hello", "across")
	if sent.Status != mail.Delivered || sent.Method != way {
		t.Errorf("%+v", sent)
	}
	got := bob.Mailbox()
	if len(got) != 1 || got[0].ID != sent.ID || got[0].Envelope.From != alice.Address ||
		got[0].Local.Security.Trust != trust || got[0].Payload.Message != "across" {
		t.Fatalf("%+v", got)
	}
	if s := alice.Shown(sent.ID); s.Status != mail.Acknowledged || s.Method != way {
		t.Errorf("%+v", s)
	}
	reply, err := bob.Mail.Route(t.Context(), bob.Who(),
		fmt.Appendf(nil, `{"to":%q,"subject":"Re","in_reply_to":%q,"payload":{"type":"response","message":"thanks"}}`,
			alice.Address, sent.ID))
	if err != nil || reply.Status != mail.Delivered || reply.Method != way {
		t.Fatalf("%+v %v", reply, err)
	}
	if back := alice.Mailbox(); len(back) != 1 || back[0].Envelope.ThreadID != sent.ID ||
		back[0].Local.Security.Trust != mail.Untrusted {
		t.Errorf("%+v", back)
	}
	return sent
}

// rotated replaces alice's key: the new one is taken on the other side, and the old one no more.
func rotated(t *testing.T, alice, bob *mailtest.Agent, way string) {
	t.Helper()
	alice.RotateKey()
	if again := alice.Send(bob.Address, "Hello", "with a new key"); again.Status != mail.Delivered || again.Method != way {
		t.Errorf("%+v", again)
	}
}

func TestMailGoesFromOneProviderToAnother(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		one, two := pairOf(t, address, another(t, address))
		alice, bob := one.Register("alice", "acme"), two.Register("bob", "other")
		exchange(t, alice, bob, mail.ByFederation, mail.External)
		// Nobody is there: the sender's message fails, and says why.
		lost := alice.Send("nobody@other.second.test", "s", "m")
		if lost.Status != mail.Failed || one.Shown(lost.ID).Status != mail.Failed {
			t.Errorf("%+v", lost)
		}
		rotated(t, alice, bob, mail.ByFederation)
		one.WantClean()
		two.WantClean()
	})
}

func TestAProviderThatIsAwayIsTriedAgain(t *testing.T) {
	t.Parallel()
	peers := map[string]string{}
	n := mailtest.Start(t, storetest.SQLite(t), func(o *mail.Options) {
		o.WebhookWait = time.Hour // a try that fails ends it
		o.Peering = federation.Peering{Mode: federation.Listed, Peers: peers, LookupTXT: noTXT}
	})
	s := newStandIn(t, "away.test")
	s.answers = []int{503, 200}
	peers["away.test"] = s.URL
	alice := n.Register("alice", "acme")
	sent := alice.Send("bob@other.away.test", "s", "m")
	testbed.Until(t, "the second call", func() bool { return n.Shown(sent.ID).Status == mail.Acknowledged })
	if len(s.calls()) != 2 {
		t.Errorf("%v", s.calls())
	}
}

// standIn is another provider, of which only what a sender needs is there.
type standIn struct {
	*httptest.Server
	mu      sync.Mutex
	answers []int    // the statuses of its answers
	got     []string // who has called

	domain  string
	private ed25519.PrivateKey
	agent   ed25519.PrivateKey
}

func newStandIn(t *testing.T, domain string) *standIn {
	t.Helper()
	return serveStandIn(t, domain, "", httptest.NewServer)
}

// serveStandIn serves one that says it is at base, or where it listens.
func serveStandIn(t *testing.T, domain, base string, serve func(http.Handler) *httptest.Server) *standIn {
	t.Helper()
	_, private, _ := ed25519.GenerateKey(nil)
	_, agent, _ := ed25519.GenerateKey(nil)
	s := &standIn{domain: domain, private: private, agent: agent}
	mux := http.NewServeMux()
	s.Server = serve(mux)
	base = cmp.Or(base, s.URL)
	t.Cleanup(s.Server.Close)
	mux.HandleFunc("GET /.well-known/agent-messaging.json", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"version": "AMP1", "endpoint": base + "/v1", "provider": domain,
			"public_key": roster.EncodePublicKey(private.Public().(ed25519.PublicKey)),
		})
	})
	mux.HandleFunc("GET /providers/{domain}", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"provider": r.PathValue("domain"), "endpoint": s.URL + "/v1",
			"verified":    r.PathValue("domain") == domain,
			"fingerprint": amp.Fingerprints(private.Public().(ed25519.PublicKey))[1],
		})
	})
	mux.HandleFunc("POST /v1/federation/deliver", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, r.Header.Get("X-AMP-Provider"))
		status := s.answers[0]
		s.answers = s.answers[1:]
		w.WriteHeader(status)
	})
	return s
}

func (s *standIn) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// message is a signed message of the stand-in's agent.
func (s *standIn) message(id, to string, at time.Time, key ed25519.PrivateKey,
	change func(envelope map[string]any),
) []byte {
	payload := `{"message":"from outside","type":"request"}`
	from := "zoe@theirs." + s.domain
	signature := mailtest.SignText(key, from, to, "Hi", payload)
	envelope := map[string]any{
		"version": "amp/0.1", "id": id, "from": from, "to": to, "subject": "Hi",
		"priority": "normal", "timestamp": at.UTC().Format(time.RFC3339), "signature": signature, "thread_id": id,
	}
	if change != nil {
		change(envelope)
	}
	text, _ := json.Marshal(envelope)
	pem, _ := json.Marshal(roster.EncodePublicKey(key.Public().(ed25519.PublicKey)))
	return fmt.Appendf(nil, `{"envelope": %s, "payload": %s, "sender_public_key": %s}`, text, payload, pem)
}

// deliver calls a provider as the stand-in.
func (s *standIn) deliver(t *testing.T, n *mailtest.Node, body []byte, change func(http.Header)) (int, string) {
	t.Helper()
	at := strconv.FormatInt(n.Now().Unix(), 10)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.Web.URL+"/v1/federation/deliver",
		strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-AMP-Provider", s.domain)
	req.Header.Set("X-AMP-Timestamp", at)
	req.Header.Set("X-AMP-Signature",
		base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, append([]byte(at+"."), body...))))
	if change != nil {
		change(req.Header)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Accepted bool
		Error    string
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil ||
		answer.Accepted != (res.StatusCode == http.StatusOK) {
		t.Errorf("%d %+v %v", res.StatusCode, answer, err)
	}
	return res.StatusCode, answer.Error
}

func TestWhatAnotherProviderMaySend(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		peers := map[string]string{}
		n := mailtest.Start(t, address, func(o *mail.Options) {
			o.Peering = federation.Peering{Mode: federation.Listed, Peers: peers, LookupTXT: noTXT}
		})
		s := newStandIn(t, "theirs.test")
		peers[s.domain] = s.URL
		bob := n.Register("bob", "acme")
		_, other, _ := ed25519.GenerateKey(nil)
		now := n.Now()
		good := s.message("msg_1_first", bob.Address, now, s.agent, nil)
		for _, c := range []struct {
			name   string
			body   []byte
			header func(http.Header)
			status int
			code   fault.Code
		}{
			{"a provider that is not listed", good, func(h http.Header) {
				h.Set("X-AMP-Provider", "evil.test")
			}, 403, fault.ProviderNotTrusted},
			{"ourselves", good, func(h http.Header) {
				h.Set("X-AMP-Provider", "signalbox.local")
			}, 403, fault.ProviderNotTrusted},
			{"no provider", good, func(h http.Header) { h.Del("X-AMP-Provider") }, 400, fault.MissingHeader},
			{"no signature", good, func(h http.Header) { h.Del("X-AMP-Signature") }, 400, fault.MissingHeader},
			{"another signature", good, func(h http.Header) { h.Set("X-AMP-Signature", "AAAA") }, 403, fault.SignatureInvalid},
			{"another body", append(good, ' '), func(h http.Header) {
				h.Set("X-AMP-Signature",
					base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, append([]byte(h.Get("X-AMP-Timestamp")+"."), good...))))
			}, 403, fault.SignatureInvalid},
			{"an old call", good, func(h http.Header) { h.Set("X-AMP-Timestamp", "1706648400") }, 400, fault.TimestampExpired},
			{"a call from the future", good, func(h http.Header) {
				h.Set("X-AMP-Timestamp", "4706648400")
			}, 400, fault.TimestampFuture},
			{
				"an old message", s.message("msg_1_old", bob.Address, now.Add(-6*time.Minute), s.agent, nil), nil, 400,
				fault.TimestampExpired,
			},
			{
				"a message from the future", s.message("msg_1_new", bob.Address, now.Add(2*time.Minute), s.agent, nil), nil, 400,
				fault.TimestampFuture,
			},
			{"from an agent of ours", s.message("msg_1_a", bob.Address, now, s.agent, func(e map[string]any) {
				e["from"] = bob.Address
			}), nil, 403, fault.Forbidden},
			{"from an agent of a third", s.message("msg_1_a", bob.Address, now, s.agent, func(e map[string]any) {
				e["from"] = "x@y.third.test"
			}), nil, 403, fault.Forbidden},
			{"to nobody", s.message("msg_1_a", "nobody@acme.signalbox.local", now, s.agent, nil), nil, 404, fault.NotFound},
			{"to a third", s.message("msg_1_a", "x@y.third.test", now, s.agent, nil), nil, 404, fault.NotFound},
			{"an id with parts of a path", s.message("../x", bob.Address, now, s.agent, nil), nil, 400, fault.InvalidField},
			{"another subject than was signed", s.message("msg_1_a", bob.Address, now, s.agent, func(e map[string]any) {
				e["subject"] = "Ha"
			}), nil, 403, fault.SignatureInvalid},
			{"what is right", good, nil, 200, ""},
			{"the same again", good, nil, 409, fault.DuplicateMessage},
			{"another key", s.message("msg_1_second", bob.Address, now, other, nil), nil, 409, fault.KeyConflict},
			{
				"another key, and a lie about the old one", s.message("msg_1_second", bob.Address, now, other, nil),
				func(h http.Header) {
					h.Set("X-AMP-Key-Revoked", "SHA256:x")
				}, 409, fault.KeyConflict,
			},
			{
				"another key, and the old one is revoked", s.message("msg_1_second", bob.Address, now, other, nil),
				func(h http.Header) {
					h.Set("X-AMP-Key-Revoked", roster.Fingerprint(s.agent.Public().(ed25519.PublicKey)))
				}, 200, "",
			},
			{"the old key", s.message("msg_1_third", bob.Address, now, s.agent, nil), nil, 403, fault.KeyRevoked},
		} {
			if status, word := s.deliver(t, n, c.body, c.header); status != c.status || word != string(c.code) {
				t.Errorf("%s: %d %s, want %d %s", c.name, status, word, c.status, c.code)
			}
		}
		if got := bob.Mailbox(); len(got) != 2 || got[0].ID != "msg_1_first" || got[0].Local.Security.Trust != mail.External {
			t.Errorf("%+v", got)
		}
		n.WantClean()
	})
}

// TestDiscovery finds providers by each way there is, and only those that may be.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, "found.test")
	known := amp.Fingerprints(s.private.Public().(ed25519.PublicKey))[0]
	txt := func(record string) func(context.Context, string) ([]string, error) {
		return func(_ context.Context, name string) ([]string, error) {
			if name != "_amp._tcp.found.test" {
				return noTXT(context.Background(), name)
			}
			return []string{"something else", record}, nil
		}
	}
	for _, c := range []struct {
		name string
		f    federation.Peering
		ok   bool
	}{
		{"closed", federation.Peering{Peers: map[string]string{"found.test": s.URL}}, false},
		{
			"listed with its address",
			federation.Peering{Mode: federation.Listed, Peers: map[string]string{"found.test": s.URL}},
			true,
		},
		{
			"listed at another's address",
			federation.Peering{Mode: federation.Listed, Peers: map[string]string{"other.test": s.URL, "found.test": "http://" + testbed.FreeAddress(t)}},
			false,
		},
		{"not listed", federation.Peering{
			Mode:      federation.Listed,
			LookupTXT: txt("v=AMP1; endpoint=" + s.URL + "/v1; pubkey=" + known),
		}, false},
		{
			"by its record",
			federation.Peering{Mode: federation.Open, LookupTXT: txt("v=AMP1; endpoint=" + s.URL + "/v1; pubkey=" + known)},
			true,
		},
		{
			"by a record with the other fingerprint",
			federation.Peering{
				Mode: federation.Open,
				LookupTXT: txt("v=AMP1; endpoint=" + s.URL + "/v1; pubkey=" +
					amp.Fingerprints(s.private.Public().(ed25519.PublicKey))[1]),
			},
			true,
		},
		{
			"by a record with somebody else's fingerprint",
			federation.Peering{Mode: federation.Open, LookupTXT: txt("v=AMP1; endpoint=" + s.URL + "/v1; pubkey=SHA256:x")},
			false,
		},
		{"by the registry", federation.Peering{Mode: federation.Registry, Registry: s.URL}, true},
		{"in the registry's mode without a registry", federation.Peering{Mode: federation.Registry}, false},
	} {
		n := mailtest.Start(t, storetest.SQLite(t), func(o *mail.Options) {
			if o.Peering = c.f; o.Peering.LookupTXT == nil {
				o.Peering.LookupTXT = noTXT
			}
			o.WebhookWait = time.Second
		})
		s.mu.Lock()
		s.answers = []int{200}
		s.mu.Unlock()
		alice := n.Register("alice", "acme")
		_, err := n.Mail.Route(t.Context(), alice.Who(), alice.Letter("bob@other.found.test", "s", "m", ""))
		if c.ok != (err == nil) || err != nil && mailtest.Code(err) != fault.ExternalProvider {
			t.Errorf("%s: %v", c.name, err)
		}
		n.Stop()
	}
}

// TestAProviderIsFoundAtItsDomain: without a record, a registry or a listed address its
// document is asked for at https://domain, and its certificate has to be good.
func TestAProviderIsFoundAtItsDomain(t *testing.T) {
	t.Parallel()
	s := serveStandIn(t, "example.com", "https://example.com", httptest.NewTLSServer) // whose certificate is for that name
	s.answers = []int{200}
	n := mailtest.Start(t, storetest.SQLite(t), func(o *mail.Options) {
		o.Peering = federation.Peering{Mode: federation.Open, LookupTXT: noTXT}
		o.WebhookWait = 2 * time.Second
	})
	var asked atomic.Value
	transport := n.Outbox.Client().Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		asked.Store(address)
		return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
	}
	alice := n.Register("alice", "acme")
	letter := alice.Letter("bob@other.example.com", "s", "m", "")
	if _, err := n.Mail.Route(t.Context(), alice.Who(), letter); mailtest.Code(err) != fault.ExternalProvider {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	transport.TLSClientConfig.RootCAs.AddCert(s.Certificate())
	sent, err := n.Mail.Route(t.Context(), alice.Who(), letter)
	if err != nil || sent.Status != mail.Delivered || asked.Load() != "example.com:443" {
		t.Errorf("%+v %v %v", sent, err, asked.Load())
	}
}

// told is what the sender of a message is told of it now.
func told(a *mailtest.Agent, id string) (out mail.Answer) {
	a.T.Helper()
	a.Want(200, a.APIKey, "GET /v1/messages/"+id, "", &out)
	return out
}

// holding is a policy that holds what has the subject held.
const holding = `rules: [{name: look, on: [message], when: 'event.subject == "held"', then: gate}]`

// TestWhatAnotherHostDoesIsToldAsItIs: what it holds for a person is not delivered, and what it drops for its signature
// neither.
func TestWhatAnotherHostDoesIsToldAsItIs(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		one, two := meshOf(t, address, another(t, address))
		alice, bob := one.Register("alice", "acme"), two.Register("bob", "acme")
		two.Apply(holding)
		held := alice.Send(bob.Address, "held", "m")
		if held.Status != mail.Held || held.Note == "" || held.GateID != "" || held.RemoteHost != "host-b" {
			t.Errorf("%+v", held)
		}
		if got := told(alice, held.ID); got.Status != mail.Held || got.Note == "" || got.Error != "" ||
			one.Shown(held.ID).Status != mail.HeldAway {
			t.Errorf("%+v", got)
		}
		_, ines := two.Operator("ines")
		if _, err := two.Gates.Vote(t.Context(), ines, two.Shown(held.ID).Gate, gate.Ballot{Approve: true}); err != nil {
			t.Fatal(err)
		}
		// A client that signs no nonce says the same twice: the second is not delivered, and it is said.
		first, second := alice.Send(bob.Address, "s", "again"), alice.Send(bob.Address, "s", "again")
		if first.Status != mail.Delivered || second.Status != mail.Failed || !strings.Contains(second.Error, "nonce") {
			t.Errorf("%+v %+v", first, second)
		}
		if got := told(alice, second.ID); got.Status != mail.Failed || got.Error != second.Error {
			t.Errorf("%+v", got)
		}
		if got := bob.Inbox(); len(got) != 2 || got[0] != held.ID || got[1] != first.ID {
			t.Errorf("%v", got)
		}
		one.WantClean()
		two.WantClean()
	})
}

// TestARepetitionOfOurOwnCallIsASuccess: the answer to the first call is lost, and the second one is answered with 409.
func TestARepetitionOfOurOwnCallIsASuccess(t *testing.T) {
	t.Parallel()
	m := mailtest.NewMesh(t, storetest.SQLite(t), storetest.SQLite(t))
	two := m.Start(1)
	there, _ := url.Parse(two.Web.URL)
	proxy, calls := httputil.NewSingleHostReverseProxy(there), atomic.Int64{}
	proxy.ModifyResponse = func(r *http.Response) error {
		if strings.HasSuffix(r.Request.URL.Path, "/route") && calls.Add(1)%2 == 1 {
			r.StatusCode = http.StatusBadGateway
		}
		return nil
	}
	lossy := httptest.NewServer(proxy)
	t.Cleanup(lossy.Close)
	one := m.Start(0, func(o *mail.Options) {
		o.Mesh.Hosts = map[string]federation.Host{"host-b": {URL: lossy.URL, Secret: wire.NewSecret(m.Secret(0, 1))}}
	})
	alice, bob := one.Register("alice", "acme"), two.Register("bob", "acme")
	two.Apply(holding)
	for subject, want := range map[string]string{"s": mail.Acknowledged, "held": mail.HeldAway} {
		sent := alice.Send(bob.Address, subject, "m")
		testbed.Until(t, "the repetition", func() bool { return one.Shown(sent.ID).Status != mail.Queued })
		if got := one.Shown(sent.ID).Status; got != want {
			t.Errorf("%s: %s, want %s: %s", subject, got, want, one.Newest("message.failed").Body)
		}
	}
	if got := bob.Inbox(); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// No clock ends the wait, neither that of the sender nor the outbox's: the failed try does.
func TestAFailedTryAtAnotherServerReachesTheSenderWithoutAClock(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		answers := func(status int) string {
			return testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		}
		peers := map[string]string{}
		for domain, status := range map[string]int{"busy.test": 503, "refuses.test": 403} {
			s := newStandIn(t, domain)
			s.answers, peers[domain] = []int{status}, s.URL
		}
		n := mailtest.StartUnpolled(t, address, func(o *mail.Options) {
			o.WebhookWait = time.Hour
			o.Peering = federation.Peering{Mode: federation.Listed, Peers: peers, LookupTXT: noTXT}
			o.Mesh = federation.Mesh{Host: "host-a", Hosts: map[string]federation.Host{
				"host-b": {URL: answers(503)}, "host-c": {URL: answers(403)}, "host-d": {URL: "http://" + testbed.FreeAddress(t)},
			}}
		})
		alice := n.Register("alice", "acme")
		n.Open(roster.DefaultWorkspace, "acme")
		for to, want := range map[string]struct{ status, reason string }{
			"bob@other.busy.test": {mail.Queued, "503"}, "bob@other.refuses.test": {mail.Failed, "403"},
			"bob@host-b.signalbox.local": {mail.Queued, "503"}, "bob@host-c.signalbox.local": {mail.Failed, "403"},
			"bob@host-d.signalbox.local": {mail.Queued, "failed"},
		} {
			sent := alice.Send(to, "s", "m")
			if sent.Status != want.status || !strings.Contains(sent.Note+sent.Error, want.reason) {
				t.Errorf("%s: %+v, want %s %s", to, sent, want.status, want.reason)
			}
		}
	})
}
