package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/server"
	"signalbox/internal/sink"
	"signalbox/internal/testbed"
)

// accessLine is a line of the access log.
type accessLine struct {
	Request, From, Who, Name, Workspace, Method, Route, Path string
	Status                                                   int
	Bytes                                                    int64
	Seconds                                                  float64
}

// accessLines reads the access log.
func accessLines(t *testing.T, path string) (all []accessLine) {
	t.Helper()
	for line := range strings.Lines(testbed.ReadAny(path)) {
		var one accessLine
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

// lineOf waits for the line of a path, and fails the test if there are two.
func lineOf(t *testing.T, path, of string) (found accessLine) {
	t.Helper()
	testbed.Until(t, "the line of "+of, func() bool {
		n := 0
		for _, one := range accessLines(t, path) {
			if one.Path == of {
				found = one
				n++
			}
		}
		if n > 1 {
			t.Fatalf("%s has %d lines", of, n)
		}
		return n == 1
	})
	return found
}

func TestEveryRequestHasOneLineInTheAccessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	b := start(t, "", map[string]string{"log.access": path})
	key := b.agentKey("tailor", "default")
	_, _, header := b.do(request{call: "GET /ops/operators?limit=2&token=" + key, token: b.token()})
	b.do(request{call: "GET /ops/alarms", token: "sbx_op_nobody"})
	b.do(request{call: "GET /nowhere/" + key})
	b.do(request{call: "DELETE /ops/status", token: b.token()})
	b.signal(key, "tailor", "r-1")
	b.do(request{call: "GET /ui/inbox"})

	one := lineOf(t, path, "/ops/operators")
	if one.Request != header.Get("X-Request-Id") || one.From != "127.0.0.1" || one.Name != "operator:admin" ||
		one.Who == "" || one.Method != "GET" || one.Route != "GET /ops/operators" || one.Seconds <= 0 {
		t.Errorf("%+v", one)
	}
	if one = lineOf(t, path, "/ops/alarms"); one.Status != 401 || one.Who != "" || one.Bytes == 0 {
		t.Errorf("%+v", one)
	}
	if one = lineOf(t, path, "/ops/status"); one.Status != 405 {
		t.Errorf("%+v", one)
	}
	if one = lineOf(t, path, "/amp/signal"); one.Name != "agent:tailor" || one.Workspace != "default" {
		t.Errorf("%+v", one)
	}
	if one = lineOf(t, path, "/ui/inbox"); one.Who != "" || !strings.Contains(one.Route, "/ui/") {
		t.Errorf("%+v", one)
	}
	unknown := false
	for _, one := range accessLines(t, path) {
		unknown = unknown || strings.HasPrefix(one.Path, "/nowhere/") && one.Status == 404 && one.Route == ""
	}
	if !unknown {
		t.Error("an unknown address has no line")
	}
	if text := testbed.ReadAny(path); strings.Contains(text, key) || strings.Contains(text, b.token()) {
		t.Error("the log has a key")
	}
}

func TestAStreamHasItsLineAtItsEndWithItsBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	b := start(t, "", map[string]string{"log.access": path})
	ctx, end := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/ops/events?after=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.token())
	res, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for _, one := range accessLines(t, path) {
		if one.Path == "/ops/events" {
			t.Error("the stream has a line before its end")
		}
	}
	end()
	if one := lineOf(t, path, "/ops/events"); one.Status != 200 || one.Bytes == 0 || one.Name != "operator:admin" {
		t.Errorf("%+v", one)
	}
}

func TestWhatWaitsAndWhatWasDecidedIsInTheMetrics(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
		key := b.agentKey("tailor", "default")
		for i := range 3 {
			b.signal(key, "tailor", fmt.Sprint("r-", i))
		}
		b.signal(b.agentKey("scout", "other"), "scout", "r-1")
		b.counted()
		var otto struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"otto","workspace":"other","role":"viewer"}`, &otto)
		_, admin, _ := b.do(request{call: "GET /metrics", token: b.token()})
		_, own, _ := b.do(request{call: "GET /metrics", token: otto.Token})
		_, stranger, _ := b.do(request{call: "GET /metrics"})
		for _, line := range []string{
			`signalbox_gates_waiting_by_protocol{protocol="amp",workspace="default"} 3`,
			`signalbox_gates_waiting_by_protocol{protocol="amp",workspace="other"} 1`,
			`signalbox_gates_oldest_waiting_seconds{workspace="default"} `, `signalbox_mail_queue 0`,
			`signalbox_gates_waiting_by_risk{risk="`,
		} {
			if !strings.Contains(admin, line) {
				t.Errorf("/metrics lacks %q", line)
			}
		}
		decided := 0
		for line := range strings.Lines(admin) {
			if strings.HasPrefix(line, "signalbox_decisions_total{protocol=\"amp\"") {
				decided++
			}
		}
		if decided < 2 {
			t.Errorf("decisions of two workspaces have %d series:\n%s", decided, admin)
		}
		if strings.Contains(own, `workspace="default"`) || strings.Contains(own, "mail_queue") ||
			!strings.Contains(own, `signalbox_gates_waiting_by_protocol{protocol="amp",workspace="other"} 1`) {
			t.Errorf("otto sees:\n%s", own)
		}
		if strings.Contains(stranger, "decisions_total") || strings.Contains(stranger, "gates_") {
			t.Errorf("a stranger sees:\n%s", stranger)
		}
	})
}

func TestTheStatusSaysHowFarASinkHasCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "entries.jsonl")
	b := start(t, "", map[string]string{
		"export.file": path, "export.http": "http://" + testbed.FreeAddress(t) + "/?key=hidden",
	})
	b.agentKey("tailor", "default")
	head := b.head()
	var s server.Status
	testbed.Until(t, "the file to have all, and the collector nothing", func() bool {
		b.ops(200, "GET /ops/status", "", &s)
		at := func(name string) sink.State {
			i := slices.IndexFunc(s.Exports, func(one sink.State) bool { return one.Name == name })
			if i < 0 {
				t.Fatalf("%+v", s.Exports)
			}
			return s.Exports[i]
		}
		return at("file").Seq >= head && at("http").Seq == 0 && at("http").Problem != ""
	})
	if text := fmt.Sprint(s.Exports); strings.Contains(text, "hidden") {
		t.Error(text)
	}
	_, text, _ := b.do(request{call: "GET /ops/settings", token: b.token()})
	if strings.Contains(text, "hidden") {
		t.Error("the settings show the key of the collector")
	}
	_, metrics, _ := b.do(request{call: "GET /metrics", token: b.token()})
	for _, line := range []string{
		`signalbox_export_lag_entries{sink="file"} `, `signalbox_export_failing{sink="http"} 1`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}
	var otto struct{ Token string }
	b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
	b.ops(201, "POST /ops/operators", `{"name":"otto","workspace":"other","role":"viewer"}`, &otto)
	if _, text, _ := b.do(request{call: "GET /ops/status", token: otto.Token}); strings.Contains(text, "exports") {
		t.Errorf("an operator of one workspace sees %s", text)
	}
}

func TestTheServerSendsTracesAndMetricsWhereItIsTold(t *testing.T) {
	var mu sync.Mutex
	called := map[string]string{}
	to := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		called[r.URL.Path] = r.Header.Get("X-Collector")
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	b := start(t, "", map[string]string{"telemetry.otlp": to, "telemetry.headers": "X-Collector=hidden"})
	got := func(path string) bool { mu.Lock(); defer mu.Unlock(); return called[path] == "hidden" }
	key := b.agentKey("tailor", "default")
	n := 0
	testbed.Until(t, "a call with spans", func() bool {
		n++
		b.signal(key, "tailor", fmt.Sprint("r-", n))
		return got("/v1/traces")
	})
	var s server.Status
	b.ops(200, "GET /ops/status", "", &s)
	if len(s.Exports) != 1 || s.Exports[0].Name != "otlp" || s.Exports[0].Problem != "" {
		t.Errorf("%+v", s.Exports)
	}
	if _, text, _ := b.do(request{call: "GET /ops/settings", token: b.token()}); strings.Contains(text, "hidden") {
		t.Error("the settings show a header of the collector")
	}
	b.stop() // metrics are sent a last time
	if !got("/v1/metrics") {
		t.Error("no metrics were sent")
	}
}
