package harness_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/harness"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// payloads are right payloads of the types that are decided about.
var payloads = map[string]map[string]any{
	"pre_action":       {"tool_name": "ls"},
	"pre_prompt":       {"prompt": "hi"},
	"idle":             {"idle_duration_ms": 1, "idle_reason": "r"},
	"intent_detection": {"session_id": "s1", "prompt": "where is main defined?", "workspace": "/w"},
	"context_perception": {
		"session_id": "s1", "intent": "understand",
		"target":  map[string]any{"location": map[string]any{"path": ".", "location_type": "workspace"}},
		"context": map[string]any{"workspace": "/w", "query": "q"},
	},
	"memory_recall": {
		"session_id": "s1", "query": "q", "memory_type": "semantic", "max_results": 5,
		"working_directory": "/w",
	},
	"planning": {
		"session_id": "s1", "task_description": "t",
		"available_strategies": []any{map[string]any{"custom": "x"}, "none"},
	},
	"reasoning":    {"session_id": "s1", "reasoning_type": "re_act", "problem_statement": "p"},
	"rate_limit":   {"session_id": "s1", "limit_type": "llm_token_limit", "retry_after_ms": 1234, "current_usage": "90%"},
	"confirmation": {"session_id": "s1", "confirmation_type": "user_confirm", "message": "go?"},
}

// The table of the contract: what each verdict is in the words of each kind of event.
func TestEveryVerdictHasItsWordForEveryEvent(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	c := n.conn(harness.TransportSocket)
	const points = "[action, prompt, idle, intent, context, memory, planning, reasoning, rate_limit, confirmation]"
	for _, v := range []struct {
		rule string
		want map[string]string
	}{
		{"then: allow", map[string]string{
			"pre_action": "allow", "pre_prompt": "allow", "idle": "allow", "intent_detection": "allow",
			"context_perception": "allow", "memory_recall": "allow",
			"planning": "allow", "reasoning": "allow", "rate_limit": "retry", "confirmation": "approve",
		}},
		{"then: block, reason: because", map[string]string{
			"pre_action": "block", "pre_prompt": "block", "idle": "defer", "intent_detection": "block",
			"context_perception": "block", "memory_recall": "block",
			"planning": "block", "reasoning": "block", "rate_limit": "skip", "confirmation": "reject",
		}},
		{"then: defer, retry_after: 5s, reason: because", map[string]string{
			"pre_action": "defer", "pre_prompt": "defer", "idle": "defer", "intent_detection": "block",
			"context_perception": "block", "memory_recall": "block",
			"planning": "block", "reasoning": "block", "rate_limit": "queue", "confirmation": "escalate",
		}},
	} {
		n.Apply("rules: [{name: r, on: " + points + ", " + v.rule + "}]\n")
		for typ, want := range v.want {
			a := n.ask(c, typ, "s1", payloads[typ])
			if a.Error != nil || a.Result["decision"] != want {
				t.Errorf("%s, %s: %+v, want %s", v.rule, typ, a, want)
			}
			if strings.Contains(v.rule, "because") && want != "queue" && a.Result["reason"] != "because" {
				t.Errorf("%s, %s: the reason is %v", v.rule, typ, a.Result["reason"])
			}
		}
	}
	n.WantClean()
}

func TestWhatRulesSet(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply(`
rules:
  - {name: a, on: [action], when: event.command == "npm i", then: modify, set: {arguments: {command: npm ci}}}
  - {name: c, on: [context], then: modify, set: {scope_hints: [only the tests]}}
  - {name: p, on: [planning], when: event.depth == 0, then: modify, set: {task: smaller, hints: [slowly]}}
  - {name: r, on: [reasoning], then: allow, set: {hints: [think twice]}}
  - {name: i, on: [intent], then: allow, set: {intent: deploy}}
  - {name: m, on: [memory], then: allow, set: {injected_facts: wrong}}
`)
	c := n.conn(harness.TransportSocket)
	for typ, want := range map[string]map[string]any{
		"context_perception": {"decision": "refine", "scope_hints": []any{"only the tests"}},
		"reasoning":          {"decision": "allow", "hints": []any{"think twice"}},
		"intent_detection":   {"decision": "allow", "detected_intent": "deploy", "confidence": 1.0},
	} {
		if a := n.ask(c, typ, "s1", payloads[typ]); !cmp.Equal(a.Result, want) {
			t.Errorf("%s: %+v", typ, a)
		}
	}
	a := n.ask(c, "pre_action", "s1",
		json.RawMessage(`{"tool_name":"bash","arguments":{"command":"npm i","n":12345678901234567890}}`))
	args, _ := a.Result["modified_payload"].(map[string]any)["arguments"].(map[string]any)
	if a.Result["decision"] != "modify" || args["command"] != "npm ci" || args["n"] == nil {
		t.Errorf("%+v", a)
	}
	a = n.ask(c, "planning", "s1", payloads["planning"])
	if a.Result["decision"] != "modify" || a.Result["modified_task"] != "smaller" ||
		!cmp.Equal(a.Result["hints"], []any{"slowly"}) || a.Result["modified_payload"] == nil {
		t.Errorf("%+v", a)
	}
	// A rule whose words make no answer fails closed.
	if a := n.ask(c, "memory_recall", "s1", payloads["memory_recall"]); a.Result["decision"] != "block" ||
		a.Result["metadata"].(map[string]any)["fail_closed"] != true {
		t.Errorf("%+v", a)
	}
}

func TestWithoutARuleTheAnswersAreSensible(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply("rules: []\n")
	c := n.conn(harness.TransportSocket)
	if a := n.ask(c, "rate_limit", "s1", payloads["rate_limit"]); a.Result["retry_after_ms"] != 1234.0 {
		t.Errorf("%+v", a)
	}
	if a := n.ask(c, "planning", "s1", payloads["planning"]); !cmp.Equal(a.Result["selected_strategy"],
		map[string]any{"custom": "x"}) {
		t.Errorf("%+v", a)
	}
	if a := n.ask(c, "intent_detection", "s1", payloads["intent_detection"]); a.Result["detected_intent"] != "locate" {
		t.Errorf("%+v", a)
	}
	nothing := map[string]any{"session_id": "s1", "prompt": "hm", "workspace": "/w"}
	if a := n.ask(c, "intent_detection", "s1", nothing); a.Result["decision"] != "block" {
		t.Errorf("%+v", a)
	}
}

// When a decision cannot be recorded, nothing is allowed, and the client can read it.
func TestAFailureIsABlockThatCanBeDecoded(t *testing.T) {
	for name, prepare := range map[string]func(*node) (end func()){
		"the ledger has stopped": func(n *node) func() { n.Stop(); return func() {} },
		"the database hangs": func(n *node) func() {
			tx, err := n.DB.Begin(n.T.Context(), "ledger_head")
			if err != nil {
				n.T.Fatal(err)
			}
			if _, err := tx.Query("SELECT seq FROM ledger_head"); err != nil {
				n.T.Fatal(err)
			}
			return tx.Rollback
		},
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			n, c := startSoon(t, storetest.SQLite(t), 5*time.Second, "rules: []\n")
			end := prepare(n)
			defer end()
			for _, typ := range []string{"pre_action", "planning"} {
				began := time.Now()
				a := n.ask(c, typ, "s1", payloads[typ])
				meta, _ := a.Result["metadata"].(map[string]any)
				if a.Result["decision"] != "block" || a.Result["reason"] == "" || meta["fail_closed"] != true {
					t.Errorf("%s: %+v", typ, a)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("%s took %s, and the client has gone", typ, took)
				}
			}
		})
	}
}

func TestAFailureIsAnErrorWhereThatIsAskedFor(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{OnFailure: harness.ErrorOnFailure})
	n.fixture()
	if a := n.ask(n.conn(harness.TransportSocket), "pre_action", "s1",
		map[string]any{"tool_name": "boom"}); a.Error == nil || a.Error.Code != -32603 {
		t.Errorf("%+v", a)
	}
}

func TestASuspendedAgentIsBlockedAndOneWhoseKeyIsRevokedIsRefused(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply("rules: []\n")
	c := n.conn(harness.TransportSocket)
	yes := true
	if _, err := n.Roster.ChangeAgent(t.Context(), roster.Identity{Role: roster.Admin}, "default", "coder",
		roster.AgentChange{Suspended: &yes}); err != nil {
		t.Fatal(err)
	}
	for _, typ := range []string{"pre_action", "handshake"} {
		if a := n.ask(c, typ, "s1", map[string]any{}); a.Result["decision"] != "block" {
			t.Errorf("%+v", a)
		}
	}
	if err := n.Roster.RemoveAgent(t.Context(), roster.Identity{Role: roster.Admin}, "default", "coder"); err != nil {
		t.Fatal(err)
	}
	if a := n.ask(c, "pre_action", "s1", map[string]any{}); a.Error == nil || a.Error.Code != -32004 {
		t.Errorf("%+v", a)
	}
}

// Steps are found by their tool, however it is called, and by their type where there is none.
func TestAStepIsAboutItsTool(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply("rules: []\n")
	c := n.conn(harness.TransportHTTP)
	n.ask(c, "pre_action", "s1", map[string]any{"tool_name": strings.Repeat("x", 600), "arguments": map[string]any{}})
	n.ask(c, "pre_action", "s1", map[string]any{"tool_name": "a\x00b", "arguments": map[string]any{}})
	n.ask(c, "pre_prompt", "s1", map[string]any{"prompt": "Hello."})
	var about []string
	for _, e := range n.Entries("step.allowed") {
		about = append(about, e.Subject)
	}
	if len(about) != 3 || !strings.HasPrefix(about[0], "sha256:") || about[1] != "pre_action" || about[2] != "pre_prompt" {
		t.Errorf("%q", about)
	}
}

// What is on record of a step is enough to decide it again.
func TestStepsCanBeReplayed(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply(
		`rules: [{name: no-rm, on: [action], when: event.payload.arguments.command.startsWith("rm"),` +
			` then: block, reason: no}]` + "\n",
	)
	n.ask(n.conn(harness.TransportHTTP), "pre_action", "s1", bash("rm x"))
	entry := n.Entries("step.blocked")[0]
	var body struct {
		NoHandshake bool `json:"no_handshake"`
		Transport   string
		Event       json.RawMessage
	}
	if err := json.Unmarshal(entry.Body, &body); err != nil || !body.NoHandshake || body.Transport != "http" {
		t.Errorf("%s %v", entry.Body, err)
	}
	if entry.Subject != "bash" || entry.Actor != "agent:coder" || !strings.HasSuffix(entry.Trace, ":s1") {
		t.Errorf("%s by %s in %s", entry.Subject, entry.Actor, entry.Trace)
	}
	reading, err := harness.Readers()["step.blocked"](&entry)
	if err != nil || reading.Decision.Rule != "no-rm" {
		t.Fatalf("%+v %v", reading, err)
	}
	event := reading.Decision.Event
	event.Read()
	if event.Command != "rm x" || event.Arguments["command"] != "rm x" || event.Session != "s1" {
		t.Errorf("%+v", event)
	}
	lax, err := policy.Parse([]byte("version: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	report, err := n.Book.Replay(t.Context(), lax, time.Time{}, func(int64, int64) {})
	if err != nil || report.Changed != 1 || report.Broken != 0 {
		t.Errorf("%+v %v", report, err)
	}
}

func TestAHandlerElsewhereAnswersInOurPlace(t *testing.T) {
	var says func(id string) string
	handler := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ID     string
			Method string
			Params struct {
				Type string `json:"event_type"`
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Method != "ahp/event" ||
			in.Params.Type != "memory_recall" {
			t.Errorf("%+v %v", in, err)
		}
		_, _ = fmt.Fprint(w, says(in.ID))
	}))
	n := start(t, storetest.SQLite(t),
		harness.Config{Handlers: map[harness.Type]string{harness.MemoryRecall: handler}})
	n.Apply(`rules: [{name: r, on: [memory], when: event.text == "forbidden", then: block, reason: no}]` + "\n")
	c := n.conn(harness.TransportSocket)
	result := func(text string) func(string) string {
		return func(id string) string { return `{"jsonrpc":"2.0","id":"` + id + `","result":` + text + `}` }
	}
	good := `{"decision":"allow","injected_facts":[{"content":"c","source":"s","confidence":1}]}`
	for text, want := range map[string]string{good: "allow", `{"decision":"block","reason":"x"}`: "block"} {
		says = result(text)
		if a := n.ask(c, "memory_recall", "s1", payloads["memory_recall"]); a.Result["decision"] != want {
			t.Errorf("%s: %+v", text, a)
		}
	}
	for name, bad := range map[string]func(string) string{
		"another word":    result(`{"decision":"maybe"}`),
		"half a decision": result(`{"decision":"allow"}`),
		"an error": func(id string) string {
			return `{"jsonrpc":"2.0","id":"` + id + `","error":{"code":-1,"message":"m"}}`
		},
		"another id":         func(string) string { return `{"jsonrpc":"2.0","id":"x","result":` + good + `}` },
		"no JSON":            func(string) string { return "yes" },
		"nested without end": func(string) string { return strings.Repeat("[", 5000) },
	} {
		says = bad
		a := n.ask(c, "memory_recall", "s1", payloads["memory_recall"])
		if meta, _ := a.Result["metadata"].(map[string]any); a.Result["decision"] != "block" || meta["fail_closed"] != true {
			t.Errorf("%s: %+v", name, a)
		}
	}
	// The policy comes first.
	says = func(string) string { t.Error("the handler was asked"); return "" }
	forbidden := map[string]any{
		"session_id": "s1", "query": "forbidden", "memory_type": "x", "max_results": 1,
		"working_directory": "/",
	}
	if a := n.ask(c, "memory_recall", "s1", forbidden); a.Result["reason"] != "no" {
		t.Errorf("%+v", a)
	}
}

func TestTheDialectOfA3SCodeIsUnderstoodWhereItIsSwitchedOn(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{Compat: map[string]bool{harness.TransportSocket: true}})
	n.Apply(`
rules:
  - {name: no, on: [confirmation], then: block, reason: no}
  - {name: ctx, on: [context], when: event.payload.target.entity.name != "main" || event.text != "where",
     then: block, reason: not understood}
`)
	loose, strict := n.conn(harness.TransportSocket), n.conn(harness.TransportHTTP)
	for typ, c := range map[string]struct {
		payload map[string]any
		want    string
	}{
		"memory_recall": {map[string]any{
			"query": "q", "memory_type": "semantic", "max_results": 5,
			"working_directory": "/w",
		}, "allow"},
		"planning": {map[string]any{
			"task_description":     "t",
			"available_strategies": []any{"StepByStep", "TreeOfThoughts"},
		}, "allow"},
		"reasoning": {map[string]any{"reasoning_type": "ReAct", "problem_statement": "p"}, "allow"},
		"rate_limit": {
			map[string]any{"limit_type": "LlmTokenLimit", "retry_after_ms": 5, "current_usage": "x"},
			"allow",
		},
		"confirmation":     {map[string]any{"confirmation_type": "SafetyConfirm", "message": "m"}, "block"},
		"intent_detection": {map[string]any{"prompt": "where is it", "workspace": "/w"}, "allow"},
		"context_perception": {map[string]any{
			"intent": "Understand", "target_type": "file", "target_name": "main",
			"domain": "DataAnalysis", "query": "where", "working_directory": "/w", "urgency": "High",
		}, "allow"},
	} {
		if a := n.ask(loose, typ, "s1", c.payload); a.Error != nil || a.Result["decision"] != c.want {
			t.Errorf("%s: %+v", typ, a)
		}
		if a := n.ask(strict, typ, "s1", c.payload); a.Error == nil || a.Error.Code != -32603 {
			t.Errorf("strictly, %s: %+v", typ, a)
		}
	}
	if a := n.ask(loose, "planning", "s1",
		map[string]any{
			"task_description":     "t",
			"available_strategies": []any{"StepByStep"},
		}); a.Result["selected_strategy"] != "step_by_step" {
		t.Errorf("%+v", a)
	}
	for _, e := range n.Entries("step.allowed") {
		if _, err := harness.Readers()["step.allowed"](&e); err != nil {
			t.Error(err)
		}
	}
}

func TestAPostMayNeedAHandshake(t *testing.T) {
	for _, mode := range []string{harness.HandshakeCredential, harness.HandshakeSession} {
		t.Run(mode, func(t *testing.T) {
			n := start(t, storetest.SQLite(t), harness.Config{HTTPHandshake: mode})
			n.Apply("rules: []\n")
			c := n.conn(harness.TransportHTTP)
			if a := n.ask(c, "pre_action", "s1", map[string]any{}); a.Error == nil || a.Error.Code != -32001 {
				t.Errorf("%+v", a)
			}
			n.harness.Handle(t.Context(), c, []byte(greetingText))
			testbed.Until(t, "the session", func() bool { return len(n.Entries("session.opened")) > 0 })
			// As after a restart: what is known is in the tables.
			again := harness.New(n.Core, harness.Config{HTTPHandshake: mode})
			for session, want := range map[string]bool{"s1": true, "s2": mode == harness.HandshakeCredential} {
				a := n.read(again.Handle(t.Context(), c, event("r", "pre_action", session, map[string]any{})).JSON)
				if got := a.Error == nil; got != want {
					t.Errorf("%s: %+v", session, a)
				}
			}
		})
	}
}
