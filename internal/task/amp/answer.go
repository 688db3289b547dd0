package amp

import "fmt"

// Acknowledge takes an ack.
func (p Policy) Acknowledge(t *Task, a *Ack, w World) (*Task, Outcome, *Refusal) {
	known, ok := w.Refs[a.AckOf]
	if !ok || t == nil {
		return t, Outcome{},
			unfit(RefUnresolved, "/ack_of", "There is no message "+a.AckOf+".", "the msg_id of a message that was sent to you")
	}
	if known.To != a.From {
		return t, Outcome{}, refuse(LayerAuth, AuthRole, "/from",
			"The message is for the "+string(known.To)+", who alone may acknowledge it.").expecting(string(known.To),
			string(known.To))
	}
	s := p.begin(t, a.TaskID, w, a.From)
	awaited := s.t.awaits(a.AckOf)
	if awaited == nil {
		if known.Acked || t.over() {
			return t, Outcome{Duplicate: true}, nil
		}
		s.drop(a.AckOf) // an escalation, which nobody waits for
		next, out := s.end()
		return next, out, nil
	}
	if refusal := s.claim(a.From, a.Generation); refusal != nil {
		return t, Outcome{}, refusal
	}
	if a.Status == Refused {
		s.refused(*awaited, a)
	} else {
		s.accept(*awaited)
	}
	s.wrote(a.From)
	next, out := s.end()
	return next, out, nil
}

// accept does what an ack means.
func (s *step) accept(a Awaited) {
	s.drop(a.MsgID)
	switch a.Type {
	case TypeDispatch:
		s.begun(a.MsgID)
	case TypeResult:
		if sub := s.t.subtask(func(x *Subtask) bool { return x.Result == a.MsgID }); sub != nil && sub.State == Reported {
			sub.State = Triage
		}
	case TypeRequest:
		if sub := s.t.subtask(func(x *Subtask) bool { return x.ID == s.t.Reviewed }); sub != nil {
			sub.State = Reviewing
		}
		// now the executor may begin what is next.
		if next := s.t.subtask(func(x *Subtask) bool { return x.State == Queued }); next != nil {
			next.State = Executing
		}
	case TypeVerdict:
		if sub := s.t.subtask(func(x *Subtask) bool { return x.Verdict == a.MsgID }); sub != nil {
			sub.Heard = true
			s.settle(sub)
		}
	default:
	}
}

// begun has the first subtask of a dispatch begin, and the others wait for their turn.
func (s *step) begun(dispatch string) {
	state := Executing
	for i := range s.t.Subtasks {
		if sub := &s.t.Subtasks[i]; sub.Dispatch == dispatch && sub.State == Dispatched {
			sub.State, state = state, Queued
		}
	}
}

// refused is an ack that says no.
func (s *step) refused(w Awaited, a *Ack) {
	s.drop(w.MsgID)
	switch w.Type {
	case TypeDispatch:
		for i := range s.t.Subtasks {
			if sub := &s.t.Subtasks[i]; sub.Dispatch == w.MsgID && sub.State == Dispatched {
				sub.State = Rework
			}
		}
		if a.Problem != nil && a.Problem.Code == BranchProtected {
			s.raise("branch_violation", "warning", "refused "+w.MsgID,
				"The executor refuses "+w.MsgID+": its branch is protected. Resume when the coordinator knows which branch to use.",
				Hold{Kind: HoldSuspended, Scope: ScopeTask}, w.MsgID)
		}
	case TypeResult:
		if sub := s.t.subtask(func(x *Subtask) bool { return x.Result == w.MsgID }); sub != nil && sub.State == Reported {
			sub.State = Rework
		}
	case TypeRequest:
		if sub := s.t.subtask(func(x *Subtask) bool { return x.ID == s.t.Reviewed }); sub != nil {
			sub.State = Triage
		}
		s.t.Review, s.t.Reviewed = "", ""
	case TypeVerdict:
		s.raise("conflict", "warning", "refused "+w.MsgID,
			"The coordinator refuses the verdict "+w.MsgID+". It stands unless you terminate the task.",
			Hold{Kind: HoldSuspended, Scope: ScopeTask}, w.MsgID)
		s.accept(w)
	default:
	}
}

// Beat takes a sign of life.
func (p Policy) Beat(t *Task, h *Heartbeat, w World) (*Task, Outcome, *Refusal) {
	if t == nil {
		return nil, Outcome{}, unfit(RefUnresolved, "/task_id", "There is no task "+h.TaskID+".", "a task that you work on")
	}
	if t.over() {
		return t, Outcome{},
			unfit(WrongState, "/task_id", "The task is "+string(t.Phase)+".", "no more heartbeats: stop working on it")
	}
	s := p.begin(t, h.TaskID, w, h.From)
	if refusal := s.claim(h.From, h.Generation); refusal != nil {
		return t, Outcome{}, refusal
	}
	s.wrote(h.From)
	next, out := s.end()
	return next, out, nil
}

// Build takes the status of a check of the task's branch, from those who run it.
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
	if !failed {
		s.t.CIFixes = 0
	} else if s.t.CIFixes >= p.CIRetries {
		s.raise("ci_failure", "warning", "ci",
			fmt.Sprintf("The build %s still fails after %d dispatches to fix it.", name, s.t.CIFixes),
			Hold{Kind: HoldSuspended, Scope: ScopeTask}, s.t.Dispatch)
	}
	return s.end()
}

// Refusal draws the consequences of a document that was refused: some of them a person
// has to know of. It returns nil if there are none.
func (p Policy) Refusal(t *Task, taskID string, lost Lost, w World) (*Task, Outcome) {
	if t != nil && t.over() && !lost.Escalation {
		return nil, Outcome{}
	}
	s := p.begin(t, taskID, w, "")
	r := Refusal{lost.Layer, lost.Problems}
	switch {
	case lost.Escalation:
		hold := Hold{Kind: HoldSuspended, Scope: ScopeTask}
		if s.t.over() {
			hold = Hold{}
		}
		s.raise("unknown", "warning", "malformed",
			"An escalation came that is not in the right form. The task is suspended: ask who sent it, and resume.", hold)
	case r.Has(BranchProtected):
		s.raise("branch_violation", "warning", "protected",
			"The coordinator has dispatched work on a protected branch. The dispatch was refused.",
			Hold{Kind: HoldSuspended, Scope: "party:" + string(Coordinator)})
	case r.Has(BranchFrozen):
		s.raise("permission_denied", "warning", whyFrozen,
			"The branch has moved after a result was reported, while nobody may change it ("+string(BranchFrozen)+").",
			Hold{Kind: HoldSuspended, Scope: "party:" + string(Executor)}, s.t.Last)
	case r.Has(PlanNotApproved) && (!s.t.PlanAsked || rank(lost.Risk) > rank(s.t.PlanRisk)):
		s.t.PlanAsked, s.t.PlanApproved, s.t.PlanRisk, s.out.AskPlan = true, false, lost.Risk, true
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
	s.raise(f.Type, f.Severity, f.Why, f.Description, Hold{Kind: HoldSuspended, Scope: f.Scope}, s.t.Last)
	return s.end()
}
