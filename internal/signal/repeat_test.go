package signal_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/signal"
	"signalbox/internal/store/storetest"
)

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
