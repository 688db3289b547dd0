package hub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"signalbox/internal/mail/hub"
)

// In a bubble of synctest time passes only while everybody waits, so that what is measured here is what a sender is
// made to wait for, on any machine.
func TestASenderWaitsForAnOutcomeAndForNothingElse(t *testing.T) {
	t.Parallel()
	const most = 8 * time.Second
	refused := hub.Outcome{Reason: "status 503"}
	for name, test := range map[string]struct {
		happens func(h *hub.Hub, stop context.CancelFunc) // while the sender waits
		after   time.Duration
		want    hub.Outcome
	}{
		"a failed try": {func(h *hub.Hub, _ context.CancelFunc) { h.Report("dlv_1", refused) }, 0, refused},
		"one that took two seconds": {
			func(h *hub.Hub, _ context.CancelFunc) {
				<-time.After(2 * time.Second)
				h.Report("dlv_1", refused)
			}, 2 * time.Second, refused,
		},
		"the message arrived": {
			func(h *hub.Hub, _ context.CancelFunc) { h.Report("msg_1", hub.Outcome{Method: "webhook"}) }, 0,
			hub.Outcome{Method: "webhook"},
		},
		"the first of two": {
			func(h *hub.Hub, _ context.CancelFunc) {
				h.Report("msg_1", refused)
				h.Report("dlv_1", hub.Outcome{Method: "webhook"})
			}, 0, refused,
		},
		"what others sent":   {func(h *hub.Hub, _ context.CancelFunc) { h.Report("msg_2", refused) }, most, hub.Outcome{}},
		"a receiver hangs":   {func(*hub.Hub, context.CancelFunc) {}, most, hub.Outcome{}},
		"the sender hung up": {func(_ *hub.Hub, stop context.CancelFunc) { stop() }, 0, hub.Outcome{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var h hub.Hub
				sender := h.Expect("msg_1")
				sender.Also("dlv_1") // the delivery that carries it
				began := time.Now()
				go func() {
					synctest.Wait() // until the sender waits
					test.happens(&h, stop)
				}()
				if got := sender.Await(ctx, most); got != test.want || time.Since(began) != test.after {
					t.Errorf("%+v after %v, want %+v after %v", got, time.Since(began), test.want, test.after)
				}
				sender.End()
				if !h.Empty() {
					t.Error("the hub still expects something")
				}
			})
		})
	}
}
