package deliver_test

import (
	"context"
	"strings"
	"testing"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store/storetest"
)

// named is a sender whose receivers give a name to what they get.
type named struct{}

func (named) Send(_ context.Context, a deliver.Attempt) deliver.Result {
	if a.Target == "lost" {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "gone", Reference: "never"}
	}
	return deliver.Result{Verdict: deliver.Succeeded, Reference: string(a.Payload)}
}

func TestByWhatAReceiverKnowsADeliveryIsKept(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := open(t, address, &ledgertest.Clock{})
		n.AddSender("named", named{})
		n.core.Run(n.Run)
		for _, c := range []struct{ target, name, status, want string }{
			{"here", "C123 1700000000.000001", deliver.Delivered, "C123 1700000000.000001"},
			{"here", strings.Repeat("long", 100), deliver.Delivered, ""},
			{"lost", "x", deliver.Dead, ""},
		} {
			id := n.queue(t,
				deliver.Delivery{Workspace: "default", Sender: "named", Target: c.target, Payload: []byte(c.name)})[0]
			n.becomes(t, id, c.status)
			if got, err := n.Reference(t.Context(), id); err != nil || got != c.want {
				t.Errorf("%.30s: %q %v", c.name, got, err)
			}
		}
		if _, err := n.Reference(t.Context(), "delivery_x"); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		n.core.WantClean()
	})
}
