package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"signalbox/internal/server"
	"signalbox/internal/testbed"
)

// ahp sends one message of AHP with a key, and returns the status and the answer.
func (b *box) ahp(key, text string) (int, string) {
	b.t.Helper()
	var header map[string]string
	if key != "" {
		header = map[string]string{"X-API-Key": key}
	}
	status, answer, _ := b.do(request{call: "POST /ahp", body: text, header: header})
	return status, answer
}

const toldText = `{"jsonrpc":"2.0","method":"ahp/event","params":{"event_type":"session_start","session_id":%q,` +
	`"agent_id":"a","timestamp":"t","depth":0,"payload":{}}}`

// session has an agent begin a session, and waits until it shows.
func (b *box) session(key, name string) {
	b.t.Helper()
	if status, text := b.ahp(key, fmt.Sprintf(toldText, name)); status != http.StatusNoContent {
		b.t.Fatalf("%d %s", status, text)
	}
	testbed.Until(b.t, "the session to show", func() bool {
		type session struct{ ID string }
		var page struct{ Sessions []session }
		b.ops(200, "GET /ops/sessions", "", &page)
		return slices.Contains(page.Sessions, session{name})
	})
}

func TestAHPOverHTTPAnswersWithTheRightStatus(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var added struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"coder"}`, &added)
		key := added.Keys["mail"] // any key of an agent will do
		ask := `{"jsonrpc":"2.0","id":1,"method":"ahp/event","params":{"event_type":"pre_action","session_id":"s",` +
			`"agent_id":"a","timestamp":"t","depth":0,"payload":{}}}`
		for _, c := range []struct {
			key, text string
			status    int
			contains  string
		}{
			{key, ask, 200, `"id":1,"result":{"decision":"allow"}`},
			{"", ask, 401, "-32004"},
			{"rs-amp-wrong", ask, 401, "-32004"},
			{b.token(), ask, 401, "-32004"}, // an operator is no agent
			{key, "nonsense", 400, "-32700"},
			{key, "[]", 200, "-32600"},
			{key, fmt.Sprintf(toldText, "s"), 204, ""},
			{
				key, strings.Replace(fmt.Sprintf(toldText, "s"), `"depth":0`, `"depth":99`, 1), 200,
				`"id":null,"error":{"code":-32603`,
			},
			{key, strings.Repeat("x", 3<<20), 413, ""},
		} {
			status, text := b.ahp(c.key, c.text)
			if status != c.status || !strings.Contains(text, c.contains) {
				t.Errorf("%.60s: %d %.200s", c.text, status, text)
			}
		}
		for _, method := range []string{"PUT", "DELETE"} {
			if status, _, header := b.do(request{call: method + " /ahp"}); status != 405 ||
				!strings.Contains(header.Get("Allow"), "POST") {
				t.Errorf("%s: %d", method, status)
			}
		}
	})
}

// A key that is revoked is of no use to a connection that is open, and a page of another
// site cannot open one.
func TestAWebSocketIsWorthAsMuchAsItsKey(t *testing.T) {
	b := start(t, "", nil)
	var added struct{ Keys map[string]string }
	b.ops(201, "POST /ops/agents", `{"name":"coder"}`, &added)
	target := strings.Replace(b.url, "http", "ws", 1) + "/ahp?token=" + added.Keys["signal"]
	conn, _, err := websocket.Dial(t.Context(), target, nil) //nolint:bodyclose // the connection is the body
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	ask := func(text string) string {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, answer, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	greet := `{"jsonrpc":"2.0","id":"h","method":"ahp/handshake","params":{"protocol_version":"2.4",` +
		`"agent_info":{"framework":"t","version":"0","capabilities":[]},"session_id":"s","agent_id":"a"}}`
	if got := ask(greet); !strings.Contains(got, `"harness_info"`) {
		t.Error(got)
	}
	var agent struct{ Online bool }
	b.ops(200, "GET /ops/agents/coder", "", &agent)
	if !agent.Online {
		t.Error("an agent that is connected is not online")
	}
	b.ops(204, "DELETE /ops/agents/coder", "", nil)
	if got := ask(greet); !strings.Contains(got, "-32004") {
		t.Error(got)
	}
	_, res, err := websocket.Dial(t.Context(), target, //nolint:bodyclose // closed
		&websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://evil.example"}}})
	if err == nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v", err)
	}
	b.ops(201, "POST /ops/agents", `{"name":"coder-2"}`, &added)
	target = strings.Replace(b.url, "http", "ws", 1) + "/ahp?token=" + added.Keys["signal"]
	_, res, err = websocket.Dial(t.Context(), target, //nolint:bodyclose // closed
		&websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://evil.example"}}})
	if err == nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("%v", err)
	}
}

// The dialect is a matter of the listener.
func TestAListenerMaySpeakTheDialectOfA3SCode(t *testing.T) {
	b := start(t, "", map[string]string{"harness.compat": "http"})
	var added struct{ Keys map[string]string }
	b.ops(201, "POST /ops/agents", `{"name":"coder"}`, &added)
	for text, want := range map[string]string{
		"[]": `"id":""`,
		`{"jsonrpc":"2.0","id":"r","method":"ahp/event","params":{"event_type":"reasoning","session_id":"s",` +
			`"agent_id":"a","timestamp":"t","depth":0,"payload":{"reasoning_type":"ChainOfThought",` +
			`"problem_statement":"p"}}}`: `"decision":"allow"`,
	} {
		if status, got := b.ahp(added.Keys["signal"], text); status != 200 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", text, status, got)
		}
	}
	if status, got := b.ahp(added.Keys["signal"], fmt.Sprintf(toldText, "s")); status != 204 || got != "" {
		t.Errorf("%d %s", status, got)
	}
}

// Too much is 429, with a decision to ask later where there is one.
func TestAHPOverHTTPKeepsTheLimitOfAnAgent(t *testing.T) {
	b := start(t, "", map[string]string{"limits.per_agent": "2"})
	var added struct{ Keys map[string]string }
	b.ops(201, "POST /ops/agents", `{"name":"coder"}`, &added)
	query := `{"jsonrpc":"2.0","id":1,"method":"ahp/query","params":{"session_id":"s","agent_id":"a","query_type":"x",` +
		`"payload":{}}}`
	for i, want := range []int{200, 200, 429} {
		if status, text := b.ahp(added.Keys["signal"], query); status != want {
			t.Errorf("call %d: %d %s", i+1, status, text)
		}
	}
}

func TestTheSettingsOfTheHarness(t *testing.T) {
	for key, values := range map[string]struct{ good, bad []string }{
		"harness.timeout":        {[]string{"5s", "1m"}, []string{"", "0s", "1h", "x"}},
		"harness.batch_size":     {[]string{"1", "1000"}, []string{"0", "-1", "x"}},
		"harness.max_depth":      {[]string{"3"}, []string{"0", "1.5"}},
		"harness.on_failure":     {[]string{"block", "error"}, []string{"allow"}},
		"harness.http_handshake": {[]string{"off", "credential", "session"}, []string{"yes"}},
		"harness.compat":         {[]string{"", "socket", "http,websocket"}, []string{"stdio"}},
		"harness.handlers": {
			[]string{"", "idle=https://x.example/ahp"},
			[]string{"idle", "post_action=https://x.example", "idle=ftp://x"},
		},
	} {
		for _, v := range values.good {
			c, err := server.Load(map[string]string{key: v}, nil, "")
			if err != nil {
				t.Errorf("%s=%s: %v", key, v, err)
			} else if got := c.Value(key); got != v && key != "harness.timeout" {
				t.Errorf("%s=%s comes out as %s", key, v, got)
			}
		}
		for _, v := range values.bad {
			if _, err := server.Load(map[string]string{key: v}, nil, ""); err == nil {
				t.Errorf("%s=%s is taken", key, v)
			}
		}
	}
}
