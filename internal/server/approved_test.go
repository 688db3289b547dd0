package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// What was approved is done, and nothing else: eight things that an agent may try.
func TestNothingElseIsDoneThanWhatWasApproved(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		var sent []string // what the provider was asked
		provider := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			sent = append(sent, string(body))
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"msg_1","content":[]}`)
		}))
		b := start(t, address, map[string]string{
			"tasks.plan_approval": "true", "proxy.anthropic.upstream": provider, "proxy.anthropic.key": "sk-ant-0001",
		})
		b.want(200, request{
			call: "PUT /ops/policy", media: "application/yaml", token: b.token(),
			body: "version: 1\nrules:\n  - {name: ask, on: [action, prompt, signal], then: gate}\n",
		})
		approve := func(gate string) { b.ops(200, "POST /ops/gates/"+gate+"/approve", `{"note":"Yes."}`, nil) }
		// waits is the one gate that is open.
		waits := func() (id, title string) {
			var page struct{ Gates []struct{ ID, Title string } }
			testbed.Until(t, "a gate", func() bool {
				b.ops(200, "GET /ops/gates?status=pending", "", &page)
				return len(page.Gates) == 1
			})
			return page.Gates[0].ID, page.Gates[0].Title
		}
		reject := func() { id, _ := waits(); b.ops(200, "POST /ops/gates/"+id+"/reject", `{"note":"No."}`, nil) }

		t.Run("a task", func(t *testing.T) {
			coordinator, executor := b.agentWith("coordinator", "default"), b.agentWith("executor", "default")
			var other struct{ Keys map[string]string }
			b.ops(201, "POST /ops/agents", `{"name":"second","labels":{"role":"coordinator"}}`, &other)
			var refused struct {
				Gate string `json:"x_gate"`
			}
			answer, _ := b.call(409, "POST /amp/messages", coordinator, taskDispatch)
			if err := json.Unmarshal([]byte(answer), &refused); err != nil || refused.Gate == "" {
				t.Fatal(answer)
			}
			tries := []struct{ name, key, text string }{
				{"description", coordinator, strings.Replace(taskDispatch, "Rework the timer", "Remove the timer", 1)},
				{"repository", coordinator, strings.Replace(taskDispatch, "/srv/repos/app", "/srv/repos/prod", 1)},
				{"criteria", coordinator, strings.Replace(taskDispatch, "All tests pass", "It compiles", 1)},
				{"coordinator", other.Keys["signal"], taskDispatch},
			}
			for _, when := range []string{"before", "after"} {
				for _, try := range tries {
					status, text, _ := b.do(request{call: "POST /amp/messages", token: try.key, body: try.text})
					if status < 400 && !strings.Contains(text, "duplicate") {
						t.Errorf("another %s, %s the approval: %d %s", try.name, when, status, text)
					}
				}
				if when == "before" {
					approve(refused.Gate)
				}
			}
			inbox, _ := b.call(200, "GET /amp/messages?wait=50s", executor, "")
			if strings.Count(inbox, `"type":"task_dispatch"`) != 1 || !strings.Contains(inbox, "Rework the timer") ||
				!strings.Contains(inbox, "/srv/repos/app") || !strings.Contains(inbox, "All tests pass") {
				t.Errorf("the executor has %s", inbox)
			}
			var page struct{ Gates []struct{ ID string } }
			b.ops(200, "GET /ops/gates?status=pending", "", &page)
			for _, g := range page.Gates {
				b.ops(200, "POST /ops/gates/"+g.ID+"/reject", `{"note":"No."}`, nil)
			}
		})

		_, key := b.addAgent("coder")
		t.Run("arguments", func(t *testing.T) {
			step := func(command string) <-chan string {
				answer := make(chan string, 1)
				go func() {
					_, text := b.ahp(key, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"ahp/event","params":{"event_type":`+
						`"pre_action","session_id":"s","agent_id":"a","timestamp":"t","depth":0,"payload":{"tool_name":"bash",`+
						`"arguments":{"command":%q}}}}`, command))
					answer <- text
				}()
				return answer
			}
			asked := step("make test")
			gate, _ := waits()
			approve(gate)
			if text := <-asked; !strings.Contains(text, `"allow"`) {
				t.Fatal(text)
			}
			asked = step("make  test") // another text for a shell
			if gate, title := waits(); title != "bash: make  test" {
				t.Errorf("%s asks about %s", gate, title)
			}
			reject()
			if text := <-asked; strings.Contains(text, `"allow"`) {
				t.Error(text)
			}
		})

		t.Run("artifact", func(t *testing.T) {
			signal := strings.Replace(ampSignal("coder", "run-1"), `"model"`,
				`"artifacts":[{"kind":"draft","title":"A letter","content":"Dear Ann"}],"model"`, 1)
			b.want(202, request{call: "POST /amp/signal", token: key, body: signal})
			gate, _ := waits()
			approve(gate)
			status, text, _ := b.do(request{
				call: "POST /amp/signal", token: key, body: strings.Replace(signal, "Dear Ann", "Dear Bob", 1),
			})
			if strings.Contains(text, `"approved"`) || status == 200 {
				t.Errorf("%d %s", status, text)
			}
			if status == 202 {
				reject()
			}
		})

		t.Run("the asker is gone", func(t *testing.T) {
			ann := b.signedIn(b.token())
			call := request{
				call: "POST /v1/proxy/v1/messages", token: key, body: `{"model":"claude-sonnet-4-6","messages":[]}`,
			}
			gone, leave := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				r, err := http.NewRequestWithContext(
					gone,
					http.MethodPost,
					b.URL+"/v1/proxy/v1/messages",
					strings.NewReader(call.body),
				)
				if err == nil {
					r.Header.Set("Authorization", "Bearer "+key)
					_, err = http.DefaultClient.Do(r) //nolint:bodyclose // it has no answer
				}
				ended <- err
			}()
			gate, _ := waits()
			leave()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			const says = "Nobody waits for it: the agent has gone."
			if page := ann.vote(gate, url.Values{"do": {"approve"}}); !strings.Contains(page, says) {
				t.Errorf("whoever approves is not told: %s", page)
			}
			ann.sees("/ui/inbox/"+gate, says)
			var shown struct{ Unused *struct{ Uses int } }
			b.ops(200, "GET /ops/gates/"+gate, "", &shown)
			if shown.Unused == nil || shown.Unused.Uses != 1 {
				t.Errorf("%+v", shown)
			}
			b.want(200, call) // it comes back
			shown.Unused = nil
			b.ops(200, "GET /ops/gates/"+gate, "", &shown)
			if shown.Unused != nil {
				t.Errorf("%+v", shown.Unused)
			}
			sent = nil
			// Somebody who waits takes it at once.
			waiting := b.later("POST /v1/proxy/v1/messages", key, call.body+" ", "X-Amp-Run", "run-2")
			gate, _ = waits()
			if page := ann.vote(gate, url.Values{"do": {"approve"}}); strings.Contains(page, says) {
				t.Error("the agent is there, and the page says that it has gone")
			}
			if got := <-waiting; got.status != 200 {
				t.Errorf("%+v", got)
			}
			sent = nil
		})

		t.Run("bytes and a second use", func(t *testing.T) {
			call := request{
				call: "POST /v1/proxy/v1/messages", token: key, header: map[string]string{"Prefer": "respond-async"},
				body: `{"model":"claude-sonnet-4-6","max_tokens":5,"messages":[]}`,
			}
			b.want(202, call)
			gate, _ := waits()
			approve(gate)
			b.want(200, call)
			other := call
			other.body += " "
			b.want(202, other)
			reject()
			b.want(202, call)
			reject()
			if len(sent) != 1 || sent[0] != call.body {
				t.Errorf("the provider was sent %q", sent)
			}
		})
	})
}
