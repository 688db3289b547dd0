package signal_test

import (
	"strings"
	"testing"
	"time"

	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// A run whose id is as long as it may be goes silent like any other, and null is as good as absent.
func TestASilentRunIsRecordedWhateverItsName(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		long := strings.Repeat("\U0001F6A6", 128)
		body := encode(map[string]any{"amp_version": "2.0", "agent_id": "resume-tailor", "run_id": long, "ttl_s": nil})
		if p, err := n.signals.Beat(t.Context(), n.agent, body); err != nil || p.NextIn != 60 {
			t.Fatalf("%+v %v", p, err)
		}
		n.Move(2 * time.Minute)
		testbed.Until(t, "the missed heartbeat", func() bool { return len(n.Entries("heartbeat.missed")) == 1 })
		if e := n.Entries("heartbeat.missed")[0]; e.Subject != long || e.Trace != n.Entries("heartbeat.received")[0].Trace {
			t.Errorf("%+v", e)
		}
		n.WantClean()
	})
}
