package hook

import (
	"cmp"
	"fmt"
	"slices"

	"signalbox/client/ahp"
	"signalbox/internal/run/process"
	"signalbox/internal/wire"
)

// Tool is an agent CLI with hooks: what it asks with, and what it takes for an answer.
// The values are data that never changes; what a CLI really does was tried with it,
// since their documents differ from it.
type Tool struct {
	Name  string
	Title string
	// events are the hooks of the CLI that are used, in the order of its settings.
	events []event
	// deny is the word with which the CLI is denied a prompt.
	deny string
	// preTool is the answer before an action: a denial with a reason, or another input, about which the CLI
	// asks its own permissions unless final says that the answer is the last word.
	preTool func(no string, input wire.Raw, final bool) any
	// yes is the answer after which the CLI does not ask its own permissions; nil if it has
	// none.
	yes any
	// merges says that another input is laid over the old one, so that no argument can be
	// removed.
	merges bool
	// place is the variable that has the folder where the agent works. Such a CLI tells its hooks which
	// folder a shell would run in, which the model chooses.
	place string
	// delegate says that the CLI asks with environment variables and reads exit codes.
	delegate bool
	settings settings
}

// event is one hook of a CLI, and the event of AHP that it becomes.
type event struct {
	name    string
	becomes ahp.Type
}

// Tools are the CLIs that are known.
var Tools = []*Tool{
	{
		Name: "claude-code", Title: "Claude Code", deny: "block", preTool: claudePreTool, place: projectVariable,
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
		Name: "codex", Title: "Codex", deny: "block", preTool: codexPreTool, place: folderVariable,
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

// runTools are CLIs whose hooks are plugins that a supervised run brings along. They ask in the form of Claude Code, and
// go on with nothing but a plain permission.
var runTools = []*Tool{pluginOf("opencode", "OpenCode"), pluginOf("pi", "Pi")}

func pluginOf(name, title string) *Tool {
	return &Tool{
		Name: name, Title: title, deny: "block", preTool: codexPreTool,
		yes:    answer{Specific: &specific{Event: "PreToolUse", Decision: "allow"}},
		events: []event{{"PreToolUse", ahp.PreAction}},
	}
}

// Named finds a CLI by its name, nil if it is not known.
func Named(name string) *Tool {
	all := slices.Concat(Tools, runTools)
	i := slices.IndexFunc(all, func(t *Tool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// Names lists the tools.
func Names() (names []string) {
	for _, t := range Tools {
		names = append(names, t.Name)
	}
	return names
}

// specific and answer are what Claude Code, Codex and Gemini CLI read from a hook's
// standard output.
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

// claudePreTool is the answer of Claude Code. Another input is taken together with ask, which puts the
// changed input before the CLI's own permissions, or with allow, which skips them.
func claudePreTool(no string, input wire.Raw, final bool) any {
	s := &specific{Event: "PreToolUse", Decision: "ask", Reason: "The policy has changed this call.", Updated: input}
	switch {
	case input == nil:
		s.Decision, s.Reason = "deny", no
	case final:
		s.Decision, s.Reason = "allow", ""
	}
	return answer{Specific: s}
}

// codexPreTool is the answer of Codex. Its allow means only that there is another input, which its own
// permissions and its sandbox then apply to; ask it takes for a failure of the hook, and goes on.
func codexPreTool(no string, input wire.Raw, _ bool) any { return claudePreTool(no, input, true) }

// geminiPreTool is the answer of Gemini CLI, which asks its own permissions after its hooks.
func geminiPreTool(no string, input wire.Raw, _ bool) any {
	if input == nil {
		return answer{Decision: "deny", Reason: no}
	}
	return answer{Specific: &specific{Event: "BeforeTool", Input: input}}
}

// Call is one call of a hook: what a CLI is about to do, or has done. Read makes it;
// Answer or Refuse ends it.
type Call struct {
	Event ahp.Event
	// Final says that a permission is the last word: the CLI does not ask its own permissions after it.
	Final bool
	tool  *Tool
	// name and input are those of the tool that is about to be used.
	name  string
	input wire.Raw
	// folder is the one that placeCall added to the arguments, nil if it did not.
	folder wire.Raw
}

// Asks reports whether the CLI waits for a decision.
func (c *Call) Asks() bool { return c.Event.Type == ahp.PreAction || c.Event.Type == ahp.PrePrompt }

// hookInput is what the CLIs write, each some of it.
type hookInput struct {
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

// maxReported is how much of an argument or a result is reported, in bytes. A report is
// telemetry; decisions are about all of it.
const maxReported = 256 << 10

// Read understands what a CLI writes. With an error nothing may happen: the caller
// denies.
func (t *Tool) Read(stdin []byte, getenv func(string) string) (*Call, error) {
	if t.delegate {
		return t.readDelegate(stdin, getenv)
	}
	var g hookInput
	if err := wire.UnmarshalPart(stdin, &g); err != nil {
		return nil, fmt.Errorf("%s did not send the JSON of a hook: %w", t.Title, err)
	}
	i := slices.IndexFunc(t.events, func(e event) bool { return e.name == g.Hook })
	if i < 0 {
		return nil, fmt.Errorf("%.60q is not a known hook of %s. `signalbox hook "+
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
	if c.Asks() { // for the person who decides
		payload(c.Event.Metadata).with("branch", branchOf(g.CWD)).with("run", getenv(process.RunVariable))
	}
	switch kind {
	case ahp.PreAction:
		arguments, workplace := c.placeCall(g.CWD, getenv(t.place))
		c.Event.Payload = payload{"tool_name": g.Tool, "arguments": arguments}.with("working_directory", workplace)
	case ahp.PrePrompt:
		c.Event.Payload = payload{"prompt": g.Prompt}.with("working_directory", g.CWD)
	case ahp.PostAction:
		c.Event.Payload = payload{"tool": g.Tool, "arguments": limitSize(g.Input), "result": g.result()}
	case ahp.PostResponse:
		c.Event.Payload = payload{}.with("response_text", g.Said+g.Last)
	case ahp.SessionStart:
		c.Event.Payload = payload{"session_id": g.Session}.with("working_directory", g.CWD).with("model_name",
			g.Model).with("source", g.Source)
	default:
		c.Event.Payload = payload{"session_id": g.Session}.with("reason", g.Reason)
	}
	// A rule could match nothing in such a call, so that it would be allowed by default.
	if kind == ahp.PreAction && (g.Tool == "" || !isObject(g.Input)) {
		return nil, fmt.Errorf("%s does not say which tool it is about to use, and with what (tool_name, tool_input)",
			t.Title)
	}
	return c, nil
}

// Variables are the environment variables that Read looks at, for hooks that hand their
// call over.
var Variables = []string{
	toolVariable, threadVariable, folderVariable, projectVariable, process.RunVariable, process.UserVariable,
	process.DelegationVariable,
}

const (
	toolVariable   = "AGENT_TOOL_NAME"
	threadVariable = "AMP_THREAD_ID"
)

// readDelegate reads what Amp asks: the tool in the environment, its arguments on
// standard input. A build that does not tell the thread is one session named amp.
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
	// Amp's own spelling is kept beside it; rules look for command.
	if arguments["command"] == nil && arguments["cmd"] != nil { // as rules know it
		arguments["command"] = arguments["cmd"]
	}
	session := getenv(threadVariable)
	if session == "" {
		session = "amp"
	}
	c.Event = ahp.Event{
		Type: ahp.PreAction, SessionID: session, AgentID: t.Name,
		Metadata: payload{"hook": t.Name}.with("branch", branchOf(getenv(folderVariable))).
			with("run", getenv(process.RunVariable)),
		Payload: payload{"tool_name": c.name, "arguments": arguments},
	}
	return c, nil
}

// payload is the payload of an event.
type payload map[string]any

// with adds a member, unless it is empty.
func (p payload) with(name, value string) payload {
	if value != "" {
		p[name] = value
	}
	return p
}

// metadata is what differs when a CLI asks for the same again. It is not part of what
// an approval is bound to (AHP-42).
func (g *hookInput) metadata(tool string) map[string]any {
	return payload{"hook": tool}.with("tool_use_id", g.CallID).with("permission_mode", g.Mode).with("subagent",
		g.Subagent).with("subagent_id", g.SubagentID).with("model", g.Model)
}

// Behalf is on whose behalf a run is, as its supervisor knows it. What is "" the environment of its hooks says.
type Behalf struct {
	User  string
	Token string // of the handoff under which it works
}

// onBehalf adds for whom the step is: as the supervisor of the run says, or else the environment. It is a claim that the
// server checks, so a process of the agent gains nothing by changing its environment.
func (c *Call) onBehalf(as Behalf, getenv func(string) string) {
	if c.Event.Metadata == nil {
		c.Event.Metadata = payload{}
	}
	payload(c.Event.Metadata).with("user", cmp.Or(as.User, getenv(process.UserVariable))).with("delegation",
		cmp.Or(as.Token, getenv(process.DelegationVariable)))
}

// result is the outcome of a step.
func (g *hookInput) result() payload {
	r := payload{"success": len(g.Error) == 0, "output": limitSize(g.Response)}
	if len(g.Error) > 0 {
		r["output"] = limitSize(g.Error)
	}
	return r
}

// limitSize is a value, or how large it was if it is too large to report.
func limitSize(raw wire.Raw) any {
	if len(raw) <= maxReported {
		return raw
	}
	return map[string]any{"left_out_bytes": len(raw)}
}

// isObject reports whether raw is a JSON object that can be parsed strictly.
func isObject(raw []byte) bool {
	_, err := wire.Members(raw)
	return err == nil
}
