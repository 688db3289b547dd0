package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/internal/server/servertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// box is a real server with one agent.
type box struct {
	*servertest.Box
	t   *testing.T
	key string
}

// eachBox runs fn with a server on every database.
func eachBox(t *testing.T, fn func(t *testing.T, b *box)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) { fn(t, newBox(t, address)) })
}

func newBox(t *testing.T, address string) *box {
	t.Helper()
	b := servertest.Start(t, map[string]string{"db": address})
	return &box{b, t, b.Agent("writer")["signal"]}
}

// line is a way to the server that counts the calls, and those that found nobody there.
type line struct{ calls, failed atomic.Int64 }

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	l.calls.Add(1)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		l.failed.Add(1)
	}
	return res, err
}

// restart stops the server, and starts it again at the same address when the caller has
// found nobody there. It returns when the caller has called again.
func (b *box) restart(by *line) {
	b.t.Helper()
	b.Stop()
	failed := by.failed.Load()
	testbed.Until(b.t, "a call that finds nobody there", func() bool { return by.failed.Load() > failed })
	calls := by.calls.Load() // the call that succeeds may be over before Again returns
	b.Box = b.Again()
	testbed.Until(b.t, "the next call", func() bool { return by.calls.Load() > calls })
}

// gate is a gate as operators see it.
type gate struct {
	ID, Summary string
	Action      string `json:"proposed_action"`
	Artifacts   []json.RawMessage
}

// pending waits for the one gate that waits.
func (b *box) pending() gate {
	b.t.Helper()
	var page struct{ Gates []gate }
	testbed.Until(b.t, "a gate", func() bool {
		b.Ops(200, "GET /ops/gates?status=pending", "", &page)
		return len(page.Gates) == 1
	})
	return page.Gates[0]
}

// decide approves or rejects the gate that waits, when there is one.
func (b *box) decide(verb, note string) gate {
	b.t.Helper()
	g := b.pending()
	b.Ops(200, "POST /ops/gates/"+g.ID+"/"+verb, `{"note":"`+note+`"}`, nil)
	return g
}

// signals are the payloads that the server has, in order.
func (b *box) signals() (payloads []map[string]any) {
	b.t.Helper()
	var page struct {
		Entries []struct {
			Body struct{ Signal map[string]any }
		}
	}
	b.Ops(200, "GET /ops/ledger?kind=signal.received&limit=1000", "", &page)
	for _, e := range page.Entries {
		payloads = append(payloads, e.Body.Signal)
	}
	return payloads
}

func (b *box) client(options ...client.Option) *client.Client {
	b.t.Helper()
	c, err := client.New(b.URL, b.key, append([]client.Option{client.WithAgent("writer")}, options...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	return client.Hurry(c)
}

var began = time.Date(2026, 3, 6, 22, 10, 38, 0, time.UTC)

// payload is a signal of a run.
func payload(runID string) client.Payload {
	return client.Payload{
		RunID: runID, Summary: "Wrote it", ProposedAction: "Send it", Model: "claude-sonnet-4-6",
		InputTokens: 1842, OutputTokens: 614, Cost: 14_736_000, StartedAt: began, CompletedAt: began.Add(8 * time.Second),
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
