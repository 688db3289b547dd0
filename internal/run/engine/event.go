package engine

// Type says what an event is.
type Type string

// The types of events.
const (
	Started   Type = "started"
	Acted     Type = "action"
	Completed Type = "completed"
)

// Phase says how far an action is.
type Phase string

// The phases of an action.
const (
	Begun   Phase = "started"
	Updated Phase = "updated"
	Done    Phase = "completed"
)

// Kind says what sort of action it is.
type Kind string

// The kinds of actions.
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

// Resume names a session of an engine, so that a later run can go on with it.
type Resume struct {
	Engine string `json:"engine"`
	Value  string `json:"value"`
	Latest bool   `json:"is_continue,omitempty"` // the most recent session; Value is empty
}

// Thread is the key under which runs of one session take turns.
func (r Resume) Thread() string { return r.Engine + ":" + r.Value }

// Action is something that the agent does.
type Action struct {
	ID     string         `json:"id"` // unique in the run
	Kind   Kind           `json:"kind"`
	Title  string         `json:"title"`
	Detail map[string]any `json:"detail"`
}

// Event is one thing that happened in a run. Which fields it has depends on its type;
// text that is absent is null on the wire.
type Event struct {
	Type   Type    `json:"type"`
	Engine string  `json:"engine"`
	Resume *Resume `json:"resume"` // of started and completed

	Title string         `json:"title"` // of started
	Meta  map[string]any `json:"meta"`

	Action  *Action `json:"action"` // of action
	Phase   Phase   `json:"phase"`
	OK      *bool   `json:"ok"` // of completed, and of actions that are done
	Message string  `json:"message"`
	Level   string  `json:"level"`

	Answer string  `json:"answer"` // of completed
	Error  string  `json:"error"`
	Usage  *Report `json:"usage"`
}

// Report is usage as an event tells it.
type Report struct {
	Tokens  *ReportedTokens `json:"usage,omitempty"`
	CostUSD *float64        `json:"total_cost_usd,omitempty"`
}

// ReportedTokens are the tokens of a whole run.
type ReportedTokens struct {
	Input      int64  `json:"input_tokens"`
	Output     int64  `json:"output_tokens"`
	CacheWrite *int64 `json:"cache_write_tokens,omitempty"`
	CacheRead  *int64 `json:"cache_read_tokens,omitempty"`
	Reasoning  *int64 `json:"reasoning_tokens,omitempty"`
}

// MarshalJSON writes the fields that the event's type has, null where one is absent.
func (e Event) MarshalJSON() ([]byte, error) { return e.Line(nil) }

// Line appends the event to b as one line of JSON. It is written by hand, since a run may
// have a hundred thousand of them and what tools were given is passed on as it came.
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
	default:
		o.action(e.Action)
		o.text("phase", string(e.Phase))
		o.any("ok", e.OK)
		o.textOrNull("message", e.Message)
		o.textOrNull("level", e.Level)
	}
	return append(o.b, '}', '\n'), o.err
}

// Usage is what a run has used so far, in one shape for every engine.
type Usage struct {
	Tokens     Tokens   `json:"tokens"`
	CostUSD    *float64 `json:"cost_usd"` // nil when nobody said
	DurationMS int64    `json:"duration_ms,omitempty"`
	Turns      int64    `json:"turns,omitempty"`
	Model      string   `json:"model,omitempty"`
	Source     string   `json:"source"` // the engine that counted
}

// Tokens are counts of tokens, as the engine counts them.
type Tokens struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	Reasoning  int64 `json:"reasoning"` // part of Output
}

// Apart are the tokens with each counted once: codex and gemini count what came from a
// cache as input too.
func (u Usage) Apart() Tokens {
	t := u.Tokens
	if u.Source == "codex" || u.Source == "gemini" {
		t.Input = max(0, t.Input-t.CacheRead)
	}
	return t
}

// Budgeted is how many tokens a budget counts.
func (u Usage) Budgeted() int64 {
	t := u.Apart()
	return t.Input + t.Output + t.CacheRead + t.CacheWrite
}

// report is the usage as an event has it, nil when nothing was counted.
func (u Usage) report(counted bool) *Report {
	if !counted && u.CostUSD == nil {
		return nil
	}
	r := &Report{CostUSD: u.CostUSD}
	if !counted {
		return r
	}
	r.Tokens = &ReportedTokens{Input: u.Tokens.Input, Output: u.Tokens.Output}
	if u.Tokens.CacheRead != 0 || u.Tokens.CacheWrite != 0 {
		r.Tokens.CacheWrite, r.Tokens.CacheRead = &u.Tokens.CacheWrite, &u.Tokens.CacheRead
	}
	if u.Tokens.Reasoning != 0 {
		r.Tokens.Reasoning = &u.Tokens.Reasoning
	}
	return r
}
