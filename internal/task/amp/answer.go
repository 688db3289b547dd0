package amp

import (
	"cmp"
	"fmt"
	"slices"
)

// Acknowledge takes an ack. TSK-15: only the receiver may acknowledge, a second ack changes
// nothing, and the ack of an escalation only marks it as seen.
func (p Policy) Acknowledge(t *Task, a *Ack, w World) (*Task, Outcome, *Refusal) {
	known, ok := w.Refs[a.AckOf]
	if !ok || known.Kept || t == nil {
		return t, Outcome{},
			unfit(RefUnresolved, "/ack_of", "There is no message "+a.AckOf+".", "the msg_id of a message that was sent to you")
	}
	// TSK-15: nobody acknowledges for another.
	if known.To != a.From {
		return t, Outcome{}, refuse(LayerAuth, AuthRole, "/from",
			"The message is for the "+string(known.To)+", who alone may acknowledge it.").expecting(string(known.To),
			string(known.To))
	}
	writer := a.From
	// What was decided about a plan is for the agent that sent it, which need not hold the role.
	if known.Agent != "" {
		if known.Agent != w.Agent {
			return t, Outcome{}, refuse(LayerAuth, AuthRole, "/from",
				"The message is for another agent.").expecting("an ack of a message in your own inbox", nil)
		}
		writer = ""
	}
	s := p.begin(t, a.TaskID, w, writer)
	awaited := s.t.findAwaited(a.AckOf)
	if seat := s.t.Seats[a.From]; awaited == nil && known.Agent == "" && !w.BySeat && !t.over() {
		switch {
		// What a silent agent had begun is claimed by whoever acknowledges it.
		case seat.Lost && a.Status != Refused && s.t.inHands(a.From, a.AckOf) != nil:
			if refusal := s.claimSeat(a.From, a.Generation, a.claim()); refusal != nil {
				return t, Outcome{}, refusal
			}
			s.stopAwaiting(a.AckOf)
			s.noteWrite(a.From)
			next, out := s.end()
			return next, out, nil
		case known.Acked && seat.Agent != w.Agent && slices.Contains(AgentRoles, a.From):
			return t, Outcome{}, refuse(LayerAuth, AuthRole, "/from", "Another agent has claimed this message.").expecting(
				"leave it to that agent, and take the next one in your inbox", nil)
		}
	}
	if awaited == nil {
		// The end of a task acknowledges everything but decisions about plans, so an ack that is on its
		// way then is a duplicate and no error.
		if known.Acked || t.over() && known.Agent == "" {
			return t, Outcome{Duplicate: true}, nil
		}
		s.stopAwaiting(a.AckOf) // an escalation or a decision, which nobody waits for
		next, out := s.end()
		return next, out, nil
	}
	if refusal := s.claimSeat(a.From, a.Generation, a.claim()); refusal != nil {
		return t, Outcome{}, refusal
	}
	s.noteClaim(a)
	if a.Status == Refused {
		s.applyRefusedAck(*awaited, a)
	} else {
		s.applyAck(*awaited)
	}
	s.noteWrite(a.From)
	next, out := s.end()
	return next, out, nil
}

// claim is the name under which an ack claims work.
func (a *Ack) claim() string { return cmp.Or(a.Claim, a.AckID) }

// noteClaim notes by which ack the holder of a role has the work that it begins.
func (s *step) noteClaim(a *Ack) {
	if seat, ok := s.t.Seats[a.From]; ok && !s.w.BySeat {
		seat.Claim = a.claim()
		s.t.Seats[a.From] = seat
	}
}

// applyAck does what an ack means for its type of message.
func (s *step) applyAck(a Awaited) {
	s.stopAwaiting(a.MsgID)
	switch a.Type {
	case TypeDispatch:
		s.beginSubtasks(a.MsgID)
	case TypeResult:
		if sub := s.t.findSubtask(func(x *Subtask) bool { return x.Result == a.MsgID }); sub != nil && sub.State == Reported {
			sub.State = Triage
		}
	// the review is under way.
	case TypeRequest:
		if sub := s.t.findSubtask(func(x *Subtask) bool { return x.ID == s.t.Reviewed }); sub != nil {
			sub.State = Reviewing
		}
		// now the executor may begin what is next.
		if next := s.t.findSubtask(func(x *Subtask) bool { return x.State == Queued }); next != nil {
			next.State = Executing
		}
	case TypeVerdict:
		if sub := s.t.findSubtask(func(x *Subtask) bool { return x.Verdict == a.MsgID }); sub != nil {
			sub.Heard = true
			s.applyVerdict(sub)
		}
	default:
	}
}

// beginSubtasks begins the first subtask of a dispatch and queues the others.
func (s *step) beginSubtasks(dispatch string) {
	state := Executing
	for i := range s.t.Subtasks {
		if sub := &s.t.Subtasks[i]; sub.Dispatch == dispatch && sub.State == Dispatched {
			sub.State, state = state, Queued
		}
	}
}

// applyRefusedAck does what a refusal by the receiver means: the sender has the turn again. A
// coordinator cannot refuse a verdict away. It stands, and the admin hears of the conflict
//
func (s *step) applyRefusedAck(w Awaited, a *Ack) {
	s.stopAwaiting(w.MsgID)
	switch w.Type {
	case TypeDispatch:
		for i := range s.t.Subtasks {
			if sub := &s.t.Subtasks[i]; sub.Dispatch == w.MsgID && sub.State == Dispatched {
				sub.State = Rework
			}
		}
		// the executor has checked the branch again, and its host knows better than we do.
		if a.Problem != nil && a.Problem.Code == BranchProtected {
			s.raise("branch_violation", "warning", "refused "+w.MsgID,
				"The executor refuses "+w.MsgID+": its branch is protected. Resume when the coordinator knows which branch to use.",
				Hold{Kind: HoldSuspended, Scope: ScopeTask}, w.MsgID)
		}
	case TypeResult:
		if sub := s.t.findSubtask(func(x *Subtask) bool { return x.Result == w.MsgID }); sub != nil && sub.State == Reported {
			sub.State = Rework
		}
	case TypeRequest:
		if sub := s.t.findSubtask(func(x *Subtask) bool { return x.ID == s.t.Reviewed }); sub != nil {
			sub.State = Triage
		}
		s.t.Review, s.t.Reviewed = "", ""
	case TypeVerdict:
		s.raise("conflict", "warning", "refused "+w.MsgID,
			"The coordinator refuses the verdict "+w.MsgID+". It stands unless you terminate the task.",
			Hold{Kind: HoldSuspended, Scope: ScopeTask}, w.MsgID)
		s.applyAck(w)
	default:
	}
}

// Beat takes a heartbeat: a write of the role on the task, and nothing else (TSK-18). It also
// tells an agent that it must stop: heartbeats of a lost lease and of a task that is over are
// refused.
func (p Policy) Beat(t *Task, h *Heartbeat, w World) (*Task, Outcome, *Refusal) {
	if t == nil {
		return nil, Outcome{}, unfit(RefUnresolved, "/task_id", "There is no task "+h.TaskID+".", "a task that you work on")
	}
	if t.over() {
		return t, Outcome{},
			unfit(WrongState, "/task_id", "The task is "+string(t.Phase)+".", "no more heartbeats: stop working on it")
	}
	s := p.begin(t, h.TaskID, w, h.From)
	if refusal := s.claimSeat(h.From, h.Generation, "heartbeat"); refusal != nil {
		return t, Outcome{}, refusal
	}
	s.noteWrite(h.From)
	next, out := s.end()
	return next, out, nil
}

// Build takes the status of a check of the task's branch. R-517: a check that still fails after
// CIRetries dispatches is escalated, not the first failure, since fixing that is the coordinator's
// work.
func (p Policy) Build(t *Task, name, status string, w World) (*Task, Outcome) {
	s := p.begin(t, t.ID, w, "")
	if t.over() {
		return t, s.out
	}
	if s.t.CI == nil {
		s.t.CI = map[string]string{}
	}
	s.t.CI[name] = status
	failed := failedCheck(s.t.CI) != ""
	// A green build ends the count.
	if !failed {
		s.t.CIFixes = 0
	} else if s.t.CIFixes >= p.CIRetries {
		s.raise("ci_failure", "warning", "ci",
			fmt.Sprintf("The build %s still fails after %d dispatches to fix it.", name, s.t.CIFixes),
			Hold{Kind: HoldSuspended, Scope: ScopeTask}, s.t.Dispatch)
	}
	return s.end()
}

// Refusal draws the consequences of a refused document that a person has to know of. It returns
// nil if there are none. A refusal may begin a task: the plan of a new one waits in Planning.
func (p Policy) Refusal(t *Task, taskID string, lost Lost, w World) (*Task, Outcome) {
	if t != nil && t.over() && !lost.Escalation {
		return nil, Outcome{}
	}
	s := p.begin(t, taskID, w, "")
	r := Refusal{lost.Layer, lost.Problems}
	switch {
	case lost.Escalation:
		// We do not know how bad it was, so everybody waits.
		hold := Hold{Kind: HoldSuspended, Scope: ScopeTask}
		if s.t.over() {
			hold = Hold{}
		}
		s.raise("unknown", "warning", "malformed",
			"A malformed escalation has arrived. The task is suspended: ask its sender, then resume.", hold)
	case r.Has(BranchProtected):
		s.raise("branch_violation", "warning", "protected",
			"The coordinator has dispatched work on a protected branch. The dispatch was refused.",
			Hold{Kind: HoldSuspended, Scope: "party:" + string(Coordinator)})
	case s.noteRefused(&lost):
		return s.end()
	case r.Has(BranchFrozen):
		s.raise("permission_denied", "warning", whyFrozen,
			"The branch has moved after a result was reported, while nobody may change it ("+string(BranchFrozen)+").",
			Hold{Kind: HoldSuspended, Scope: "party:" + string(Executor)}, s.t.Last)
	case r.Has(PlanNotApproved) && w.ByRisk:
		s.askByRisk(lost.Risk)
	case r.Has(PlanNotApproved) && lost.Plan != nil:
		s.keepPlan(*lost.Plan)
	}
	if len(s.out.Raised) == 0 && !s.out.AskPlan {
		return nil, Outcome{}
	}
	return s.end()
}

// Moved has a person look at what was found in the repository.
func (p Policy) Moved(t *Task, f Finding, w World) (*Task, Outcome) {
	s := p.begin(t, t.ID, w, "")
	if t.over() {
		return t, s.out
	}
	s.found(&f, s.t.Last)
	return s.end()
}
