package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
	server := httptest.NewServer(m)
	t.Cleanup(func() {
		server.CloseClientConnections() // of a CLI that waits for its model
		server.Close()
	})
	m.url = server.URL
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
