package task

import (
	"context"
	"errors"
	"strings"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Name is the protocol's name in rules, and in the origin of gates.
const Name = "task"

// Protocol is AMP/1.0 tasks, for the server's list.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Tasks", Migrations: Migrations, Projection: Projection(),
		Readers: Readers(),
	}
}

// RoleLabel is the label of an agent that says which role it plays. Operators set it.
const RoleLabel = "role"

// Options are what an operator sets.
type Options struct {
	Policy amp.Policy
	// RepoRoots are the folders in which repositories are looked into, and WatchEvery is
	// how often those of tasks under review are, 0 for never.
	RepoRoots  []string
	WatchEvery time.Duration
	Mirror     string // the folder of the mirror, "" for none
}

// Tasks takes messages and answers for the tasks that they are about.
type Tasks struct {
	Options
	core protocol.Core
	news *ledger.Waiters // calls that wait for messages, by workspace
}

// New makes the service over a core whose ledger has Projection.
func New(core protocol.Core, o Options) *Tasks {
	apply := Projection().Apply
	ours := func(e *ledger.Entry) string {
		if apply[e.Kind] != nil {
			return e.Workspace
		}
		return ""
	}
	s := &Tasks{Options: o, core: core, news: core.Ledger.Waiters(ours)}
	core.Gates.OnResolved(Name, s.resolved)
	return s
}

// Party is who sends a document, as their key says.
type Party struct {
	Identity  roster.Identity
	Role      amp.Role
	Workspace string
	Transport string // OverHTTP or OverMCP
}

// RoleOf is the role that a caller plays: an operator is the admin, an agent what its
// label says. It is never taken from what was sent.
func RoleOf(who roster.Identity) (amp.Role, error) {
	if who.Kind == roster.HolderOperator {
		if !who.Role.Allows(roster.Operator) {
			return "", fault.New(fault.Forbidden,
				"A viewer sees tasks and does not speak in them. Ask an admin for the role operator.")
		}
		return amp.Admin, nil
	}
	for _, r := range amp.AgentRoles {
		if who.Labels[RoleLabel] == string(r) {
			return r, nil
		}
	}
	return "", fault.New(fault.Forbidden,
		"This agent has no role in tasks. An operator gives it one: PATCH /ops/agents/%s with "+
			"{\"labels\":{\"%s\":\"executor\"}}, or coordinator, or reviewer.", who.Name, RoleLabel)
}

// Answer is what the sender of a document that was taken hears.
type Answer struct {
	Status      string        `json:"status"` // accepted or duplicate
	TaskID      string        `json:"task_id"`
	MsgID       string        `json:"msg_id,omitempty"`
	TaskStatus  string        `json:"task_status"`
	Generation  int64         `json:"generation,omitempty"` // of the sender's lease on its role
	Warnings    []amp.Problem `json:"warnings"`
	Escalations []string      `json:"escalations,omitempty"` // that the server has raised
	ReceivedAt  time.Time     `json:"received_at"`
}

// duplicate is the status of a document that was taken before.
const duplicate = "duplicate"

// Take takes a document. It is recorded with what follows from it, or refused with a
// record of why. The error is about neither: nothing has happened.
func (s *Tasks) Take(ctx context.Context, p Party, kind amp.Kind, raw []byte) (Answer, *ErrorRecord, error) {
	in, refusal := s.Policy.Read(kind, raw)
	if refusal == nil {
		refusal = amp.MayPlay(in, p.Role)
	}
	if refusal == nil && p.Identity.Suspended && !in.IsEscalation() {
		refusal = amp.Refuse(amp.LayerAuth, amp.AuthPolicy, "", "This agent is suspended.",
			"nothing until an operator resumes it; an escalation is taken", nil)
	}
	if refusal != nil {
		return s.refused(ctx, p, kind, raw, refusal, in.Warnings)
	}
	w := work{tasks: s, party: p, in: in, world: amp.World{Agent: p.Identity.ID}}
	if p.Role == amp.Admin {
		w.world.Agent = ""
	}
	decision, refusal, err := s.ask(ctx, &w)
	if err != nil {
		return Answer{}, nil, err
	}
	if refusal != nil {
		return s.refused(ctx, p, kind, raw, refusal, in.Warnings)
	}
	w.world.Git = s.look(ctx, &w)
	var answer Answer
	var wrong *ErrorRecord
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		w := w // a function may run twice
		w.tx = tx
		answer, wrong, err = w.take(decision)
		return err
	})
	if store.IsUnique(err) {
		return Answer{}, nil,
			fault.Wrap(err, fault.Conflict, "The same message came twice at the same moment. Send it again.")
	}
	return answer, wrong, err
}

// take runs the step, and writes what it leads to.
func (w *work) take(decision *rulebook.Plain) (Answer, *ErrorRecord, error) {
	if err := w.load(); err != nil {
		return Answer{}, nil, err
	}
	next, out, refusal := w.tasks.Policy.Step(w.before, w.in, w.world)
	if refusal != nil {
		record, err := w.tasks.writeRefusal(w.tx, w.party, w.in.Kind, w.in.Raw, refusal, out.Warnings)
		return Answer{}, record, err
	}
	a := Answer{Status: "accepted", TaskID: w.in.TaskID, Warnings: out.Warnings, ReceivedAt: w.tx.Now()}
	if w.in.Message != nil {
		a.MsgID = w.in.Message.MsgID
	}
	if a.Warnings == nil {
		a.Warnings = []amp.Problem{}
	}
	if next != nil {
		a.TaskStatus, a.Generation = next.Status(), next.Seats[w.party.Role].Generation
	}
	if out.Duplicate {
		a.Status = duplicate
		return a, nil, nil
	}
	for _, m := range out.Raised {
		a.Escalations = append(a.Escalations, m.MsgID)
	}
	return a, nil, w.record(next, out, decision)
}

// ask asks the policy about a dispatch. Nothing else is its business: a task that goes
// on is held by the protocol's own rules.
func (s *Tasks) ask(ctx context.Context, w *work) (*rulebook.Plain, *amp.Refusal, error) {
	m := w.in.Message
	if m == nil || m.Dispatch == nil || w.party.Role == amp.Admin {
		return nil, nil, nil
	}
	d := s.core.Book.Decide(ctx, w.party.Identity, event(m))
	plain := rulebook.Plain(d.Record)
	plain.Event = nil // it follows from the message
	switch d.Action {
	case policy.Allow:
		w.world.PlanOK = d.Rule != policy.DefaultRule
		return &plain, nil, nil
	case policy.Gate:
		w.world.AskPlan = true
		return &plain, nil, nil
	}
	err := s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(d.Entry(w.party.Identity, m.TaskID, "task:"+w.party.Workspace+":"+m.TaskID))
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if d.Action == policy.Defer {
		return nil, nil, d.Deferred("the same message")
	}
	reason := d.Reason
	if d.Action == policy.Modify {
		reason = "The rule " + d.Rule +
			" would change the message, which is its sender's. An operator should change the policy."
	}
	return nil, amp.Refuse(amp.LayerAuth, amp.AuthPolicy, "", reason,
		"a dispatch that the policy allows, or an escalation", nil), nil
}

// event is what rules see of a dispatch.
func event(m *amp.Message) policy.Event {
	return policy.Event{
		Point: policy.OnTask, Protocol: Name, Kind: string(m.Type), Summary: m.Dispatch.Description, Task: m.TaskID,
		Project: m.Dispatch.Repo, From: string(m.From), To: string(m.To), Priority: m.Dispatch.Risk,
		Fill: func(e *policy.Event) { _ = policy.DecodeData(m.Payload, &e.Payload) },
	}
}

// Readers find the decisions in dispatches.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{kinds[amp.TypeDispatch]: func(e *ledger.Entry) (rulebook.Reading, error) {
		reading, err := rulebook.ReadDecision(e)
		if err != nil || reading.Decision == nil {
			return reading, err
		}
		var b struct {
			Record wire.Raw `json:"record"`
		}
		if err := wire.UnmarshalPart(e.Body, &b); err != nil {
			return reading, err
		}
		m, _, refusal := amp.ReadMessage(b.Record, amp.Defaults())
		if refusal != nil {
			return reading, errors.New(refusal.String())
		}
		ev := event(m)
		reading.Decision.Event = &ev
		return reading, nil
	}}
}

// refused records a document that was refused before its task was looked at.
func (s *Tasks) refused(ctx context.Context, p Party, kind amp.Kind, raw []byte, r *amp.Refusal,
	warnings []amp.Problem,
) (Answer, *ErrorRecord, error) {
	var record *ErrorRecord
	err := s.core.Ledger.Write(ctx, func(tx *ledger.Tx) (err error) {
		record, err = s.writeRefusal(tx, p, kind, raw, r, warnings)
		return err
	})
	return Answer{}, record, err
}

// writeRefusal writes a line of the error log, and escalates where a person has to know.
func (s *Tasks) writeRefusal(tx *ledger.Tx, p Party, kind amp.Kind, raw []byte, r *amp.Refusal,
	warnings []amp.Problem,
) (*ErrorRecord, error) {
	b := newRefused(p, raw, r, tx.Now())
	b.Warnings = warnings
	subject := ""
	if b.TaskID != nil {
		subject = *b.TaskID
	}
	_, lost, matters := amp.LostOf(kind, raw, r)
	if matters && p.Role != "" && subject != "" {
		w := &work{tasks: s, tx: tx, party: p, in: amp.Input{Kind: amp.InRefusal, TaskID: subject, Lost: &lost}}
		if err := w.load(); err != nil {
			return nil, err
		}
		w.in.Plan = raw
		if next, out := s.Policy.Refusal(w.before, subject, lost, w.world); next != nil {
			if len(out.Raised) > 0 {
				b.Escalation = &out.Raised[0].MsgID
			}
			if err := w.record(next, out, nil); err != nil {
				return nil, err
			}
		}
	}
	if matters && lost.Escalation && subject == "" {
		if err := s.openLost(tx, p, &b); err != nil {
			return nil, err
		}
	}
	body, err := ledger.Encode(&b)
	if err != nil {
		return nil, err
	}
	tx.Append(ledger.Event{
		Workspace: p.Workspace, Kind: kindRefused, Actor: p.Identity.Actor(), Subject: subject,
		Body: body,
	})
	record := ErrorRecord(b)
	return &record, nil
}

// Timers do what is due.
func (s *Tasks) Timers() map[string]clock.Handler {
	return map[string]clock.Handler{dueTimer: func(tx *ledger.Tx, t clock.Timer) error {
		workspace, taskID, _ := strings.Cut(t.Subject, " ")
		return s.do(tx, workspace, amp.Input{Kind: amp.InTick, TaskID: taskID})
	}}
}
