package notify_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/coder/websocket"

	"signalbox/internal/notify"
	"signalbox/internal/notify/slack"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

const (
	slackToken    = "xoxb-a-secret-token"
	slackAppToken = "xapp-a-secret-token"
	signingSecret = "8f742231b10e8888abcd99yyyzzz85a5"
)

// slackAPI is a Slack, as far as we use it.
type slackAPI struct {
	calls
	url    string
	down   atomic.Bool
	limit  atomic.Bool
	held   chan struct{}  // if not nil, answers to presses wait until it is closed
	closed atomic.Bool    // forms are not opened
	hangs  chan time.Time // if not nil, sockets are closed after the hello, whose times it gets
	stamp  atomic.Int64
	refuse atomic.Value // the word with which the next change of a message is refused
	socket chan *websocket.Conn
	acks   chan string
}

func newSlackAPI(t *testing.T) *slackAPI {
	f := &slackAPI{calls: newCalls(t), socket: make(chan *websocket.Conn, 1), acks: make(chan string, 10)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/chat.postMessage", f.chat)
	mux.HandleFunc("POST /api/chat.update", f.chat)
	mux.HandleFunc("POST /api/chat.postEphemeral", f.chat)
	mux.HandleFunc("POST /api/views.open", f.views)
	mux.HandleFunc("POST /hook/T1/B1/a-secret-path", f.hook)
	mux.HandleFunc("POST /api/apps.connections.open", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+slackAppToken {
			_, _ = fmt.Fprint(w, `{"ok":false,"error":"invalid_auth"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"ok":true,"url":"ws://%s/socket"}`, r.Host)
	})
	mux.HandleFunc("GET /socket", f.serveSocket)
	f.url = testbed.ServeHTTP(t, mux)
	return f
}

func (f *slackAPI) broken(w http.ResponseWriter) bool {
	switch {
	case f.down.Load():
		w.WriteHeader(http.StatusBadGateway)
		return true
	case f.limit.Swap(false):
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	return false
}

func (f *slackAPI) chat(w http.ResponseWriter, r *http.Request) {
	if f.broken(w) {
		return
	}
	_ = r.ParseForm()
	values := map[string]string{}
	for name := range r.Form {
		values[name] = r.Form.Get(name)
	}
	if values["token"] != slackToken && r.Header.Get("Authorization") != "Bearer "+slackToken {
		_, _ = fmt.Fprint(w, `{"ok":false,"error":"invalid_auth"}`)
		return
	}
	if word, _ := f.refuse.Load().(string); word != "" && strings.HasSuffix(r.URL.Path, "update") {
		_, _ = fmt.Fprintf(w, `{"ok":false,"error":%q}`, word)
		return
	}
	if f.held != nil && strings.HasSuffix(r.URL.Path, "postEphemeral") {
		<-f.held
	}
	f.got <- call{strings.TrimPrefix(r.URL.Path, "/api/"), values}
	stamp := values["ts"]
	if stamp == "" {
		stamp = fmt.Sprintf("1700000000.%06d", f.stamp.Add(1))
	}
	_, _ = fmt.Fprintf(w, `{"ok":true,"channel":%q,"ts":%q,"message_ts":%q}`, values["channel"], stamp, stamp)
}

// views opens a form, unless it has been told to refuse.
func (f *slackAPI) views(w http.ResponseWriter, r *http.Request) {
	if f.broken(w) {
		return
	}
	var body struct {
		TriggerID string `json:"trigger_id"`
		View      json.RawMessage
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	if r.Header.Get("Authorization") != "Bearer "+slackToken || body.TriggerID != "1.2.3" || f.closed.Load() {
		_, _ = fmt.Fprint(w, `{"ok":false,"error":"expired_trigger_id"}`)
		return
	}
	f.got <- call{"views.open", map[string]string{"view": string(body.View)}}
	_, _ = fmt.Fprint(w, `{"ok":true,"view":{"id":"V1"}}`)
}

func (f *slackAPI) hook(w http.ResponseWriter, r *http.Request) {
	if f.broken(w) {
		return
	}
	var body struct {
		Text   string
		Blocks json.RawMessage
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.got <- call{"hook", map[string]string{"text": body.Text, "blocks": string(body.Blocks)}}
	_, _ = fmt.Fprint(w, "ok")
}

// serveSocket is Slack's end of Socket Mode: it says hello, and notes what is
// acknowledged.
func (f *slackAPI) serveSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	began := time.Now()
	_ = c.Write(r.Context(), websocket.MessageText,
		[]byte(`{"type":"hello","num_connections":1,"connection_info":{"app_id":"A1"}}`))
	if f.hangs != nil {
		f.hangs <- began
		return
	}
	f.socket <- c
	for {
		_, text, err := c.Read(r.Context())
		if err != nil {
			return
		}
		var ack struct {
			EnvelopeID string `json:"envelope_id"`
		}
		_ = json.Unmarshal(text, &ack)
		f.acks <- ack.EnvelopeID
	}
}

// button is a button of a message, as its reader finds it.
type button struct {
	ActionID string `json:"action_id"`
	Value    string
	URL      string
}

// read takes a message apart: its texts and its buttons by action.
func read(t *testing.T, blocks string) (texts []string, buttons map[string]button) {
	t.Helper()
	var all []struct {
		Type string
		Text struct {
			Type, Text string
		}
		Elements []button
	}
	if err := json.Unmarshal([]byte(blocks), &all); err != nil {
		t.Fatalf("%v: %s", err, blocks)
	}
	buttons = map[string]button{}
	for _, b := range all {
		if n := len(utf16.Encode([]rune(b.Text.Text))); n > 3000 {
			t.Errorf("a section has %d characters", n)
		}
		texts = append(texts, b.Text.Type+"|"+b.Text.Text)
		for _, e := range b.Elements {
			buttons[e.ActionID] = e
		}
	}
	return texts, buttons
}

// interaction is what Slack sends when a button is pressed.
func interaction(user string, b button) string {
	text, _ := json.Marshal(map[string]any{
		"type": "block_actions", "api_app_id": "A1", "user": map[string]string{"id": user, "username": "whoever"},
		"channel": map[string]string{"id": "C123", "name": "ops"}, "team": map[string]string{"id": "T1"},
		"response_url": "http://127.0.0.1:1/never-called", "trigger_id": "1.2.3",
		"actions": []map[string]string{{
			"type": "button", "action_id": b.ActionID, "block_id": "x", "value": b.Value,
			"action_ts": "1.2",
		}},
	})
	return string(text)
}

// submission is what Slack sends when a form is submitted with a reason.
func submission(t testing.TB, user, view, reason string) string {
	t.Helper()
	var opened struct {
		CallbackID string `json:"callback_id"`
		Metadata   string `json:"private_metadata"`
		Blocks     []struct {
			BlockID string `json:"block_id"`
			Element struct {
				ActionID string `json:"action_id"`
				Type     string
			}
		}
	}
	if err := json.Unmarshal([]byte(view), &opened); err != nil || len(opened.Blocks) != 1 ||
		opened.Blocks[0].Element.Type != "plain_text_input" {
		t.Fatalf("%v: %s", err, view)
	}
	asked := opened.Blocks[0]
	text, _ := json.Marshal(map[string]any{
		"type": "view_submission", "api_app_id": "A1", "user": map[string]string{"id": user, "username": "whoever"},
		"team": map[string]string{"id": "T1"},
		"view": map[string]any{
			"id": "V1", "type": "modal", "callback_id": opened.CallbackID, "private_metadata": opened.Metadata,
			"state": map[string]any{
				"values": map[string]any{
					asked.BlockID: map[string]any{asked.Element.ActionID: map[string]string{
						"type":  "plain_text_input",
						"value": reason,
					}},
				},
			},
		},
	})
	return string(text)
}

// submit submits a form over HTTP.
func (n *node) submit(user, view, reason string) {
	n.T.Helper()
	if status := n.post("payload="+url.QueryEscape(submission(n.T, user, view, reason)), signingSecret,
		time.Now()); status != 200 {
		n.T.Fatalf("Slack was answered %d", status)
	}
}

// post calls /notify/slack as Slack would, or not quite as it would.
func (n *node) post(body, secret string, at time.Time) (status int) {
	n.T.Helper()
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + stamp + ":" + body))
	req := httptest.NewRequest(http.MethodPost, "/notify/slack", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Slack-Request-Timestamp", stamp)
	req.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
	return n.serve(req)
}

func (n *node) serve(req *http.Request) (status int) {
	n.T.Helper()
	for _, route := range n.notifier.Routes() {
		if route.Path == "/notify/slack" {
			w := httptest.NewRecorder()
			if err := route.Handle(w, req); err != nil {
				wire.Fail(w, err)
			}
			return w.Code
		}
	}
	n.T.Fatal("there is no route for Slack")
	return 0
}

// press presses a button over HTTP.
func (n *node) press(user string, b button) {
	n.T.Helper()
	if status := n.post("payload="+url.QueryEscape(interaction(user, b)), signingSecret, time.Now()); status != 200 {
		n.T.Fatalf("Slack was answered %d", status)
	}
}

// app is a channel to the Slack.
func (f *slackAPI) app(n *node, change ...func(*slack.Options)) notify.Channel {
	o := slack.Options{
		Token: wire.NewSecret(slackToken), SigningSecret: wire.NewSecret(signingSecret), Channel: "C123",
		API: f.url + "/api", HTTP: n.client, Log: n.notifierLog(),
	}
	for _, fn := range change {
		fn(&o)
	}
	return slack.NewApp(o)
}
