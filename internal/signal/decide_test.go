package signal_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/signal"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
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

const (
	newServer = "" // its own policy
	gateRule  = "rules: [{name: ask, on: [signal], when: 'true', then: gate}]"
	allowRule = "rules: [{name: waive, on: [signal], when: 'true', then: allow}]"
	blockRule = "rules: [{name: never, on: [signal], when: 'true', then: block, reason: Not on a Sunday.}]"
	forceRule = "rules: [{name: force, on: [signal], when: 'true', then: gate, gate: {even_if_undeclared: true}}]"
	wrongRule = "rules: [{name: broken, on: [signal], when: '1 / (size(event.run) - size(event.run)) > 0', then: allow}]"
)

// TestTheTruthTable is section 2 of the contract, a row each.
func TestTheTruthTable(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		for _, c := range []struct {
			name, policy string
			declared     bool
			status       gate.Status
			gate         bool
			message      string
		}{
			{"declared and confirmed", gateRule, true, gate.Pending, true, "Awaiting operator approval"},
			{"declared and waived", allowRule, true, gate.Approved, false, "Approved by the rule waive"},
			{"declared and blocked", blockRule, true, gate.Rejected, false, "Not on a Sunday."},
			{"not declared, and a rule that confirms", gateRule, false, gate.Approved, false, "No gate required"},
			{
				"not declared, and a rule that asks all the same", forceRule, false, gate.Pending, true,
				"Awaiting operator approval",
			},
			{"declared, and a rule that asks all the same", forceRule, true, gate.Pending, true, "Awaiting operator approval"},
			{"not declared and waived", allowRule, false, gate.Approved, false, "No gate required"},
			{"not declared and blocked", blockRule, false, gate.Rejected, false, "Not on a Sunday."},
			{"declared, with the policy of a new server", newServer, true, gate.Pending, true, "Awaiting operator approval"},
			{"not declared, with the policy of a new server", newServer, false, gate.Approved, false, "No gate required"},
			{
				"declared, and no rule at all", "defaults: {signal: allow}", true, gate.Approved, false,
				"Approved by the rule default",
			},
			{
				"declared, and the default is to ask", "defaults: {signal: gate}", true, gate.Pending, true,
				"Awaiting operator approval",
			},
			{
				"not declared, and the default is to ask", "defaults: {signal: gate}", false, gate.Approved, false,
				"No gate required",
			},
			{"the default is to block", "defaults: {signal: block}", false, gate.Rejected, false, "No rule allows this"},
			{"a rule that cannot be evaluated", wrongRule, true, gate.Rejected, false, "could not be evaluated"},
			{"a rule that cannot be evaluated, not declared", wrongRule, false, gate.Rejected, false, "could not be evaluated"},
		} {
			t.Run(c.name, func(t *testing.T) {
				n.Apply(c.policy)
				before := n.head()
				got := n.send("run_id", c.name, "gate_required", c.declared)
				if got.Status != c.status || (got.GateID != nil) != c.gate || !strings.Contains(got.Message, c.message) {
					t.Errorf("%+v", got.Answer)
				}
				var kinds []string
				for _, e := range n.after(before) {
					kinds = append(kinds, e.Kind)
				}
				want := "signal.received"
				if c.gate {
					want += " gate.opened"
				}
				if strings.Join(kinds, " ") != want {
					t.Errorf("the ledger has %v, want %s", kinds, want)
				}
			})
		}
		n.WantClean()
	})
}

func (n *node) after(seq int64) []ledger.Entry {
	n.T.Helper()
	all, err := n.Ledger.Entries(n.T.Context(), ledger.Query{After: seq, Limit: 1000})
	if err != nil {
		n.T.Fatal(err)
	}
	return all
}

func TestASignalThatIsDeferredIsAsIfItHadNotBeenSent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.Apply("rules: [{name: later, on: [signal], when: 'true', then: defer, " +
			"retry_after: 90s, reason: Too much at once.}]")
		_, err := n.signals.Receive(t.Context(), n.agent, "", encode(payload()))
		if !fault.Is(err, fault.RateLimited) || fault.From(err).Details[wire.RetryAfter] != 90 ||
			!strings.Contains(err.Error(), "Too much at once. Send the same signal again in 90 seconds.") {
			t.Fatalf("%v", err)
		}
		if got := n.Entries("signal.decided"); len(got) != 1 || got[0].Subject != "run-1" {
			t.Errorf("the decision is not in the ledger: %+v", got)
		}
		n.Apply(gateRule)
		if got := n.send(); got.Status != gate.Pending || got.Duplicate {
			t.Errorf("the same signal later: %+v", got)
		}
		n.WantClean()
	})
}

func TestASuspendedAgentIsRejectedWhateverTheRulesSay(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.Apply(allowRule)
		n.agent.Suspended = true
		if got := n.send(); got.Status != gate.Rejected || got.GateID != nil || got.Message == "" {
			t.Errorf("%+v", got.Answer)
		}
	})
}

func TestAReplayFindsTheDecisionsOfSignals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		began := n.Now().Add(-time.Minute)
		text := "version: 1\nrules: [{name: dear, on: [signal], when: 'event.cost_usd > 1.0 && event.metadata.source == " +
			"\"cron\" && size(event.artifacts) == 1', then: gate}]"
		n.Apply(strings.TrimPrefix(text, "version: 1\n"))
		n.send("run_id", "dear", "cost_usd", 2.5, "metadata", map[string]any{"source": "cron"}, "artifacts", []any{"x"})
		n.send("run_id", "cheap", "cost_usd", 0.5)
		n.send("run_id", "cheap", "cost_usd", 0.5) // a repetition is no decision
		for _, c := range []struct {
			policy  string
			changed int64
		}{{text, 0}, {"version: 1\n" + blockRule, 2}} {
			p, err := policy.Parse([]byte(c.policy))
			if err != nil {
				t.Fatal(err)
			}
			report, err := n.Book.Replay(t.Context(), p, began, func(int64, int64) {})
			if err != nil || report.Decisions != 2 || report.Changed != c.changed || report.Broken != 0 {
				t.Errorf("%+v %v", report, err)
			}
		}
		n.WantClean()
	})
}

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

func TestTheSameSignalAgainIsAPollAndAnotherIsRefused(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		first := n.received(sample)
		// In another order, without the white space, and with other ways to write it.
		var value map[string]any
		if err := json.Unmarshal([]byte(sample), &value); err != nil {
			t.Fatal(err)
		}
		other := strings.Replace(string(encode(value)), "1842", "1.842e3", 1)
		again, err := n.signals.Receive(t.Context(), n.agent, "", []byte(strings.Replace(other, "Stripe", `\u0053tripe`, 1)))
		if err != nil || !again.Duplicate || first.Duplicate {
			t.Fatalf("%+v %v", again, err)
		}
		if diff := cmp.Diff(first.Answer, again.Answer); diff != "" {
			t.Error(diff)
		}
		value["summary"] = "Something else"
		if _, err := n.signals.Receive(t.Context(), n.agent, "", encode(value)); !fault.Is(err, fault.DuplicateRun) ||
			fault.From(err).Field != "run_id" {
			t.Errorf("%v", err)
		}
		if g, err := n.Gates.Get(t.Context(), *first.GateID); err != nil || !strings.Contains(g.Summary, "Stripe") {
			t.Errorf("%+v %v", g, err)
		}
		if len(n.Entries("signal.received")) != 1 || len(n.Entries("gate.opened")) != 1 {
			t.Error("there is more than one signal, or more than one gate")
		}
		var noted []bool
		for _, e := range n.Entries("signal.repeated") {
			var b struct {
				First int64
				Same  bool
			}
			if err := json.Unmarshal(e.Body, &b); err != nil || b.First != n.Entries("signal.received")[0].Seq {
				t.Errorf("%s %v", e.Body, err)
			}
			noted = append(noted, b.Same)
		}
		if diff := cmp.Diff([]bool{true, false}, noted); diff != "" {
			t.Errorf("both are noted: %s", diff)
		}
		n.WantClean()
	})
}

func TestTheSameRunOfAnotherAgentIsAnother(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		first := n.send()
		other := n.Agent("cover-letter")
		if _, err := n.signals.Receive(t.Context(), other, "", encode(payload())); !fault.Is(err, fault.AgentScope) {
			t.Errorf("with another's key: %v", err)
		}
		second, err := n.signals.Receive(t.Context(), other, "", encode(payload("agent_id", "cover-letter")))
		if err != nil || second.Duplicate || *second.GateID == *first.GateID {
			t.Errorf("%+v %v", second, err)
		}
	})
}

func TestFiftyAtOnceOpenOneGateAndHearTheSame(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		const many = 50
		var answers [many]signal.Received
		var errs [many]error
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() {
				answers[i], errs[i] = n.signals.Receive(context.Background(), n.agent, "", encode(payload()))
			})
		}
		wg.Wait()
		originals := 0
		for i := range many {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			if !answers[i].Duplicate {
				originals++
			}
			if diff := cmp.Diff(answers[0].Answer, answers[i].Answer); diff != "" {
				t.Error(diff)
			}
		}
		if opened, repeated := len(n.Entries("gate.opened")), len(n.Entries("signal.repeated")); originals != 1 ||
			opened != 1 || repeated != many-1 {
			t.Errorf("%d originals, %d gates, %d repetitions", originals, opened, repeated)
		}
		n.WantClean()
	})
}

func TestARepeatedSignalOfAResolvedGateHearsTheResolution(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		ada := n.Operator("ada")
		for _, c := range []struct {
			run, note, message string
			approve            bool
			status             gate.Status
		}{
			{"a", "Well done.", "Gate approved by operator: Well done.", true, gate.Approved},
			{"b", "", "Gate approved by operator", true, gate.Approved},
			{"c", "Ask Ines first.", "Gate rejected by operator: Ask Ines first.", false, gate.Rejected},
		} {
			got := n.send("run_id", c.run)
			if _, err := n.Gates.Vote(t.Context(), ada, *got.GateID, gate.Ballot{Approve: c.approve, Note: c.note}); err != nil {
				t.Fatal(err)
			}
			want := signal.Answer{Status: c.status, GateID: got.GateID, Message: c.message}
			if diff := cmp.Diff(want, n.send("run_id", c.run).Answer); diff != "" {
				t.Error(diff)
			}
		}
		n.Apply(blockRule)
		first := n.send("run_id", "e")
		n.Apply(allowRule)
		if diff := cmp.Diff(first.Answer, n.send("run_id", "e").Answer); diff != "" {
			t.Errorf("what was decided at once stays decided: %s", diff)
		}
		n.WantClean()
	})
}

// After a start, and on another node, nothing is known of a run but what the table says.
func TestARunThatWasNotSeenIsFoundAllTheSame(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		first := n.received(sample)
		again := func() {
			t.Helper()
			fresh := signal.New(n.Core, signal.Options{})
			for range 2 {
				got, err := fresh.Receive(t.Context(), n.agent, "", []byte(sample))
				if err != nil || !got.Duplicate {
					t.Fatalf("%+v %v", got, err)
				}
				if diff := cmp.Diff(first.Answer, got.Answer); diff != "" {
					t.Error(diff)
				}
			}
		}
		again()
		n.Apply("rules: [{name: later, on: [signal], when: 'true', then: defer, " +
			"retry_after: 90s, reason: Too much at once.}]")
		again()
		if got := len(n.Entries("signal.received")); got != 1 {
			t.Errorf("the run is there %d times", got)
		}
	})
}
