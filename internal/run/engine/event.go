package engine

// Type is the type of an event.
type Type string

// The types of events. Acted is spelled action on the wire; a constant Action would
// clash with the type.
const (
	Started   Type = "started"
	Acted     Type = "action"
	Completed Type = "completed"
)

// Phase is how far an action is.
type Phase string

// The phases of an action. ok is set in Done only.
const (
	Begun   Phase = "started"
	Updated Phase = "updated"
	Done    Phase = "completed"
)

// Kind is the kind of an action, by which people see at a glance what it does.
type Kind string

// The kinds of actions. Turn is codex's own and is not shown to people. Readers treat a
// kind that they do not know as a note.
const (
	Command    Kind = "command"
	Tool       Kind = "tool"
	FileChange Kind = "file_change"
	WebSearch  Kind = "web_search"
	Subagent   Kind = "subagent"
	Note       Kind = "note"
	Turn       Kind = "turn"
	Warning    Kind = "warning"
)

// Resume names a session of an engine, so that a later run can go on with it. The zero
// value starts a new session.
type Resume struct {
	Engine string `json:"engine"`
	Value  string `json:"value"`
	Latest bool   `json:"is_continue,omitempty"` // the most recent session; Value is empty
}

// Thread is the key under which runs of one session take turns (RUN-27).
func (r Resume) Thread() string { return r.Engine + ":" + r.Value }

// WorktreeAction is the id of the action that says what was changed in the worktree of a run. Its detail has worktree,
// branch, base, and, if something was changed, stat, diff and cut.
const WorktreeAction = "signalbox.worktree"

// Action is something that the agent does. It begins, may be updated, and is done; each
// is an event with the same id, and the newest counts (RUN-6). An action may stay open
// for ever: not every CLI says that a tool has ended.
type Action struct {
	ID     string         `json:"id"` // unique in the run
	Kind   Kind           `json:"kind"`
	Title  string         `json:"title"`
	Detail map[string]any `json:"detail"`
}

// Event is one thing that happened in a run. A translator makes it, and it does not
// change. Which fields are set depends on the type; empty text is null on the wire.
type Event struct {
	Type   Type    `json:"type"`
	Engine string  `json:"engine"`
	Resume *Resume `json:"resume"` // of started and completed

	// Title is the model or the engine; Meta is what the CLI said about itself, with the
	// PID of its process.
	Title string         `json:"title"` // of started
	Meta  map[string]any `json:"meta"`

	Action *Action `json:"action"` // of action
	Phase  Phase   `json:"phase"`
	OK     *bool   `json:"ok"` // of completed, and of actions that are done
	// Message and Level are set on warnings and notes of our own.
	Message string `json:"message"`
	Level   string `json:"level"`

	Answer string  `json:"answer"` // of completed
	Error  string  `json:"error"`
	Usage  *Report `json:"usage"`
	// Cause is why a run was ended that did not end by itself. Outcome is cancelled or stopped then, and follows from it.
	Cause   Cause  `json:"cause"`
	Outcome string `json:"outcome"`
}

// Report is usage in the shape that readers of these streams know (RUN-28). Usage is
// ours.
type Report struct {
	Tokens  *ReportedTokens `json:"usage,omitempty"`
	CostUSD *float64        `json:"total_cost_usd,omitempty"`
}

// ReportedTokens are the tokens of a whole run. Counts that are not known are absent.
type ReportedTokens struct {
	Input      int64  `json:"input_tokens"`
	Output     int64  `json:"output_tokens"`
	CacheWrite *int64 `json:"cache_write_tokens,omitempty"`
	CacheRead  *int64 `json:"cache_read_tokens,omitempty"`
	Reasoning  *int64 `json:"reasoning_tokens,omitempty"`
}

// MarshalJSON writes exactly the fields that the event's type has, with null for empty
// ones.
func (e Event) MarshalJSON() ([]byte, error) { return e.Line(nil) }

// Line appends the event to b as one line of JSON. It is written by hand: a run may
// have a hundred thousand events, and what tools were given is passed on byte for byte.
func (e Event) Line(b []byte) ([]byte, error) {
	o := object{b: append(b, '{')}
	o.text("type", string(e.Type))
	o.text("engine", e.Engine)
	switch e.Type {
	case Started:
		o.any("resume", e.Resume)
		o.textOrNull("title", e.Title)
		o.any("meta", e.Meta)
	case Completed:
		o.any("ok", e.OK)
		o.text("answer", e.Answer)
		o.any("resume", e.Resume)
		o.textOrNull("error", e.Error)
		o.any("usage", e.Usage)
		if e.Cause != "" {
			o.text("outcome", e.Cause.Outcome())
			o.text("cause", string(e.Cause))
		}
	default:
		o.action(e.Action)
		o.text("phase", string(e.Phase))
		o.any("ok", e.OK)
		o.textOrNull("message", e.Message)
		o.textOrNull("level", e.Level)
	}
	return append(o.b, '}', '\n'), o.err
}
