package amp

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// unfit refuses what does not fit into the task as it stands.
func unfit(code Code, pointer, detail, expected string) *Refusal {
	return refuse(LayerContext, code, pointer, detail).expecting(expected, nil)
}

// Submit takes one of the five messages.
func (p Policy) Submit(t *Task, m *Message, w World) (*Task, Outcome, *Refusal) {
	if known, ok := w.Refs[m.MsgID]; ok {
		if known.Hash == w.Hash {
			return t, Outcome{Duplicate: true}, nil
		}
		return t, Outcome{}, unfit(MsgIDConflict, "/msg_id",
			"There is a message with this id and another content, which stays as it is.",
			"a new id: the same with the milliseconds of now")
	}
	if refusal := references(m, w); refusal != nil {
		return t, Outcome{}, refusal
	}
	s := p.begin(t, m.TaskID, w, m.From)
	if m.Type != TypeEscalation {
		if refusal := s.claim(m.From, m.Generation); refusal != nil {
			return t, Outcome{}, refusal
		}
		if refusal := s.mayWrite(m.From); refusal != nil {
			return t, Outcome{}, refusal
		}
	}
	if refusal := s.take(m); refusal != nil {
		return t, Outcome{}, refusal
	}
	if m.Type != TypeEscalation {
		s.t.Last = m.MsgID
	}
	s.wrote(m.From)
	next, out := s.end()
	return next, out, nil
}

// references refuses what refers to messages that are not there.
func references(m *Message, w World) *Refusal {
	check := func(pointer, ref string) *Refusal {
		if _, ok := w.Refs[ref]; !ok {
			return unfit(RefUnresolved, pointer, "There is no message "+ref+".", "the msg_id of a message that was accepted")
		}
		return nil
	}
	for i, ref := range m.ContextRef {
		if refusal := check(at("/context_ref", i), ref); refusal != nil {
			return refusal
		}
	}
	if m.Request != nil {
		if refusal := check("/payload/original_dispatch_ref", m.Request.DispatchRef); refusal != nil {
			return refusal
		}
		return check("/payload/task_result_ref", m.Request.ResultRef)
	}
	return nil
}

// mayWrite refuses who is stopped, and everybody once the task is over.
func (s *step) mayWrite(role Role) *Refusal {
	if s.t.over() {
		return unfit(WrongState, "/task_id", "The task is "+string(s.t.Phase)+"; nothing follows but an escalation.",
			"a message about a task that is not over")
	}
	h := s.t.stops(role)
	if h == nil {
		return nil
	}
	code := Suspended
	if h.Kind == HoldLocked {
		code = Locked
	}
	return unfit(code, "", fmt.Sprintf("The task is held (%s) since %s was raised.", h.Kind, h.Cause),
		"nothing until the admin has answered; escalations, acks and heartbeats are taken")
}

// take does what the type of the message asks for.
func (s *step) take(m *Message) *Refusal {
	switch {
	case m.Dispatch != nil && m.From == Admin:
		return s.intake(m)
	case m.Dispatch != nil:
		return s.dispatch(m)
	case m.Result != nil:
		return s.result(m)
	case m.Request != nil:
		return s.request(m)
	case m.Verdict != nil:
		return s.verdict(m)
	}
	s.escalation(m)
	return nil
}

// intake is the admin's own dispatch: it begins a task, or changes what the coordinator
// is bound to.
func (s *step) intake(m *Message) *Refusal {
	d := m.Dispatch
	s.t.Risk, s.t.Repo, s.t.Branch, s.t.Criteria = d.Risk, d.Repo, d.Branch, d.Criteria
	s.await(m)
	return nil
}

// Risks are the levels of risk, the least first.
var Risks = []string{"low", "medium", "high"}

func rank(risk string) int { return slices.Index(Risks, risk) }

func (s *step) dispatch(m *Message) *Refusal {
	d, t := m.Dispatch, s.t
	if s.w.PlanOK {
		s.approvePlan("high")
	}
	if needed := s.RequirePlan || s.w.AskPlan; needed && (!t.PlanApproved || rank(d.Risk) > rank(t.PlanRisk)) {
		return unfit(PlanNotApproved, "/task_id", "The admin has not approved the plan of this task.",
			"the same message again when the admin has approved it; they have been asked")
	}
	if refusal := t.keeps(d); refusal != nil {
		return refusal
	}
	if t.Review != "" {
		return unfit(WrongState, "/payload/subtasks", "The review "+t.Review+" is open.", "a dispatch after its verdict")
	}
	for i, sub := range d.Subtasks {
		if refusal := s.mayDispatch(sub.ID, at("/payload/subtasks", i, "/subtask_id")); refusal != nil {
			return refusal
		}
	}
	for _, sub := range d.Subtasks {
		s.redispatch(sub.ID, m.MsgID)
	}
	if failedCheck(t.CI) != "" {
		t.CIFixes++
	}
	t.Phase, t.Dispatch, t.CI = Active, m.MsgID, nil
	t.Risk, t.Repo, t.Branch, t.Criteria, t.Base = d.Risk, d.Repo, d.Branch, d.Criteria, ""
	if s.w.Git != nil {
		t.Base = s.w.Git.Commit
	}
	s.await(m)
	return s.git()
}

// git refuses what a look into the repository has shown.
func (s *step) git() *Refusal {
	if s.w.Git == nil {
		return nil
	}
	s.out.Warnings = append(s.out.Warnings, s.w.Git.Warnings...)
	if len(s.w.Git.Problems) > 0 {
		return &Refusal{LayerContext, s.w.Git.Problems}
	}
	return nil
}

// keeps refuses a dispatch that changes what only the admin may change.
func (t *Task) keeps(d *Dispatch) *Refusal {
	if t.Risk == "" {
		return nil
	}
	for _, c := range t.Criteria {
		if !slices.Contains(d.Criteria, c) {
			return unfit(CriteriaChanged, "/payload/acceptance_criteria", "A criterion is missing: "+c,
				"all of the criteria so far; more may be added")
		}
	}
	switch {
	case d.Branch != t.Branch:
		return unfit(BranchChanged, "/payload/branch", "The task is on the branch "+t.Branch+".", t.Branch)
	case d.Repo != t.Repo:
		return unfit(BranchChanged, "/payload/repo", "The task is in the repository "+t.Repo+".", t.Repo)
	case rank(d.Risk) < rank(t.Risk):
		return unfit(RiskLowered, "/payload/risk_level", "The risk of the task is "+t.Risk+", and only the admin lowers it.",
			t.Risk+" or more")
	}
	return nil
}

func (s *step) mayDispatch(id, pointer string) *Refusal {
	sub := s.t.subtask(func(x *Subtask) bool { return x.ID == id })
	if sub == nil {
		return nil
	}
	switch sub.State {
	case Triage, Rework, Reported, Queued:
		return nil
	case VerdictReported:
		if sub.Decision == "rejected" {
			return nil
		}
	case Dispatched:
		if a := s.t.awaits(sub.Dispatch); a != nil && a.Late {
			return nil
		}
	}
	return unfit(WrongState, pointer, fmt.Sprintf("The subtask is %s.", sub.State),
		"subtasks that are new, or whose result or reject you answer")
}

// redispatch puts a subtask into the executor's hands, anew or again.
func (s *step) redispatch(id, msgID string) {
	is := func(x *Subtask) bool { return x.ID == id }
	sub := s.t.subtask(is)
	if sub == nil {
		s.t.Subtasks = append(s.t.Subtasks, Subtask{ID: id})
		sub = s.t.subtask(is)
	}
	switch sub.State {
	case Reported:
		s.answered(sub.Result)
	case VerdictReported:
		s.answered(sub.Verdict)
	case Dispatched:
		s.drop(sub.Dispatch)
	default:
	}
	sub = s.t.subtask(is)
	sub.State, sub.Dispatch = Dispatched, msgID
}

func (s *step) result(m *Message) *Refusal {
	r, t := m.Result, s.t
	is := func(x *Subtask) bool { return x.ID == r.SubtaskID }
	sub := t.subtask(is)
	if sub == nil {
		return unfit(SubtaskUnknown, "/payload/subtask_id", "No dispatch has this subtask.",
			"a subtask of a dispatch of "+t.ID)
	}
	if sub.State == Dispatched {
		s.answered(sub.Dispatch)
	}
	if sub.State != Executing {
		return unfit(WrongState, "/payload/subtask_id",
			fmt.Sprintf("The subtask is %s; a result is taken once, while it is executing.", sub.State),
			"wait: the next subtask begins when the reviewer has acknowledged the review of this one, or with a new dispatch")
	}
	if len(r.Assessment.Met) != len(t.Criteria) {
		return unfit(Misaligned, "/payload/self_assessment/criteria_met",
			fmt.Sprintf("There are %d criteria and %d answers.", len(t.Criteria), len(r.Assessment.Met)),
			strconv.Itoa(len(t.Criteria))+" values, one for each criterion of the dispatch in its order")
	}
	if refusal := s.git(); refusal != nil {
		return refusal
	}
	sub.State, sub.Result, sub.Complete = Reported, m.MsgID, r.Status == "complete"
	sub.Commit, sub.Head = r.Commit, ""
	if s.w.Git != nil {
		sub.Head, sub.Commit = s.w.Git.Head, cmp.Or(s.w.Git.Commit, r.Commit)
	}
	s.await(m)
	return nil
}

func (s *step) request(m *Message) *Refusal {
	r, t := m.Request, s.t
	const resultRef = "/payload/task_result_ref"
	sub := t.subtask(func(x *Subtask) bool { return x.Result == r.ResultRef })
	if sub == nil {
		return unfit(RefMismatch, resultRef, "This is not the last result of its subtask.",
			"the last task_result of the subtask")
	}
	if !sub.Complete {
		return unfit(ResultNotComplete, resultRef, "The result is not complete.", "a new dispatch, or an escalation")
	}
	if sub.Dispatch != r.DispatchRef {
		return unfit(RefMismatch, "/payload/original_dispatch_ref", "The subtask was last dispatched with another message.",
			sub.Dispatch)
	}
	if sub.State != Reported && sub.State != Triage || t.Review != "" {
		return unfit(WrongState, resultRef,
			fmt.Sprintf("The subtask is %s, and a task has one open review at the most.", sub.State),
			"a result that was reported and is not under review")
	}
	if int64(r.RejectCount) != t.Count {
		return unfit(WrongRejectCount, "/payload/reject_count", fmt.Sprintf("The task was rejected %d times.", t.Count),
			strconv.FormatInt(t.Count, 10))
	}
	if r.Scope == "incremental" && sub.Verdict == "" {
		return unfit(NoPriorVerdict, "/payload/review_scope",
			"There is no verdict yet, so there is nothing to be incremental to.", "full")
	}
	if name := failedCheck(t.CI); name != "" {
		return unfit(CIGated, "/payload/ci_status", "The build "+name+" failed: a review would be in vain.",
			"a task_dispatch that fixes the build")
	}
	if refusal := s.git(); refusal != nil {
		return refusal
	}
	if sub.State == Reported {
		s.answered(sub.Result)
	}
	sub.State, t.Review, t.Reviewed = ReviewRequested, m.MsgID, sub.ID
	s.await(m)
	return nil
}

func (s *step) escalation(m *Message) {
	e := m.Escalation
	s.t.Open = append(s.t.Open, Opened{m.MsgID, e.Type, e.Severity, m.From, ""})
	if s.t.over() || e.Severity == "info" {
		return
	}
	h := Hold{Kind: HoldSuspended, Cause: m.MsgID, Scope: "party:" + string(m.From), Since: s.now}
	if e.Severity == "critical" {
		h.Scope, h.Critical = ScopeTask, true
	}
	s.t.Holds = append(s.t.Holds, h)
}
