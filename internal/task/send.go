package task

import (
	"context"
	"fmt"
	"time"

	"signalbox/internal/roster"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// The transports, as the error log names them.
const (
	OverHTTP = "http"
	OverMCP  = "mcp"
)

// Speaker is a caller who sends documents, in the role that it plays. An operator names the
// workspace; an agent has its own, and naming another is refused.
func Speaker(ctx context.Context, who roster.Identity, workspace, transport string) (Party, error) {
	role, err := RoleOf(who)
	if err != nil {
		return Party{}, err
	}
	workspace, err = roster.WorkspaceOf(ctx, workspace)
	return Party{Identity: who, Role: role, Workspace: workspace, Transport: transport}, err
}

// Reader is a caller who only reads. A viewer may read everything that the admin may.
func Reader(ctx context.Context, who roster.Identity, workspace, transport string) (Party, error) {
	if who.Kind != roster.HolderOperator {
		return Speaker(ctx, who, workspace, transport)
	}
	workspace, err := roster.WorkspaceOf(ctx, workspace)
	return Party{Identity: who, Role: amp.Admin, Workspace: workspace, Transport: transport}, err
}

// Document is a document as it was sent.
type Document struct {
	Kind     amp.Kind
	About    string // the task, or for an ack the message, that the address names; "" for none
	Raw      []byte
	TooLarge bool // there was more of it than is read
}

// Send takes a document as Take does, from a transport. Acks, heartbeats and instructions may be
// sent short: complete fills in the rest. A document that is too large is refused and logged like
// any other, without its bytes.
func (s *Tasks) Send(ctx context.Context, p Party, d Document) (Answer, *ErrorRecord, error) {
	raw, refusal := []byte(nil), amp.Oversize()
	if !d.TooLarge {
		raw, refusal = s.complete(p, d)
	}
	var answer Answer
	var wrong *ErrorRecord
	var err error
	if refusal != nil {
		answer, wrong, err = s.recordRefusal(ctx, rejection{party: p, kind: d.Kind, raw: raw, refusal: refusal})
	} else {
		answer, wrong, err = s.Take(ctx, p, d.Kind, raw)
	}
	if wrong != nil {
		// The answer need not repeat up to 4 KiB to who sent them.
		wrong.Raw = "" // its sender has it
	}
	return answer, wrong, err
}

// complete makes a whole record of a short one, such as {} for an ack. It refuses a body that
// names another task or message than the address does, because one of the two is a mistake. A
// document that has "record" is taken as it is, and so is one that is no JSON object: the layers
// after this one say what is wrong.
func (s *Tasks) complete(p Party, sent Document) ([]byte, *amp.Refusal) {
	if sent.Kind == amp.InMessage {
		return sent.Raw, nil
	}
	members := amp.Members(sent.Raw)
	if members == nil {
		return sent.Raw, nil
	}
	field, taskID := "task_id", sent.About
	if sent.Kind == amp.InAck {
		field, taskID = "ack_of", amp.TaskOf(sent.About)
	}
	if text, given := members[field].(string); given && sent.About != "" && text != sent.About {
		return sent.Raw, amp.Refuse(amp.LayerSemantic, amp.RefMismatch, "/"+field, "The address names "+sent.About+".",
			sent.About, sent.About)
	}
	if _, whole := members["record"]; whole {
		return sent.Raw, nil
	}
	now := s.core.Now().UTC()
	set := func(name string, value any) {
		if _, given := members[name]; !given {
			members[name] = value
		}
	}
	if sent.Kind == amp.InAck {
		set("ack_of", sent.About)
		set("ack_id", fmt.Sprintf("ack-%s-%013d", taskID, now.UnixMilli()))
		set("status", "accepted")
	}
	if sent.Kind == amp.InInstruction {
		set("instruction_id", fmt.Sprintf("admin-%s-%013d", taskID, now.UnixMilli()))
		set("channel", "api")
		// The actor is who is signed in, whatever the body says.
		members["actor"] = p.Identity.Name
	}
	members["record"] = map[amp.Kind]string{
		amp.InAck: "ack", amp.InHeartbeat: "heartbeat",
		amp.InInstruction: "admin_instruction",
	}[sent.Kind]
	set("protocol_version", amp.Version)
	set("timestamp", now.Format(time.RFC3339Nano))
	set("from", string(p.Role))
	if taskID != "" {
		set("task_id", taskID)
	}
	whole, _ := wire.EncodeData(members) // it was JSON before
	return whole, nil
}
