package harness_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// a3sGreeting is a handshake as A3S Code 4.3.3 sends it.
var a3sGreeting = strings.NewReplacer(`"framework":"t"`, `"framework":"a3s-ahp"`, `"s1"`, `"a3s"`).Replace(greetingText)

// a3sCall is the payload of a tool call as A3S Code sends it.
func a3sCall(command string, before ...string) map[string]any {
	return map[string]any{
		"tool": "bash", "arguments": map[string]any{"command": command}, "working_directory": "/w",
		"recent_tools": append([]string{}, before...),
	}
}

const a3sRules = `
rules:
  - {name: no, on: [action], when: 'event.command.contains("forbidden")', then: block, reason: Not here.}
  - {name: person, on: [action], when: 'event.command.contains("deploy")', then: gate, reason: A person looks.}
  - {name: later, on: [action], when: 'event.command.contains("busy")', then: defer, retry_after: 7s, reason: Taken.}
  - {name: softly, on: [action], when: 'event.command.contains("push")', then: modify,
     set: {arguments: {command: git push --dry-run}}}
  - {name: broken, on: [action], when: 'event.command.contains("broken") && int(event.command) > 1',
     then: block, reason: never}
  - {name: narrow, on: [context], then: modify, set: {scope_hints: [src]}}
  - {name: smaller, on: [planning], then: modify, set: {modified_task: half of it}}
  - {name: politely, on: [prompt], then: modify, set: {prompt: please}}
  - {name: limits, on: [rate_limit], then: defer}
`

// TestA3SCodeIsToldAllowOrBlock, however it is recognised: it goes on after every other word, and after an
// answer that it cannot decode.
func TestA3SCodeIsToldAllowOrBlock(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), harness.Config{
		Timeout: 500 * time.Millisecond, OnFailure: harness.ErrorOnFailure,
		Compat: map[string]bool{harness.TransportSocket: true},
	})
	n.Apply(a3sRules)
	known, told := n.conn(harness.TransportSocket), n.conn(harness.TransportWebSocket)
	n.harness.Handle(t.Context(), told, []byte(a3sGreeting))
	other, _ := n.AgentWithKey("other")
	byOther := func(context.Context) (roster.Identity, error) { return other, nil }
	shaped := n.harness.NewConn(harness.TransportHTTP, byOther)
	posts := n.conn(harness.TransportHTTP) // of the agent whose last handshake was A3S Code's
	for how, c := range map[string]*harness.Conn{"setting": known, "handshake": told, "shape": shaped, "posts": posts} {
		for command, want := range map[string]string{
			"ls":                 "",
			"git push --dry-run": "", // what was wanted, asked for
			"forbidden":          "Not here.",
			"deploy " + how:      "Make the same call again in 2 s.",
			"busy":               "Make the same call again in 7 s.",
			"git push":           `"command":"git push --dry-run"`,
			"broken":             "rule",
		} {
			a := n.askInTime(c, "pre_action", how, a3sCall(command))
			reason, _ := a.Result["reason"].(string)
			if a.Error != nil || (want == "") != (a.Result["decision"] == "allow") ||
				want != "" && (a.Result["decision"] != "block" || !strings.Contains(reason, want)) {
				t.Errorf("%s, %s: %+v", how, command, a)
			}
		}
	}
	for typ, c := range map[string]struct {
		payload map[string]any
		want    string
	}{
		"context_perception": {map[string]any{
			"intent": "understand", "target_type": "file", "target_name": "main", "domain": "coding", "query": "where",
			"working_directory": "/w", "urgency": "high",
		}, "block"},
		"planning": {
			map[string]any{"task_description": "t", "available_strategies": []any{"StepByStep"}}, "block",
		},
		"rate_limit": {
			map[string]any{"limit_type": "LlmTokenLimit", "retry_after_ms": 5, "current_usage": "x"}, "block",
		},
		"confirmation": {map[string]any{"confirmation_type": "SafetyConfirm", "message": "m"}, "block"},
		"reasoning":    {map[string]any{"reasoning_type": 7}, "block"}, // another shape is refused, and not with an error
		"idle":         {map[string]any{"idle_duration_ms": 1, "idle_reason": "r"}, "allow"},
		"pre_prompt":   {map[string]any{"prompt": "rude", "message_count": 1}, "modify"}, // which it takes
	} {
		if a := n.askInTime(told, typ, "s1", c.payload); a.Error != nil || a.Result["decision"] != c.want {
			t.Errorf("%s: %+v", typ, a)
		}
	}
	// Another client hears the words of the protocol.
	plain := n.harness.NewConn(harness.TransportHTTP, byOther)
	for command, want := range map[string]string{"busy": "defer", "git push": "modify"} {
		if a := n.askInTime(plain, "pre_action", "s1", bash(command)); a.Result["decision"] != want {
			t.Errorf("%s: %+v", command, a)
		}
	}
}

// TestAnApprovalIsFoundByA3SCode, which sends the tools before with each call.
func TestAnApprovalIsFoundByA3SCode(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), harness.Config{Timeout: 500 * time.Millisecond})
	n.Apply(a3sRules)
	c := n.conn(harness.TransportHTTP)
	ask := func(before ...string) any {
		return n.ask(c, "pre_action", "s1", a3sCall("deploy", before...)).Result["decision"]
	}
	if got := ask(); got != "block" {
		t.Fatal(got)
	}
	n.vote(gate.Ballot{Approve: true})
	if got := ask("bash", "read"); got != "allow" || len(n.Pending()) != 0 {
		t.Errorf("%v, and %d gates wait", got, len(n.Pending()))
	}
	if got := ask("bash", "read", "bash"); got != "block" {
		t.Errorf("the approval is good for one call, and the second is %v", got)
	}
}

// TestA3SCodeHearsNoError, which it would take for a permission.
func TestA3SCodeHearsNoError(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), harness.Config{HTTPHandshake: harness.HandshakeSession})
	n.Apply(a3sRules)
	blocked := func(name string, text []byte) {
		t.Helper()
		if a := n.read(text); a.Error != nil || a.Result["decision"] != "block" ||
			!bytes.Contains(text, []byte(`"id":"r1"`)) {
			t.Errorf("%s: %.300s", name, text)
		}
	}
	deep := strings.Repeat("[", 140) + strings.Repeat("]", 140)
	call := string(event("r1", "pre_action", "s9", a3sCall("ls")))
	broken := map[string]string{
		"another session": call, // that had no handshake
		"nested too deep": strings.Replace(call, `"arguments":{`, `"arguments":{"x":`+deep+`,`, 1),
		"a name twice":    strings.Replace(call, `"arguments":{`, `"arguments":{"command":"ls",`, 1),
		"too deep":        strings.Replace(call, `"depth":0`, `"depth":99`, 1),
		"another shape":   strings.Replace(call, `"depth":0`, `"depth":"0"`, 1),
	}
	stream := n.conn(harness.TransportWebSocket)
	n.harness.Handle(t.Context(), stream, []byte(a3sGreeting))
	testbed.Until(t, "the handshake", func() bool { return len(n.Entries("session.opened")) == 2 })
	for name, text := range broken {
		if name != "another session" {
			blocked(name, n.harness.Handle(t.Context(), stream, []byte(text)).JSON)
		}
		// As after a restart: who the agent is stands in the ledger.
		again := harness.New(n.Core, n.harness.Config)
		blocked(name+", by a POST", again.Handle(t.Context(), n.conn(harness.TransportHTTP), []byte(text)).JSON)
	}
	gone := n.harness.NewConn(harness.TransportHTTP, func(context.Context) (roster.Identity, error) {
		return roster.Identity{}, context.Canceled
	})
	blocked("a suspended agent", n.harness.Handle(t.Context(), gone, []byte(call)).JSON)

	post := func(key, text string) (int, []byte) {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/ahp", strings.NewReader(text))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Api-Key", key)
		w := httptest.NewRecorder()
		if err := n.harness.Routes()[0].Handle(w, req); err != nil {
			t.Error(err)
		}
		return w.Code, w.Body.Bytes()
	}
	huge := strings.Replace(call, `"command":"ls"`, `"command":"`+strings.Repeat("x", 3<<20)+`"`, 1)
	for name, c := range map[string]struct{ key, text string }{
		"a wrong key": {"rs-amp-wrong", call}, "a body that is too large": {n.key, huge},
	} {
		status, body := post(c.key, c.text)
		if status != http.StatusOK {
			t.Errorf("%s: %d", name, status)
			continue
		}
		blocked(name, body)
	}
	status, _ := post("rs-amp-wrong", string(event("r1", "pre_action", "s1", bash("ls"))))
	if status != http.StatusUnauthorized {
		t.Errorf("another client with a wrong key: %d", status)
	}
}

// Beyond its rate A3S Code hears block, also about events that others hear an error about.
func TestA3SCodeBeyondItsRateIsBlocked(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply("rules: []\n")
	c := n.conn(harness.TransportWebSocket)
	n.harness.Handle(t.Context(), c, []byte(a3sGreeting))
	for _, typ := range []string{"pre_action", "planning"} {
		text := n.harness.Overloaded(c, event("r1", typ, "s1", map[string]any{
			"tool": "bash", "arguments": map[string]any{}, "task_description": "t", "available_strategies": []any{},
		}))
		if a := n.read(text); a.Error != nil || a.Result["decision"] != "block" {
			t.Errorf("%s: %s", typ, text)
		}
	}
}
