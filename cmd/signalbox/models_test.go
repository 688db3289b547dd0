package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"signalbox/internal/testbed"
)

// turn is what a model says next: a call of a tool, or a text where no tool is named.
type turn struct {
	tool  string
	input any // its arguments; a text for the tools of Codex that take one
	text  string
}

// model stands in for a model at the API of its provider. It is the test that talks: it hears what
// a CLI sends, and says what the model answers.
type model struct {
	t     *testing.T
	api   api
	url   string
	heard chan string // what the CLI has said since the model's last turn, as JSON
	says  chan turn
	turns atomic.Int64
	// request is the last call in which the model may call tools, whole.
	request atomic.Pointer[[]byte]
}

// api is how CLIs talk with the models of one provider.
type api struct {
	path string // that calls end with
	// read finds what the CLI has said since the last turn, and whether the model may call tools.
	read func(body []byte) (said []json.RawMessage, tools bool, err error)
	// events are the answer: a stream of server-sent events. n is different for each turn.
	events func(n int64, t turn) []map[string]any
}

// startModel starts a model for the time of the test.
func startModel(t *testing.T, a api) *model {
	t.Helper()
	m := &model{t: t, api: a, heard: make(chan string), says: make(chan turn)}
	m.url = testbed.ServeHTTP(t, m)
	return m
}

// hear waits for what the CLI says.
func (m *model) hear() string {
	m.t.Helper()
	return testbed.Receive(m.t, "the CLI to ask its model", m.heard)
}

// say answers the CLI that was heard, and hears what it says to that.
func (m *model) say(t turn) string {
	m.t.Helper()
	m.says <- t
	return m.hear()
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	said, tools, err := m.api.read(body)
	if err != nil || !strings.HasSuffix(r.URL.Path, m.api.path) {
		http.NotFound(w, r)
		return
	}
	answer := turn{text: "It is done."} // to a question beside the conversation, such as for a title
	if tools {
		text, _ := json.Marshal(said)
		m.request.Store(&body)
		select {
		case m.heard <- string(text):
		case <-r.Context().Done():
			return
		}
		select {
		case answer = <-m.says:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range m.api.events(m.turns.Add(1), answer) {
		writeEvent(w, e)
	}
}

// writeEvent writes a server-sent event.
func writeEvent(w io.Writer, e map[string]any) {
	if name, ok := e["type"]; ok {
		_, _ = fmt.Fprintf(w, "event: %s\n", name)
	}
	data, _ := json.Marshal(e)
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
}

// sinceRole are the last messages of a conversation, after those of the model.
func sinceRole(all []json.RawMessage, isModel func(role, kind string) bool) []json.RawMessage {
	for i := len(all) - 1; i >= 0; i-- {
		var m struct{ Role, Type string }
		if json.Unmarshal(all[i], &m) == nil && isModel(m.Role, m.Type) {
			return all[i+1:]
		}
	}
	return all
}

// anthropic is the Messages API.
var anthropic = api{
	path: "/v1/messages",
	read: func(body []byte) ([]json.RawMessage, bool, error) {
		var in struct{ Tools, Messages []json.RawMessage }
		err := json.Unmarshal(body, &in)
		return sinceRole(in.Messages, func(role, _ string) bool { return role == "assistant" }), len(in.Tools) > 0, err
	},
	events: func(n int64, t turn) []map[string]any {
		block := map[string]any{"type": "text", "text": ""}
		delta := map[string]any{"type": "text_delta", "text": t.text}
		reason := "end_turn"
		if t.tool != "" {
			input, _ := json.Marshal(t.input)
			block = map[string]any{
				"type": "tool_use", "id": fmt.Sprintf("toolu_%d", n), "name": t.tool, "input": map[string]any{},
			}
			delta = map[string]any{"type": "input_json_delta", "partial_json": string(input)}
			reason = "tool_use"
		}
		usage := map[string]any{"input_tokens": 10, "output_tokens": 5}
		message := map[string]any{
			"id": fmt.Sprintf("msg_%d", n), "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
			"content": []any{}, "stop_reason": nil, "usage": usage,
		}
		return []map[string]any{
			{"type": "message_start", "message": message},
			{"type": "content_block_start", "index": 0, "content_block": block},
			{"type": "content_block_delta", "index": 0, "delta": delta},
			{"type": "content_block_stop", "index": 0},
			{"type": "message_delta", "delta": map[string]any{"stop_reason": reason}, "usage": usage},
			{"type": "message_stop"},
		}
	},
}

// gemini is the API of Google's models.
var gemini = api{
	path: ":streamGenerateContent",
	read: func(body []byte) ([]json.RawMessage, bool, error) {
		var in struct{ Tools, Contents []json.RawMessage }
		err := json.Unmarshal(body, &in)
		return sinceRole(in.Contents, func(role, _ string) bool { return role == "model" }), len(in.Tools) > 0, err
	},
	events: func(n int64, t turn) []map[string]any {
		part := map[string]any{"text": t.text}
		if t.tool != "" {
			part = map[string]any{
				"functionCall": map[string]any{"id": fmt.Sprintf("call_%d", n), "name": t.tool, "args": t.input},
			}
		}
		return []map[string]any{{
			"candidates": []any{map[string]any{
				"content": map[string]any{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0,
			}},
			"usageMetadata": map[string]any{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
		}}
	},
}

// responses is the Responses API of OpenAI.
var responses = api{
	path: "/v1/responses",
	read: func(body []byte) ([]json.RawMessage, bool, error) {
		var in struct{ Tools, Input []json.RawMessage }
		err := json.Unmarshal(body, &in)
		return sinceRole(in.Input, func(role, kind string) bool {
			return role == "assistant" || kind == "function_call" || kind == "custom_tool_call"
		}), len(in.Tools) > 0, err
	},
	events: func(n int64, t turn) []map[string]any {
		item := map[string]any{
			"type": "message", "id": fmt.Sprintf("msg_%d", n), "role": "assistant",
			"content": []any{map[string]any{"type": "output_text", "text": t.text}},
		}
		if text, ok := t.input.(string); ok {
			item = map[string]any{
				"type": "custom_tool_call", "call_id": fmt.Sprintf("call_%d", n), "name": t.tool, "input": text,
			}
		} else if t.tool != "" {
			arguments, _ := json.Marshal(t.input)
			item = map[string]any{
				"type": "function_call", "call_id": fmt.Sprintf("call_%d", n), "name": t.tool, "arguments": string(arguments),
			}
		}
		id := fmt.Sprintf("resp_%d", n)
		return []map[string]any{
			{"type": "response.created", "response": map[string]any{"id": id}},
			{"type": "response.output_item.done", "item": item},
			{"type": "response.completed", "response": map[string]any{
				"id": id, "usage": map[string]any{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
			}},
		}
	},
}

// meteredModel stands in for a provider that counts: each of its calls takes more than the one before, and it says
// so. It calls a tool so often in each turn, and then ends it.
type meteredModel struct {
	url    string
	steps  int
	shell  turn   // how its CLI is told to run a command; that of Claude Code, or Codex, unless it is said
	hours  bool   // its CLI has asked for caches that are kept for an hour
	before func() // called before the first answer, nil for nothing

	mu    sync.Mutex
	calls []map[string]int // what each call took, by the names of the API
	keys  map[string]bool  // with which it was called
	seen  []string         // secrets that were in the list of processes
	last  string           // the end of what it was asked last, which has the results of tools
}

// startMetered starts a provider for the time of the test.
func startMetered(t *testing.T, steps int) *meteredModel {
	t.Helper()
	m := &meteredModel{steps: steps, keys: map[string]bool{}, hours: true}
	m.url = testbed.ServeHTTP(t, m)
	return m
}

func (m *meteredModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	of, ok := anthropic, false
	for _, of = range []api{anthropic, responses, gemini} {
		if ok = strings.HasSuffix(r.URL.Path, of.path); ok {
			break
		}
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	var in struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Input    []struct{ Role, Type string }
		Contents []struct {
			Role  string
			Parts []struct{ FunctionResponse json.RawMessage }
		}
	}
	if json.Unmarshal(body, &in) != nil {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	steps := 0 // since somebody asked for something
	for _, one := range in.Messages {
		steps++
		if one.Role == "user" && !strings.Contains(string(one.Content), `"tool_result"`) {
			steps = 0
		}
	}
	steps /= 2 // a call and its result
	for i, one := range in.Input {
		if one.Type == "function_call" {
			steps++
		} else if one.Role == "user" && i > 0 && in.Input[i-1].Role == "assistant" {
			steps = 0
		}
	}
	for _, one := range in.Contents {
		if one.Role == "user" && len(one.Parts) > 0 && one.Parts[0].FunctionResponse != nil {
			steps++
		} else if one.Role == "user" {
			steps = 0
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.before != nil {
		m.before()
		m.before = nil
	}
	m.keys[r.Header.Get("Authorization")+r.Header.Get("X-Api-Key")] = true
	if at := bytes.LastIndex(body, []byte(`"function_call_output"`)); at >= 0 {
		m.last = string(body[at:min(len(body), at+500)])
	}
	m.seen = append(m.seen, secretsInArguments()...)
	i := len(m.calls) + 1
	say := turn{text: "It is done."}
	var usage map[string]int
	if len(m.calls) > 60 { // a run that nobody stops fails its test, and ends
		steps = m.steps
	}
	shell := m.shell
	switch of.path {
	case responses.path, gemini.path: // of which those from a cache are a part
		usage = map[string]int{"input_tokens": 1000 + i, "cached": 600 + i, "output_tokens": 50 + i}
		if shell.tool == "" {
			shell = turn{tool: "exec_command", input: map[string]any{"cmd": "true"}}
		}
	default:
		usage = map[string]int{
			"input_tokens": 100 + i, "output_tokens": 20 + i, "cache_read_input_tokens": 1000 + i,
			"cache_creation_input_tokens": 300 + i,
		}
		if m.hours {
			usage["hour"] = 200 + i
		}
		if shell.tool == "" {
			shell = turn{tool: "Bash", input: map[string]any{"command": "true", "description": "Nothing"}}
		}
	}
	if steps < m.steps {
		say = shell
	}
	m.calls = append(m.calls, usage)
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range of.events(int64(i), say) {
		writeEvent(w, withUsage(e, usage))
	}
}

// withUsage puts what a call took in place of what the events of all stand-ins say.
func withUsage(e map[string]any, usage map[string]int) map[string]any {
	whole := map[string]any{"input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]}
	if cached, ok := usage["cached"]; ok {
		whole["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
		whole["input_tokens_details"] = map[string]any{"cached_tokens": cached}
		whole["output_tokens_details"] = map[string]any{"reasoning_tokens": 10}
	} else {
		whole["cache_read_input_tokens"] = usage["cache_read_input_tokens"]
		whole["cache_creation_input_tokens"] = usage["cache_creation_input_tokens"]
		whole["cache_creation"] = map[string]any{
			"ephemeral_1h_input_tokens": usage["hour"], "ephemeral_5m_input_tokens": usage["cache_creation_input_tokens"] - usage["hour"],
		}
	}
	switch e["type"] {
	case nil: // of Gemini, which thinks a little
		const thought = 10
		e["usageMetadata"] = map[string]any{
			"promptTokenCount": usage["input_tokens"], "cachedContentTokenCount": usage["cached"],
			"candidatesTokenCount": usage["output_tokens"] - thought, "thoughtsTokenCount": thought,
			"totalTokenCount": usage["input_tokens"] + usage["output_tokens"],
		}
	case "response.completed":
		e["response"].(map[string]any)["usage"] = whole
	case "message_delta":
		e["usage"] = whole
	case "message_start": // a model has not counted yet what it is about to write
		begun := map[string]any{}
		for name, n := range whole {
			begun[name] = n
		}
		begun["output_tokens"] = 1
		e["message"].(map[string]any)["usage"] = begun
	}
	return e
}

// secretsInArguments are arguments of metered CLIs with a key in them, which everybody on the machine could see.
func secretsInArguments() (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		text := testbed.ReadAny(name)
		for _, secret := range []string{"sk-metered", "rs-amp-"} {
			if strings.Contains(text, "model_providers.") && strings.Contains(text, secret) {
				found = append(found, strings.ReplaceAll(text, "\x00", " "))
			}
		}
	}
	return found
}

// took is what the calls from one on took: tokens, and dollars by the prices of input, output, tokens from a cache,
// and written to one for minutes and for an hour, for a million.
func (m *meteredModel) took(from int, prices [5]float64) (tokens int64, usd float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls[from:] {
		kinds := [5]int{
			c["input_tokens"] - c["cached"], c["output_tokens"], c["cached"] + c["cache_read_input_tokens"],
			c["cache_creation_input_tokens"] - c["hour"], c["hour"],
		}
		for i, n := range kinds {
			tokens += int64(n)
			usd += float64(n) * prices[i] / 1e6
		}
	}
	return tokens, usd
}
