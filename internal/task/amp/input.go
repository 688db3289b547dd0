package amp

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"signalbox/internal/wire"
)

// Kind says what an input is.
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
)

// Input is what a step takes: a document that was read, or what the server has found.
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
	Raw         []byte // the document as it came
	Hash        string // of its content
	Warnings    []Problem

	Plan []byte // the dispatch whose plan waits to be approved
}

// Build is the status of a check.
type Build struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// Lost is what matters of a document that was refused.
type Lost struct {
	Layer      Layer     `json:"layer"`
	Problems   []Problem `json:"errors"`
	Risk       string    `json:"risk_level,omitzero"`
	Escalation bool      `json:"escalation,omitzero"`
}

// Finding is what a look into a repository has shown.
type Finding struct {
	Type        string `json:"escalation_type"`
	Severity    string `json:"severity"`
	Why         string `json:"why"`
	Description string `json:"description"`
	Scope       string `json:"scope"`
}

// Read takes a document through the layers that need nothing but the document.
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

// contentHash is the same for the same JSON, however it is laid out.
func contentHash(raw []byte) string {
	data, err := wire.Data(raw)
	if err != nil {
		return ""
	}
	return hashOf(data)
}

func hashOf(data any) string {
	text, _ := wire.EncodeData(data) // names sorted, numbers as they are written
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Refs are the ids that the input refers to, with its own.
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

// Step is what happens to a task: nothing else changes one. The task that is given is
// left as it is; t is nil for one that there is not.
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
	}
	out.Warnings = append(slices.Clone(in.Warnings), out.Warnings...)
	return next, out, refusal
}

// MayPlay refuses who is not in the role that a document says it is from.
func MayPlay(in Input, role Role) *Refusal {
	if in.From == role {
		return nil
	}
	return refuse(LayerAuth, AuthRole, "/from",
		"Your key is that of the "+string(role)+", and the document is from the "+string(in.From)+
			".").expecting("a document from "+string(role), string(role))
}
