package amp

import "slices"

// Instruct takes an instruction of the admin (TSK-17), about a task that exists. Only resume is
// accepted after the end, to close escalations that were left open.
func (p Policy) Instruct(t *Task, i *Instruction, w World) (*Task, Outcome, *Refusal) {
	// R-006 holds for instructions as well, so a repeated click is a duplicate.
	if known, ok := w.Refs[i.ID]; ok {
		if known.Hash == w.Hash {
			return t, Outcome{Duplicate: true}, nil
		}
		return t, Outcome{},
			unfit(MsgIDConflict, "/instruction_id", "An instruction with this id and other content exists.", "a new id")
	}
	if t == nil && !w.ByRisk {
		return t, Outcome{}, unfit(RefUnresolved, "/task_id", "There is no task "+i.TaskID+".", "the id of an existing task")
	}
	s := p.begin(t, i.TaskID, w, "")
	if s.t.over() && i.Action != "resume" { // which may close what was left open
		return t, Outcome{},
			unfit(WrongState, "/task_id", "The task is "+string(s.t.Phase)+" already.", "no more instructions")
	}
	if refusal := s.carryOut(i); refusal != nil {
		return t, Outcome{}, refusal
	}
	next, out := s.end()
	return next, out, nil
}

// carryOut does what the action says. rollback changes nothing here: it is recorded, and the
// parties see it in the task.
func (s *step) carryOut(i *Instruction) *Refusal {
	switch i.Action {
	case "resume":
		return s.resume(i)
	// A suspension is an escalation like any other, so that resume can name it.
	case "suspend":
		s.raise("unknown", "critical", "suspended", "The admin has suspended the task. "+i.Note,
			Hold{Kind: HoldSuspended, Scope: ScopeTask}, s.t.Last)
	case "terminate":
		s.t.Phase = Terminated
		s.endAll()
		for _, o := range slices.Clone(s.t.Open) {
			s.close(o.ID, i.Action)
		}
		s.endPlans(i.Note)
		s.t.PlanAsked = false
	case "approve_plan", "reject_plan":
		if s.w.ByRisk {
			s.decideByRisk(i.Action)
			return nil
		}
		return s.decidePlan(i)
	case "uphold_verdict", "override_verdict":
		return s.decideHeld(i)
	case "reassign":
		return s.reassign(i.Target)
	}
	return nil // rollback changes nothing here: it is recorded, and shown to the parties
}

// resume answers the escalations that it names, and no others (TSK-17). A held verdict needs a
// decision, so it cannot be resumed away.
func (s *step) resume(i *Instruction) *Refusal {
	unlocked := false
	for n, ref := range i.Refs {
		o := s.t.findEscalation(ref)
		if o == nil {
			return unfit(RefUnresolved, at("/escalation_refs", n), "The escalation is not open.",
				"an open escalation of the task")
		}
		// "Go on" would not say whether the verdict stands.
		if s.t.Held != nil && s.t.Held.Escalation == ref {
			return unfit(WrongState, at("/escalation_refs", n), "This escalation holds a verdict.",
				"the action uphold_verdict or override_verdict")
		}
		unlocked = unlocked || slices.ContainsFunc(s.t.Holds, func(h Hold) bool {
			return h.Cause == ref && h.Kind == HoldLocked
		})
		// The admin says that the checks no longer matter, or were fixed.
		if o.Type == "ci_failure" && o.By == System {
			s.t.CI, s.t.CIFixes = nil, 0
		}
		if o.Why == whyFrozen {
			for n := range s.t.Subtasks {
				s.t.Subtasks[n].Head = "" // the admin has seen it
			}
		}
		s.rearm(ref)
		s.close(ref, i.Action)
	}
	// TSK-54: the counters start again unless the admin keeps them.
	if unlocked && (i.Reset == nil || *i.Reset) {
		s.t.Count, s.t.Streak = 0, 0
	}
	return nil
}

// rearm gives another minute for an ack that was late, once the admin lets the task go on.
func (s *step) rearm(escalation string) {
	for _, h := range s.t.Holds {
		if h.Cause == escalation && h.AutoClear == ClearLateAck {
			if a := s.t.findAwaited(h.About); a != nil {
				a.Left = minLeft
			}
		}
	}
}

// decideHeld ends the wait of a verdict: it stands, or the admin's decision takes its place. Only
// now is a reject counted (TSK-24), and may lock.
func (s *step) decideHeld(i *Instruction) *Refusal {
	held := s.t.Held
	if held == nil {
		return unfit(WrongState, "/action", "No verdict waits for you.", "resume, for escalations")
	}
	sub := s.t.findSubtask(func(x *Subtask) bool { return x.ID == held.Subtask })
	if i.Action == "override_verdict" {
		sub.Decision = i.NewDecision
	}
	s.t.Held = nil
	s.close(held.Escalation, i.Action)
	s.countReject(sub)
	s.applyVerdict(sub)
	return nil
}

// reassign ends the lease of a role and hands out again what its holder had begun: the message
// waits for an ack once more, with a new deadline.
func (s *step) reassign(role Role) *Refusal {
	if s.w.Successor != "" && s.t.workedAs(otherEyes[role], s.w.Successor) {
		return unfit(AuthRole, "/x_agent", "That agent was the "+string(otherEyes[role])+" of this task.",
			"an agent that has not worked on the task as "+string(otherEyes[role]))
	}
	s.endLease(role)
	if seat, ok := s.t.Seats[role]; !s.w.BySeat && (ok || s.w.Successor != "") {
		seat.Lost, seat.Reassigned, seat.For, seat.Claim = true, true, s.w.Successor, ""
		s.t.Seats[role] = seat
	}
	again := func(msgID string, t Type) {
		if s.t.findAwaited(msgID) == nil {
			s.await(&Message{MsgID: msgID, Type: t, To: role})
			s.out.Reopened = append(s.out.Reopened, msgID)
		}
	}
	for i := range s.t.Subtasks {
		switch sub := &s.t.Subtasks[i]; {
		// The next executor finds the dispatch in its inbox again.
		case role == Executor && sub.State == Executing:
			sub.State = Dispatched
			again(sub.Dispatch, TypeDispatch)
		case role == Reviewer && sub.State == Reviewing:
			sub.State = ReviewRequested
			again(s.t.Review, TypeRequest)
		}
	}
	return nil
}
