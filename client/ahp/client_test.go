package ahp_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/client/ahp"
	"signalbox/internal/server/servertest"
	"signalbox/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const goodHandshake = `{"jsonrpc":"2.0","id":"<id>","result":{"protocol_version":"2.4","harness_info":{"name":"n",` +
	`"version":"v","capabilities":[]}}}`

var act = ahp.Event{Type: ahp.PreAction, Payload: map[string]any{"tool_name": "ls"}}

// says is a harness that shakes hands and then answers everything with the text, in which
// <id> stands for the request's. "" hangs up. One that leaves hangs up after its first answer,
// on a stream.
type says struct {
	text, handshake string
	leaves          bool
	calls           atomic.Int64
}

// reply is what is said to a message, nil for a notification.
func (s *says) reply(message []byte) []byte {
	var in struct {
		ID     *string
		Method string
	}
	if json.Unmarshal(message, &in) != nil || in.ID == nil {
		return nil
	}
	s.calls.Add(1)
	text := s.text
	if in.Method == "ahp/handshake" {
		text = s.handshake
	}
	return []byte(strings.ReplaceAll(text, "<id>", *in.ID))
}

// onStream serves it on a Unix socket.
func (s *says) onStream(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(conn)
			for {
				line, err := in.ReadBytes('\n')
				if err != nil {
					break
				}
				if text := s.reply(line); len(text) > 0 {
					_, _ = conn.Write(append(text, '\n'))
				} else if text != nil {
					break
				}
				if s.leaves && s.calls.Load() > 1 {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	return "unix:" + path
}

// onHTTP serves it as POSTs.
func (s *says) onHTTP(t *testing.T) string {
	t.Helper()
	return testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text := s.reply(body)
		if text == nil {
			w.WriteHeader(http.StatusInternalServerError) // to a notification
			return
		}
		if len(text) == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("broken inside"))
			return
		}
		_, _ = w.Write(text)
	}))
}

func open(t *testing.T, target string, timeout time.Duration) *ahp.Client {
	t.Helper()
	c, err := ahp.Dial(t.Context(), target, ahp.WithTimeout(timeout), ahp.WithKey("secret-key"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The cases of the contract about clients: what the other side answers, and what is made
// of it.
func TestNothingButADecisionIsADecision(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"jsonrpc not 2.0":      {`{"jsonrpc":"1.0","id":"<id>","result":{"decision":"allow"}}`, "2.0"},
		"id mismatch":          {`{"jsonrpc":"2.0","id":"other","result":{"decision":"allow"}}`, "another request|no answer"},
		"error object":         {`{"jsonrpc":"2.0","id":"<id>","error":{"code":-32603,"message":"m"}}`, "m (-32603)"},
		"result null":          {`{"jsonrpc":"2.0","id":"<id>","result":null}`, "no result"},
		"result missing":       {`{"jsonrpc":"2.0","id":"<id>"}`, "no result"},
		"unknown decision":     {`{"jsonrpc":"2.0","id":"<id>","result":{"decision":"maybe"}}`, "maybe"},
		"decision tag missing": {`{"jsonrpc":"2.0","id":"<id>","result":{"action":"continue"}}`, "no decision"},
		"upper case":           {`{"jsonrpc":"2.0","id":"<id>","result":{"decision":"Allow"}}`, "Allow"},
		"two decisions": {
			`{"jsonrpc":"2.0","id":"<id>","result":{"decision":"block","decision":"allow","reason":"r"}}`, "twice",
		},
		"defer with float": {
			`{"jsonrpc":"2.0","id":"<id>","result":{"decision":"defer","retry_after_ms":1300.5}}`,
			"retry_after_ms",
		},
		"block without reason": {`{"jsonrpc":"2.0","id":"<id>","result":{"decision":"block"}}`, "reason"},
		"metadata no object":   {`{"jsonrpc":"2.0","id":"<id>","result":{"decision":"allow","metadata":[]}}`, "metadata"},
		"not JSON":             {`yes`, "cannot be read|no answer"},
		"hang up or 500":       {``, "ended|500"},
	} {
		for transport, serve := range map[string]func(*says, *testing.T) string{
			"stream": (*says).onStream,
			"http":   (*says).onHTTP,
		} {
			t.Run(name+" "+transport, func(t *testing.T) {
				s := &says{text: c.text, handshake: goodHandshake}
				client := open(t, serve(s, t), 300*time.Millisecond)
				if _, err := client.Handshake(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, typ := range []ahp.Type{ahp.PreAction, ahp.PrePrompt, ahp.Confirmation} {
					d, err := client.Decide(t.Context(), ahp.Event{Type: typ, Payload: map[string]any{}})
					if err == nil || d.Allowed() || d.Metadata["fail_closed"] != true {
						t.Fatalf("%s: %+v %v", typ, d, err)
					}
					if typ == ahp.PreAction {
						first, second, _ := strings.Cut(c.want, "|")
						if !strings.Contains(err.Error(), first) && (second == "" || !strings.Contains(err.Error(), second)) {
							t.Errorf("%v, want %s", err, c.want)
						}
					}
					if name == "id mismatch" || name == "not JSON" {
						break // each of these takes the whole time
					}
				}
			})
		}
	}
}

func TestExtraMembersArePassedOver(t *testing.T) {
	s := &says{
		text:      `{"jsonrpc":"2.0","id":"<id>","result":{"decision":"allow","action":"continue","decision_effects":{}}}`,
		handshake: goodHandshake,
	}
	c := open(t, s.onHTTP(t), 5*time.Second)
	if _, err := c.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Decide(t.Context(), act); err != nil || !d.Allowed() {
		t.Errorf("%+v %v", d, err)
	}
	// A notification's answer is not looked at.
	if err := c.Tell(t.Context(), ahp.Event{Type: ahp.PostAction, Payload: nil}); err != nil {
		t.Error(err)
	}
}

func TestABatchHasAsManyDecisionsAsEvents(t *testing.T) {
	s := &says{text: `{"jsonrpc":"2.0","id":"<id>","result":{"decisions":[]}}`, handshake: goodHandshake}
	c := open(t, s.onHTTP(t), 5*time.Second)
	if _, err := c.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := c.Batch(t.Context(), []ahp.Event{act}); err == nil || all[0].Allowed() {
		t.Errorf("%+v %v", all, err)
	}
	before := s.calls.Load()
	if _, err := c.Batch(t.Context(), []ahp.Event{{Type: ahp.Planning}}); err == nil || s.calls.Load() != before {
		t.Errorf("a typed event was sent in a batch: %v", err)
	}
}

func TestBeforeAHandshakeNothingIsSent(t *testing.T) {
	s := &says{
		text: `{}`,
		handshake: `{"jsonrpc":"2.0","id":"<id>","result":{"protocol_version":"2.4","harness_info":{"name":"n",` +
			`"version":"v"}}}`,
	}
	c := open(t, s.onHTTP(t), 5*time.Second)
	if d, err := c.Decide(t.Context(), act); err == nil || d.Allowed() || s.calls.Load() != 0 {
		t.Errorf("%+v %v", d, err)
	}
	if err := c.Tell(t.Context(), ahp.Event{Type: ahp.PostAction}); err == nil {
		t.Error("told")
	}
	// A handshake that cannot be read opens nothing.
	if _, err := c.Handshake(t.Context()); err == nil || !strings.Contains(err.Error(), "capabilities") {
		t.Error(err)
	}
	if _, err := c.Query(t.Context(), "q", nil); err == nil || s.calls.Load() != 1 {
		t.Error(err)
	}
	s.handshake = strings.Replace(goodHandshake, `"2.4"`, `"2.0"`, 1) // another minor is fine
	if h, err := c.Handshake(t.Context()); err != nil || h.Version != "2.0" {
		t.Errorf("%+v %v", h, err)
	}
}

// A stream that ends fails what waits at once, and not at the timeout.
func TestAnEndOfTheStreamIsNoticedAtOnce(t *testing.T) {
	s := &says{text: "", handshake: goodHandshake}
	c := open(t, s.onStream(t), time.Hour)
	if _, err := c.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := testbed.Context(t)
	for range 2 {
		if d, err := c.Decide(ctx, act); err == nil || d.Allowed() {
			t.Errorf("%+v %v", d, err)
		}
	}
	if ctx.Err() != nil {
		t.Error("it was not noticed")
	}
}

func TestPrintingAClientDoesNotPrintItsKey(t *testing.T) {
	c := open(t, "http://127.0.0.1:1/ahp", time.Second)
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "secret-key") {
		t.Error(text)
	}
	if _, err := ahp.Dial(t.Context(), "ws://127.0.0.1:1/ahp", ahp.WithKey("secret-key")); err == nil ||
		strings.Contains(err.Error(), "secret-key") {
		t.Error(err)
	}
	for _, target := range []string{"", "ftp://x", "http://", "ws:/x"} {
		if _, err := ahp.Dial(t.Context(), target); err == nil {
			t.Errorf("%q is taken", target)
		}
	}
}

// The real server, on every transport of its own.
func TestTheClientAndTheServer(t *testing.T) {
	s := servertest.Start(t, nil)
	key := s.Agent("coder")["signal"]
	for _, target := range []string{
		s.URL + "/ahp", strings.Replace(s.URL, "http", "ws", 1) + "/ahp",
		"unix:" + filepath.Join(s.Config.Data, "ahp.sock"),
	} {
		c, err := ahp.Dial(t.Context(), target, ahp.WithKey(key))
		if err != nil {
			t.Fatal(err)
		}
		if h, err := c.Handshake(t.Context(), "pre_action"); err != nil || h.Name != "signalbox" ||
			h.Timeout != 10*time.Second {
			t.Fatalf("%+v %v", h, err)
		}
		if d, err := c.Decide(t.Context(), act); err != nil || d.Word != "allow" {
			t.Errorf("%+v %v", d, err)
		}
		root := ahp.Event{
			Type:    ahp.PreAction,
			Payload: map[string]any{"tool_name": "bash", "arguments": map[string]any{"command": "rm -rf /"}},
		}
		if all, err := c.Batch(t.Context(), []ahp.Event{act, root}); err != nil || all[0].Word != "allow" ||
			all[1].Word != "block" {
			t.Errorf("%+v %v", all, err)
		}
		var facts struct {
			Facts []any `json:"injected_facts"`
		}
		recall := ahp.Event{
			Type: ahp.MemoryRecall,
			Payload: map[string]any{
				"session_id": "s", "query": "q", "memory_type": "x", "max_results": 3,
				"working_directory": "/",
			},
		}
		if d, err := c.Decide(t.Context(), recall); err != nil || d.Decode(&facts) != nil || facts.Facts == nil {
			t.Errorf("%+v %v", d, err)
		}
		if a, err := c.Query(t.Context(), "should_i_proceed", map[string]any{}); err != nil || string(a.Answer) != `"yes"` {
			t.Errorf("%s %v", a.Answer, err)
		}
		if err := c.Tell(t.Context(), ahp.Event{Type: ahp.Heartbeat, Payload: map[string]any{}}); err != nil {
			t.Error(err)
		}
		if err := c.Tell(t.Context(), act); err == nil {
			t.Error("an action is told and not asked for")
		}
		if _, err := c.Decide(t.Context(), ahp.Event{Type: ahp.Heartbeat}); err == nil {
			t.Error("a heartbeat is decided about")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if d, err := c.Decide(t.Context(), act); strings.HasPrefix(target, "http") == (err != nil) ||
			err != nil && d.Allowed() {
			t.Errorf("after Close: %+v %v", d, err)
		}
		_ = c.Close()
	}
	wrong, err := ahp.Dial(t.Context(), s.URL+"/ahp", ahp.WithKey("wrong"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = wrong.Close() }()
	_, err = wrong.Handshake(t.Context())
	if protocol, ok := errors.AsType[*ahp.ProtocolError](err); err == nil || ok {
		t.Errorf("%v %v", protocol, err)
	}
}
