package form

import (
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// Result is the result of a tool call that the client reports to the model (PRX-45).
type Result struct {
	ID      string
	Failed  bool
	Content wire.Raw
}

// Tool is a tool that a request declares. It has the fields of all forms; each tool uses some.
type Tool struct {
	Type     string    `json:"type"`
	Name     string    `json:"name"`
	Function *Function `json:"function"`
	Custom   *struct {
		Name string `json:"name"`
	} `json:"custom"`
	Label  string `json:"server_label"`
	URL    string `json:"server_url"`
	Server string `json:"mcp_server_name"`
}

// Light reads a tool that the client runs; see light.go.
func (t *Tool) Light(text []byte) bool {
	return EachMember(text, func(name, value []byte) bool {
		switch string(name) {
		case "type":
			return IsText(value, &t.Type)
		case "name":
			return IsText(value, &t.Name)
		case "function":
			t.Function = &Function{}
			return EachMember(value, func(name, value []byte) bool {
				return string(name) != "arguments" && (string(name) != "name" || IsText(value, &t.Function.Name))
			})
		case "custom", "server_label", "server_url", "mcp_server_name":
			return false
		}
		return true
	})
}

// Names are what rules see of a tool: its name, its type if the provider runs it, and "mcp:"
// with the name and the address of its MCP server.
func (t *Tool) Names() (names []string) {
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

// Server is an MCP server that the provider is to use.
type Server struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Results finds the results of tool calls in the messages of a request, in any of the forms. What
// cannot be read has none: receipts are a convenience, and the provider checks the request.
func Results(text wire.Raw) (results []Result) {
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
		return nil
	}
	for _, m := range list {
		switch {
		case m.Role == "tool" && m.Call != "":
			results = append(results, Result{m.Call, false, m.Content})
		case strings.HasSuffix(m.Type, "_output") && m.CallID != "":
			results = append(results, Result{m.CallID, m.Status == "failed", m.Output})
		case m.Role == "user" && len(m.Content) > 0 && m.Content[0] == '[':
			results = append(results, toolResults(m.Content)...)
		}
	}
	return results
}

// toolResults finds the results in the content blocks of one of Anthropic's user messages.
func toolResults(content wire.Raw) (results []Result) {
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
			results = append(results, Result{b.ID, b.IsError, b.Content})
		}
	}
	return results
}
