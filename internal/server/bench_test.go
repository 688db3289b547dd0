package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/server"
	"signalbox/internal/server/servertest"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

const benchSignal = `{"amp_version":"1.0","agent_id":"bench","run_id":"run-%d","project_id":"job-search",` +
	`"status":"completed","summary":"Rewrote resume for Senior PM role at Stripe",` +
	`"proposed_action":"Send to applicant","artifacts":[],"model":"claude-sonnet-4-6","input_tokens":1842,` +
	`"output_tokens":614,"cost_usd":0.007532,"started_at":"2026-03-06T22:10:38Z",` +
	`"completed_at":"2026-03-06T22:10:46Z","metadata":{"candidate_id":"123","source":"manual relay prompt"},` +
	`"gate_required":true,"webhook_url":null}`

// BenchmarkSignal compares durable signals, each of which opens a gate, with a bare
// handler that only parses the same body and answers. 64 connections; the client is in
// the same process. The two take turns.
func BenchmarkSignal(b *testing.B) {
	bare := testbed.ServeHTTP(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &v); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w,
			`{"status":"pending","gate_id":"gate_01jt4kzzzzzzzzzzzzzzzzzzzz","message":"Awaiting operator approval"}`)
	}))
	for name, address := range benchDatabases {
		b.Run(name, func(b *testing.B) {
			s := startBench(b, address(b))
			for b.Loop() {
				var ours, theirs float64
				const turns = 5
				for range turns {
					ours += signalsPerSecond(b, s.url+"/amp/signal", s.key) / turns
					theirs += signalsPerSecond(b, bare, s.key) / turns
				}
				b.ReportMetric(ours, "ours/s")
				b.ReportMetric(theirs, "bare/s")
				b.ReportMetric(ours/theirs, "ratio")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// benchServer is a running server with one agent.
type benchServer struct {
	url, token, key string
	stop            func()
	pid             int // of its own process
}

// startBench starts a server. What is to be done to its data comes first.
func startBench(b *testing.B, address string, before ...func(*testing.B, *server.Config)) *benchServer {
	b.Helper()
	config := servertest.Load(b, map[string]string{"db": address, "tasks.plan_approval": "false"})
	for _, fn := range before {
		fn(b, config)
	}
	heap := server.Heap() // as `signalbox up` has it
	b.Cleanup(func() { runtime.KeepAlive(heap) })
	s := servertest.Run(b, config)
	return (&benchServer{url: s.URL, token: s.Token(), stop: s.Stop}).withAgent(b)
}

func (s *benchServer) withAgent(b *testing.B) *benchServer {
	b.Helper()
	var added struct{ Keys struct{ Signal string } }
	s.call(b, http.DefaultClient, http.MethodPost, "/ops/agents", s.token, `{"name":"bench"}`, &added)
	s.key = added.Keys.Signal
	return s
}

// startChild starts a server in a process of its own, which has its own open files.
func startChild(b *testing.B, address string) *benchServer {
	b.Helper()
	dir := b.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childData+"="+dir, childDB+"="+address)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	stop := sync.OnceFunc(func() { _ = child.Process.Signal(os.Interrupt); _ = child.Wait() })
	b.Cleanup(stop)
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	token := testbed.Read(b, filepath.Join(dir, server.TokenFile))
	return (&benchServer{
		url: strings.TrimSpace(url), token: strings.TrimSpace(string(token)), stop: stop,
		pid: child.Process.Pid,
	}).withAgent(b)
}

const (
	childData = "SIGNALBOX_TEST_CHILD_DATA"
	childDB   = "SIGNALBOX_TEST_CHILD_DB"
)

// TestMain runs the tests, or is the server that a benchmark has started.
func TestMain(m *testing.M) {
	dir := os.Getenv(childData)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := beChild(dir, os.Getenv(childDB)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func beChild(dir, address string) error {
	config, err := server.Load(map[string]string{"data": dir, "listen": "127.0.0.1:0", "db": address}, nil, "")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, err := server.New(ctx, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return s.Run(ctx, func(s *server.Server) { fmt.Println(s.URL()) })
}

// sendJSON makes a call with a token.
func sendJSON(client *http.Client, method, url, token string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, url, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

// call makes a call that must succeed.
func (s *benchServer) call(b *testing.B, client *http.Client, method, path, token, body string, into any) {
	res, err := sendJSON(client, method, s.url+path, token, strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil || res.StatusCode >= 300 {
		b.Errorf("%s %s: %s %s %v", method, path, res.Status, text, err)
	}
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
			for time.Since(began) < time.Second {
				res, err := sendJSON(client, http.MethodPost, url, key,
					bytes.NewReader(fmt.Appendf(nil, benchSignal, benchRun.Add(1))))
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

// BenchmarkDecisionReaches measures how long a decision takes to reach the agent that
// waits for it in a long poll, among 10,000 that do: from when the operator's call is
// sent until the agent has the answer.
func BenchmarkDecisionReaches(b *testing.B) {
	const waiters, decided = 10_000, 500
	for name, address := range benchDatabases {
		b.Run(name, func(b *testing.B) {
			s := startChild(b, address(b))
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			gates := make([]string, waiters)
			inParallel(64, waiters, func(i int) {
				var got struct {
					GateID string `json:"gate_id"`
				}
				s.call(b, client, http.MethodPost, "/amp/signal", s.key, fmt.Sprintf(benchSignal, benchRun.Add(1)), &got)
				gates[i] = got.GateID
			})
			arrived := make([]chan time.Time, waiters)
			var waiting sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			own := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
			for i, id := range gates {
				arrived[i] = make(chan time.Time, 1)
				asked := make(chan struct{})
				ctx := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
					close(asked)
				}})
				waiting.Go(func() {
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/amp/gates/"+id+"?wait=60s", http.NoBody)
					req.Header.Set("Authorization", "Bearer "+s.key)
					res, err := own.Do(req)
					if err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
						arrived[i] <- time.Now()
					}
				})
				testbed.Receive(b, "its call", asked) // so that they do not come all at once
			}
			// A call that waits has two goroutines in the server: its own, and one that notices if the client goes.
			testbed.Until(b, "all of them to wait", func() bool { return s.goroutines(b) > 2*waiters })
			s.settle(b, client)
			for b.Loop() {
				var took []time.Duration
				for i := range decided {
					began := time.Now()
					s.call(b, client, http.MethodPost, "/ops/gates/"+gates[i]+"/approve", s.token, `{}`, nil)
					took = append(took, (<-arrived[i]).Sub(began))
				}
				testbed.ReportLatency(b, took)
			}
			b.ReportMetric(0, "ns/op")
			cancel()
			waiting.Wait()
		})
	}
}

// BenchmarkSignalAmongMany compares the latency of a signal, one at a time, on a server
// with a million pending gates with that on an empty one. The two take turns.
func BenchmarkSignalAmongMany(b *testing.B) {
	for name, address := range benchDatabases {
		b.Run(name, func(b *testing.B) {
			full := startBench(b, address(b), fillWithGates)
			empty := startBench(b, address(b))
			client := &http.Client{}
			full.settle(b, client)
			for b.Loop() {
				var among, alone []time.Duration
				for range 20 {
					for range 100 {
						among = append(among, full.signal(b, client))
					}
					for range 100 {
						alone = append(alone, empty.signal(b, client))
					}
				}
				slices.Sort(among)
				slices.Sort(alone)
				b.ReportMetric(float64(among[len(among)/2])/float64(alone[len(alone)/2]), "times-p50")
				b.ReportMetric(float64(among[len(among)*99/100])/float64(alone[len(alone)*99/100]), "times-p99")
				b.ReportMetric(float64(among[len(among)/2].Microseconds())/1000, "p50-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// settle waits until what follows the ledger has come to its end: a server that has so many gates
// has long counted them.
func (s *benchServer) settle(b *testing.B, client *http.Client) {
	b.Helper()
	var status struct{ Entries int64 }
	s.call(b, client, http.MethodGet, "/ops/status", s.token, "", &status)
	var report struct{ Seq int64 }
	for counted := int64(-1); counted < status.Entries; counted = report.Seq {
		testbed.Until(b, "more to be counted", func() bool {
			s.call(b, client, http.MethodGet, "/ops/counters", s.token, "", &report)
			return report.Seq > counted
		})
	}
}

// goroutines is how many the server has.
func (s *benchServer) goroutines(b *testing.B) (n int) {
	b.Helper()
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "go_goroutines %d", &n); err == nil {
			return n
		}
	}
	b.Fatal("the server does not say how many goroutines it has")
	return 0
}

// benchDatabases are the addresses for [startBench]: none makes the server's own SQLite.
var benchDatabases = map[string]func(testing.TB) string{
	"sqlite": func(testing.TB) string { return "" }, "postgres": storetest.Postgres,
}

// signal sends a signal, and says how long the answer took.
func (s *benchServer) signal(b *testing.B, client *http.Client) time.Duration {
	began := time.Now()
	s.call(b, client, http.MethodPost, "/amp/signal", s.key, fmt.Sprintf(benchSignal, benchRun.Add(1)), nil)
	return time.Since(began)
}

const manyGates = 1_000_000

// migrated is the database of a data folder, before a server runs on it.
func migrated(b *testing.B, config *server.Config) *store.DB {
	b.Helper()
	db, err := server.OpenStore(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	if err := db.Migrate(b.Context(), server.Migrations()...); err != nil {
		b.Fatal(err)
	}
	return db
}

// fill writes transactions into the ledger of a data folder, before a server runs on it.
func fill(b *testing.B, config *server.Config, transactions int, write func(tx *ledger.Tx, n int) error) {
	b.Helper()
	db := migrated(b, config)
	defer db.Close()
	l, err := ledger.Open(b.Context(),
		ledger.Options{DB: db, Dir: config.Data, Origin: "localhost/signalbox", Projections: server.Projections()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for n := range transactions {
		if err := l.Write(b.Context(), func(tx *ledger.Tx) error { return write(tx, n) }); err != nil {
			b.Fatal(err)
		}
	}
}

// fillWithGates opens a million gates.
func fillWithGates(b *testing.B, config *server.Config) {
	b.Helper()
	fill(b, config, manyGates/500, func(tx *ledger.Tx, _ int) error {
		for i := range 500 {
			if err := openSample(tx, gate.Risks[i%3]); err != nil {
				return err
			}
		}
		return nil
	})
}

func openSample(tx *ledger.Tx, risk string) error {
	p, err := gate.Prepare(gate.Opening{
		Project: "default", Agent: "agent_x", AgentName: "x", Requester: "agent:x", Risk: risk,
		Origin: gate.Origin{Protocol: "amp", Reference: "run_1"},
		Shown: gate.Shown{
			Title: "Send the newsletter", Summary: strings.Repeat("s", 200),
			ProposedAction: strings.Repeat("p", 100),
		},
	})
	if err == nil {
		p.Open(tx, gate.NewID(), "default", "")
	}
	return err
}

func inParallel(workers, n int, fn func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				fn(int(i))
			}
		})
	}
	wg.Wait()
}
