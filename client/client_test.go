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

// about is part of a payload, to compare.
func about(p map[string]any, names ...string) map[string]any {
	part := map[string]any{}
	for _, name := range names {
		if v, ok := p[name]; ok {
			part[name] = v
		}
	}
	return part
}

func TestARunIsMeasuredAndReported(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		before := time.Now()
		err := b.client(client.WithProject("letters")).Run(testbed.Context(t),
			client.RunOptions{RunID: "run-1", Summary: "Wrote a letter"}, func(_ context.Context, r *client.Run) error {
				r.AddUsage("claude-sonnet-4-6", 1000, 600)
				r.AddUsage("claude-sonnet-4-6", 842, 14)
				r.AddArtifact(client.Markdown("# Dear …"))
				r.SetMetadata("source", "cron")
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		got := b.signals()[0]
		want := map[string]any{
			"agent_id": "writer", "run_id": "run-1", "project_id": "letters", "status": "completed", "summary": "Wrote a letter",
			"model": "claude-sonnet-4-6", "input_tokens": 1842.0, "output_tokens": 614.0, "cost_usd": 0.014736,
			"gate_required": false,
			"metadata":      map[string]any{"source": "cron"},
			"artifacts":     []any{map[string]any{"type": "markdown", "content": "# Dear …"}},
		}
		if diff := cmp.Diff(want,
			about(got, "agent_id", "run_id", "project_id", "status", "summary", "model", "input_tokens", "output_tokens",
				"cost_usd", "gate_required", "metadata", "artifacts")); diff != "" {
			t.Error(diff)
		}
		for _, name := range []string{"started_at", "completed_at"} {
			at, err := time.Parse(time.RFC3339Nano, got[name].(string))
			if err != nil || at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
				t.Errorf("%s is %v", name, got[name])
			}
		}
	})
}

func TestHowARunEndedIsReported(t *testing.T) {
	b := newBox(t, "")
	c := b.client()
	broken := errors.New("the printer is on fire")
	for _, try := range []struct {
		name, status, code string
		work               func(context.Context, *client.Run) error
		says               error
	}{
		{"an error", "failed", "error", func(context.Context, *client.Run) error { return broken }, broken},
		{"a rejection", "interrupted", "rejected", func(context.Context, *client.Run) error {
			return &client.Rejected{Message: "no"}
		}, nil},
		{"the end of its context", "interrupted", "context", func(ctx context.Context, _ *client.Run) error {
			ctx, cancel := context.WithTimeout(ctx, 0)
			defer cancel()
			return ctx.Err()
		}, context.DeadlineExceeded},
	} {
		ctx := testbed.Context(t)
		if try.code == "context" {
			ctx = within(t, time.Nanosecond)
			<-ctx.Done()
		}
		err := c.Run(ctx, client.RunOptions{RunID: try.name}, try.work)
		if err == nil || try.says != nil && !errors.Is(err, try.says) {
			t.Errorf("%s: %v", try.name, err)
		}
		all := b.signals()
		got := all[len(all)-1]
		if m := got["metadata"].(map[string]any); got["run_id"] != try.name || got["status"] != try.status ||
			m["error_code"] != try.code || m["error_message"] == "" {
			t.Errorf("%s: %v", try.name, got)
		}
	}
}

func TestAPanicIsReportedAndGoesOn(t *testing.T) {
	b := newBox(t, "")
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = b.client().Run(testbed.Context(t), client.RunOptions{RunID: "run-1"}, func(context.Context, *client.Run) error {
			panic("boom")
		})
		t.Error("the panic is gone")
	}()
	got := b.signals()[0]
	if m := got["metadata"].(map[string]any); got["status"] != "failed" || m["error_code"] != "panic" ||
		m["error_message"] != "boom" {
		t.Errorf("%v", got)
	}
}

func TestARunThatAsksWaitsForTheAnswer(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		sent := 0
		work := func(ctx context.Context, r *client.Run) error {
			r.SetSummary("Wrote a letter")
			if err := r.Approve(ctx, "Send it", client.Text("Dear …")); err != nil {
				return err
			}
			sent++
			if err := r.Approve(ctx, "Send it again"); err != nil {
				return err
			}
			sent++
			return nil
		}
		ended := make(chan error, 1)
		go func() { ended <- b.client().Run(testbed.Context(t), client.RunOptions{RunID: "run-1"}, work) }()
		if g := b.decide("approve", "once"); g.Summary != "Wrote a letter" || g.Action != "Send it" || len(g.Artifacts) != 1 {
			t.Errorf("%+v", g)
		}
		b.decide("reject", "not twice")
		err := <-ended
		if e, ok := errors.AsType[*client.Rejected](err); !ok || !strings.Contains(e.Message, "not twice") || sent != 1 {
			t.Errorf("sent %d: %v", sent, err)
		}
	})
}

func TestARunThatCannotBeReportedSaysSo(t *testing.T) {
	b := newBox(t, "")
	c := b.client(client.WithTimeout(time.Second))
	b.Stop()
	err := c.Run(testbed.Context(t), client.RunOptions{ReportTimeout: 200 * time.Millisecond},
		func(context.Context, *client.Run) error {
			return nil
		})
	if err == nil || !strings.Contains(err.Error(), "reporting it failed") {
		t.Errorf("%v", err)
	}
}

func TestMoneyIsExact(t *testing.T) {
	for m, want := range map[client.Money]string{
		0: "0", 1: "0.000000001", 14_736_000: "0.014736", client.Dollar: "1", 12*client.Dollar + 500_000_000: "12.5",
		-1: "-0.000000001",
	} {
		text, err := m.MarshalJSON()
		if err != nil || string(text) != want {
			t.Errorf("%d is %s, %v", m, text, err)
		}
		var back client.Money
		if err := back.UnmarshalJSON(text); err != nil || back != m {
			t.Errorf("%s is read as %d, %v", text, back, err)
		}
	}
	p := client.BuiltinPrices()
	for _, c := range []struct {
		model   string
		in, out int64
		want    client.Money
	}{
		{"claude-sonnet-4-6", 1842, 614, 14_736_000},
		{"gpt-4o-mini", 1, 1, 750},
		{"gemini-2.5-flash", 1_000_000, 0, 150_000_000},
		{"nobody-knows", 1000, 1000, 0},
		{"o3", -5, 0, 0},
		{"o3", 1 << 62, 1 << 62, 1<<63 - 1},
	} {
		if got := p.Cost(c.model, c.in, c.out); got != c.want {
			t.Errorf("%s %d %d costs %d, want %d", c.model, c.in, c.out, got, c.want)
		}
	}
	if len(p) != 8 {
		t.Errorf("%d models", len(p))
	}
}

func TestPricesAreThoseInForce(t *testing.T) {
	b := newBox(t, "")
	server, err := b.client().Prices(t.Context())
	if err != nil || server["claude-sonnet-4-6"] != client.BuiltinPrices()["claude-sonnet-4-6"] || len(server) < 100 {
		t.Errorf("%d models, %v", len(server), err)
	}
	b.Ops(200, "PUT /ops/pricing",
		`{"models":[{"model":"m","input":1,"output":2},{"model":"m","input":3,"output":4,"from":"2026-01-01"},`+
			`{"model":"m","input":5,"output":6,"from":"2999-01-01"}]}`, nil)
	server, err = b.client().Prices(t.Context())
	if err != nil || server["m"] != (client.Price{Input: 3000, Output: 4000}) || len(server) < 100 {
		t.Errorf("%d models, %+v, %v", len(server), server["m"], err)
	}
}
