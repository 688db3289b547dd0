package telemetry_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/price"
	"signalbox/internal/proxy/meter"
	"signalbox/internal/roster/key"
	"signalbox/internal/show/showtest"
	"signalbox/internal/sink"
	"signalbox/internal/store/storetest"
	"signalbox/internal/telemetry"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// collector is a collector of OpenTelemetry that keeps what it is sent.
type collector struct {
	answer  atomic.Pointer[http.HandlerFunc] // instead of taking it
	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics map[string][]map[string]string // the labels of each series, by name
	tokens  []string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answer := c.answer.Load(); answer != nil {
		(*answer)(w, r)
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	text, err := io.ReadAll(body)
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "not protobuf", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = append(c.tokens, r.Header.Get("Authorization"))
	switch r.URL.Path {
	case "/v1/traces":
		var in traces.ExportTraceServiceRequest
		if err := proto.Unmarshal(text, &in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, of := range in.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	case "/v1/metrics":
		var in metrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(text, &in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.metrics = map[string][]map[string]string{}
		for _, of := range in.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					for _, point := range m.GetHistogram().GetDataPoints() {
						c.metrics[m.Name] = append(c.metrics[m.Name], labels(point.Attributes))
					}
					for _, point := range m.GetGauge().GetDataPoints() {
						c.metrics[m.Name] = append(c.metrics[m.Name], labels(point.Attributes))
					}
				}
			}
		}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// labels are attributes as texts.
func labels(all []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.Key] = fmt.Sprint(v.IntValue)
		default:
			out[a.Key] = a.Value.String()
		}
	}
	return out
}

// got are the spans so far.
func (c *collector) got() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*tracepb.Span(nil), c.spans...)
}

// bench is a ledger whose entries go to a collector.
type bench struct {
	*ledgertest.Node
	*collector
	sinks *sink.Sinks
}

func begin(t *testing.T, address string) *bench {
	t.Helper()
	return open(t, address, &collector{}, ledgertest.Dir(t.TempDir()))
}

// open is begin with a collector and a folder that may be those of an earlier server.
func open(t *testing.T, address string, c *collector, dir func(*ledger.Options)) *bench {
	t.Helper()
	b := &bench{Node: ledgertest.Open(t, address, nil, nil, dir), collector: c}
	b.connect(testbed.ServeHTTP(t, c))
	return b
}

// connect starts to send to the collector.
func (b *bench) connect(to string) {
	b.T.Helper()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "signalbox_ledger_head", Help: "h"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(gauge)
	sent, err := telemetry.New(b.T.Context(), telemetry.Options{
		Ledger: b.Ledger, Log: slog.New(slog.DiscardHandler), Version: "test", To: to,
		Headers: wire.NewSecret("Authorization=Bearer let-me-in"), Every: 50 * time.Millisecond,
	})
	b.Must(err)
	sent.Measure(func(context.Context) (prometheus.Gatherer, error) { return registry, nil })
	b.sinks, err = sink.New(sink.Options{
		Ledger: b.Ledger, Now: b.Now, Log: slog.New(slog.DiscardHandler), Followers: map[string]sink.Follower{"otlp": sent},
	})
	b.Must(err)
	b.Run(b.sinks.Run, sent.Run)
	// What was there before the sink began is not sent. In an empty ledger only the row of the cursor tells.
	testbed.Until(b.T, "the sink to begin", func() bool {
		var begun int
		err := b.DB.QueryRow(b.T.Context(), "SELECT count(*) FROM ledger_cursor WHERE name = 'export.otlp'", nil, &begun)
		return err == nil && begun == 1
	})
}

// sent waits until the collector has everything.
func (b *bench) sent() {
	b.T.Helper()
	testbed.Until(b.T, "all spans to be sent", func() bool {
		all, err := b.sinks.States(b.T.Context())
		b.Must(err)
		return all[0].Lag == 0 && all[0].Problem == ""
	})
}

// session appends what a run of an agent leaves.
func (b *bench) session(run, model, tool string) {
	b.T.Helper()
	at := b.Now()
	for _, e := range []ledger.Event{
		{Kind: "run.opened", Subject: run, Trace: run, Body: []byte(`{"prompt":"a secret plan"}`)},
		{Kind: meter.KindCalled, Subject: "agt_1", Body: &meter.Calls{Agent: "agt_1", Calls: []*meter.Called{{
			At: at.UnixMicro(), Took: 1_500_000, Provider: "anthropic", Call: "POST /v1/messages", Model: model, Status: 200,
			Run: run, ID: "msg_1", Usage: price.Usage{Input: 120, Output: 30},
		}}}},
		{Kind: "step.allowed", Subject: tool, Trace: run,
			Body: []byte(`{"type":"pre_action","decision":{"rule":"r1"},` +
				`"event":{"payload":{"arguments":{"command":"cat a-secret-file"}}}}`)},
		{Kind: "gate.resolved", Subject: "gate_1", Trace: run, Body: gate.Resolution{
			OpenedAt: at.Add(-time.Minute).UnixMicro(), Protocol: "proxy", Risk: "high", Status: gate.Approved,
			Note: "a private note",
		}},
		{Kind: "run.completed", Subject: run, Trace: run, Body: []byte(`{}`)},
	} {
		e.Workspace, e.Actor = "default", "agent:tailor"
		b.Append(e)
	}
}

func TestATraceOfOursIsOneTreeWithTheNamesOfTheConventions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		b := begin(t, address)
		b.session("run_1", "claude-sonnet-4-6", "Bash")
		b.sent()
		byName := map[string]*tracepb.Span{}
		ids := map[string]bool{}
		for _, s := range b.got() {
			byName[s.Name] = s
			if ids[hex.EncodeToString(s.SpanId)] {
				t.Errorf("%s has the id of another", s.Name)
			}
			ids[hex.EncodeToString(s.SpanId)] = true
		}
		root := byName["run"]
		if root == nil || len(root.ParentSpanId) != 0 || len(b.got()) != 5 {
			t.Fatalf("%v", b.got())
		}
		for _, name := range []string{"chat claude-sonnet-4-6", "execute_tool Bash", "gate", "invoke_agent"} {
			s := byName[name]
			if s == nil || string(s.TraceId) != string(root.TraceId) || string(s.ParentSpanId) != string(root.SpanId) {
				t.Errorf("%s is not below the root: %v", name, s)
			}
		}
		call := byName["chat claude-sonnet-4-6"]
		for key, want := range map[string]string{
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "claude-sonnet-4-6",
			"gen_ai.response.model": "claude-sonnet-4-6", "gen_ai.usage.input_tokens": "120",
			"gen_ai.usage.output_tokens": "30", "gen_ai.agent.name": "tailor", "gen_ai.conversation.id": "run_1",
			"gen_ai.response.id": "msg_1",
		} {
			if got := labels(call.Attributes)[key]; got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		if call.EndTimeUnixNano-call.StartTimeUnixNano != 1_500_000_000 || call.Kind != tracepb.Span_SPAN_KIND_CLIENT {
			t.Errorf("%v", call)
		}
		tool := labels(byName["execute_tool Bash"].Attributes)
		if tool["gen_ai.tool.name"] != "Bash" || tool["gen_ai.operation.name"] != "execute_tool" {
			t.Errorf("%v", tool)
		}
		if g := byName["gate"]; g.EndTimeUnixNano-g.StartTimeUnixNano < uint64(time.Minute) {
			t.Errorf("%v", g)
		}
		if text := fmt.Sprint(b.got()); strings.Contains(text, "secret") || strings.Contains(text, "private") {
			t.Errorf("a body is in the spans: %s", text)
		}
		testbed.Until(t, "metrics of both kinds", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.metrics["gen_ai.client.token.usage"]) == 2 && len(b.metrics["gen_ai.client.operation.duration"]) == 1 &&
				len(b.metrics["signalbox_ledger_head"]) == 1
		})
		b.mu.Lock()
		defer b.mu.Unlock()
		if of := b.metrics["gen_ai.client.operation.duration"][0]; of["gen_ai.request.model"] != "claude-sonnet-4-6" {
			t.Errorf("%v", of)
		}
		for _, token := range b.tokens {
			if token != "Bearer let-me-in" {
				t.Errorf("%q", token)
			}
		}
	})
}

func TestARestartSendsNothingTwiceAndNothingFromBefore(t *testing.T) {
	address, dir := storetest.SQLite(t), ledgertest.Dir(t.TempDir())
	b := open(t, address, &collector{}, dir)
	b.session("run_1", "m", "Bash")
	b.sent()
	first := len(b.got())
	b.Stop()
	again := open(t, address, b.collector, dir)
	again.session("run_2", "m", "Bash")
	again.sent()
	seen := map[string]bool{}
	for _, s := range b.got() {
		if seen[hex.EncodeToString(s.SpanId)] {
			t.Errorf("%s was sent twice", s.Name)
		}
		seen[hex.EncodeToString(s.SpanId)] = true
	}
	if len(b.got()) != 2*first {
		t.Errorf("%d spans, then %d", first, len(b.got()))
	}
}

func TestACollectorThatIsAwayHangsOrLiesGetsEverythingLater(t *testing.T) {
	b := begin(t, storetest.SQLite(t))
	var elsewhere atomic.Int64
	trap := testbed.ServeHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	hung := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"garbage": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte(strings.Repeat("\xff\x00garbage", 100_000)))
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, trap, http.StatusTemporaryRedirect)
		},
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hung:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		},
	} {
		var tried atomic.Int64
		lie := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/traces" {
				tried.Add(1)
			}
			answer(w, r)
		})
		b.answer.Store(&lie)
		b.session("run_"+name, "m", "Bash")
		testbed.Until(t, "a problem: "+name, func() bool {
			if tried.Load() == 0 {
				return false
			}
			all, err := b.sinks.States(t.Context())
			b.Must(err)
			return all[0].Problem != "" && all[0].Lag > 0
		})
	}
	close(hung)
	b.answer.Store(nil)
	b.sent()
	roots := 0
	for _, s := range b.got() {
		if s.Name == "run" {
			roots++
		}
	}
	if roots != 4 || elsewhere.Load() != 0 {
		t.Errorf("%d roots of 4, %d calls elsewhere", roots, elsewhere.Load())
	}
}

func TestSpansThatTheCollectorRefusesHoldNobodyUp(t *testing.T) {
	b := begin(t, storetest.SQLite(t))
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, err := proto.Marshal(&traces.ExportTraceServiceResponse{PartialSuccess: &traces.ExportTracePartialSuccess{
			RejectedSpans: 1, ErrorMessage: "too old",
		}})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(text)
	})
	b.answer.Store(&answer)
	b.session("run_1", "m", "Bash")
	b.sent()
}

func TestNamesThatAgentsChooseAreCleanShortAndFew(t *testing.T) {
	b := begin(t, storetest.SQLite(t))
	secret := key.Draw("operator")
	b.session("run_secret", "model-"+secret, "tool "+secret)
	for i, hostile := range showtest.All(t) {
		name := strings.ReplaceAll(strings.ToValidUTF8(hostile.Text, ""), "\x00", "")
		tool := strings.ToValidUTF8(name[:min(len(name), 100)], "")
		b.session(fmt.Sprint("run_", i), name, tool)
	}
	b.session("run_long", strings.Repeat("ä", 100_000), "x")
	for i := range 60 {
		var calls meter.Calls
		for j := range 10 {
			calls.Calls = append(calls.Calls, &meter.Called{
				Provider: "openai", Call: "POST /v1/chat/completions", Model: fmt.Sprint("model-", i, "-", j), Status: 500,
			})
		}
		b.Append(ledger.Event{Workspace: "default", Actor: "agent:x", Kind: meter.KindCalled, Subject: "agt_1", Body: &calls})
	}
	b.sent()
	for _, s := range b.got() {
		for name, value := range labels(s.Attributes) {
			if strings.Contains(value, secret) || len(value) > 200 || strings.ContainsAny(value, "\x1b\r\n\u202e\u200b") {
				t.Errorf("%s: %s is %q", s.Name, name, value)
			}
		}
		if len(s.Name) > 200 || strings.Contains(s.Name, secret) || strings.ContainsAny(s.Name, "\x1b\r\n\u202e\u200b") {
			t.Errorf("%q", s.Name)
		}
	}
	testbed.Until(t, "the metrics of many models", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, of := range b.metrics["gen_ai.client.operation.duration"] {
			if of["gen_ai.request.model"] == "(other)" {
				return true
			}
		}
		return false
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.metrics["gen_ai.client.operation.duration"]); n > 420 {
		t.Errorf("%d series", n)
	}
}

func TestWhereTheCollectorIs(t *testing.T) {
	for text, ok := range map[string]bool{
		"off": true, "env": true, "http://127.0.0.1:4318": true, "https://otel.example.com/in": true, "localhost:4318": false,
		"ftp://x": false, "http://x/?key=1": false, "http://u:p@x": false,
	} {
		if err := telemetry.CheckTarget(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	off, err := telemetry.New(t.Context(), telemetry.Options{To: "off"})
	if off != nil || err != nil || off.Run(t.Context()) != nil {
		t.Error(off, err)
	}
}
