package proxy_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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

// generated is a body of so many bytes that nobody holds.
type generated struct {
	left  int64
	begin string // after which there are spaces
	end   string
}

var spaces = strings.Repeat(" ", 64<<10)

func (g *generated) Read(b []byte) (int, error) {
	if g.begin != "" {
		n := copy(b, g.begin)
		g.begin = g.begin[n:]
		g.left -= int64(n)
		return n, nil
	}
	if g.left <= 0 {
		return 0, io.EOF
	}
	from := spaces
	if blank := g.left - int64(len(g.end)); blank > 0 {
		from = from[:min(blank, int64(len(from)))]
	} else {
		from = g.end[-blank:]
	}
	n := copy(b, from)
	g.left -= int64(n)
	return n, nil
}

// A request may be as large as the provider takes it. What nobody judges goes through, and
// is never held.
func TestRequestsMayBeAsLargeAsTheProviderTakesThem(t *testing.T) {
	n := start(t, t.TempDir()+"/a.db") // not beside others: it looks at the memory
	n.apply("  - {name: calls, on: [tool_call], then: gate}\n")
	var got, largest atomic.Int64
	n.provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(0)
		buf := make([]byte, 1<<20)
		for {
			k, err := r.Body.Read(buf)
			if now := got.Add(int64(k)); now>>26 != (now-int64(k))>>26 { // every 64 MB
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				largest.Store(max(largest.Load(), int64(m.HeapAlloc)))
			}
			if err != nil {
				break
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"file_1"}`)
	})
	send := func(path string, size int64, known bool, begin, end string) answer {
		r := n.request("POST", path, "")
		r.Body, r.ContentLength = io.NopCloser(&generated{size, begin, end}), -1
		if known {
			r.ContentLength = size
		}
		return n.do(r)
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, c := range []struct {
		path, begin, end string
		most             int64
	}{
		{"/v1/proxy/v1/files", "", "", 500 << 20},
		{"/v1/proxy/openai/v1/files", "", "", 500 << 20},
		{messagesPath + "/batches", `{"requests":[`, `]}`, 256 << 20},
		{messagesPath + "/count_tokens", `{"model":"m"`, `}`, 32 << 20},
	} {
		size := c.most
		if c.path == "/v1/proxy/openai/v1/files" {
			size = 1 << 20 // once is enough
		}
		if a := send(c.path, size, size == c.most, c.begin, c.end); a.status != 200 || got.Load() != size {
			t.Errorf("%s: %d of %d bytes, %+v", c.path, got.Load(), size, a)
		}
		if a := send(c.path, c.most+1, true, c.begin, c.end); a.err == nil &&
			(a.status != 413 || !strings.Contains(a.body, "request_too_large")) {
			t.Errorf("%s: one more byte: %+v", c.path, a)
		}
	}
	// Without a length it is found out on the way, and the provider never has it whole.
	if a := send(messagesPath+"/count_tokens", 33<<20, false, "", ""); a.err == nil && a.status != 413 ||
		got.Load() > 32<<20 {
		t.Errorf("%d bytes, %+v", got.Load(), a)
	}
	if grown := largest.Load() - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
}

// A batch that rules look at is read before it is sent.
func TestALargeBatchIsJudged(t *testing.T) {
	n := one(t)
	n.apply("  - {name: no-opus, on: [prompt], when: 'event.model == \"opus\"', then: block}\n")
	n.provider.json(`{"id":"batch_1"}`)
	calls := strings.Repeat(`{"custom_id":"a","params":{"model":"sonnet","messages":[{"role":"user","content":"`+
		strings.Repeat("x", 1000)+`"}]}},`, 2000)
	for model, want := range map[string]int{"sonnet": 200, "opus": 403} {
		if got := n.call("POST", messagesPath+"/batches",
			`{"requests":[`+calls+`{"params":{"model":"`+model+`"}}]}`); got.status != want {
			t.Errorf("%s: %d %.200s", model, got.status, got.body)
		}
	}
}

// A provider that says nothing any more is left, and what it has said is no whole reply.
func TestAProviderThatStallsIsLeft(t *testing.T) {
	n := one(t, func(o *proxy.Options) { o.Idle = 150 * time.Millisecond })
	stall := func(status int, media, length string, said ...string) {
		n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
			if media != "" {
				w.Header().Set("Content-Type", media)
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, strings.Join(said, ""))
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		})
	}
	// A machine may be too busy for a provider that has begun to be heard in time; it is asked again.
	begun := func(path, ask string) (got answer) {
		testbed.Until(t, "a provider that is heard in time", func() bool {
			got = n.call("POST", path, ask)
			return !strings.Contains(got.body, "awaiting response headers")
		})
		return got
	}
	for _, rules := range []string{"", gateBash} {
		n.apply(rules)
		for _, c := range formCases {
			stall(0, "", "")
			if got := n.call("POST", c.path, fmt.Sprintf(c.ask, false)); got.status != 502 ||
				!strings.Contains(got.body, "api_error") {
				t.Errorf("%s, no status: %+v", c.name, got)
			}
			stall(200, "application/json", "", c.reply[:40])
			if got := begun(c.path, fmt.Sprintf(c.ask, false)); got.status != 502 ||
				!strings.Contains(got.body, "for too long") {
				t.Errorf("%s, within a reply: %+v", c.name, got)
			}
			stall(200, "text/event-stream", "", c.stream("bash", removeAll)[:4]...)
			got := begun(c.path, fmt.Sprintf(c.ask, true))
			if got.err != nil || endsWell(c.name, got.body) || !strings.Contains(got.body, "for too long") ||
				rules != "" && strings.Contains(got.body, `"bash"`) {
				t.Errorf("%s, within a stream: %+v", c.name, got)
			}
		}
		// What is only carried breaks off as it does at the provider.
		stall(200, "application/json", "1000", `{"data":[`)
		if got := n.call("GET", "/v1/proxy/v1/models", ""); got.err == nil {
			t.Errorf("%+v", got)
		}
	}
	if gates := n.Entries("gate.opened"); len(gates) != 0 {
		t.Errorf("%d gates were opened for calls that are not whole", len(gates))
	}
}

// A provider may begin to answer before it has all of a request.
func TestAReplyMayBeginBeforeTheRequestHasEnded(t *testing.T) {
	n := one(t)
	n.provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.WriteString(w, "begun ")
		_ = http.NewResponseController(w).Flush()
		size, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "%d %v", size, err)
	})
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	r := n.request("POST", "/v1/proxy/v1/files", "").WithContext(ctx)
	body, feed := io.Pipe()
	r.Body, r.ContentLength = body, 2<<20
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	go func() {
		_, _ = io.Copy(feed, &generated{left: 2 << 20})
		_ = feed.Close()
	}()
	if text, err := io.ReadAll(res.Body); err != nil || string(text) != fmt.Sprintf("begun %d <nil>", 2<<20) {
		t.Errorf("%q %v", text, err)
	}
}

// A redirect would take the key, and the call, past us.
func TestARedirectIsNeitherFollowedNorPassedOn(t *testing.T) {
	n := one(t)
	n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			t.Error("the redirect was followed")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	for _, call := range []string{
		"POST " + messagesPath, "POST " + chatPath, "GET /v1/proxy/v1/models",
		"POST " + messagesPath + "/batches",
	} {
		method, path, _ := strings.Cut(call, " ")
		if got := n.call(method, path, `{"model":"m"}`); got.status != 502 || got.header.Get("Location") != "" ||
			!strings.Contains(got.body, "redirect") {
			t.Errorf("%s: %+v", call, got)
		}
	}
}

// A key that was set is used from then on, and one that was removed no more, though the vault is read again and again.
func TestAKeyIsUsedAsSoonAsItIsSet(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		used := make(chan string, 1)
		n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
			used <- r.Header.Get("X-Api-Key")
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, formCases[0].reply)
		})
		var others sync.WaitGroup
		ended := make(chan struct{})
		for range 4 {
			others.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-ended:
						return
					default:
						_ = n.proxy.SetKey(t.Context(), roster.Identity{}, proxy.OpenAI, "", fmt.Sprint("sk-other-", i))
					}
				}
			})
		}
		for i := range 30 {
			key := fmt.Sprint("sk-", i)
			if err := n.proxy.SetKey(t.Context(), roster.Identity{}, proxy.Anthropic, "", key); err != nil {
				t.Fatal(err)
			}
			got := n.call("POST", messagesPath, strings.Replace(fmt.Sprintf(messageAsk, false), "Clean", key, 1))
			if got.status != http.StatusOK {
				t.Fatalf("%s: %+v", key, got)
			}
			if with := <-used; with != key {
				t.Errorf("called with %s after %s was set", with, key)
			}
		}
		close(ended)
		others.Wait()
		n.WantClean()
	})
}
