package proxy_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/internal/proxy"
	"signalbox/internal/roster"
	"signalbox/internal/testbed"
)

// Every call of the providers that is carried, and which of them are asked about: counting
// never, a batch when it is made.
func TestEveryCallIsCarriedToItsPlace(t *testing.T) {
	n := one(t)
	n.apply("  - {name: all, on: [prompt, tool_call], then: block, reason: Nothing.}\n")
	n.provider.json(`{"id":"x","content":[],"choices":[],"output":[]}`)
	for _, c := range []struct {
		call    string
		blocked bool
	}{
		{"POST /v1/messages?beta=true", true},
		{"POST /v1/messages/count_tokens", false},
		{"POST /v1/messages/batches", true},
		{"GET /v1/messages/batches?limit=5", false},
		{"GET /v1/messages/batches/b", false},
		{"POST /v1/messages/batches/b/cancel", false},
		{"GET /v1/messages/batches/b/results", false},
		{"DELETE /v1/messages/batches/b", false},
		{"GET /v1/models", false},
		{"GET /v1/models/claude-sonnet-4-6", false},
		{"POST /v1/files", false},
		{"GET /v1/files/f/content", false},
		{"DELETE /v1/files/f", false},
		{"GET /v1/skills", false},
		{"POST /openai/v1/chat/completions", true},
		{"GET /openai/v1/chat/completions/c", false},
		{"POST /openai/v1/responses", true},
		{"GET /openai/v1/responses/r", false},
		{"POST /openai/v1/responses/r/cancel", false},
		{"DELETE /openai/v1/responses/r", false},
		{"GET /openai/v1/models", false},
		{"POST /openai/v1/embeddings", true},
		{"POST /openai/v1/moderations", false},
		{"POST /openai/v1/batches", true},
		{"GET /openai/v1/batches", false},
		{"GET /openai/v1/batches/b", false},
		{"POST /openai/v1/batches/b/cancel", false},
		{"POST /openai/v1/files", false},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		before := n.provider.calls()
		got := n.call(method, "/v1/proxy"+path, `{"model":"m"}`)
		if c.blocked {
			if got.status != 403 || n.provider.calls() != before {
				t.Errorf("%s: %+v", c.call, got)
			}
			continue
		}
		if got.status != 200 || n.provider.calls() != before+1 {
			t.Errorf("%s: %+v", c.call, got)
			continue
		}
		if r, _ := n.provider.last(); r.Method != method || r.URL.RequestURI() != strings.TrimPrefix(path, "/openai") {
			t.Errorf("%s arrives as %s %s", c.call, r.Method, r.URL.RequestURI())
		}
	}
}

// A provider that would compress what it answers is asked not to, where a link in it has to
// be changed; the results themselves are given as they are.
func TestTheLinkOfABatchIsOursHoweverItIsAskedFor(t *testing.T) {
	n := one(t)
	const link = `{"results_url":"https://api.anthropic.com/v1/messages/batches/b/results"}`
	n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/results") {
			w.Header().Set("Content-Type", "application/x-jsonl")
		}
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			_, _ = io.WriteString(w, link)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, link)
		_ = z.Close()
	})
	for _, call := range []string{"POST /batches", "GET /batches", "GET /batches/b", "POST /batches/b/cancel"} {
		method, path, _ := strings.Cut(call, " ")
		if got := n.call(method, messagesPath+path, `{"requests":[]}`, "Accept-Encoding",
			"gzip, br"); !strings.Contains(got.body, n.web.URL) || strings.Contains(got.body, "anthropic.com") {
			t.Errorf("%s: %+v", call, got)
		}
	}
	if got := n.call("GET", messagesPath+"/batches/b/results", "", "Accept-Encoding", "identity"); got.body != link {
		t.Errorf("%+v", got)
	}
}

// What a provider adds to its streams is passed as it comes, whatever it is.
func TestEventsThatNobodyKnowsArePassed(t *testing.T) {
	n := one(t, func(o *proxy.Options) { o.Beat = time.Minute })
	n.apply(gateBash)
	for _, c := range formCases {
		pieces := c.stream("read", `{"path":"a"}`)
		odd := []string{
			": a comment\n\n",
			"event: from_the_future\r\ndata: {\"type\":\"from_the_future\",\r\ndata: \"x\": [1, 2.50]}\r\n\r\n",
			"id: 7\nretry: 10\n\n",
		}
		all := strings.Join(pieces[:1], "") + strings.Join(odd, "") + strings.Join(pieces[1:], "")
		n.provider.events(all)
		if got := n.call("POST", c.path, fmt.Sprintf(c.ask, true)); got.body != all || got.err != nil {
			t.Errorf("%s: %v\n%q", c.name, got.err, got.body)
		}
	}
}

// A message of ours has an id of ours, so that a conversation that the provider keeps cannot
// go on from what it never said; a stream that has shown the provider's id ends with an error.
func TestWhatWeSayHasAnIDOfItsOwn(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	a, err := n.Roster.Agent(t.Context(), "default", "coder")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.proxy.Configure(t.Context(), roster.Identity{}, a, proxy.NewSettings{SoftReject: true}); err != nil {
		t.Fatal(err)
	}
	for _, c := range formCases {
		n.provider.json(c.reply)
		waiting := n.begin("POST", c.path, fmt.Sprintf(c.ask, false))
		n.decide(n.gate().ID, false, "No.")
		var said struct{ ID string }
		if got := <-waiting; json.Unmarshal([]byte(got.body), &said) != nil || !strings.Contains(said.ID, "_sbx") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	for _, c := range []struct{ path, ask string }{
		{messagesPath, `{"model":"m","stream":true,"thread":{"type":"create"},"messages":[]}`},
		{responsesPath, `{"model":"m","stream":true,"input":"x"}`}, // kept unless it says otherwise
	} {
		n.provider.events(messageStream("bash", removeAll)...)
		if c.path == responsesPath {
			n.provider.events(responseStream("bash", removeAll)...)
		}
		waiting := n.begin("POST", c.path, c.ask)
		n.decide(n.gate().ID, false, "No.")
		if got := <-waiting; !strings.Contains(got.body, "permission_error") || strings.Contains(got.body, "_sbx") ||
			strings.Contains(got.body, `"bash"`) {
			t.Errorf("%s: %+v", c.path, got)
		}
	}
}

// What rules see of a request, in each of the forms.
func TestRulesSeeWhatIsAsked(t *testing.T) {
	n := one(t)
	n.provider.json(`{"id":"x","content":[],"choices":[],"output":[]}`)
	for _, c := range []struct{ path, ask, when string }{
		{
			messagesPath, `{"max_tokens":50}`,
			`event.max_tokens == 50 && event.kind == "messages" && event.provider == "anthropic" && event.protocol == "proxy"`,
		},
		{
			chatPath, `{"max_completion_tokens":50,"model":"gpt"}`,
			`event.max_tokens == 50 && event.model == "gpt" && event.provider == "openai"`,
		},
		{responsesPath, `{"max_output_tokens":50}`, `event.max_tokens == 50 && event.kind == "responses"`},
		{
			messagesPath, `{"tools":[{"type":"web_search_20250305","name":"web_search"}]}`,
			`"web_search_20250305" in event.tools && "web_search" in event.tools`,
		},
		{
			messagesPath, `{"mcp_servers":[{"name":"n","url":"https://u.example"}]}`,
			`"mcp:n" in event.tools && "mcp:https://u.example" in event.tools`,
		},
		{
			chatPath, `{"tools":[{"type":"function","function":{"name":"f"}}],"functions":[{"name":"g"}]}`,
			`event.tools == ["f", "g"]`,
		},
		{
			responsesPath, `{"tools":[{"type":"mcp","server_label":"l","server_url":"u"},{"type":"code_interpreter"}]}`,
			`event.tools.exists(t, t == "mcp:l") && "code_interpreter" in event.tools`,
		},
		{
			messagesPath, `{"system":"be kind","messages":[{"role":"user","content":[{"type":"text","text":"wipe it"}]}]}`,
			`event.text.contains("wipe") && event.text.contains("kind")`,
		},
		{
			responsesPath, `{"instructions":"be kind","input":"wipe it"}`,
			`event.text.contains("wipe") && event.text.contains("kind")`,
		},
		{messagesPath, `{"metadata":{"user_id":"u"}}`, `event.payload.metadata.user_id == "u"`},
		{messagesPath, `{"thread":{"type":"continue","previous_message_id":"msg_9"}}`, `event.thread == "msg_9"`},
	} {
		n.apply("  - {name: seen, on: [prompt], when: '" + c.when + "', then: block, reason: Seen.}\n")
		if got := n.call("POST", c.path, c.ask); got.status != 403 || !strings.Contains(got.body, "Seen.") {
			t.Errorf("%s %s: %+v", c.when, c.ask, got)
		}
		if got := n.call("POST", c.path, `{"model":"other"}`); got.status != 200 {
			t.Errorf("%s: %+v", c.when, got)
		}
	}
}

// A suspended agent carries nothing, not even what nobody judges.
func TestASuspendedAgentIsRefusedEverywhere(t *testing.T) {
	n := one(t)
	n.provider.json(`{}`)
	if _, err := n.Roster.Suspend(t.Context(), roster.Identity{Role: roster.Admin}, "default", "coder", "",
		time.Time{}); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "the suspension", func() bool { return n.call("GET", "/v1/proxy/v1/models", "").status == 403 })
	before := n.provider.calls()
	for _, call := range []string{
		"POST " + messagesPath, "GET " + responsesPath + "/r",
		"POST " + messagesPath + "/batches", "POST " + messagesPath + "/count_tokens",
	} {
		method, path, _ := strings.Cut(call, " ")
		if got := n.call(method, path, `{"model":"m"}`); got.status != 403 || n.provider.calls() != before {
			t.Errorf("%s: %+v", call, got)
		}
	}
}
