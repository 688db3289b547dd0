package policy

import (
	"bytes"
	"cmp"
	"encoding/json" // keeps the digits of numbers; what is read is our own
	"net/url"
	"slices"
	"time"

	"cel.dev/cel-go/common/types/ref"

	"signalbox/internal/facts"
	"signalbox/internal/policy/recent"
	"signalbox/internal/secret"
)

// Input is everything a decision depends on. The caller of Decide makes it and does not
// change it meanwhile. The same Input and the same policy give the same Verdict, so a stored
// Input can be decided again. That is why no rule can read a clock, a table or a random
// number.
type Input struct {
	// Event is shared with whoever stores it. Deciding only fills in what follows from the rest of it.
	Event *Event `json:"event"`
	Agent Agent  `json:"agent"`
	User  User   `json:"user,omitzero"`
	// Delegation is the handoff under which it happens, nil for none.
	Delegation *Delegation `json:"delegation,omitempty"`
	Scopes     []string    `json:"scopes,omitzero"` // what user, agent and every hop have, nil for everything
	Now        time.Time   `json:"now"`
	Counts     Counts      `json:"recent,omitempty"` // what recent sees when Recent is nil
	// Reserved is how much of Counts is reserved for calls under way.
	Reserved Counts `json:"reserved,omitempty"`
	Recent   Recent `json:"-"`
	// Refused is the verdict about a call that is refused for what it says of itself, before any rule; else nil.
	Refused *Verdict `json:"-"`

	settled bool // what is reserved does not count; see Policy.Decide
}

// Event is what happened, in the same words whichever protocol it came through. A protocol
// makes one for each decision that it asks for, and leaves empty what it does not know.
// doc.go says what each field holds; schema.go makes the fields visible to rules, and a test
// keeps the two together. Field names are stored with decisions and never change.
type Event struct {
	Point          Point          `json:"point"`
	Protocol       string         `json:"protocol,omitempty"`
	Kind           string         `json:"kind,omitempty"`
	Tool           string         `json:"tool,omitempty"`
	Toolset        string         `json:"toolset,omitempty"`
	Command        string         `json:"command,omitempty"`
	Path           string         `json:"path,omitempty"`
	CWD            string         `json:"cwd,omitempty"`
	URL            string         `json:"url,omitempty"`
	Host           string         `json:"host,omitempty"`
	Text           string         `json:"text,omitempty"`
	Arguments      map[string]any `json:"arguments,omitempty"`
	Payload        map[string]any `json:"payload,omitempty"`
	Metadata       map[string]any `json:"metadata,omitempty"`
	Artifacts      []any          `json:"artifacts,omitempty"`
	Tools          []string       `json:"tools,omitempty"`
	Summary        string         `json:"summary,omitempty"`
	ProposedAction string         `json:"proposed_action,omitempty"`
	Declared       bool           `json:"declared,omitempty"`
	Model          string         `json:"model,omitempty"`
	Provider       string         `json:"provider,omitempty"`
	Project        string         `json:"project,omitempty"`
	Status         string         `json:"status,omitempty"`
	CostUSD        float64        `json:"cost_usd,omitempty"`
	Tokens         int64          `json:"tokens,omitempty"`
	InputTokens    int64          `json:"input_tokens,omitempty"`
	OutputTokens   int64          `json:"output_tokens,omitempty"`
	MaxTokens      int64          `json:"max_tokens,omitempty"`
	EstimateUSD    float64        `json:"estimate_usd,omitempty"`
	EstimateTokens int64          `json:"estimate_tokens,omitempty"`
	Unpriced       bool           `json:"unpriced,omitempty"`
	Depth          int64          `json:"depth,omitempty"`
	Attempt        int64          `json:"attempt,omitempty"`
	Session        string         `json:"session,omitempty"`
	Run            string         `json:"run,omitempty"`
	Task           string         `json:"task,omitempty"`
	Trace          string         `json:"trace,omitempty"`
	To             string         `json:"to,omitempty"`
	From           string         `json:"from,omitempty"`
	Subject        string         `json:"subject,omitempty"`
	Thread         string         `json:"thread,omitempty"`
	Priority       string         `json:"priority,omitempty"`
	External       bool           `json:"external,omitempty"`
	QueryType      string         `json:"query_type,omitempty"`
	User           string         `json:"user,omitempty"`
	Tier           Tier           `json:"tier,omitempty"`

	// UserToken is a token with which a user proves that the agent acts for them, and Workspace the workspace that the
	// call says it is in, each "" if it has none. Neither is stored: the one is a secret, the other a claim.
	UserToken string `json:"-"`
	Workspace string `json:"-"`

	// Reserve is the id of what is reserved for the model call that this is a part of, "" for none: it does not count
	// against its own parts. It is not stored; what was counted is.
	Reserve string `json:"-"`

	// Claim is what the call says of the handoff under which it happens. It is not stored: a token is a secret.
	Claim Claim `json:"-"`

	facts   *facts.Facts // see Facts
	secrets []string     // see Secrets
	lists   [4]ref.Val   // see pathList

	// Fill, if there is one, puts in the data (arguments, payload, metadata, artifacts)
	// when something first asks for it: few rules do, and decoding costs more than
	// deciding.
	Fill func(*Event) `json:"-"`
}

// Claim is what a call says of the handoff under which it happens. A protocol fills it in from its wire, and the
// rulebook finds out what is true of it.
type Claim struct {
	Token string // of a handoff, "" if the call has none
	// Within is the token of a handoff to a process that this call is made in, perhaps as another agent; "" for none. To
	// another agent it gives nothing: what the call does is found under the handoff, and that is all.
	Within string
	Hops   bool   // the call lists hops itself, which prove nothing
	Depth  *int64 // how many agents deep the call says it is, nil if it does not say
	// Subagent is the id of the subagent inside of the session that makes the call, and SubagentType what kind of
	// subagent it is, as the hooks of its CLI report them; "" for the session itself.
	Subagent, SubagentType string
}

// Empty reports whether the call claims nothing. A depth of 0 is what every event of AHP says.
func (c *Claim) Empty() bool {
	return c.Token == "" && c.Within == "" && !c.Hops && c.Subagent == "" && (c.Depth == nil || *c.Depth == 0)
}

// Complete decodes the data that is still to be filled in. It must be called before the
// event is stored, and is not safe for concurrent use.
func (e *Event) Complete() {
	if fill := e.Fill; fill != nil {
		e.Fill = nil
		fill(e)
	}
}

// Read fills in what the arguments of a tool call say: command, path, url and host, where the
// protocol has not said it. Call it before an event is decided or stored.
func (e *Event) Read() {
	if e.facts != nil || (e.Point != OnAction && e.Point != OnToolCall) {
		return
	}
	e.Complete()
	e.facts = facts.Skim(facts.Call{Tool: e.Tool, Toolset: e.Toolset, Arguments: e.arguments(), CWD: e.CWD})
	e.Command = cmp.Or(e.Command, e.facts.Command)
	e.Path = cmp.Or(e.Path, e.facts.Path)
	if e.URL = cmp.Or(e.URL, e.facts.URL); e.Host == "" && e.URL != "" {
		if u, err := url.Parse(e.URL); err == nil {
			e.Host = u.Hostname()
		}
	}
}

// arguments are those of the tool. An event that was written by hand, as in a test of a policy, may
// have a command, a path and a URL without them.
func (e *Event) arguments() map[string]any {
	if len(e.Arguments) > 0 {
		return e.Arguments
	}
	written := map[string]any{}
	for name, text := range map[string]string{"command": e.Command, "path": e.Path, "url": e.URL} {
		if text != "" {
			written[name] = text
		}
	}
	return written
}

// Facts is what a tool call does. At other points than action and tool_call there is nothing to
// know. It is not safe for concurrent use.
func (e *Event) Facts() *facts.Facts {
	e.Read()
	if e.facts == nil {
		e.facts = &facts.Facts{Does: facts.Other}
	}
	e.facts.Complete()
	return e.facts
}

// Secrets are the kinds of credentials in what the event says, each once and sorted. It is not safe
// for concurrent use.
func (e *Event) Secrets() []string {
	if e.secrets != nil {
		return e.secrets
	}
	e.Complete()
	kinds := []string{}
	look := func(text string) {
		for _, found := range secret.Find(text) {
			kinds = append(kinds, found.Kind)
		}
	}
	for _, text := range []string{e.Text, e.Summary, e.ProposedAction, e.Subject, e.Command, e.URL} {
		look(text)
	}
	for _, data := range []map[string]any{e.Arguments, e.Payload, e.Metadata} {
		if text, err := EncodeData(data); err == nil && len(data) > 0 {
			look(string(text))
		}
	}
	if text, err := EncodeData(e.Artifacts); err == nil && len(e.Artifacts) > 0 {
		look(string(text))
	}
	slices.Sort(kinds)
	e.secrets = slices.Compact(kinds)
	return e.secrets
}

// Agent is who did it, as the roster knows it and never as a request claims.
type Agent struct {
	Name      string            `json:"name"`
	Address   string            `json:"address,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	Trust     string            `json:"trust,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Suspended bool              `json:"suspended,omitempty"`
}

type (
	// Recent counts what the agent did in a window.
	Recent = recent.Recent
	// Counts are counters that were read before.
	Counts = recent.Counts
)

// DecodeData reads JSON as rules see it: 3 stays a whole number, and a large one keeps
// its digits. Unknown members are ignored, since what is stored may have been written by
// another version of Signalbox.
func DecodeData(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// EncodeData writes data that DecodeData reads.
func EncodeData(v any) ([]byte, error) { return json.Marshal(v) }

// numeral is a number in data, with its digits as they were written.
type numeral = json.Number
