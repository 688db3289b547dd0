package amp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/internal/wire"
)

// Plan is a dispatch that the admin has to approve before it goes out (R-111, TSK-19). The
// coordinator makes one by dispatching. An approval is of this digest from this agent and of
// nothing else. A plan ends when its dispatch has gone out, when it is rejected, when it was
// approved and could not go out, and with its task.
type Plan struct {
	MsgID    string `json:"msg_id"` // of the dispatch
	Digest   string `json:"digest"` // of its content
	Agent    string `json:"agent"`  // the id of the coordinator that sent it
	Gate     string `json:"gate,omitzero"`
	Approved bool   `json:"approved,omitzero"` // it is about to go out
	Note     string `json:"note,omitzero"`     // of who approved it
}

const (
	// maxPlans is how many plans of one task wait at the same time. They are part of the task's
	// state, and each is a question to a person.
	maxPlans = 10
	// MaxPlan is the largest dispatch that a person can be asked about, in bytes: they are shown all
	// of it.
	MaxPlan = 64 << 10
)

// PlanState is how a plan stands. It is stored.
type PlanState string

// The states of plans. Those after PlanApproved are final.
const (
	PlanWaiting  PlanState = "waiting"
	PlanApproved PlanState = "approved" // about to go out
	PlanSent     PlanState = "sent"
	PlanRejected PlanState = "rejected"
	PlanUnsent   PlanState = "unsent" // approved, and could not go out
)

// PlanChange is a plan that stands otherwise after a step, and by what.
type PlanChange struct {
	MsgID string    `json:"msg_id"`
	Gate  string    `json:"gate,omitzero"`
	State PlanState `json:"state"`
	By    string    `json:"by,omitzero"` // the admin's action, or how the task ended
}

// TypeDecision is the type of what a coordinator hears about its plan. It is a record of ours and
// not a sixth message: only the server writes it.
const TypeDecision Type = "plan_decision"

// Decision is the payload of plan_decision: what became of a plan, with the admin's note.
type Decision struct {
	Decision    string    `json:"decision"` // approved or rejected
	Sent        bool      `json:"dispatched"`
	Dispatch    string    `json:"dispatch_ref"`
	Gate        string    `json:"gate,omitzero"`
	Coordinator string    `json:"coordinator"` // the id of the agent that hears it
	Note        string    `json:"note,omitzero"`
	Problems    []Problem `json:"errors,omitempty"` // why it did not go out, though it was approved
	Next        string    `json:"next"`             // what the coordinator does now
}

// Unsent is a plan that was approved and cannot go out.
type Unsent struct {
	MsgID    string    `json:"msg_id"`
	Problems []Problem `json:"errors"`
}

// FindPlan finds the plan of a dispatch, nil if there is none.
func (t *Task) FindPlan(msgID string) *Plan {
	return find(t.Plans, func(p *Plan) bool { return p.MsgID == msgID })
}

// limits are what a dispatch forbids and prescribes, as one text to compare.
func (d *Dispatch) limits(w World) string {
	files := d.FileScope
	if w.ByWord {
		files = nil
	}
	if len(d.Forbidden) == 0 && len(d.Constraints) == 0 && len(files) == 0 {
		return ""
	}
	forbidden, _ := wire.Marshal(d.Forbidden)  // texts always encode
	constraints, _ := wire.Data(d.Constraints) // the schema has read it
	limits := map[string]any{"forbidden": string(forbidden), "constraints": constraints}
	if len(files) > 0 {
		limits["files"], _ = wire.Data(files) // as above
	}
	return hashOf(limits)
}

// covers reports whether a dispatch belongs to the plan that was approved: it is from the same
// coordinator, gives again what was given before, under the same limits and at no higher risk
// (TSK-19). Repository, branch and criteria are bound by checkKept.
func (t *Task) covers(d *Dispatch, w World) bool {
	known := func(id string) bool {
		return t.findSubtask(func(x *Subtask) bool { return x.ID == id }) != nil
	}
	for _, sub := range d.Subtasks {
		if !known(sub.ID) {
			return false
		}
	}
	return t.PlanApproved && t.Phase == Active && t.PlanAgent == w.Agent && t.PlanLimits == d.limits(w) &&
		rank(d.Risk) <= rank(t.PlanRisk)
}

// checkPlan refuses a dispatch that a person has to approve first. It comes after all other checks,
// so that nobody is asked about what could not go out. covered says whether the dispatch belonged
// to the approved plan before it changed the task.
func (s *step) checkPlan(m *Message, covered bool) *Refusal {
	d, t := m.Dispatch, s.t
	if p := t.FindPlan(m.MsgID); p != nil && p.Approved && p.Digest == s.w.Hash && p.Agent == s.w.Agent {
		s.bindPlan(d)
		s.endPlan(*p, PlanSent, "", nil)
		return nil
	}
	switch {
	// A rule of the policy approves the dispatch (TSK-47).
	case s.w.PlanOK:
		s.bindPlan(d)
		return nil
	case covered || !s.RequirePlan && !s.w.AskPlan:
		return nil
	case len(m.Raw) > MaxPlan:
		return unfit(TooLarge, "", fmt.Sprintf("A person has to approve this plan and reads all of it. It has %d bytes.",
			len(m.Raw)), fmt.Sprintf("at most %d bytes; put large texts where a URL can name them", MaxPlan))
	case len(t.Plans) >= maxPlans:
		return unfit(WrongState, "/task_id", fmt.Sprintf("%d plans of this task wait for a person.", len(t.Plans)),
			"a dispatch after one of them was decided")
	}
	return unfit(PlanNotApproved, "/task_id", "A person has to approve this plan.",
		"nothing more: this dispatch is kept and goes out by itself when it is approved; a plan_decision in your inbox "+
			"says what was decided")
}

// bindPlan notes what the approval covers from now on.
func (s *step) bindPlan(d *Dispatch) {
	t := s.t
	t.PlanApproved, t.PlanRisk, t.PlanAgent, t.PlanLimits = true, d.Risk, s.w.Agent, d.limits(s.w)
}

// keepPlan keeps a dispatch that was refused because nobody has approved it. A question of version
// 0.1, which kept no dispatch, is replaced by this one.
func (s *step) keepPlan(p Plan) {
	if s.t.PlanAsked {
		s.t.PlanAsked, s.out.PlanDone = false, string(PlanRejected)
	}
	s.t.Plans = append(s.t.Plans, p)
	s.out.AskPlan = true
	s.out.Plans = append(s.out.Plans, PlanChange{MsgID: p.MsgID, Gate: p.Gate, State: PlanWaiting})
}

// endPlan ends a plan and has its coordinator hear of it. by is the action or the end of the task
// that ended it, "" for none.
func (s *step) endPlan(p Plan, state PlanState, by string, problems []Problem) {
	s.t.Plans = slices.DeleteFunc(s.t.Plans, func(x Plan) bool { return x.MsgID == p.MsgID })
	s.out.Plans = append(s.out.Plans, PlanChange{MsgID: p.MsgID, Gate: p.Gate, State: state, By: by})
	d := Decision{
		Decision: "approved", Sent: state == PlanSent, Dispatch: p.MsgID, Gate: p.Gate, Coordinator: p.Agent, Note: p.Note,
		Problems: problems, Next: "Nothing: the executor has the dispatch.",
	}
	switch state {
	case PlanRejected:
		d.Decision, d.Next = "rejected", "Send another dispatch with a new msg_id, or an escalation."
	case PlanUnsent:
		d.Next = "Mend what errors names, and send another dispatch with a new msg_id: a person is asked again."
	default:
	}
	if s.t.over() {
		d.Next = "Nothing: the task is over."
	}
	m := &Message{
		MsgID: s.freshID(TypeDecision), Version: Version, Type: TypeDecision, From: System, To: Coordinator,
		TaskID: s.t.ID, Timestamp: time.UnixMicro(s.now).UTC().Format(time.RFC3339Nano), RequiresAck: true,
	}
	m.Payload, _ = wire.Marshal(d) // plain fields always encode
	m.Raw, _ = wire.Marshal(m)
	s.out.Decisions = append(s.out.Decisions, Told{m, p.Agent})
}

// Told is a message of the server to one agent.
type Told struct {
	*Message
	Agent string // its id
}

// endPlans ends all plans of a task that is over.
func (s *step) endPlans(note string) {
	by := string(s.t.Phase)
	if s.t.PlanAsked && !s.w.ByRisk {
		s.t.PlanAsked, s.out.PlanDone = false, by
	}
	for _, p := range slices.Clone(s.t.Plans) {
		if p.Approved {
			over := Problem{Code: WrongState, Pointer: "/task_id", Detail: "The task is " + by + "."}
			s.endPlan(p, PlanUnsent, by, []Problem{over})
			continue
		}
		p.Note = strings.TrimSpace("The task is " + by + ". " + note)
		s.endPlan(p, PlanRejected, by, nil)
	}
}

// decidePlan carries out approve_plan and reject_plan. Without a plan that waits nothing can be
// approved; reject_plan then takes back the approval of the task.
func (s *step) decidePlan(i *Instruction) *Refusal {
	var waiting []string
	for _, p := range s.t.Plans {
		if !p.Approved && (i.Plan == "" || i.Plan == p.MsgID) {
			waiting = append(waiting, p.MsgID)
		}
	}
	approve := i.Action == "approve_plan"
	switch {
	case len(waiting) > 1:
		return unfit(WrongState, "/x_plan", "More than one plan of this task waits.",
			"a decision at the gate of one of them, or x_plan with one of "+strings.Join(waiting, ", "))
	case len(waiting) == 0 && i.Plan == "" && !approve && (s.t.PlanAsked || s.t.PlanApproved):
		if s.t.PlanAsked {
			s.out.PlanDone = i.Action
		}
		s.t.PlanApproved, s.t.PlanAsked, s.t.PlanRisk, s.t.PlanAgent, s.t.PlanLimits = false, false, "", "", ""
		return nil
	case len(waiting) == 0:
		return unfit(WrongState, "/action", "No plan of this task waits for you.",
			i.Action+" after the coordinator has dispatched; the dispatch is what you approve")
	}
	p := s.t.FindPlan(waiting[0])
	p.Note = i.Note
	if !approve {
		s.endPlan(*p, PlanRejected, i.Action, nil)
		return nil
	}
	p.Approved = true
	s.out.Plans = append(s.out.Plans, PlanChange{MsgID: p.MsgID, Gate: p.Gate, State: PlanApproved, By: i.Action})
	return nil
}

// EndUnsent ends a plan that was approved and cannot go out. It changes nothing if the plan has
// ended meanwhile.
func (p Policy) EndUnsent(t *Task, u Unsent, w World) (*Task, Outcome) {
	found := t.FindPlan(u.MsgID)
	if found == nil {
		return t, Outcome{}
	}
	s := p.begin(t, t.ID, w, "")
	s.endPlan(*found, PlanUnsent, "", u.Problems)
	return s.end()
}
