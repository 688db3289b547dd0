package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/counter"
	"signalbox/internal/gate"
	"signalbox/internal/protocol"
	"signalbox/internal/protocol/protocoltest"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// node is a process that carries calls, with everything it needs, and a provider.
type node struct {
	*protocoltest.Node
	counters *counter.Counters
	proxy    *proxy.Proxy
	web      *httptest.Server
	serving  atomic.Int32 // calls that the proxy has not done with
	provider *provider
	hook     atomic.Pointer[string]
	stop     func()
	agent    roster.Identity
	key      string
	operator roster.Identity
}

// provider stands in for Anthropic and OpenAI: a test says what it answers.
type provider struct {
	*httptest.Server
	mu       sync.Mutex
	answer   http.HandlerFunc
	requests []*http.Request
	bodies   [][]byte
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.requests, p.bodies = append(p.requests, r), append(p.bodies, body)
	answer := p.answer
	p.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer(w, r)
}

func (p *provider) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

func (p *provider) last() (*http.Request, []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[len(p.requests)-1], p.bodies[len(p.bodies)-1]
}

func (p *provider) answers(f http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

// json answers with a body.
func (p *provider) json(body string) {
	p.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req_1")
		_, _ = io.WriteString(w, body)
	})
}

// events answers with a stream, cut into pieces that arrive one after another.
func (p *provider) events(pieces ...string) {
	p.answers(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Request-Id", "req_1")
		body, _ := io.ReadAll(r.Body)
		for _, piece := range asOpenAI(pieces, body) {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// open opens everything over a database.
func open(t testing.TB, address string, options ...func(*proxy.Options)) *node {
	t.Helper()
	n := &node{
		provider: &provider{}, web: httptest.NewUnstartedServer(nil),
	}
	n.Node = protocoltest.New(t, address, protocoltest.On{
		Protocol: proxy.Protocol(), Core: func(c *protocol.Core) { c.BaseURL = "http://" + n.web.Listener.Addr().String() },
	})
	n.provider.Server = httptest.NewServer(n.provider)
	t.Cleanup(n.provider.Close)
	n.counters = n.Counters()
	o := proxy.Options{
		VaultKey:  []byte(strings.Repeat("k", 32)),
		Upstreams: map[string]string{proxy.Anthropic: n.provider.URL, proxy.OpenAI: n.provider.URL},
		Webhook: func(string) (string, int) {
			if hook := n.hook.Load(); hook != nil {
				return *hook, 0
			}
			return "", 0
		},
		// A test that is about the end of waiting says how long that is; others must not come to it, however slow.
		Beat: 20 * time.Millisecond, Attempt: 2 * testbed.Patience, Hold: 2 * testbed.Patience,
	}
	for _, option := range options {
		option(&o)
	}
	var err error
	if n.proxy, err = proxy.New(n.Core, o); err != nil {
		t.Fatal(err)
	}
	n.Start(n.proxy)
	mux := http.NewServeMux()
	for _, route := range n.proxy.Routes() {
		if route.Auth == wire.Public {
			mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
				n.serving.Add(1)
				defer n.serving.Add(-1)
				w.Header().Set("X-Request-Id", "ours")
				if err := route.Handle(w, r); err != nil {
					wire.Fail(w, err)
				}
			})
		}
	}
	n.web.Config.Handler = mux
	n.web.Start()
	n.stop = sync.OnceFunc(func() {
		n.web.CloseClientConnections()
		n.web.Close()
		n.Stop()
	})
	t.Cleanup(n.stop)
	return n
}

// apply puts rules in force.
func (n *node) apply(rules string) {
	n.T.Helper()
	n.Apply("rules:\n" + rules)
}

// start starts a node on an empty database, with an agent and an operator.
func start(t testing.TB, address string, options ...func(*proxy.Options)) *node {
	t.Helper()
	n := open(t, address, options...)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n.agent, n.key = n.AgentWithKey("coder")
	n.operator = n.Operator("ada")
	must(n.proxy.SetKey(t.Context(), roster.Identity{}, proxy.Anthropic, "", theirKey))
	must(n.proxy.SetKey(t.Context(), roster.Identity{}, proxy.OpenAI, "", theirKey))
	n.apply("")
	return n
}

// restart starts a node on the database of another that has stopped.
func restart(t testing.TB, address, key string, operator roster.Identity) *node {
	t.Helper()
	n := open(t, address)
	n.key, n.operator = key, operator
	testbed.Until(t, "the policy", func() bool { return n.Book.InForce() > 1 })
	return n
}

const theirKey = "sk-ant-the-providers-own-key-0001"

// gateBash gates every call of bash.
const gateBash = `  - {name: bash-needs-a-person, on: [tool_call], when: 'event.tool == "bash"', then: gate}
`

// call makes a call and gives back the whole answer.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (n *node) request(method, path, body string, header ...string) *http.Request {
	n.T.Helper()
	r, err := http.NewRequestWithContext(n.T.Context(), method, n.web.URL+path, strings.NewReader(body))
	if err != nil {
		n.T.Fatal(err)
	}
	r.Header.Set("X-Api-Key", n.key)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			r.Header.Del(header[i])
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	return r
}

func (n *node) do(r *http.Request) answer {
	n.T.Helper()
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body), err}
}

func (n *node) call(method, path, body string, header ...string) answer {
	n.T.Helper()
	return n.do(n.request(method, path, body, header...))
}

// begin makes a call in the background.
func (n *node) begin(method, path, body string, header ...string) chan answer {
	n.T.Helper()
	r := n.request(method, path, body, header...)
	done := make(chan answer, 1)
	go func() { done <- n.do(r) }()
	return done
}

// gate waits for the only gate that waits.
func (n *node) gate() gate.Gate {
	n.T.Helper()
	var found gate.Gate
	testbed.Until(n.T, "a gate", func() bool {
		all, _, err := n.Gates.List(context.Background(), gate.Filter{Status: gate.Pending}, nil, 10)
		if err == nil && len(all) > 1 {
			n.T.Fatalf("there are %d gates", len(all))
		}
		if err == nil && len(all) == 1 {
			found = all[0]
		}
		return len(all) == 1
	})
	return found
}

func (n *node) decide(gateID string, approve bool, note string) {
	n.T.Helper()
	if _, err := n.Gates.Vote(context.Background(), n.operator, gateID,
		gate.Ballot{Approve: approve, Note: note}); err != nil {
		n.T.Fatal(err)
	}
}

// The streams of the three forms, with text first and then calls.
func frameOf(event, data string) string {
	if event == "" {
		return "data: " + data + "\n\n"
	}
	return "event: " + event + "\ndata: " + data + "\n\n"
}

func messageStream(tool, arguments string) []string {
	list := []string{
		frameOf(
			"message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",`+
				`"model":"claude-sonnet-4-6","content":[],"stop_reason":null,"usage":{"input_tokens":100,"output_tokens":1}}}`,
		),
		frameOf("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
		frameOf("ping", `{"type": "ping"}`),
		frameOf("content_block_delta",
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I will look."}}`),
		frameOf("content_block_stop", `{"type":"content_block_stop","index":0}`),
		frameOf("content_block_start",
			fmt.Sprintf(
				`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":%q,"input":{}}}`,
				tool,
			)),
		frameOf("content_block_delta",
			`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}`),
	}
	for i := 0; i < len(arguments); i += 7 { // within an escape, too
		piece := arguments[i:min(i+7, len(arguments))]
		list = append(list, frameOf("content_block_delta",
			fmt.Sprintf(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":%s}}`,
				wire.AppendText(nil, piece))))
	}
	return append(list,
		frameOf("content_block_stop", `{"type":"content_block_stop","index":1}`),
		frameOf("message_delta",
			`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":40}}`),
		frameOf("message_stop", `{"type":"message_stop"}`))
}

func chatStream(tool, arguments string) []string {
	chunk := func(rest string) string {
		return frameOf("",
			`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[`+rest+`]}`)
	}
	list := []string{
		chunk(`{"index":0,"delta":{"role":"assistant","content":"I will look."},"finish_reason":null}`),
		chunk(
			fmt.Sprintf(
				`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":%q,`+
					`"arguments":""}}]},"finish_reason":null}`, tool,
			),
		),
	}
	for i := 0; i < len(arguments); i += 7 {
		piece := arguments[i:min(i+7, len(arguments))]
		list = append(
			list, chunk(
				fmt.Sprintf(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":%s}}]},"finish_reason":null}`,
					wire.AppendText(nil, piece)),
			),
		)
	}
	return append(list,
		chunk(`{"index":0,"delta":{},"finish_reason":"tool_calls"}`),
		"data: [DONE]\n\n")
}

// chatUsage is the chunk that comes before the end if usage is asked for.
const chatUsage = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[],` +
	`"usage":{"prompt_tokens":100,"completion_tokens":40,"total_tokens":140,"prompt_tokens_details":{"cached_tokens":60}}}`

// asOpenAI is a stream as OpenAI sends it for a request: usage comes only if it is asked for, and then every other chunk
// has one that is null.
func asOpenAI(pieces []string, body []byte) []string {
	var q struct {
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &q); err != nil || !q.Options.Usage {
		return pieces
	}
	var out []string
	for _, piece := range pieces {
		switch {
		case piece == "data: [DONE]\n\n":
			out = append(out, frameOf("", chatUsage))
		case strings.HasSuffix(piece, "}\n\n"):
			piece = strings.TrimSuffix(piece, "}\n\n") + `,"usage":null}` + "\n\n"
		}
		out = append(out, piece)
	}
	return out
}

func responseStream(tool, arguments string) []string {
	number := -1
	put := func(event, rest string) string {
		number++
		return frameOf(event, fmt.Sprintf(`{"type":%q,"sequence_number":%d,%s}`, event, number, rest))
	}
	message := `{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[` +
		`{"type":"output_text","text":"I will look.","annotations":[]}]}`
	call := fmt.Sprintf(
		`{"id":"fc_1","type":"function_call","call_id":"call_1","name":%q,"arguments":%s,"status":"completed"}`, tool,
		wire.AppendText(nil, arguments),
	)
	list := []string{
		put("response.created",
			`"response":{"id":"resp_1","object":"response","status":"in_progress","model":"gpt-4o","output":[]}`),
		put("response.output_item.added",
			`"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[]}`),
		put("response.content_part.added",
			`"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}`),
		put("response.output_text.delta", `"item_id":"msg_1","output_index":0,"content_index":0,"delta":"I will look."`),
		put("response.output_text.done", `"item_id":"msg_1","output_index":0,"content_index":0,"text":"I will look."`),
		put("response.content_part.done",
			`"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"I will look.",`+
				`"annotations":[]}`),
		put("response.output_item.done", `"output_index":0,"item":`+message),
		put("response.output_item.added",
			fmt.Sprintf(
				`"output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":%q,"arguments":"",`+
					`"status":"in_progress"}`, tool,
			)),
	}
	for i := 0; i < len(arguments); i += 7 {
		piece := arguments[i:min(i+7, len(arguments))]
		list = append(list,
			put("response.function_call_arguments.delta",
				fmt.Sprintf(`"item_id":"fc_1","output_index":1,"delta":%s`, wire.AppendText(nil, piece))))
	}
	return append(list,
		put("response.function_call_arguments.done",
			fmt.Sprintf(`"item_id":"fc_1","output_index":1,"arguments":%s`, wire.AppendText(nil, arguments))),
		put("response.output_item.done", `"output_index":1,"item":`+call),
		put(
			"response.completed", `"response":{"id":"resp_1","object":"response","status":"completed","model":"gpt-4o",`+
				`"output":[`+message+`,`+call+`],"usage":{"input_tokens":100,"output_tokens":40,`+
				`"input_tokens_details":{"cached_tokens":60}}}`,
		))
}

const (
	messagesPath  = "/v1/proxy/v1/messages"
	chatPath      = "/v1/proxy/openai/v1/chat/completions"
	responsesPath = "/v1/proxy/openai/v1/responses"

	messageAsk = `{"model":"claude-sonnet-4-6","max_tokens":100,"stream":%t,"messages":[{"role":"user",` +
		`"content":"Clean up"}]}`
	chatAsk     = `{"model":"gpt-4o","stream":%t,"messages":[{"role":"user","content":"Clean up"}]}`
	responseAsk = `{"model":"gpt-4o","stream":%t,"store":false,"input":"Clean up"}`

	removeAll = `{"command":"rm -r \"b\u00fcild\"\\old"}`
)

// formCase is one of the three forms.
type formCase struct {
	name, path, ask string
	stream          func(tool, arguments string) []string
	reply           string // that is no stream
}

var formCases = []formCase{
	{
		"messages", messagesPath, messageAsk, messageStream,
		`{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-6","content":[{"type":"text",` +
			`"text":"I will look."},{"type":"tool_use","id":"toolu_1","name":"bash","input":{"command":"rm -r build"}}],` +
			`"stop_reason":"tool_use","usage":{"input_tokens":100,"output_tokens":40}}`,
	},
	{
		"chat", chatPath, chatAsk, chatStream, `{"id":"chatcmpl-1","object":"chat.completion","created":1,` +
			`"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[` +
			`{"id":"call_1","type":"function","function":{"name":"bash","arguments":"{\"command\":\"rm -r build\"}"}}]},` +
			`"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":100,"completion_tokens":40}}`,
	},
	{
		"responses", responsesPath, responseAsk, responseStream,
		`{"id":"resp_1","object":"response","status":"completed","model":"gpt-4o","output":[{"id":"fc_1",` +
			`"type":"function_call","call_id":"call_1","name":"bash","arguments":"{\"command\":\"rm -r build\"}",` +
			`"status":"completed"}],"usage":{"input_tokens":100,"output_tokens":40}}`,
	},
}

// each runs a test on a node over every database.
func each(t *testing.T, fn func(t *testing.T, n *node)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) { fn(t, start(t, address)) })
}

// one runs a test on a node over SQLite, where the database does not matter.
func one(t *testing.T, options ...func(*proxy.Options)) *node {
	t.Helper()
	t.Parallel()
	return start(t, storetest.SQLite(t), options...)
}

// silent is a node over SQLite that sends nothing while a call waits.
func silent(t *testing.T) *node {
	t.Helper()
	return one(t, func(o *proxy.Options) { o.Beat = time.Minute })
}
