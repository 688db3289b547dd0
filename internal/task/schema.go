package task

import (
	"io/fs"

	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// The documents of AMP/1.0 as /openapi.json describes them. The JSON Schemas of package amp check them;
// a test sends the examples.
type (
	// MessageFields is the envelope that the five messages share.
	MessageFields struct {
		MsgID       string   `json:"msg_id" doc:"{type}-{task_id}-{milliseconds}"`
		Version     string   `json:"protocol_version" doc:"always AMP/1.0"`
		From        amp.Role `json:"from" doc:"coordinator, executor, reviewer or admin"`
		To          amp.Role `json:"to"`
		TaskID      string   `json:"task_id"`
		Timestamp   string   `json:"timestamp" doc:"RFC 3339 with an offset"`
		RequiresAck bool     `json:"requires_ack"`
		AckTimeout  int64    `json:"ack_timeout_sec,omitempty"`
		ContextRef  []string `json:"context_ref,omitempty"`
	}
	// DispatchDocument gives a task to the executor.
	DispatchDocument struct {
		MessageFields
		Type    string       `json:"type" doc:"always task_dispatch"`
		Payload amp.Dispatch `json:"payload"`
	}
	// ResultDocument reports the result of a subtask.
	ResultDocument struct {
		MessageFields
		Type    string     `json:"type" doc:"always task_result"`
		Payload amp.Result `json:"payload"`
	}
	// ReviewDocument asks for a review.
	ReviewDocument struct {
		MessageFields
		Type    string      `json:"type" doc:"always review_request"`
		Payload amp.Request `json:"payload"`
	}
	// VerdictDocument decides a review.
	VerdictDocument struct {
		MessageFields
		Type    string      `json:"type" doc:"always review_verdict"`
		Payload amp.Verdict `json:"payload"`
	}
	// EscalationDocument asks the admin.
	EscalationDocument struct {
		MessageFields
		Type    string         `json:"type" doc:"always escalation"`
		Payload amp.Escalation `json:"payload"`
	}
	// AckDocument acknowledges a message, or refuses it. The server fills in what is left out.
	AckDocument struct {
		Status string   `json:"status,omitempty" doc:"accepted when absent" example:"accepted"`
		Error  wire.Raw `json:"error,omitempty"`
	}
	// HeartbeatDocument says that work on a task goes on.
	HeartbeatDocument struct {
		TaskID string `json:"task_id" example:"T-2026-044"`
		Note   string `json:"note,omitempty" example:"Two of five tests pass"`
	}
	// InstructionDocument is what the admin says about a task. The server fills in what is left out.
	InstructionDocument struct {
		Action      string   `json:"action" doc:"resume, terminate, approve_plan, reassign and others" example:"resume"`
		Refs        []string `json:"escalation_refs,omitempty"`
		Target      amp.Role `json:"target,omitempty"`
		NewDecision string   `json:"new_decision,omitempty"`
		Note        string   `json:"note,omitempty" example:"Go on"`
	}
)

// documents are the bodies of the calls, by what a call takes.
var documents = map[amp.Kind]any{
	amp.InMessage: wire.OneOf{
		DispatchDocument{}, ResultDocument{}, ReviewDocument{}, VerdictDocument{}, EscalationDocument{},
	},
	amp.InAck: AckDocument{}, amp.InHeartbeat: HeartbeatDocument{}, amp.InInstruction: InstructionDocument{},
}

// Example is a dispatch that is taken.
func (DispatchDocument) Example() wire.Raw { return vector("v01-dispatch-required-only") }

// Example is a result that is taken.
func (ResultDocument) Example() wire.Raw { return vector("v10-result-complete-with-null") }

// Example is a request for a review that is taken.
func (ReviewDocument) Example() wire.Raw { return vector("v17-request-local-diff-path") }

// Example is a verdict that is taken.
func (VerdictDocument) Example() wire.Raw { return vector("v21-verdict-approved") }

// Example is an escalation that is taken.
func (EscalationDocument) Example() wire.Raw { return vector("v29-escalation-hallucination-lock") }

// vector is one of the documents that the conformance kit has as right ones.
func vector(name string) wire.Raw {
	text, err := fs.ReadFile(amp.Vectors(), "valid/"+name+".json")
	if err != nil {
		panic(err) // it is embedded
	}
	return text
}
