package server_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// TestAModelCallMeetsAGateOnTheRealServer goes the whole way: the provider's key from the
// file into the vault, a call that is held, an operator who approves over the API, the agent
// that may look at its gate, and the counters.
func TestAModelCallMeetsAGateOnTheRealServer(t *testing.T) {
	const reply = `{"id":"msg_1","type":"message","model":"claude-sonnet-4-6","content":[{"type":"tool_use","id":"t1",` +
		`"name":"bash","input":{"command":"make deploy"}}],"usage":{"input_tokens":1000,"output_tokens":100}}`
	storetest.Each(t, func(t *testing.T, address string) {
		var asked atomic.Int64
		provider := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if r.Header.Get("Authorization") != "Bearer sk-from-the-file" || r.URL.Path != "/v1/messages" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, reply)
		}))
		data := t.TempDir()
		file := filepath.Join(data, server.ConfigFile)
		testbed.Write(t, file, "proxy:\n  anthropic:\n    key: sk-from-the-file\n    upstream: "+provider+"\n")
		b := start(t, address, map[string]string{"data": data})
		if text := string(testbed.Read(t, file)); strings.Contains(text, "sk-from") || !strings.Contains(text, provider) {
			t.Error(text)
		}
		var keys struct {
			Keys []struct {
				Provider, Hint string
				Readable       bool
			}
		}
		b.ops(200, "GET /ops/proxy/keys", "", &keys)
		if len(keys.Keys) != 1 || !keys.Keys[0].Readable || keys.Keys[0].Hint != "…file" {
			t.Errorf("%+v", keys)
		}
		status, answer, _ := b.do(request{
			call: "PUT /ops/policy", media: "application/yaml", token: b.token(),
			body: "version: 1\nrules:\n  - {name: shell, on: [tool_call], when: " +
				"'event.command.contains(\"deploy\")', then: gate}\n",
		})
		if status != 200 {
			t.Fatal(answer)
		}
		var agent struct{ Keys struct{ Signal string } }
		b.ops(201, "POST /ops/agents", `{"name":"coder"}`, &agent)
		call := request{
			call: "POST /v1/proxy/v1/messages?beta=true", token: agent.Keys.Signal,
			body: `{"model":"claude-sonnet-4-6","max_tokens":5,"messages":[]}`,
		}
		type result struct {
			status int
			answer string
		}
		done := make(chan result, 1)
		go func() {
			status, answer, _ := b.do(call)
			done <- result{status, answer}
		}()
		var page struct{ Gates []struct{ ID, Title string } }
		testbed.Until(t, "the gate", func() bool {
			b.ops(200, "GET /ops/gates?status=pending", "", &page)
			return len(page.Gates) > 0
		})
		if len(page.Gates) != 1 || page.Gates[0].Title != "bash: make deploy" {
			t.Fatalf("%+v", page)
		}
		gate := page.Gates[0].ID
		if status, answer, _ := b.do(request{call: "GET /amp/gates/" + gate, token: agent.Keys.Signal}); status != 202 ||
			!strings.Contains(answer, "pending") {
			t.Errorf("%d %s", status, answer)
		}
		b.ops(200, "POST /ops/gates/"+gate+"/approve", `{"note":"Go."}`, nil)
		if got := <-done; got.status != 200 || got.answer != reply {
			t.Errorf("%+v", got)
		}
		call.header = map[string]string{"X-Stainless-Retry-Count": "1"} // its SDK has given up just then
		if status, answer, _ := b.do(call); status != 200 || answer != reply || asked.Load() != 1 {
			t.Errorf("%d %s, asked %d times", status, answer, asked.Load())
		}
		var counters struct {
			Total struct {
				InputTokens int64   `json:"input_tokens"`
				CostUSD     float64 `json:"cost_usd"`
			}
		}
		testbed.Until(t, "the counting", func() bool {
			b.ops(200, "GET /ops/counters", "", &counters)
			return counters.Total.InputTokens > 0
		})
		if counters.Total.InputTokens != 1000 || counters.Total.CostUSD != 0.0045 {
			t.Errorf("%+v", counters)
		}
	})
}
