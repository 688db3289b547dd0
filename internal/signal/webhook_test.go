package signal_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/deliver"
	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// receiver is an agent's webhook. It answers with a status and notes what came.
type receiver struct {
	URL    string
	status atomic.Int32
	mu     sync.Mutex
	bodies []string
	heads  []http.Header
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.status.Store(http.StatusOK)
	r.URL = testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies, r.heads = append(r.bodies, string(body)), append(r.heads, req.Header.Clone())
		w.WriteHeader(int(r.status.Load()))
	}))
	return r
}

func (r *receiver) got() (bodies []string, heads []http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(bodies, r.bodies...), append(heads, r.heads...)
}

func TestTheWebhookHasTheSixFieldsAndBothSignatures(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, r := start(t, address), newReceiver(t)
		ada := n.Operator("ada")
		got := n.send("webhook_url", r.URL+"/hook")
		g, err := n.Gates.Vote(t.Context(), ada, *got.GateID, gate.Ballot{Approve: true, Note: "a secret among operators"})
		if err != nil {
			t.Fatal(err)
		}
		testbed.Until(t, "the webhook", func() bool { bodies, _ := r.got(); return len(bodies) == 1 })
		bodies, heads := r.got()
		var fields map[string]string
		if err := json.Unmarshal([]byte(bodies[0]), &fields); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"gate_id": *got.GateID, "status": "approved", "run_id": "run-1", "agent_id": "resume-tailor",
			"resolved_at": g.ResolvedAt.Format(time.RFC3339Nano), "resolved_by": "operator",
		}
		if diff := cmp.Diff(want, fields); diff != "" {
			t.Error(diff)
		}
		delivertest.Verify(t, n.Outbox.SecretFor("default", n.agent.ID, 0).Reveal(), bodies[0], heads[0].Get)

		n.Apply("rules: [{name: soon, on: [signal], when: 'true', then: gate, gate: {expires: 30m}}]")
		n.send("run_id", "expires", "webhook_url", r.URL+"/hook")
		n.send("run_id", "quiet") // no address, no webhook
		n.Move(31 * time.Minute)
		testbed.Until(t, "the second webhook", func() bool { bodies, _ := r.got(); return len(bodies) == 2 })
		bodies, _ = r.got()
		if !strings.Contains(bodies[1], `"status":"rejected"`) || !strings.Contains(bodies[1], `"resolved_by":"rule"`) {
			t.Errorf("an expired gate: %s", bodies[1])
		}
		n.WantClean()
	})
}

func TestAReceiverThatIsDownForTwoDaysGetsItOnceItIsUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, r := start(t, address), newReceiver(t)
		r.status.Store(http.StatusServiceUnavailable)
		ada := n.Operator("ada")
		got := n.send("webhook_url", r.URL)
		if _, err := n.Gates.Vote(t.Context(), ada, *got.GateID, gate.Ballot{Note: "No."}); err != nil {
			t.Fatal(err)
		}
		began := n.Now()
		for tries := 1; n.Now().Sub(began) < 48*time.Hour; tries++ {
			testbed.Until(t, "the next try", func() bool { return len(n.Entries("delivery.failed")) >= tries })
			n.Move(4 * time.Hour)
		}
		r.status.Store(http.StatusNoContent)
		n.Move(4 * time.Hour)
		testbed.Until(t, "the delivery", func() bool { return len(n.Entries("delivery.succeeded")) == 1 })
		bodies, heads := r.got()
		for i, h := range heads {
			if h.Get("webhook-id") != heads[0].Get("webhook-id") || bodies[i] != bodies[0] {
				t.Errorf("try %d is another: %v %s", i, h, bodies[i])
			}
			delivertest.Verify(t, n.Outbox.SecretFor("default", n.agent.ID, 0).Reveal(), bodies[i], h.Get)
		}
		if len(bodies) < 12 {
			t.Errorf("it was tried %d times", len(bodies))
		}
		n.WantClean()
	})
}

// turning is a resolver that answers with a public address first, and with our own then.
type turning struct{ asked atomic.Int32 }

func (r *turning) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	if r.asked.Add(1) == 1 {
		return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func TestPrivateAddressesAreRefusedWhenRegisteredAndWhenDialled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dns := &turning{}
		n, r := start(t, address, func(o *deliver.Options) { o.Allow, o.Resolver = nil, dns }), newReceiver(t)
		before := n.head()
		for _, target := range []string{
			r.URL, "http://10.0.0.1/", "http://169.254.169.254/latest", "http://[::1]/",
			"http://192.168.1.1/",
		} {
			_, err := n.signals.Receive(t.Context(), n.agent, "", encode(payload("webhook_url", target)))
			if !fault.Is(err, fault.InvalidTarget) || fault.From(err).Field != "webhook_url" {
				t.Errorf("%s: %v", target, err)
			}
		}
		if n.head() != before {
			t.Error("something was written")
		}
		_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
		got := n.send("webhook_url", "http://turns.example:"+port+"/hook")
		ada := n.Operator("ada")
		if _, err := n.Gates.Vote(t.Context(), ada, *got.GateID, gate.Ballot{Approve: true}); err != nil {
			t.Fatal(err)
		}
		testbed.Until(t, "the try", func() bool { return len(n.Entries("delivery.failed", "delivery.given_up")) > 0 })
		if bodies, _ := r.got(); len(bodies) != 0 {
			t.Errorf("a private address was called: %v", bodies)
		}
		if dns.asked.Load() < 2 {
			t.Error("the name was not looked up again")
		}
	})
}
