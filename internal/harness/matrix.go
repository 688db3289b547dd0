package harness

import (
	"signalbox/internal/harness/shape"
	"signalbox/internal/policy"
)

// kind is what AHP fixes about one type of event. The zero value is a notification with
// free JSON.
type kind struct {
	point    policy.Point           // where the policy is asked; "" for notifications
	batch    bool                   // allowed in a batch: its answer is the generic decision
	payload  shape.Shape            // nil for free JSON
	contract bool                   // a notification whose payload is checked, and which is never dropped
	state    bool                   // what people see of a session follows from it
	answers  map[string]shape.Shape // the shape of each decision by its word; nil for the generic ones
}

// blocking reports whether the agent waits for a decision, so that the event has to be
// a request (AHP-23).
func (k *kind) blocking() bool { return k.point != "" }

// typed reports whether the decision has words of its own type instead of the generic
// ones.
func (k *kind) typed() bool { return k.answers != nil }

// kinds is the matrix of AHP 2.4: all 22 types, in the groups of the document.
// handshake and query exist as types of events beside the methods of those names;
// clients should use the methods.
var kinds = map[Type]*kind{
	PreAction: {point: policy.OnAction, batch: true},
	PrePrompt: {point: policy.OnPrompt, batch: true},
	Handshake: {point: policy.OnQuery},
	Query:     {point: policy.OnQuery},

	Idle:              {point: policy.OnIdle, payload: shape.IdlePayload, answers: shape.IdleAnswers},
	IntentDetection:   {point: policy.OnIntent, payload: shape.IntentPayload, answers: shape.IntentAnswers},
	ContextPerception: {point: policy.OnContext, payload: shape.ContextPayload, answers: shape.ContextAnswers},
	MemoryRecall:      {point: policy.OnMemory, payload: shape.MemoryPayload, answers: shape.MemoryAnswers},
	Planning:          {point: policy.OnPlanning, payload: shape.PlanningPayload, answers: shape.PlanningAnswers},
	Reasoning:         {point: policy.OnReasoning, payload: shape.ReasoningPayload, answers: shape.ReasoningAnswers},
	RateLimit:         {point: policy.OnRateLimit, payload: shape.RateLimitPayload, answers: shape.RateLimitAnswers},
	Confirmation: {
		point:   policy.OnConfirmation,
		payload: shape.ConfirmationPayload,
		answers: shape.ConfirmationAnswers,
	},

	PostAction:   {batch: true},
	PostResponse: {batch: true},
	Success:      {batch: true},
	SessionStart: {batch: true, state: true},
	SessionEnd:   {batch: true, state: true},
	ErrorEvent:   {batch: true, state: true},
	Heartbeat:    {batch: true, state: true},
	RunLifecycle: {batch: true, payload: shape.RunPayload, contract: true, state: true},
	TaskList:     {batch: true, payload: shape.TaskListPayload, contract: true, state: true},
	Verification: {batch: true, payload: shape.VerificationPayload, contract: true, state: true},
}

// Decides reports whether a type of event asks for a decision, and so may have an
// external handler.
func Decides(t Type) bool { return kinds[t] != nil && kinds[t].blocking() }
