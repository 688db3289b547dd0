package hook

import (
	"fmt"
	"slices"

	"signalbox/client/ahp"
	"signalbox/internal/wire"
)

// Tool is an agent CLI with hooks.
type Tool struct {
	Name  string
	Title string
	// events are the hooks of the CLI that are used, in the order of its settings.
	events []event
	// deny is how the CLI spells no before a prompt.
	deny string
	// preTool says how no, and another input, are spelled before an action.
	preTool func(no string, input wire.Raw) any
	// yes is how the CLI spells a yes after which its own permissions do not ask; nil when
	// it knows none.
	yes any
	// merges says that another input is laid over the old one, so that nothing can be
	// taken away.
	merges bool
	// delegate says that the CLI asks with an environment and listens to exit codes.
	delegate bool
	settings settings
}

// event is one hook of a CLI.
type event struct {
	name    string
	becomes ahp.Type
}

// Tools are those that are known.
var Tools = []*Tool{
	{
		Name: "claude-code", Title: "Claude Code", deny: "block", preTool: claudePreTool,
		yes: answer{Specific: &specific{Event: "PreToolUse", Decision: "allow"}},
		events: []event{
			{"PreToolUse", ahp.PreAction},
			{"UserPromptSubmit", ahp.PrePrompt},
			{"PostToolUse", ahp.PostAction},
			{"PostToolUseFailure", ahp.PostAction},
			{"SessionStart", ahp.SessionStart},
			{"SessionEnd", ahp.SessionEnd},
			{"Stop", ahp.PostResponse},
		},
		settings: settings{
			home: ".claude", variable: "CLAUDE_CONFIG_DIR", folder: ".claude", file: "settings.json",
			second: 1,
		},
	},
	{
		Name: "codex", Title: "Codex", deny: "block", preTool: claudePreTool,
		events: []event{
			{"PreToolUse", ahp.PreAction},
			{"UserPromptSubmit", ahp.PrePrompt},
			{"PostToolUse", ahp.PostAction},
			{"SessionStart", ahp.SessionStart},
			{"SessionEnd", ahp.SessionEnd},
			{"Stop", ahp.PostResponse},
		},
		settings: settings{home: ".codex", variable: "CODEX_HOME", folder: ".codex", file: "hooks.json", second: 1},
	},
	{
		Name: "gemini", Title: "Gemini CLI", deny: "deny", preTool: geminiPreTool, merges: true,
		events: []event{
			{"BeforeTool", ahp.PreAction},
			{"BeforeAgent", ahp.PrePrompt},
			{"AfterTool", ahp.PostAction},
			{"SessionStart", ahp.SessionStart},
			{"SessionEnd", ahp.SessionEnd},
			{"AfterAgent", ahp.PostResponse},
		},
		settings: settings{home: ".gemini", folder: ".gemini", file: "settings.json", comments: true, second: 1000},
	},
	{
		Name: "amp", Title: "Amp", delegate: true,
		settings: settings{home: ".config/amp", folder: ".amp", file: "settings.json", comments: true},
	},
}

// Named finds a tool, nil when there is none.
func Named(name string) *Tool {
	i := slices.IndexFunc(Tools, func(t *Tool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return Tools[i]
}

// Names lists the tools.
func Names() (names []string) {
	for _, t := range Tools {
		names = append(names, t.Name)
	}
	return names
}

type (
	specific struct {
		Event    string `json:"hookEventName"`
		Decision string `json:"permissionDecision,omitempty"`
		Reason   string `json:"permissionDecisionReason,omitempty"`
		// An input that is empty is not left out: without it the CLI goes on with its own.
		Updated wire.Raw `json:"updatedInput,omitzero"`
		Input   wire.Raw `json:"tool_input,omitzero"`
	}
	answer struct {
		Decision string    `json:"decision,omitempty"`
		Reason   string    `json:"reason,omitempty"`
		Specific *specific `json:"hookSpecificOutput,omitempty"`
	}
)

// claudePreTool is the form of Claude Code, which Codex has too. Another input is only
// taken together with allow.
func claudePreTool(no string, input wire.Raw) any {
	s := &specific{Event: "PreToolUse", Decision: "allow", Updated: input}
	if input == nil {
		s.Decision, s.Reason = "deny", no
	}
	return answer{Specific: s}
}

func geminiPreTool(no string, input wire.Raw) any {
	if input == nil {
		return answer{Decision: "deny", Reason: no}
	}
	return answer{Specific: &specific{Event: "BeforeTool", Input: input}}
}

// Call is one run of a hook.
type Call struct {
	Event ahp.Event
	// Final says that a yes is the last word: the CLI does not ask its own permissions.
	Final bool
	tool  *Tool
	// name and input are those of the tool that is about to be used.
	name  string
	input wire.Raw
}

// Asks reports whether the CLI waits for a decision.
func (c *Call) Asks() bool { return c.Event.Type == ahp.PreAction || c.Event.Type == ahp.PrePrompt }

// given is what the CLIs say, each some of it.
type given struct {
	Session    string   `json:"session_id"`
	Hook       string   `json:"hook_event_name"`
	CWD        string   `json:"cwd"`
	Tool       string   `json:"tool_name"`
	Input      wire.Raw `json:"tool_input"`
	Response   wire.Raw `json:"tool_response"`
	Error      wire.Raw `json:"error"`
	CallID     string   `json:"tool_use_id"`
	Prompt     string   `json:"prompt"`
	Said       string   `json:"prompt_response"`
	Last       string   `json:"last_assistant_message"`
	Model      string   `json:"model"`
	Source     string   `json:"source"`
	Reason     string   `json:"reason"`
	Mode       string   `json:"permission_mode"`
	Subagent   string   `json:"agent_type"`
	SubagentID string   `json:"agent_id"`
}

// maxTold is how much of what a step came to is told.
const maxTold = 256 << 10

// Read understands what a CLI says. With an error nothing may happen.
func (t *Tool) Read(stdin []byte, getenv func(string) string) (*Call, error) {
	if t.delegate {
		return t.readDelegate(stdin, getenv)
	}
	var g given
	if err := wire.UnmarshalPart(stdin, &g); err != nil {
		return nil, fmt.Errorf("what %s says is not the JSON that it should be: %w", t.Title, err)
	}
	i := slices.IndexFunc(t.events, func(e event) bool { return e.name == g.Hook })
	if i < 0 {
		return nil, fmt.Errorf("%.60q is not a hook of %s that is known here. `signalbox hook "+
			"install %s` registers those that are", g.Hook, t.Title, t.Name)
	}
	if g.Session == "" {
		return nil, fmt.Errorf("%s does not say which session this is (session_id)", t.Title)
	}
	kind := t.events[i].becomes
	c := &Call{
		tool: t, name: g.Tool, input: g.Input,
		Event: ahp.Event{Type: kind, SessionID: g.Session, AgentID: t.Name, Metadata: g.metadata(t.Name)},
	}
	switch kind {
	case ahp.PreAction:
		c.Event.Payload = payload{"tool_name": g.Tool, "arguments": g.Input}.with("working_directory", g.CWD)
	case ahp.PrePrompt:
		c.Event.Payload = payload{"prompt": g.Prompt}.with("working_directory", g.CWD)
	case ahp.PostAction:
		c.Event.Payload = payload{"tool": g.Tool, "arguments": told(g.Input), "result": g.result()}
	case ahp.PostResponse:
		c.Event.Payload = payload{}.with("response_text", g.Said+g.Last)
	case ahp.SessionStart:
		c.Event.Payload = payload{"session_id": g.Session}.with("working_directory", g.CWD).with("model_name",
			g.Model).with("source", g.Source)
	default:
		c.Event.Payload = payload{"session_id": g.Session}.with("reason", g.Reason)
	}
	if kind == ahp.PreAction && (g.Tool == "" || !isObject(g.Input)) {
		return nil, fmt.Errorf("%s does not say which tool it is about to use, and with what (tool_name, tool_input)",
			t.Title)
	}
	return c, nil
}

// Variables are those of the environment that Read looks at.
var Variables = []string{toolVariable, threadVariable}

const (
	toolVariable   = "AGENT_TOOL_NAME"
	threadVariable = "AMP_THREAD_ID"
)

// readDelegate reads what Amp asks: the tool in the environment, its arguments on
// standard input.
func (t *Tool) readDelegate(stdin []byte, getenv func(string) string) (*Call, error) {
	c := &Call{tool: t, name: getenv(toolVariable), input: stdin}
	if c.name == "" || !isObject(stdin) {
		return nil, fmt.Errorf("%s should say which tool it is about to use in AGENT_TOOL_NAME, and give its arguments as "+
			"a JSON object on standard input", t.Title)
	}
	arguments, err := wire.Members(stdin)
	if err != nil {
		return nil, err
	}
	if arguments["command"] == nil && arguments["cmd"] != nil { // as rules know it
		arguments["command"] = arguments["cmd"]
	}
	session := getenv(threadVariable)
	if session == "" {
		session = "amp"
	}
	c.Event = ahp.Event{
		Type: ahp.PreAction, SessionID: session, AgentID: t.Name, Metadata: map[string]any{"hook": t.Name},
		Payload: payload{"tool_name": c.name, "arguments": arguments},
	}
	return c, nil
}

// payload is that of an event.
type payload map[string]any

func (p payload) with(name, value string) payload {
	if value != "" {
		p[name] = value
	}
	return p
}

// metadata is what differs from one call to the same again, and is therefore no part of
// what an approval is good for.
func (g *given) metadata(tool string) map[string]any {
	return payload{"hook": tool}.with("tool_use_id", g.CallID).with("permission_mode", g.Mode).with("subagent",
		g.Subagent).with("subagent_id", g.SubagentID).with("model", g.Model)
}

// result is what a step came to.
func (g *given) result() payload {
	r := payload{"success": len(g.Error) == 0, "output": told(g.Response)}
	if len(g.Error) > 0 {
		r["output"] = told(g.Error)
	}
	return r
}

// told is a value as far as it is told.
func told(raw wire.Raw) any {
	if len(raw) <= maxTold {
		return raw
	}
	return map[string]any{"left_out_bytes": len(raw)}
}

func isObject(raw []byte) bool {
	_, err := wire.Members(raw)
	return err == nil
}
