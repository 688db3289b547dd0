package signal_test

import (
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestAPolicySaysWhoDecidesAndHowMany(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		ada, bob, eve := n.Operator("ada"), n.Operator("bob"), n.Operator("eve")
		n.Apply("rules: [{name: two, on: [signal], when: 'true', then: gate, reason: It is money., gate: {quorum: 2, " +
			"approvers: [ada, bob], risk: high}}]")
		got := n.send()
		yes := gate.Ballot{Approve: true}
		if g, err := n.Gates.Vote(t.Context(), ada, *got.GateID, yes); err != nil || g.Status != gate.Pending ||
			g.Risk != "high" || g.Rule != "two" || g.Reason != "It is money." {
			t.Errorf("%+v %v", g, err)
		}
		if _, err := n.Gates.Vote(t.Context(), eve, *got.GateID, yes); !fault.Is(err, fault.Forbidden) {
			t.Errorf("one whom the rule does not name: %v", err)
		}
		if n.send().Status != gate.Pending {
			t.Error("one of two is enough")
		}
		if err := n.Gates.Delegate(t.Context(), bob, "eve", n.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		g, err := n.Gates.Vote(t.Context(), eve, *got.GateID, gate.Ballot{Approve: true, For: "bob", Note: "for Bob"})
		if err != nil || g.Status != gate.Approved || g.Votes[1].Operator != "bob" || g.Votes[1].CastBy != "eve" {
			t.Errorf("%+v %v", g, err)
		}
		if again := n.send(); again.Message != "Gate approved by operator: for Bob" {
			t.Errorf("%+v", again.Answer)
		}
		n.WantClean()
	})
}

func TestTheAgentThatAskedDoesNotApprove(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.Operator("resume-tailor") // of the same name, and somebody else
		n.Apply("rules: [{name: own, on: [signal], when: 'true', then: gate, gate: {approvers: [resume-tailor]}}]")
		got := n.send()
		if _, err := n.Gates.Vote(t.Context(), n.agent, *got.GateID, gate.Ballot{Approve: true}); !fault.Is(err,
			fault.Forbidden) {
			t.Errorf("%v", err)
		}
		if n.send().Status != gate.Pending {
			t.Error("it is decided")
		}
	})
}

func TestAGateExpiresAsItsRuleSaysAfterItsLadder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.Apply("rules: [{name: soon, on: [signal], when: 'event.run == \"r\"', then: gate, gate: {expires: 30m, " +
			"remind_after: 10m, escalation: [{after: 20m, to: [admin]}]}}," +
			" {name: yes, on: [signal], when: 'event.run == \"y\"', then: gate, gate: {expires: 30m, on_expiry: approve}}," +
			" {name: never, on: [signal], when: 'true', then: gate}]")
		n.send("run_id", "r")
		n.send("run_id", "y")
		n.send("run_id", "n")
		for i, step := range []time.Duration{10 * time.Minute, 10 * time.Minute} {
			n.Move(step + time.Second)
			testbed.Until(t, "a step of the ladder", func() bool { return len(n.Entries("gate.escalated")) == i+1 })
		}
		n.Move(10 * time.Minute)
		testbed.Until(t, "both to expire", func() bool { return len(n.Entries("gate.resolved")) == 2 })
		n.Move(1000 * time.Hour)
		for run, want := range map[string]gate.Status{"r": gate.Rejected, "y": gate.Approved, "n": gate.Pending} {
			got := n.send("run_id", run)
			if got.Status != want || want != gate.Pending && got.Message != "Gate expired" {
				t.Errorf("%s: %+v", run, got.Answer)
			}
		}
		n.WantClean()
	})
}

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
