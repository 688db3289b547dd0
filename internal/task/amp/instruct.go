package amp

import "slices"

// Instruct takes an instruction of the admin.
func (p Policy) Instruct(t *Task, i *Instruction, w World) (*Task, Outcome, *Refusal) {
	if known, ok := w.Refs[i.ID]; ok {
		if known.Hash == w.Hash {
			return t, Outcome{Duplicate: true}, nil
		}
		return t, Outcome{},
			unfit(MsgIDConflict, "/instruction_id", "There is an instruction with this id and another content.", "a new id")
	}
	if t == nil && i.Action != "approve_plan" {
		return t, Outcome{}, unfit(RefUnresolved, "/task_id", "There is no task "+i.TaskID+".", "a task that there is")
	}
	s := p.begin(t, i.TaskID, w, "")
	if s.t.over() && i.Action != "resume" { // which may close what was left open
		return t, Outcome{},
			unfit(WrongState, "/task_id", "The task is "+string(s.t.Phase)+" already.", "no more instructions")
	}
	if refusal := s.obey(i); refusal != nil {
		return t, Outcome{}, refusal
	}
	next, out := s.end()
	return next, out, nil
}

func (s *step) obey(i *Instruction) *Refusal {
	switch i.Action {
	case "resume":
		return s.resume(i)
	case "suspend":
		s.raise("unknown", "critical", "suspended", "The admin has suspended the task. "+i.Note,
			Hold{Kind: HoldSuspended, Scope: ScopeTask}, s.t.Last)
	case "terminate":
		s.t.Phase = Terminated
		s.quiet()
		for _, o := range slices.Clone(s.t.Open) {
			s.close(o.ID, i.Action)
		}
		if s.t.PlanAsked {
			s.t.PlanAsked, s.out.PlanDone = false, i.Action
		}
	case "approve_plan":
		risk := s.t.PlanRisk
		if risk == "" {
			risk = Risks[len(Risks)-1]
		}
		s.approvePlan(risk)
	case "reject_plan":
		s.t.PlanApproved, s.t.PlanAsked, s.t.PlanRisk, s.out.PlanDone = false, false, "", i.Action
	case "uphold_verdict", "override_verdict":
		return s.decide(i)
	case "reassign":
		s.reassign(i.Target)
	}
	return nil // rollback changes nothing here: it is recorded, and shown to the parties
}

func (s *step) approvePlan(risk string) {
	s.t.PlanApproved, s.t.PlanRisk = true, risk
	if s.t.PlanAsked {
		s.t.PlanAsked, s.out.PlanDone = false, "approve_plan"
	}
}

// resume answers the escalations that it names, and no others.
func (s *step) resume(i *Instruction) *Refusal {
	unlocked := false
	for n, ref := range i.Refs {
		o := s.t.opened(ref)
		if o == nil {
			return unfit(RefUnresolved, at("/escalation_refs", n), "The escalation is not open.",
				"an open escalation of the task")
		}
		if s.t.Held != nil && s.t.Held.Escalation == ref {
			return unfit(WrongState, at("/escalation_refs", n), "This holds a verdict.",
				"the action uphold_verdict or override_verdict")
		}
		unlocked = unlocked || slices.ContainsFunc(s.t.Holds, func(h Hold) bool {
			return h.Cause == ref && h.Kind == HoldLocked
		})
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
	if unlocked && (i.Reset == nil || *i.Reset) {
		s.t.Count, s.t.Streak = 0, 0
	}
	return nil
}

// rearm gives another minute for an ack that was late, once the admin lets it go on.
func (s *step) rearm(escalation string) {
	for _, h := range s.t.Holds {
		if h.Cause == escalation && h.AutoClear == ClearLateAck {
			if a := s.t.awaits(h.About); a != nil {
				a.Left = minLeft
			}
		}
	}
}

// decide ends what a verdict waits for: it stands, or the admin's decision does.
func (s *step) decide(i *Instruction) *Refusal {
	held := s.t.Held
	if held == nil {
		return unfit(WrongState, "/action", "No verdict waits for you.", "resume, for escalations")
	}
	sub := s.t.subtask(func(x *Subtask) bool { return x.ID == held.Subtask })
	if i.Action == "override_verdict" {
		sub.Decision = i.NewDecision
	}
	s.t.Held = nil
	s.close(held.Escalation, i.Action)
	s.count(sub)
	s.settle(sub)
	return nil
}

// reassign ends the lease of a role. What its holder had begun is handed out again.
func (s *step) reassign(role Role) {
	s.lose(role)
	again := func(msgID string, t Type) {
		if s.t.awaits(msgID) == nil {
			s.await(&Message{MsgID: msgID, Type: t, To: role})
			s.out.Reopened = append(s.out.Reopened, msgID)
		}
	}
	for i := range s.t.Subtasks {
		switch sub := &s.t.Subtasks[i]; {
		case role == Executor && sub.State == Executing:
			sub.State = Dispatched
			again(sub.Dispatch, TypeDispatch)
		case role == Reviewer && sub.State == Reviewing:
			sub.State = ReviewRequested
			again(s.t.Review, TypeRequest)
		}
	}
}
