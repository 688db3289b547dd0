package signal_test

import (
	"strings"
	"testing"

	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

// A signal is under the handoff whose token its metadata has. One that is forged, of another agent or over is rejected.
func TestASignalIsUnderAHandoff(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.Apply("rules: [{name: claimed, on: [signal], when: delegation.unverified, then: block, reason: 'Who says so?'}]")
		lead, admin := n.Agent("lead"), roster.Identity{Role: roster.Admin}
		give := func(to string) (handoff.Handoff, string) {
			h, err := n.Handoffs.Open(t.Context(), handoff.By{Who: lead}, handoff.Opening{To: to})
			if err != nil {
				t.Fatal(err)
			}
			return h, n.Handoffs.Token(h.ID)
		}
		n.Agent("other")
		_, own := give("resume-tailor")
		_, foreign := give("other")
		ended, over := give("resume-tailor")
		if _, err := n.Handoffs.End(t.Context(), admin, ended.ID, "enough"); err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]struct {
			delegation any
			says       string
		}{
			"its own":         {own, ""},
			"a forged one":    {own[:len(own)-1] + "x", "not the token"},
			"another agent's": {foreign, "given to another agent"},
			"one that's over": {over, "is over"},
			"a chain":         {[]any{"lead", "resume-tailor"}, "Who says so?"},
			"none":            {nil, "Who says so?"}, // the agent was handed work, and leaves out which
		} {
			got := n.send("run_id", "run-"+what, "gate_required", false, "metadata", map[string]any{"delegation": c.delegation})
			if rejected := got.Status == gate.Rejected; rejected != (c.says != "") || !strings.Contains(got.Message, c.says) {
				t.Errorf("%s: %+v", what, got.Answer)
			}
		}
		for _, e := range n.Entries() {
			if strings.Contains(string(e.Body), own) {
				t.Errorf("the token is in entry %d", e.Seq)
			}
		}
		n.WantClean()
	})
}
