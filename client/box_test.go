package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
)

// box is a real server with one agent.
type box struct {
	t        *testing.T
	url, key string
	config   *server.Config
	stop     func()
}

// eachBox runs fn with a server on every database.
func eachBox(t *testing.T, fn func(t *testing.T, b *box)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) {
		if !strings.HasPrefix(address, "postgres") {
			address = ""
		}
		fn(t, newBox(t, address))
	})
}

func newBox(t *testing.T, address string) *box {
	t.Helper()
	b := &box{t: t}
	b.start(map[string]string{"data": t.TempDir(), "listen": "127.0.0.1:0", "db": address})
	var added struct{ Keys map[string]string }
	b.ops("POST", "/ops/agents", `{"name":"writer"}`, &added)
	b.key = added.Keys["signal"]
	return b
}

func (b *box) start(flags map[string]string) {
	b.t.Helper()
	var err error
	if b.config, err = server.Load(flags, nil, ""); err != nil {
		b.t.Fatal(err)
	}
	s, err := server.New(b.t.Context(), b.config, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(*server.Server) { close(ready) }) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(b.stop)
	select {
	case <-ready:
	case err := <-done:
		done <- err
		b.t.Fatal(err)
	}
	b.url = s.URL()
}

// restart stops the server, and starts it again at the same address.
func (b *box) restart(away time.Duration) {
	b.t.Helper()
	b.stop()
	time.Sleep(away) // that callers find nobody there
	b.start(map[string]string{"data": b.config.Data, "listen": strings.TrimPrefix(b.url, "http://"), "db": b.config.DB.Reveal()})
}

// ops makes a call as the operator.
func (b *box) ops(method, path, body string, into any) {
	b.t.Helper()
	token, err := os.ReadFile(filepath.Join(b.config.Data, server.TokenFile))
	if err != nil {
		b.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		b.t.Fatalf("%s %s: %d %s %v", method, path, res.StatusCode, text, err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			b.t.Fatal(err)
		}
	}
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
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var page struct{ Gates []gate }
		b.ops("GET", "/ops/gates?status=pending", "", &page)
		if len(page.Gates) == 1 {
			return page.Gates[0]
		}
	}
	b.t.Fatal("no gate was opened")
	return gate{}
}

// decide approves or rejects the gate that waits, when there is one.
func (b *box) decide(verb, note string) gate {
	b.t.Helper()
	g := b.pending()
	b.ops("POST", "/ops/gates/"+g.ID+"/"+verb, `{"note":"`+note+`"}`, nil)
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
	b.ops("GET", "/ops/ledger?kind=signal.received&limit=1000", "", &page)
	for _, e := range page.Entries {
		payloads = append(payloads, e.Body.Signal)
	}
	return payloads
}

func (b *box) client(options ...client.Option) *client.Client {
	b.t.Helper()
	c, err := client.New(b.url, b.key, append([]client.Option{client.WithAgent("writer")}, options...)...)
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
