package proxy

import (
	"slices"
	"strings"

	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/wire"
)

// request is the part of a request to a model that rules and the proxy look at.
type request struct {
	form      *form.Form // nil for a batch
	kind      string
	provider  string
	body      []byte
	model     string
	stream    bool
	maxTokens int64
	tools     []string
	thread    thread
	listed    wire.Raw   // the messages or the input, which may bring results of tools
	batch     []wire.Raw // the calls of a batch
}

// thread says whether the provider keeps the conversation.
type thread struct {
	kept      bool   // the reply can be continued by its id
	continues string // the id of what it goes on from, "" for a new one
	unknown   bool   // the tools of the conversation are not known, nor will they be
}

// result is what became of a tool call, as the client tells the model.
type result struct {
	id      string
	failed  bool
	content wire.Raw
}

// tool is a tool that a request declares, in any of the forms.
type tool struct {
	Type     string         `json:"type"`
	Name     string         `json:"name"`
	Function *form.Function `json:"function"`
	Custom   *struct {
		Name string `json:"name"`
	} `json:"custom"`
	Label  string `json:"server_label"`
	URL    string `json:"server_url"`
	Server string `json:"mcp_server_name"`
}

// names are the words by which rules know a tool: its name, its type if the provider runs it, and
// its MCP server.
func (t *tool) names() (names []string) {
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(t.Name)
	if t.Function != nil {
		add(t.Function.Name)
	}
	if t.Custom != nil {
		add(t.Custom.Name)
	}
	if t.Type != "custom" && t.Type != "function" {
		add(t.Type)
	}
	for _, server := range []string{t.Label, t.URL, t.Server} {
		if server != "" {
			add("mcp:" + server)
		}
	}
	return names
}

// asked is a request on the wire, of any of the forms.
type asked struct {
	Model     string   `json:"model"`
	Stream    bool     `json:"stream"`
	MaxTokens float64  `json:"max_tokens"`
	MaxCompl  float64  `json:"max_completion_tokens"`
	MaxOutput float64  `json:"max_output_tokens"`
	Tools     []tool   `json:"tools"`
	Functions []tool   `json:"functions"`
	Servers   []server `json:"mcp_servers"`
	Thread    *struct {
		Type     string `json:"type"`
		Previous string `json:"previous_message_id"`
	} `json:"thread"`
	Previous     string   `json:"previous_response_id"`
	Conversation wire.Raw `json:"conversation"`
	Store        *bool    `json:"store"`
	Requests     []struct {
		Params wire.Raw `json:"params"`
	} `json:"requests"`
}

type server struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// read decodes the body. If strict is false, the messages are passed over and not checked.
func (q *request) read(strict bool) error {
	var a asked
	listed := "messages"
	if q.form == form.Responses {
		listed = "input"
	}
	rest, found, ok := form.Without(q.body, listed)
	if strict || !ok {
		rest = q.body // decoding it tells what is wrong
	}
	if err := wire.UnmarshalPart(rest, &a); err != nil {
		return err
	}
	q.model, q.stream = a.Model, a.Stream
	q.maxTokens = int64(min(max(a.MaxTokens, a.MaxCompl, a.MaxOutput), 1e15))
	for _, list := range [][]tool{a.Tools, a.Functions} {
		for i := range list {
			q.tools = append(q.tools, list[i].names()...)
		}
	}
	for _, s := range a.Servers {
		q.tools = append(q.tools, "mcp:"+s.Name, "mcp:"+s.URL)
	}
	q.thread = threadOf(q.form, &a)
	q.listed = found
	for _, one := range a.Requests {
		q.batch = append(q.batch, one.Params)
	}
	return nil
}

func threadOf(f *form.Form, a *asked) (t thread) {
	switch {
	case f == form.Messages && a.Thread != nil:
		return thread{kept: true, continues: a.Thread.Previous}
	case f == form.Responses:
		t.kept = a.Store == nil || *a.Store
		t.continues = a.Previous
		if name, ok := wire.Text(a.Conversation); ok {
			t.continues = name
		} else if len(a.Conversation) > 0 && string(a.Conversation) != "null" {
			var c struct {
				ID string `json:"id"`
			}
			_ = wire.UnmarshalPart(a.Conversation, &c) // anything but an object has no id
			t.continues = c.ID
		}
	}
	return t
}

// resultsOf finds the results of tool calls that a request brings.
func resultsOf(text wire.Raw) (results []result) {
	if len(text) == 0 || text[0] != '[' {
		return nil
	}
	var list []struct {
		Type    string   `json:"type"`
		Role    string   `json:"role"`
		Call    string   `json:"tool_call_id"`
		CallID  string   `json:"call_id"`
		Status  string   `json:"status"`
		Output  wire.Raw `json:"output"`
		Content wire.Raw `json:"content"`
	}
	if wire.UnmarshalPart(text, &list) != nil {
		return nil // the provider says what is wrong with it
	}
	for _, m := range list {
		switch {
		case m.Role == "tool" && m.Call != "":
			results = append(results, result{m.Call, false, m.Content})
		case strings.HasSuffix(m.Type, "_output") && m.CallID != "":
			results = append(results, result{m.CallID, m.Status == "failed", m.Output})
		case m.Role == "user" && len(m.Content) > 0 && m.Content[0] == '[':
			results = append(results, toolResults(m.Content)...)
		}
	}
	return results
}

func toolResults(content wire.Raw) (results []result) {
	var blocks []struct {
		Type    string   `json:"type"`
		ID      string   `json:"tool_use_id"`
		IsError bool     `json:"is_error"`
		Content wire.Raw `json:"content"`
	}
	if wire.UnmarshalPart(content, &blocks) != nil {
		return nil
	}
	for _, b := range blocks {
		if b.Type == "tool_result" && b.ID != "" {
			results = append(results, result{b.ID, b.IsError, b.Content})
		}
	}
	return results
}

// event is what rules see of a request.
func (q *request) event(project, run string) policy.Event {
	return policy.Event{
		Point: policy.OnPrompt, Protocol: Name, Kind: q.kind, Provider: q.provider, Model: q.model, MaxTokens: q.maxTokens,
		Tools: q.tools, Thread: q.thread.continues, Project: project, Run: run,
		Fill: func(e *policy.Event) { _ = policy.DecodeData(q.body, &e.Payload) }, // it was read before
	}
}

// promptText is all the text that a request gives to the model: what it says in system,
// instructions, messages and input.
func promptText(body []byte) string {
	var parts struct {
		System       any `json:"system"`
		Instructions any `json:"instructions"`
		Messages     any `json:"messages"`
		Input        any `json:"input"`
		Prompt       any `json:"prompt"`
	}
	if policy.DecodeData(body, &parts) != nil {
		return ""
	}
	var texts []string
	for _, part := range []any{parts.System, parts.Instructions, parts.Messages, parts.Input, parts.Prompt} {
		collectTexts(part, &texts)
	}
	return strings.Join(texts, "\n")
}

// spoken are the members of messages that hold text.
var spoken = []string{"text", "content", "output", "input", "arguments", "variables", "source", "data"}

func collectTexts(v any, texts *[]string) {
	switch v := v.(type) {
	case string:
		*texts = append(*texts, v)
	case []any:
		for _, item := range v {
			collectTexts(item, texts)
		}
	case map[string]any:
		if kind, _ := v["type"].(string); kind == "base64" {
			return // a picture or a file
		}
		for _, name := range spoken {
			collectTexts(v[name], texts)
		}
	}
}
