package amp

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"signalbox/internal/wire"
)

// Kind says what an input is. It is stored in entries.
type Kind string

// The kinds of inputs: the four documents, and what the server finds by itself.
const (
	InMessage     Kind = "message"
	InAck         Kind = "ack"
	InHeartbeat   Kind = "heartbeat"
	InInstruction Kind = "instruction"
	InTick        Kind = "tick"    // a deadline has passed
	InRefusal     Kind = "refusal" // a document was refused that a person has to know of
	InBuild       Kind = "build"   // a check of the task's branch
	InMoved       Kind = "moved"   // the repository was changed behind our back
	InUnsent      Kind = "unsent"  // a plan was approved and cannot go out
	InLooked      Kind = "looked"  // the branch of a task that is about to be completed
)

// Input is what a step takes: a document that was read, or something that the server has found.
// Exactly the field that belongs to Kind is set.
type Input struct {
	Kind        Kind
	TaskID      string
	From        Role
	Message     *Message
	Ack         *Ack
	Heartbeat   *Heartbeat
	Instruction *Instruction
	Build       *Build
	Lost        *Lost
	Moved       *Finding
	Unsent      *Unsent
	Raw         []byte // the document as it came; of a refusal only where it is kept
	Hash        string // of its content
	// Warnings of the layers that have read the document.
	Warnings []Problem
}

// Build is the status of one check.
type Build struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// Lost is what matters of a document that was refused and that a person has to know of.
type Lost struct {
	Layer      Layer     `json:"layer"`
	Problems   []Problem `json:"errors"`
	Risk       string    `json:"risk_level,omitzero"`
	Escalation bool      `json:"escalation,omitzero"`
	Plan       *Plan     `json:"plan,omitzero"`       // the dispatch, if it waits to be approved
	Subtask    string    `json:"subtask_id,omitzero"` // of a result that was refused for what git has shown
}

// Read takes a document through the layers that need nothing but the document: size, JSON,
// version, schema, and what it says about itself.
func (p Policy) Read(kind Kind, raw []byte) (in Input, refusal *Refusal) {
	in = Input{Kind: kind, Raw: raw}
	switch kind {
	case InAck:
		if in.Ack, refusal = ReadAck(raw); refusal == nil {
			in.TaskID, in.From = in.Ack.TaskID, in.Ack.From
		}
	case InHeartbeat:
		if in.Heartbeat, refusal = ReadHeartbeat(raw); refusal == nil {
			in.TaskID, in.From = in.Heartbeat.TaskID, in.Heartbeat.From
		}
	case InInstruction:
		if in.Instruction, refusal = ReadInstruction(raw); refusal == nil {
			in.TaskID, in.From, in.Hash = in.Instruction.TaskID, Admin, contentHash(raw)
		}
	default:
		if in.Message, in.Warnings, refusal = ReadMessage(raw, p); refusal == nil {
			in.TaskID, in.From, in.Hash = in.Message.TaskID, in.Message.From, in.Message.hash
		}
	}
	return in, refusal
}

// contentHash is the SHA-256 of the document's canonical JSON, so it is the same however the
// document is laid out. It tells a duplicate from a conflict.
func contentHash(raw []byte) string {
	data, err := wire.Data(raw)
	if err != nil {
		return ""
	}
	return hashOf(data)
}

// hashOf hashes data with sorted names and numbers as they were written.
func hashOf(data any) string {
	text, _ := wire.EncodeData(data) // names sorted, numbers as they are written
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Refs are the ids of messages that the step has to know of: those that the input refers to, and
// its own.
func (in *Input) Refs() (ids []string) {
	switch {
	case in.Message != nil:
		ids = append(slices.Clone(in.Message.ContextRef), in.Message.MsgID)
		if r := in.Message.Request; r != nil {
			ids = append(ids, r.DispatchRef, r.ResultRef)
		}
	case in.Ack != nil:
		ids = []string{in.Ack.AckOf}
	case in.Instruction != nil:
		ids = []string{in.Instruction.ID}
	}
	return ids
}

// Step is the state machine: it is the only thing that changes a task. It is a pure function. t is
// nil if the task does not exist, and is never changed. If refusal is not nil, nothing has
// happened; if out.Duplicate is set, neither.
func (p Policy) Step(t *Task, in Input, w World) (next *Task, out Outcome, refusal *Refusal) {
	w.Hash = in.Hash
	switch in.Kind {
	case InMessage:
		next, out, refusal = p.Submit(t, in.Message, w)
	case InAck:
		next, out, refusal = p.Acknowledge(t, in.Ack, w)
	case InHeartbeat:
		next, out, refusal = p.Beat(t, in.Heartbeat, w)
	case InInstruction:
		next, out, refusal = p.Instruct(t, in.Instruction, w)
	case InTick:
		next, out = p.Tick(t, w)
	case InBuild:
		next, out = p.Build(t, in.Build.Name, in.Build.Status, w)
	case InMoved:
		next, out = p.Moved(t, *in.Moved, w)
	case InRefusal:
		next, out = p.Refusal(t, in.TaskID, *in.Lost, w)
	case InUnsent:
		next, out = p.EndUnsent(t, *in.Unsent, w)
	case InLooked:
		next, out = p.Looked(t, w)
	}
	out.Warnings = append(slices.Clone(in.Warnings), out.Warnings...)
	return next, out, refusal
}

// MayPlay refuses a document that says it is from another role than the key's.
func MayPlay(in Input, role Role) *Refusal {
	if in.From == role {
		return nil
	}
	return refuse(LayerAuth, AuthRole, "/from",
		"Your key is that of the "+string(role)+", and the document is from the "+string(in.From)+
			".").expecting("a document from "+string(role), string(role))
}
