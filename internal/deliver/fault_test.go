package deliver_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func hang(_ http.ResponseWriter, req *http.Request, _ call) { <-req.Context().Done() }

// large answers with 100 MB, or as much of it as is taken.
func large(sent *atomic.Int64) func(http.ResponseWriter, *http.Request, call) {
	return func(w http.ResponseWriter, _ *http.Request, _ call) {
		block := bytes.Repeat([]byte("x"), 1<<20)
		for range 100 {
			n, err := w.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

// trickle sends a byte now and then, for ever.
func trickle(code int) func(http.ResponseWriter, *http.Request, call) {
	return func(w http.ResponseWriter, req *http.Request, _ call) {
		w.WriteHeader(code)
		for req.Context().Err() == nil {
			_, _ = w.Write([]byte("."))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-req.Context().Done():
			}
		}
	}
}

func TestTargetsThatMisbehaveAreBoundedAndStopNobody(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		var sent, followed atomic.Int64
		elsewhere := newReceiver(t, func(http.ResponseWriter, *http.Request, call) { followed.Add(1) })
		redirect := func(w http.ResponseWriter, req *http.Request, _ call) {
			http.Redirect(w, req, elsewhere.URL+"/secret", http.StatusFound)
		}
		tls := httptest.NewTLSServer(http.NotFoundHandler())
		t.Cleanup(tls.Close)
		cases := []struct{ name, target, class string }{
			{"hangs", newReceiver(t, hang).URL, "timeout"},
			{"redirects", newReceiver(t, redirect).URL, "redirect"},
			{"refuses", "http://" + testbed.FreeAddress(t), "refused"},
			{"fails and trickles", newReceiver(t, trickle(500)).URL, "status"},
			{"has a certificate of nobody", tls.URL, "tls"},
			{"speaks plain HTTP on https", strings.Replace(newReceiver(t, ok).URL, "http:", "https:", 1), "tls"},
			{"closes the connection", newReceiver(t, func(http.ResponseWriter, *http.Request, call) {
				panic(http.ErrAbortHandler)
			}).URL, "broken"},
			{"has no name", "http://nowhere.invalid/", "dns"},
		}
		n := start(t, address, func(o *deliver.Options) {
			o.Pauses, o.Resolver = nil, names{}
			o.Timeout = 8 * time.Second // a slow machine takes its time for a handshake
		})
		var all []deliver.Delivery
		for _, c := range cases {
			all = append(all, hook(c.target))
		}
		bad := n.queue(t, all...)
		good := newReceiver(t, ok)
		accepted := n.queue(t, hook(newReceiver(t, large(&sent)).URL+"/large"),
			hook(newReceiver(t, trickle(200)).URL+"/trickle"))
		var rest []deliver.Delivery
		for i := range 40 {
			rest = append(rest, hook(fmt.Sprintf("%s/%d", good.URL, i%4)))
		}
		for _, id := range n.queue(t, rest...) {
			n.becomes(t, id, deliver.Delivered)
		}
		for i, c := range cases {
			d := n.tried(t, bad[i], 1)
			if e := d.Events[0]; d.Status != deliver.Pending || e.Class != c.class || e.Text == "" || e.NextAt == nil ||
				e.TookMS > testbed.Patience.Milliseconds() {
				t.Errorf("a target that %s: %s, %+v", c.name, d.Status, e)
			}
		}
		for _, id := range accepted {
			n.becomes(t, id, deliver.Delivered)
		}
		if followed.Load() != 0 {
			t.Error("a redirect was followed")
		}
		if sent.Load() > 20<<20 {
			t.Errorf("%d bytes of the large answer were taken", sent.Load())
		}
	})
}

// names is a resolver that knows nothing, but changes its mind about one name.
type names struct{ asked *atomic.Int64 }

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	switch {
	case host == "rebind.example" && n.asked.Add(1) == 1:
		return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
	case host == "rebind.example":
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func TestANameThatIsPrivateOnlyWhenDialledIsNotReached(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r := newReceiver(t, ok)
		n := start(t, address, func(o *deliver.Options) {
			o.Allow, o.Pauses, o.Resolver = nil, nil, names{&atomic.Int64{}}
		})
		target := strings.Replace(r.URL, "127.0.0.1", "rebind.example", 1) + "/"
		if err := n.CheckTarget(t.Context(), target); err != nil {
			t.Fatalf("when it is registered: %v", err)
		}
		d := n.tried(t, n.queue(t, hook(target))[0], 1)
		if d.Events[0].Class != "blocked" || d.Status != deliver.Pending || len(r.got("")) != 0 {
			t.Errorf("it is %+v, and the receiver got %+v", d, r.got(""))
		}
		if err := n.CheckTarget(t.Context(), target); !fault.Is(err, fault.InvalidTarget) {
			t.Errorf("registered now: %v", err)
		}
	})
}

func TestRetryAfterIsHonouredWithinBounds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, func(o *deliver.Options) { o.Pauses = nil })
		for value, want := range map[string]time.Duration{
			"120": 2 * time.Minute, "0": 5 * time.Second,
			"999999999": 6 * time.Hour, "soon": 5 * time.Second,
		} {
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ call) {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(http.StatusTooManyRequests)
			})
			d := n.tried(t, n.queue(t, hook(r.URL))[0], 1)
			if pause := d.NextAt.Sub(d.Events[0].At); pause < want*7/10 || pause > want*13/10 {
				t.Errorf("Retry-After: %s leads to a pause of %v, want about %v", value, pause, want)
			}
		}
	})
}

func TestStepsOfTheClockNeitherLoseNorStorm(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				var up atomic.Bool
				r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ call) {
					if !up.Load() {
						w.WriteHeader(http.StatusInternalServerError)
					}
				})
				well := newReceiver(t, ok)
				n := start(t, address, func(o *deliver.Options) { o.Pauses = nil })
				old := n.queue(t, hook(r.URL+"/old"), hook(r.URL+"/old"))
				n.tried(t, old[0], 1)
				n.Move(step)
				// The pause began in another hour: one try more, and the pause after it.
				n.tried(t, old[0], 2)
				for range 5 { // looks for work, each of them
					n.becomes(t, n.queue(t, hook(well.URL+"/well"))[0], deliver.Delivered)
				}
				if d := n.get(t, old[0]); d.Attempts != 2 || d.Status != deliver.Pending {
					t.Errorf("after the step it was tried %d times", d.Attempts)
				}
				up.Store(true)
				n.becomes(t, n.queue(t, hook(r.URL+"/new"))[0], deliver.Delivered)
				n.Move(2 * time.Minute)
				for _, id := range old {
					n.becomes(t, id, deliver.Delivered)
				}
				n.Move(-step)
				n.becomes(t, n.queue(t, hook(r.URL+"/newer"))[0], deliver.Delivered)
				n.core.WantClean()
			})
		})
	}
}
