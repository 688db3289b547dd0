package harness

import (
	"strings"

	"signalbox/internal/behalf"
	"signalbox/internal/harness/shape"
	"signalbox/internal/policy"
	"signalbox/internal/wire"
)

// Name is the protocol's name: event.protocol in rules, and gate.Origin.Protocol.
const Name = "ahp"

// Version is the version of AHP that handshakes announce.
const Version = "2.4"

// compatible reports whether a client's version has our major version: the text before
// the first dot, compared as text, so that "v2.4" and "02.4" are not compatible
// (AHP-19).
func compatible(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	return major == "2"
}

// Type is a type of event, spelled as it is on the wire.
type Type string

// The 22 types of events. matrix.go says what each of them is.
const (
	Handshake         Type = "handshake"
	PreAction         Type = "pre_action"
	PostAction        Type = "post_action"
	PrePrompt         Type = "pre_prompt"
	PostResponse      Type = "post_response"
	SessionStart      Type = "session_start"
	SessionEnd        Type = "session_end"
	ErrorEvent        Type = "error"
	Query             Type = "query"
	Heartbeat         Type = "heartbeat"
	Idle              Type = "idle"
	ContextPerception Type = "context_perception"
	Success           Type = "success"
	MemoryRecall      Type = "memory_recall"
	Planning          Type = "planning"
	Reasoning         Type = "reasoning"
	RateLimit         Type = "rate_limit"
	Confirmation      Type = "confirmation"
	IntentDetection   Type = "intent_detection"
	RunLifecycle      Type = "run_lifecycle"
	TaskList          Type = "task_list"
	Verification      Type = "verification"
)

// Event is one event as the agent sent it. parseEvent or parseQuery makes it, one goroutine handles it, and it ends
// with the answer; Raw is what the ledger keeps: all but a user's token. AgentID is what the agent calls itself, and
// nothing is decided by it (AHP-8). Its texts and members share memory with the message.
type Event struct {
	Type         Type
	Session      string
	AgentID      string
	behalf.Named // on whose behalf, as metadata claims
	Depth        int64
	Payload      wire.Raw
	Raw          wire.Raw // all of it

	kind    *kind
	compat  bool                // its client is A3S Code
	asking  bool                // it is a query
	query   string              // the query_type of a query
	meta    wire.Raw            // the metadata
	members map[string]wire.Raw // of a payload that is an object
	// arguments are the members of the payload's arguments, if they are an object.
	arguments map[string]wire.Raw
}

// readParams checks that params are an object with these members, and returns all of
// its members.
func readParams(raw wire.Raw, members []shape.Member) (map[string]wire.Raw, error) {
	if raw.Kind() != '{' {
		return nil, shape.Misfitf("params should be an object, and is %s", shape.Beginning(raw))
	}
	got, err := wire.Members(raw)
	if err == nil {
		err = shape.Fits(got, members)
	}
	return got, err
}

// parseEvent parses the params of an event. inside is what parseMessage has decoded of
// them already, or nil. The payload is checked later: which shape it must have depends
// on the checks in between (AHP-24).
func parseEvent(raw wire.Raw, inside []map[string]wire.Raw) (*Event, error) {
	if raw.Kind() != '{' {
		return nil, shape.Misfitf("params should be an object, and is %s", shape.Beginning(raw))
	}
	if inside == nil {
		var err error
		if inside, err = wire.Nested(raw, "payload", "arguments"); err != nil {
			return nil, err
		}
	}
	got := inside[0]
	if err := shape.Fits(got, shape.EventMembers); err != nil {
		return nil, err
	}
	e := &Event{Payload: got["payload"], Raw: raw, meta: got["metadata"], members: inside[1], arguments: inside[2]}
	name, _ := wire.Text(got["event_type"])
	e.Type = Type(name)
	if e.kind = kinds[e.Type]; e.kind == nil {
		return nil, shape.Within(
			"event_type",
			shape.Misfitf("%.40q is not one of the 22 types of events, such as pre_action", name),
		)
	}
	e.Session, _ = wire.Text(got["session_id"])
	e.AgentID, _ = wire.Text(got["agent_id"])
	e.Named, e.Depth = behalf.At(got["metadata"], got["depth"])
	e.Raw = e.Hide(raw)
	return e, nil
}

// parseQuery parses the params of ahp/query as an event of the type query, so that
// rules see both alike. asking remembers that the answer has the form of a query.
func parseQuery(raw wire.Raw) (*Event, error) {
	got, err := readParams(raw, shape.QueryParams)
	if err != nil {
		return nil, err
	}
	e := &Event{Type: Query, kind: kinds[Query], Payload: got["payload"], Raw: raw, meta: got["metadata"], asking: true}
	e.query, _ = wire.Text(got["query_type"])
	e.Session, _ = wire.Text(got["session_id"])
	e.AgentID, _ = wire.Text(got["agent_id"])
	e.Named = behalf.In(got["metadata"])
	e.Raw = e.Hide(raw)
	if e.Payload.Kind() == '{' {
		e.members, err = wire.Members(e.Payload)
	}
	return e, err
}

// text is the first of these members of the payload that is a string, or "". Agents
// spell the same thing differently, so callers list the spellings in the order of
// preference.
func (e *Event) text(names ...string) string {
	for _, name := range names {
		if value, ok := wire.Text(e.members[name]); ok {
			return value
		}
	}
	return ""
}

// inside are the members of an object inside the payload, or nil.
func (e *Event) inside(name string) map[string]wire.Raw {
	if e.members[name].Kind() != '{' {
		return nil
	}
	members, _ := wire.Members(e.members[name])
	return members
}

// Answer is a decision of any type. Each type uses some of the members. Decoders ignore
// members that they do not know, so one answer may carry members for two decoders
// (AHP-37).
type Answer struct {
	Decision         string          `json:"decision"`
	Reason           string          `json:"reason,omitzero"`
	ModifiedPayload  wire.Raw        `json:"modified_payload,omitzero"`
	RetryAfterMS     *int64          `json:"retry_after_ms,omitzero"`
	EscalationTarget string          `json:"escalation_target,omitzero"`
	DetectedIntent   string          `json:"detected_intent,omitzero"`
	Confidence       *float64        `json:"confidence,omitzero"`
	InjectedContext  *shape.Injected `json:"injected_context,omitzero"`
	InjectedFacts    []shape.Fact    `json:"injected_facts,omitzero"`
	SelectedStrategy wire.Raw        `json:"selected_strategy,omitzero"`
	ModifiedTask     string          `json:"modified_task,omitzero"`
	Hints            []string        `json:"hints,omitzero"`
	ScopeHints       []string        `json:"scope_hints,omitzero"`
	Metadata         map[string]any  `json:"metadata,omitzero"`
}

// encode writes an answer with the members that a rule sets. If a rule has set any, the
// result is checked against the shapes of the event's type: a rule may hold any YAML,
// and a decision that the client cannot decode would be no decision (AHP-38).
func (a Answer) encode(e *Event, set map[string]any) (wire.Raw, error) {
	text, err := wire.Marshal(a)
	if err == nil && len(set) > 0 && e.kind.typed() {
		text, err = setMembers(e.kind, text, set)
	}
	if err == nil && e.compat {
		text = e.forA3S(text)
	}
	return text, err
}

// setMembers are the members that a rule sets, in an answer about a kind of event.
func setMembers(k *kind, text wire.Raw, set map[string]any) (wire.Raw, error) {
	more := make(map[string]any, len(set))
	for name, value := range set {
		if full := memberAliases[name]; full != "" {
			name = full
		}
		more[name] = value
	}
	merge := func(answer map[string]any) map[string]any { return policy.Merge(answer, more) }
	text, err := patch(text, merge)
	if err != nil {
		return nil, err
	}
	return text, checkAnswer(k, text)
}

// memberAliases are short names that rules may use for members of typed decisions.
var memberAliases = map[string]string{
	"strategy": "selected_strategy", "task": "modified_task", "intent": "detected_intent",
}

// checkAnswer checks that a decision has one of the shapes that the type of event
// allows.
func checkAnswer(k *kind, answer wire.Raw) error {
	answers := k.answers
	if answers == nil {
		answers = shape.GenericAnswers
	}
	if answer.Kind() != '{' {
		return shape.Misfitf("the decision should be an object, and is %s", shape.Beginning(answer))
	}
	members, err := wire.Members(answer)
	if err != nil {
		return err
	}
	name, _ := wire.Text(members["decision"])
	form := answers[name]
	if form == nil {
		return shape.Within("decision", shape.Misfitf("%.40q is not a decision about this event", name))
	}
	return form(answer)
}
