package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/client"
	"signalbox/internal/testbed"
)

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
