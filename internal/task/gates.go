package task

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// opening is a gate that is ready to be opened, and what it is about. The id is drawn before the
// entry is written, because the entry links the gate to the task.
type opening struct {
	link GateLink
	due  gate.Prepared
}

// openings prepares the gates that a step asks for: one for each escalation, and one for a plan
// that waits (TSK-50). Preparing can fail; opening cannot.
func (w *work) openings(next *amp.Task, out amp.Outcome) (list []opening, err error) {
	add := func(about string, o gate.Opening) {
		if err != nil {
			return
		}
		var due gate.Prepared
		if due, err = gate.Prepare(o); err == nil {
			list = append(list, opening{GateLink{gate.NewID(), about}, due})
		}
	}
	if w.in.IsEscalation() {
		add(w.in.Message.MsgID, w.escalationGate(next, w.in.Message))
	}
	for _, m := range out.Raised {
		add(m.MsgID, w.escalationGate(next, m))
	}
	if out.AskPlan {
		plan := w.in.Lost.Plan
		due, err := w.planGate(plan)
		return append(list, opening{GateLink{plan.Gate, plan.MsgID}, due}), err
	}
	return list, err
}

// severityRisks maps the severity of an escalation to the risk of its gate, which orders the inbox
// and decides about buttons.
var severityRisks = map[string]string{"critical": "high", "warning": "medium", "info": "low"}

// newOpening is a gate of the task, with the sender of the document as requester. Unless a rule of
// the policy says otherwise one operator decides, and it never expires, because a task that nobody
// looks at must stay held.
func (w *work) newOpening(reference, risk string) gate.Opening {
	o := gate.Opening{Origin: gate.Origin{Protocol: Name, Reference: reference, Run: w.run, Outlasts: true}, Risk: risk, Requester: "system", Of: w.of()}
	if w.party.Identity.Kind == roster.HolderAgent {
		o.Agent, o.AgentName, o.Requester = w.party.Identity.ID, w.party.Identity.Name, w.party.Identity.Actor()
	}
	return o
}

// escalationGate asks the admin what is to become of an escalation. The proposed action says what
// yes and no will do, and instruction does exactly that.
func (w *work) escalationGate(t *amp.Task, m *amp.Message) gate.Opening {
	e := m.Escalation
	o := w.newOpening(m.MsgID, severityRisks[e.Severity])
	// What the server raises is nobody's request, whoever's document caused it, so nobody is barred
	// from approving it as its requester.
	if m.From == amp.System {
		o.Requester = "system" // whoever's document made the server raise it
	}
	o.Project = t.Repo
	o.Shown = gate.Shown{
		Title: fmt.Sprintf("%s: %s (%s)", t.ID, strings.ReplaceAll(e.Type, "_", " "), e.Severity), Summary: e.Description,
		ProposedAction: "Approve to resume the task, reject to terminate it.",
		Facts: []gate.Fact{
			{Name: "raised by", Value: string(m.From)},
			{Name: "task status", Value: t.Status()},
			{Name: "rejects", Value: fmt.Sprintf("%d, %d in a row", t.Count, t.Streak)},
		},
	}
	switch {
	// What yes and no mean must match instruction below.
	case t.Held != nil && t.Held.Escalation == m.MsgID:
		o.Shown.ProposedAction = "Approve to uphold the verdict, reject to override it with the opposite."
		if sub := t.Find(func(x *amp.Subtask) bool { return x.ID == t.Held.Subtask }); sub.Bound != nil {
			o.Shown.Facts = append(o.Shown.Facts, gate.Fact{Name: "commit", Value: sub.Bound.String()})
		}
	case e.Severity == "info" || t.Over():
		o.Shown.ProposedAction = "Nothing is held. Approve or reject to close it."
	}
	// suggestions are shown, never acted on.
	for _, s := range e.Suggested {
		o.Shown.Facts = append(o.Shown.Facts, gate.Fact{Name: "suggested", Value: s})
	}
	return o
}

// openLost opens a gate for an escalation that names no task (TSK-30). It has no row in task_gate;
// deciding it only closes it.
func (s *Tasks) openLost(tx *ledger.Tx, p Party, b *refused) error {
	w := &work{party: p}
	o := w.newOpening(b.ErrorID, "medium")
	o.Shown = gate.Shown{
		Title: "Malformed escalation",
		Summary: "A malformed escalation that names no task has arrived. Ask its sender: " +
			p.Identity.Actor() + ".",
		ProposedAction: "Approve or reject to close it.",
	}
	due, err := gate.Prepare(o)
	if err != nil {
		return err
	}
	due.Open(tx, gate.NewID(), p.Workspace, "")
	return nil
}

// settleGates resolves the gates of what was answered in another way: by a late ack, a heartbeat,
// an instruction over the API, or the end of the task. A gate that is resolved already stays as it
// is, so the decision that caused this step is not overwritten.
func (w *work) settleGates(out amp.Outcome) error {
	closed := out.Closed
	if out.PlanDone != "" {
		closed = append(closed, amp.Closed{ID: AboutPlan, By: out.PlanDone})
	}
	for _, c := range closed {
		gates, err := w.gatesAbout(c.ID)
		if err != nil {
			return err
		}
		status := gate.Approved
		switch c.By {
		case "terminate", "reject_plan", string(amp.Terminated), string(amp.PlanRejected):
			status = gate.Rejected
		}
		for _, id := range gates {
			if err := w.settle(id, status, c.By); err != nil {
				return err
			}
		}
	}
	return w.settlePlans(out.Plans)
}

// settle resolves a gate because of what was done elsewhere.
func (w *work) settle(gateID string, status gate.Status, by string) error {
	return w.tasks.core.Gates.Settle(w.tx, gateID, status, "system", "Answered by "+strings.ReplaceAll(by, "_", " "))
}

// gatesAbout lists the gates of the task about an escalation, or about the plan.
func (w *work) gatesAbout(about string) (ids []string, err error) {
	return store.All(w.tx.Query, store.Text,
		"SELECT gate FROM task_gate WHERE workspace = $1 AND task_id = $2 AND about = $3 ORDER BY gate", w.party.Workspace,
		w.in.TaskID, about)
}

// modified is what an operator may say beside yes and no: another action of the protocol, and
// whether unlocking resets the counters (TSK-54).
type modified struct {
	Action string `json:"action,omitempty"`
	Reset  *bool  `json:"reset_reject_count,omitempty"`
}

// applyDecision carries out what was decided at a gate, in the transaction that decides: the
// decision becomes an admin_instruction and goes through the same step as one over the API. If the
// step refuses it, the vote fails too, and the gate stays open.
func (s *Tasks) applyDecision(tx *ledger.Tx, g gate.Gate) error {
	w := &work{tasks: s, tx: tx}
	about, found, err := w.findGate(&g)
	if err != nil || !found {
		return err
	}
	if err := w.load(); err != nil {
		return err
	}
	// Settling a gate calls this as well. By then the step has closed what the gate was about.
	if !w.waitsFor(about) {
		return nil // it was answered in another way, which has settled the gate
	}
	i := w.instruction(g, about)
	if isPlan(about) && len(g.Modified) > 0 {
		return fault.New(fault.InvalidPayload, "A plan is approved as it is shown. Reject it with a note that says what "+
			"should change; the coordinator hears it and sends another plan.").About("modified")
	}
	// The operator may ask for another action than yes or no stand for.
	if len(g.Modified) > 0 {
		var m modified
		if err := wire.Unmarshal(g.Modified, &m); err != nil {
			return err
		}
		if m.Action != "" {
			i.Action = m.Action
		}
		i.Reset = m.Reset
	}
	raw, err := wire.Marshal(&i)
	if err != nil {
		return err
	}
	in, refusal := s.Policy.Read(amp.InInstruction, raw)
	if refusal == nil {
		w.in = in
		w.party.Identity = roster.Identity{Kind: roster.HolderOperator, ID: g.ResolvedBy, Name: g.ResolvedBy}
		var next *amp.Task
		var out amp.Outcome
		if next, out, refusal = s.Policy.Step(w.before, in, w.world); refusal == nil {
			return w.record(next, out, nil)
		}
	}
	why := refusal.Problems[0]
	return fault.New(fault.Conflict, "The task does not allow this: %s It allows: %s.", why.Detail, why.Expected)
}

// isPlan reports whether a gate is about a plan.
func isPlan(about string) bool {
	return about == AboutPlan || strings.HasPrefix(about, string(amp.TypeDispatch)+"-")
}

// waitsFor reports whether the task still waits for a decision about that.
func (w *work) waitsFor(about string) bool {
	switch {
	case w.before == nil:
		return false
	case about == AboutPlan:
		return w.before.PlanAsked
	case isPlan(about):
		p := w.before.FindPlan(about)
		return p != nil && !p.Approved
	}
	return w.before.Escalation(about) != nil
}

// instruction translates a decision (TSK-50). Approve means resume, uphold or approve the plan.
// Reject means terminate, override or reject the plan; of an escalation that holds nothing both
// only close it.
func (w *work) instruction(g gate.Gate, about string) amp.Instruction {
	t, yes := w.before, g.Status == gate.Approved
	i := amp.Instruction{
		Record: "admin_instruction", ID: w.freshInstruction(), Version: amp.Version, TaskID: t.ID,
		Timestamp: w.tx.Now().Format(time.RFC3339Nano),
		From:      amp.Admin, Channel: "api", Actor: g.ResolvedBy, Note: cmp.Or(g.Note, "Decided at the gate."),
	}
	held := t.Held != nil && t.Held.Escalation == about
	if about != AboutPlan && isPlan(about) {
		i.Plan = about
	}
	if g.Cause == gate.ByExpiry {
		i.Note = g.Outcome()
	}
	switch {
	case isPlan(about) && yes:
		i.Action = "approve_plan"
	case isPlan(about):
		i.Action = "reject_plan"
	case held && yes:
		i.Action = "uphold_verdict"
	case held:
		i.Action, i.NewDecision = "override_verdict", amp.Rejected
		if sub := t.Find(func(x *amp.Subtask) bool { return x.ID == t.Held.Subtask }); sub.Decision == amp.Rejected {
			i.NewDecision = "approved"
		}
	case yes || t.Escalation(about).Severity == "info" || t.Over():
		i.Action, i.Refs = "resume", []string{about}
	default:
		i.Action = "terminate"
	}
	if i.Refs == nil && !held && !isPlan(about) {
		i.Refs = []string{about} // in case that the operator has another action done
	}
	return i
}

// freshInstruction is an unused id for an instruction. Several decisions may fall into one
// millisecond, and ids have millisecond resolution, so it counts on.
func (w *work) freshInstruction() string {
	for ms := w.tx.Now().UnixMilli(); ; ms++ {
		if id := fmt.Sprintf("admin-%s-%013d", w.in.TaskID, ms); !w.idTaken(id) {
			return id
		}
	}
}
