package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/client"
	"signalbox/internal/testbed"
)

func TestASignalIsAnswered(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		c, ctx := b.client(), testbed.Context(t)
		a, err := c.Signal(ctx, payload("run-1"))
		if diff := cmp.Diff(client.Answer{Status: client.StatusApproved, Message: "No gate required"}, a); err != nil ||
			diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		again, err := c.Signal(ctx, payload("run-1"))
		if err != nil || !again.Duplicate || again.Status != client.StatusApproved {
			t.Errorf("the same again: %+v %v", again, err)
		}
		other := payload("run-1")
		other.Summary = "Wrote something else"
		_, err = c.Signal(ctx, other)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "duplicate_run_id" || e.Status != 409 ||
			e.Field != "run_id" {
			t.Errorf("other content: %v", err)
		}
		_, err = c.Signal(ctx, client.Payload{RunID: "run-2", StartedAt: began, CompletedAt: began})
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "invalid_payload" || e.Fields["model"] == "" ||
			e.Fields["summary"] == "" {
			t.Errorf("an empty payload: %v", err)
		}
		if got := b.signals(); len(got) != 1 || got[0]["cost_usd"] != 0.014736 {
			t.Errorf("recorded: %v", got)
		}
	})
}

func TestAGateIsPassedWithAnApprovalOnly(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		c, ctx := b.client(), testbed.Context(t)
		for i, m := range []client.Message{
			payload("run-1"),
			client.GateRequest{
				RunID: "run-1", Summary: "Wrote it", ProposedAction: "Send it",
				Artifacts: []any{client.Text("Dear …")},
			},
		} {
			gated := make(chan error, 1)
			go func() { gated <- c.Gate(ctx, m) }()
			if g := b.decide("approve", "go on"); g.Action != "Send it" || len(g.Artifacts) != i {
				t.Errorf("the operator saw %+v", g)
			}
			if err := <-gated; err != nil {
				t.Errorf("message %d: %v", i, err)
			}
			if err := c.Gate(ctx, m); err != nil {
				t.Errorf("asked again, message %d: %v", i, err)
			}
		}
		gated := make(chan error, 1)
		go func() { gated <- c.Gate(ctx, payload("run-2")) }()
		g := b.decide("reject", "not to them")
		err := <-gated
		want := &client.Rejected{GateID: g.ID, Message: "Gate rejected by operator: not to them"}
		if got, ok := errors.AsType[*client.Rejected](err); !ok || cmp.Diff(want, got) != "" {
			t.Errorf("rejected: %v", err)
		}
	})
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	b := newBox(t, "")
	err := b.client().Gate(within(t, 300*time.Millisecond), payload("run-1"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody decided: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.client().Gate(ctx, payload("run-2")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

func TestWaitingOnWhatIsNotThereEndsAtOnce(t *testing.T) {
	b := newBox(t, "")
	_, err := b.client().Wait(testbed.Context(t), "gate_nowhere")
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "not_found" {
		t.Errorf("no such gate: %v", err)
	}
	b.key = "rs-amp-" + strings.Repeat("x", 32)
	if err := b.client().Gate(testbed.Context(t), payload("run-1")); err == nil ||
		!strings.Contains(err.Error(), "unauthenticated") {
		t.Errorf("a wrong key: %v", err)
	}
}

func TestWaitingSurvivesARestartOfTheServer(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		by := &line{}
		c, ctx := b.client(client.WithTransport(by)), testbed.Context(t)
		gated := make(chan error, 1)
		go func() { gated <- c.Gate(ctx, payload("run-1")) }()
		b.pending()
		b.restart(by)
		select {
		case err := <-gated:
			t.Fatalf("waiting ended by the restart: %v", err)
		default:
		}
		b.decide("approve", "after the restart")
		if err := <-gated; err != nil {
			t.Error(err)
		}
	})
}

func TestASignalThatMeetsARestartIsSentAgain(t *testing.T) {
	b := newBox(t, "")
	by := &line{}
	c, ctx := b.client(client.WithTransport(by)), testbed.Context(t)
	b.Stop()
	sent := make(chan error, 1)
	go func() {
		_, err := c.Signal(ctx, payload("run-1"))
		sent <- err
	}()
	b.restart(by)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if got := b.signals(); len(got) != 1 {
		t.Errorf("recorded %d times", len(got))
	}
}

func TestWithoutAServerThereIsNoApproval(t *testing.T) {
	c, err := client.New("http://"+testbed.FreeAddress(t), "rs-amp-key", client.WithAgent("writer"), client.WithPatience(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Hurry(c).Gate(testbed.Context(t), payload("run-1")); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

func TestAddressesAndKeysThatCannotBeRightAreRefused(t *testing.T) {
	for _, address := range []string{
		"", "signalbox.example.com", "ftp://x", "https://user:password@x", "https://x?y=z",
		"https://x#y", "http://\x00",
	} {
		if _, err := client.New(address, "rs-amp-key"); err == nil || strings.Contains(err.Error(), "password") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, key := range []string{"", "two words", "line\nbreak"} {
		if _, err := client.New("https://x", key); err == nil {
			t.Errorf("the key %q is taken", key)
		}
	}
	if _, err := mustNew(t).Signal(t.Context(), client.Payload{}); err == nil ||
		!strings.Contains(err.Error(), "NewRunID") {
		t.Errorf("a payload without run: %v", err)
	}
}

func mustNew(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New("https://x", "rs-amp-secret")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPrintingAClientDoesNotPrintItsKey(t *testing.T) {
	if text := fmt.Sprintf("%v %+v %#v", mustNew(t), mustNew(t), mustNew(t)); strings.Contains(text, "secret") {
		t.Error(text)
	}
}

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
		testbed.Parallel(t, name, func(t *testing.T) {
			s := testbed.ServeHTTP(t, answer(200, body))
			c, err := client.New(s, "rs-amp-key", client.WithAgent("writer"), client.WithPatience(100*time.Millisecond))
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
