package client_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/client"
	"signalbox/internal/testbed"
)

func TestAHeartbeatHearsWhenToStop(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		c, ctx := b.client(), testbed.Context(t)
		p, err := c.Heartbeat(ctx, client.Heartbeat{RunID: "run-1", TTL: 1500 * time.Millisecond})
		if diff := cmp.Diff(client.Pulse{Message: "Go on", Next: 2 * time.Second}, p); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		b.Ops(200, "POST /ops/agents/writer/halt", `{"run_id":"run-1","reason":"It writes too much."}`, nil)
		p, err = c.Heartbeat(ctx, client.Heartbeat{AgentID: "writer", RunID: "run-1"})
		if diff := cmp.Diff(client.Pulse{Halt: true, Message: "It writes too much.", Next: time.Minute}, p); err != nil ||
			diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		if p, err := c.Heartbeat(ctx, client.Heartbeat{RunID: "run-2"}); err != nil || p.Halt {
			t.Errorf("another run: %+v %v", p, err)
		}
		for name, h := range map[string]client.Heartbeat{
			"run_id": {}, "agent_id": {AgentID: "reader", RunID: "run-1"},
			"ttl_s": {RunID: "run-1", TTL: 48 * time.Hour},
		} {
			_, err := c.Heartbeat(ctx, h)
			if e, ok := errors.AsType[*client.Error](err); !ok || e.Field != name {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestOnlyAClearAnswerLetsARunGoOn(t *testing.T) {
	for name, body := range map[string]string{
		"nothing": "", "no object": `[]`, "another answer": `{"status":"approved","gate_id":null,"message":""}`,
		"null": `{"halt":null}`,
		"text": `{"halt":"false"}`, "upper case": `{"HALT":false}`, "twice": `{"halt":true,"halt":false}`,
		"cut off": `{"halt":false`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(answer(200, body))
			defer s.Close()
			c, err := client.New(s.URL, "rs-amp-key", client.WithAgent("writer"), client.WithPatience(100*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if p, err := client.Hurry(c).Heartbeat(testbed.Context(t), client.Heartbeat{RunID: "run-1"}); !errors.Is(err,
				client.ErrUnreachable) {
				t.Errorf("%+v %v", p, err)
			}
		})
	}
}

func TestTrustIsAskedForAndGrantedByAnOperator(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		c, ctx := b.client(), testbed.Context(t)
		a, err := c.Signal(ctx, client.Registration{Capabilities: []string{"write letters"}})
		if err != nil || a.Status != client.StatusApproved || a.GateID != "" {
			t.Errorf("no trust asked for: %+v %v", a, err)
		}
		asked := make(chan error, 1)
		go func() {
			asked <- c.Gate(ctx, client.Registration{Capabilities: []string{"write letters"}, Trust: "trusted"})
		}()
		if g := b.decide("approve", "it has earned it"); !strings.Contains(g.Summary, "write letters") {
			t.Errorf("the operator saw %+v", g)
		}
		if err := <-asked; err != nil {
			t.Error(err)
		}
		var agent struct{ Trust string }
		b.Ops(200, "GET /ops/agents/writer", "", &agent)
		if agent.Trust != "trusted" {
			t.Errorf("the agent is %s", agent.Trust)
		}
		_, err = c.Signal(ctx, client.Registration{Trust: "boundless"})
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Field != "trust_level" {
			t.Errorf("%v", err)
		}
	})
}

func TestAFailureEndsARun(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		c, ctx := b.client(), testbed.Context(t)
		f := client.Failure{
			RunID: "run-1", Summary: "Could not write it", ErrorCode: "timeout",
			ErrorMessage: "The model did not answer", Model: "claude-sonnet-4-6", InputTokens: 10, Cost: 30_000,
			StartedAt: began,
		}
		a, err := c.Signal(ctx, f)
		if err != nil || a.Status != client.StatusApproved || len(a.Warnings) != 0 {
			t.Errorf("%+v %v", a, err)
		}
		if a, err := c.Signal(ctx, f); err != nil || !a.Duplicate {
			t.Errorf("the same again: %+v %v", a, err)
		}
		if _, err := c.Signal(ctx, payload("run-1")); err == nil || !strings.Contains(err.Error(), "duplicate_run_id") {
			t.Errorf("a completion after it: %v", err)
		}
		got := b.signals()
		if len(got) != 1 || got[0]["type"] != "failure" || got[0]["error_code"] != "timeout" ||
			got[0]["cost_usd"] != 0.00003 {
			t.Errorf("recorded: %v", got)
		}
		if _, err := c.Signal(ctx, client.Failure{Summary: "x"}); err == nil {
			t.Error("a failure of no run was sent")
		}
	})
}

func TestAReceiptIsForAnApprovedAction(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		c, ctx := b.client(), testbed.Context(t)
		gated := make(chan error, 1)
		go func() { gated <- c.Gate(ctx, payload("run-1")) }()
		g := b.pending()
		r := client.Receipt{GateID: g.ID, Summary: "Sent it", Artifacts: []any{client.Text("250 ok")}}
		_, err := c.Signal(ctx, r)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "conflict" {
			t.Errorf("before the decision: %v", err)
		}
		b.decide("approve", "")
		if err := <-gated; err != nil {
			t.Fatal(err)
		}
		for _, again := range []bool{false, true} {
			a, err := c.Signal(ctx, r)
			if err != nil || a.Duplicate != again || a.GateID != g.ID {
				t.Errorf("%+v %v", a, err)
			}
		}
		r.Status = client.Failed
		_, err = c.Signal(ctx, r)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "conflict" {
			t.Errorf("another receipt: %v", err)
		}
		var shown struct {
			Receipts []struct {
				Succeeded bool
				Summary   string
			}
		}
		b.Ops(200, "GET /ops/gates/"+g.ID, "", &shown)
		if len(shown.Receipts) != 1 || !shown.Receipts[0].Succeeded || shown.Receipts[0].Summary != "Sent it" {
			t.Errorf("%+v", shown)
		}
	})
}

func TestWhatProposesNothingPassesNoGate(t *testing.T) {
	for _, m := range []client.Message{client.Failure{RunID: "run-1", Summary: "x"}, client.Receipt{GateID: "gate_1"}} {
		if err := mustNew(t).Gate(context.Background(), m); err == nil || !strings.Contains(err.Error(), "proposes nothing") {
			t.Errorf("%T: %v", m, err)
		}
	}
	if _, err := mustNew(t).Signal(t.Context(), client.Receipt{}); err == nil || !strings.Contains(err.Error(), "GateID") {
		t.Errorf("a receipt for no gate: %v", err)
	}
}
