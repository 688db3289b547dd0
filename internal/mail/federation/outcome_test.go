package federation_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/mail"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

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
