package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/server"
	"github.com/signalbox/signalbox/internal/store/storetest"
)

const benchSignal = `{"amp_version":"1.0","agent_id":"bench","run_id":"run-%d","project_id":"job-search","status":"completed","summary":"Rewrote resume for Senior PM role at Stripe","proposed_action":"Send to applicant","artifacts":[],"model":"claude-sonnet-4-6","input_tokens":1842,"output_tokens":614,"cost_usd":0.007532,"started_at":"2026-03-06T22:10:38Z","completed_at":"2026-03-06T22:10:46Z","metadata":{"candidate_id":"123","source":"manual relay prompt"},"gate_required":true,"webhook_url":null}`

// BenchmarkSignal compares durable signals, each of which opens a gate, with a bare
// handler that only parses the same body and answers. 64 connections; the client is in
// the same process. The two take turns.
func BenchmarkSignal(b *testing.B) {
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &v); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"status":"pending","gate_id":"gate_01jt4kzzzzzzzzzzzzzzzzzzzz","message":"Awaiting operator approval"}`)
	}))
	defer bare.Close()
	for name, address := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "" }, "postgres": storetest.Postgres} {
		b.Run(name, func(b *testing.B) {
			url, key := startBench(b, address(b))
			for b.Loop() {
				var ours, theirs float64
				const turns = 10
				for range turns {
					ours += signalsPerSecond(b, url+"/amp/signal", key) / turns
					theirs += signalsPerSecond(b, bare.URL, key) / turns
				}
				b.ReportMetric(ours, "ours/s")
				b.ReportMetric(theirs, "bare/s")
				b.ReportMetric(ours/theirs, "ratio")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func startBench(b *testing.B, address string) (url, key string) {
	b.Helper()
	config, err := server.Load(map[string]string{"data": b.TempDir(), "listen": "127.0.0.1:0", "db": address}, nil, "")
	if err != nil {
		b.Fatal(err)
	}
	s, err := server.New(b.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(*server.Server) { close(ready) }) }()
	b.Cleanup(func() { cancel(); <-done })
	<-ready
	token, err := os.ReadFile(filepath.Join(config.Data, server.TokenFile))
	if err != nil {
		b.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL()+"/ops/agents", strings.NewReader(`{"name":"bench"}`))
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var added struct{ Keys struct{ Signal string } }
	if err := json.NewDecoder(res.Body).Decode(&added); err != nil {
		b.Fatal(err)
	}
	return s.URL(), added.Keys.Signal
}

var benchRun atomic.Int64

func signalsPerSecond(b *testing.B, url, key string) float64 {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	var answered atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range 64 {
		wg.Go(func() {
			for time.Since(began) < 500*time.Millisecond {
				req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(fmt.Appendf(nil, benchSignal, benchRun.Add(1))))
				req.Header.Set("Authorization", "Bearer "+key)
				req.Header.Set("Content-Type", "application/json")
				res, err := client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusAccepted {
					b.Error(res.Status)
					return
				}
				answered.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(answered.Load()) / time.Since(began).Seconds()
}
