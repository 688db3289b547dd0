package record_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/run/process"
	"signalbox/internal/run/record"
	"signalbox/internal/testbed"
)

// counting stands in for a server: it carries calls, and counts them when the test says so.
type counting struct {
	mu      sync.Mutex
	counted int64
	stop    string
	keys    int
	carried []http.Header
	status  int
	gate    string
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/pulse"):
		_, _ = fmt.Fprintf(w, `{"events":0,"held":true,"stop":%q,"ended":false,"calls":%d}`, c.stop, c.counted)
	case strings.HasSuffix(r.URL.Path, "/access"):
		c.keys++
		_, _ = fmt.Fprintf(w, `{"key":"rs-amp-%d","expires_at":"2999-01-01T00:00:00Z"}`, c.keys)
	case strings.HasPrefix(r.URL.Path, "/v1/proxy/openai/v1/"):
		c.carried = append(c.carried, r.Header)
		if c.gate != "" {
			w.Header().Set("X-Amp-Gate-Id", c.gate)
		}
		w.WriteHeader(c.status)
		_, _ = fmt.Fprintf(w, "%s %s?%s %s", r.Method, r.URL.Path, r.URL.RawQuery, body)
	default:
		http.NotFound(w, r)
	}
}

// startMeter starts a meter in front of a server, and returns how a CLI calls through it.
func startMeter(t *testing.T, c *counting, m record.Metering) (meter *record.Meter, call func(token string) (int, string)) {
	t.Helper()
	server := testbed.ServeHTTP(t, c)
	m.Run, m.Provider = "run_1", "openai"
	s := record.Server{URL: func() (string, error) { return server, nil }, Token: "t", HTTP: &http.Client{}}
	meter, err := s.StartMeter(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(meter.Close)
	return meter, func(token string) (int, string) {
		t.Helper()
		status, text, _ := testbed.Call(t, http.DefaultClient, http.MethodPost, meter.Metered().URL+"/responses?x=1", "ask",
			map[string]string{
				"Authorization": "Bearer " + token, "X-Amp-Run": "run_2", "X-Amp-Project": "mine", "X-Api-Key": "rs-amp-x",
				"Openai-Beta": "b",
			})
		return status, text
	}
}

// secret is what the CLI finds in its environment.
func secret(m *record.Meter) string {
	_, token, _ := strings.Cut(m.Env()[0], "=")
	return token
}

func TestAMeterMakesACallOnlyWhenTheOneBeforeIsCounted(t *testing.T) {
	var stopped error
	c := &counting{status: 200}
	m, call := startMeter(t, c, record.Metering{Within: "d", Stop: func(err error) { stopped = err }})
	if status, _ := call("guessed"); status != http.StatusUnauthorized || len(c.carried) != 0 {
		t.Errorf("with another secret: %d", status)
	}
	if status, text := call(secret(m)); status != 200 || text != "POST /v1/proxy/openai/v1/responses?x=1 ask" {
		t.Errorf("%d %s", status, text)
	}
	got := c.carried[0]
	for name, want := range map[string]string{
		"Authorization": "Bearer rs-amp-1", "X-Api-Key": "", "X-Amp-Run": "run_1", "X-Amp-Within": "d", "X-Amp-Project": "",
		"Openai-Beta": "b",
	} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
	if status, text := call(secret(m)); status != http.StatusServiceUnavailable || !strings.Contains(text, "not counted yet") || len(c.carried) != 1 {
		t.Errorf("before it is counted: %d %s", status, text)
	}
	c.counted = 1
	for _, beside := range []struct {
		status int
		gate   string
	}{{500, ""}, {403, ""}, {200, "gate_1"}, {429, ""}} { // which the proxy need not count
		c.status, c.gate = beside.status, beside.gate
		if status, text := call(secret(m)); status != beside.status {
			t.Errorf("%+v: %d %s", beside, status, text)
		}
	}
	c.stop = "the run has used 2 tokens, and its budget is 1"
	status, text := call(secret(m))
	var order process.StoppedError
	if status != http.StatusForbidden || !strings.Contains(text, c.stop) || !errors.As(stopped, &order) || order.Reason != c.stop ||
		len(c.carried) != 5 || c.keys != 1 {
		t.Errorf("after the order to stop: %d %s, %v, %d calls, %d keys", status, text, stopped, len(c.carried), c.keys)
	}
}

func TestAMeterSendsTheProvidersKeyBesideThatOfTheAgent(t *testing.T) {
	c := &counting{status: 200}
	m, call := startMeter(t, c, record.Metering{Key: "sk-own", AgentKey: "rs-amp-mine", Stop: func(error) {}})
	call(secret(m))
	if h := c.carried[0]; h.Get("Authorization") != "Bearer sk-own" || h.Get("X-Api-Key") != "rs-amp-mine" || c.keys != 0 {
		t.Errorf("%v", h)
	}
}
