package harness

import (
	"strconv"

	"signalbox/internal/policy"
	"signalbox/internal/wire"
)

// Type is a type of event.
type Type string

// The types of events, as they are on the wire.
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

// kind is what there is to know of a type of event.
type kind struct {
	point    policy.Point     // where the policy is asked; "" for what only tells
	batch    bool             // may stand in a batch, since its answer is the generic decision
	payload  shape            // nil for free JSON
	contract bool             // its payload is checked although it only tells, and it is never dropped
	state    bool             // what people see of a session follows from it
	answers  map[string]shape // the decisions by their word; those of generic where there are none
}

func (k *kind) blocking() bool { return k.point != "" }

func (k *kind) typed() bool { return k.answers != nil }

// kinds is the matrix of AHP 2.4.
var kinds = map[Type]*kind{
	PreAction: {point: policy.OnAction, batch: true},
	PrePrompt: {point: policy.OnPrompt, batch: true},
	Handshake: {point: policy.OnQuery},
	Query:     {point: policy.OnQuery},

	Idle:              {point: policy.OnIdle, payload: idlePayload, answers: idleAnswers},
	IntentDetection:   {point: policy.OnIntent, payload: intentPayload, answers: intentAnswers},
	ContextPerception: {point: policy.OnContext, payload: contextPayload, answers: contextAnswers},
	MemoryRecall:      {point: policy.OnMemory, payload: memoryPayload, answers: memoryAnswers},
	Planning:          {point: policy.OnPlanning, payload: planningPayload, answers: planningAnswers},
	Reasoning:         {point: policy.OnReasoning, payload: reasoningPayload, answers: reasoningAnswers},
	RateLimit:         {point: policy.OnRateLimit, payload: rateLimitPayload, answers: rateLimitAnswers},
	Confirmation:      {point: policy.OnConfirmation, payload: confirmationPayload, answers: confirmationAnswers},

	PostAction:   {batch: true},
	PostResponse: {batch: true},
	Success:      {batch: true},
	SessionStart: {batch: true, state: true},
	SessionEnd:   {batch: true, state: true},
	ErrorEvent:   {batch: true, state: true},
	Heartbeat:    {batch: true, state: true},
	RunLifecycle: {batch: true, payload: runPayload, contract: true, state: true},
	TaskList:     {batch: true, payload: taskListPayload, contract: true, state: true},
	Verification: {batch: true, payload: verificationPayload, contract: true, state: true},
}

// Event is one event as it came. What the agent says of itself (AgentID) is kept and
// trusted with nothing.
type Event struct {
	Type    Type
	Session string
	AgentID string
	Depth   int64
	Payload wire.Raw
	Raw     wire.Raw // all of it

	kind    *kind
	compat  bool                // its payload was adapted
	asking  bool                // it is a query
	query   string              // the query_type of a query
	members map[string]wire.Raw // of a payload that is an object
	// arguments are the members of the payload's arguments, if they are an object.
	arguments map[string]wire.Raw
}

// parseEvent reads the params of an event, of which inside is what has been taken apart
// already. The payload is looked into later.
func parseEvent(raw wire.Raw, inside []map[string]wire.Raw) (*Event, error) {
	if raw.Kind() != '{' {
		return nil, misfitf("params should be an object, and is %s", shown(raw))
	}
	if inside == nil {
		var err error
		if inside, err = wire.Nested(raw, "payload", "arguments"); err != nil {
			return nil, err
		}
	}
	got := inside[0]
	if err := fits(got, eventMembers); err != nil {
		return nil, err
	}
	e := &Event{Payload: got["payload"], Raw: raw, members: inside[1], arguments: inside[2]}
	name, _ := wire.Text(got["event_type"])
	e.Type = Type(name)
	if e.kind = kinds[e.Type]; e.kind == nil {
		return nil, within("event_type", misfitf("%.40q is not one of the 22 types of events, such as pre_action", name))
	}
	e.Session, _ = wire.Text(got["session_id"])
	e.AgentID, _ = wire.Text(got["agent_id"])
	e.Depth, _ = strconv.ParseInt(string(got["depth"]), 10, 64)
	return e, nil
}

// text is a member of the payload, "" when it is no text.
func (e *Event) text(names ...string) string {
	for _, name := range names {
		if value, ok := wire.Text(e.members[name]); ok {
			return value
		}
	}
	return ""
}

// inside is a member of an object in the payload.
func (e *Event) inside(name string) map[string]wire.Raw {
	if e.members[name].Kind() != '{' {
		return nil
	}
	members, _ := wire.Members(e.members[name])
	return members
}

// Decides reports whether a type of event is decided about.
func Decides(t Type) bool { return kinds[t] != nil && kinds[t].blocking() }
