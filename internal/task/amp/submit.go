package amp

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// unfit refuses a document that does not fit the task as it stands (HTTP 409 or 423).
func unfit(code Code, pointer, detail, expected string) *Refusal {
	return refuse(LayerContext, code, pointer, detail).expecting(expected, nil)
}

// Submit takes one of the five messages. The order of the checks is part of the protocol: a
// duplicate is recognised before anything else, so that a client that repeats a message always
// gets the same answer; then references, the lease, holds, and the state.
//
// Escalations skip lease and holds: anybody may escalate at any time.
func (p Policy) Submit(t *Task, m *Message, w World) (*Task, Outcome, *Refusal) {
	if known, ok := w.Refs[m.MsgID]; ok && (!known.Kept || !w.Release) {
		if known.Hash == w.Hash && (!known.Kept || known.Agent == w.Agent) {
			return t, Outcome{Duplicate: true}, nil
		}
		return t, Outcome{}, unfit(MsgIDConflict, "/msg_id",
			"A message with this id and other content exists; it was not changed.",
			"a new id, with the current time in milliseconds")
	}
	if refusal := references(m, w); refusal != nil {
		return t, Outcome{}, refusal
	}
	s := p.begin(t, m.TaskID, w, m.From)
	// Escalations hold no seat and are stopped by nothing.
	if m.Type != TypeEscalation {
		if refusal := s.claimSeat(m.From, m.Generation, ""); refusal != nil {
			return t, Outcome{}, refusal
		}
		if refusal := s.checkMayWrite(m.From); refusal != nil {
			return t, Outcome{}, refusal
		}
	}
	if refusal := s.takeMessage(m); refusal != nil {
		return t, Outcome{}, refusal
	}
	if m.Type != TypeEscalation {
		s.t.Last = m.MsgID
	}
	s.noteWrite(m.From)
	next, out := s.end()
	return next, out, nil
}

// references refuses a message that refers to messages that are not stored.
func references(m *Message, w World) *Refusal {
	check := func(pointer, ref string) *Refusal {
		if known, ok := w.Refs[ref]; !ok || known.Kept {
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

// checkMayWrite refuses a role that a hold stops, and everybody once the task is
// over.
func (s *step) checkMayWrite(role Role) *Refusal {
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
		"wait for the admin; only escalations, acks and heartbeats are accepted")
}

// takeMessage does what the type of the message asks for.
func (s *step) takeMessage(m *Message) *Refusal {
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

// intake is the admin's own dispatch to the coordinator (TSK-11). It begins a task in Planning, or
// changes what the coordinator is bound to: the admin may change what checkKept refuses to others.
// It starts no subtask.
func (s *step) intake(m *Message) *Refusal {
	d := m.Dispatch
	if refusal := s.checkBranch(d); refusal != nil {
		return refusal
	}
	if s.t.Repo != d.Repo || s.t.Branch != s.branch(d) {
		s.t.Root, s.t.Place, s.t.Protected, s.t.Pin, s.t.Told = "", "", nil, "", ""
	}
	s.t.Risk, s.t.Repo, s.t.Branch, s.t.Criteria = d.Risk, d.Repo, s.branch(d), d.Criteria
	s.await(m)
	return nil
}

// Risks are the levels of risk, lowest first.
var Risks = []string{"low", "medium", "high"}

// rank orders risks. A task that has none yet ranks below all.
func rank(risk string) int { return slices.Index(Risks, risk) }

// dispatch gives subtasks to the executor. R-111, TSK-19: a person approves its content first; a
// dispatch that is refused for want of that is kept (Policy.Refusal), and goes out when it is
// approved.
func (s *step) dispatch(m *Message) *Refusal {
	d, t := m.Dispatch, s.t
	covered := t.covers(d, s.w)
	if refusal := s.checkBranch(d); refusal != nil {
		return refusal
	}
	if _, ok := d.Files(); !ok && !s.w.ByWord {
		return refuse(LayerSemantic, WrongFormat, "/payload/x_files", "This is not a list of files.").expecting(
			"patterns of the files that may be changed", []string{"src/*.go", "docs/"})
	}
	if refusal := t.checkKept(d, s.branch(d)); refusal != nil {
		return refusal
	}
	// TSK-20: the criteria must not change under the reviewer's hands.
	if t.Review != "" {
		return unfit(WrongState, "/payload/subtasks", "The review "+t.Review+" is open.", "a dispatch after its verdict")
	}
	for i, sub := range d.Subtasks {
		if refusal := s.mayDispatch(sub.ID, at("/payload/subtasks", i, "/subtask_id")); refusal != nil {
			return refusal
		}
	}
	// From here on nothing is refused but what git has shown.
	for _, sub := range d.Subtasks {
		s.redispatch(sub.ID, m.MsgID)
	}
	// this dispatch is counted as a try to fix the build.
	if failedCheck(t.CI) != "" {
		t.CIFixes++
	}
	// Old check results say nothing about the work that begins now.
	t.Phase, t.Dispatch, t.CI = Active, m.MsgID, nil
	t.Risk, t.Repo, t.Branch, t.Criteria, t.Base = d.Risk, d.Repo, s.branch(d), d.Criteria, ""
	if git := s.w.Git; git != nil {
		t.Base = git.Commit
	}
	s.await(m)
	if refusal := s.checkGit(); refusal != nil {
		return refusal
	}
	if git := s.w.Git; git != nil && git.Look != nil {
		t.Root, t.Place, t.Protected, t.Told = cmp.Or(t.Root, t.Base), git.Place, git.Protected, ""
	}
	if s.w.ByRisk {
		s.approveByRisk()
		return nil
	}
	return s.checkPlan(m, covered)
}

// checkBranch refuses a branch that git would not take for one. It is part of the step and not of reading, since
// dispatches of before are read again in replays.
func (s *step) checkBranch(d *Dispatch) *Refusal {
	if s.w.BySeat {
		return nil
	}
	return checkBranch(d.Branch)
}

// branch is the branch of a dispatch as the task has it.
func (s *step) branch(d *Dispatch) string {
	if s.w.BySeat {
		return d.Branch
	}
	return PlainBranch(d.Branch)
}

// checkGit refuses what a look at the repository has shown to be wrong, and passes on its warnings and what a person
// has to know of. It comes after everything that can be checked without git.
func (s *step) checkGit() *Refusal {
	if s.w.Git == nil {
		return nil
	}
	s.out.Warnings = append(s.out.Warnings, s.w.Git.Warnings...)
	if len(s.w.Git.Problems) > 0 {
		return &Refusal{LayerContext, s.w.Git.Problems}
	}
	s.found(s.w.Git.Finding, s.t.Last)
	return nil
}

// checkKept refuses a dispatch that changes what only the admin may change (TSK-20): criteria are
// only added, risk only rises, repository and branch stay. Otherwise a coordinator could make any
// result pass by dropping the criterion that fails.
func (t *Task) checkKept(d *Dispatch, branch string) *Refusal {
	// The first dispatch of a task binds it to nothing.
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
	case branch != t.Branch:
		return unfit(BranchChanged, "/payload/branch", "The task is on the branch "+t.Branch+".", t.Branch)
	case d.Repo != t.Repo:
		return unfit(BranchChanged, "/payload/repo", "The task is in the repository "+t.Repo+".", t.Repo)
	case rank(d.Risk) < rank(t.Risk):
		return unfit(RiskLowered, "/payload/risk_level", "The risk of the task is "+t.Risk+", and only the admin lowers it.",
			t.Risk+" or more")
	}
	return nil
}

// mayDispatch refuses to dispatch a subtask again that somebody works on. A dispatch that was
// never acknowledged may be replaced once its deadline has passed.
func (s *step) mayDispatch(id, pointer string) *Refusal {
	sub := s.t.findSubtask(func(x *Subtask) bool { return x.ID == id })
	if sub == nil {
		return nil
	}
	switch sub.State {
	// It is the coordinator's turn, or nobody has begun.
	case Triage, Rework, Reported, Queued:
		return nil
	case VerdictReported:
		if sub.Decision == rejected || s.t.Told != "" && s.t.Told != s.t.Pin { // or it was overtaken
			return nil
		}
	case Dispatched:
		if a := s.t.findAwaited(sub.Dispatch); a != nil && a.Late {
			return nil
		}
	}
	return unfit(WrongState, pointer, fmt.Sprintf("The subtask is %s.", sub.State),
		"subtasks that are new, or whose result or reject you answer")
}

// redispatch puts a subtask into the executor's hands, for the first time or again. A dispatch
// answers the result or the verdict before it, so those need no ack any more (TSK-51).
func (s *step) redispatch(id, msgID string) {
	is := func(x *Subtask) bool { return x.ID == id }
	sub := s.t.findSubtask(is)
	if sub == nil {
		s.t.Subtasks = append(s.t.Subtasks, Subtask{ID: id})
		sub = s.t.findSubtask(is)
	}
	switch sub.State {
	case Reported:
		s.ackImplicitly(sub.Result)
	case VerdictReported:
		if sub.Decision != rejected { // overtaken, so it must not complete anything
			s.stopAwaiting(sub.Verdict)
			break
		}
		s.ackImplicitly(sub.Verdict)
	case Dispatched:
		s.stopAwaiting(sub.Dispatch)
	default:
	}
	// Look again: the ack may have changed the subtask's state.
	sub = s.t.findSubtask(is)
	sub.State, sub.Dispatch = Dispatched, msgID
}

// result takes a task_result. R-209: from here on the branch is frozen, pinned to the commit and
// to the head that git showed.
func (s *step) result(m *Message) *Refusal {
	r, t := m.Result, s.t
	is := func(x *Subtask) bool { return x.ID == r.SubtaskID }
	sub := t.findSubtask(is)
	if sub == nil {
		return unfit(SubtaskUnknown, "/payload/subtask_id", "No dispatch has this subtask.",
			"a subtask of a dispatch of "+t.ID)
	}
	// TSK-51: a result for work that was never acknowledged is its ack.
	if sub.State == Dispatched {
		s.ackImplicitly(sub.Dispatch)
	}
	if sub.State != Executing {
		return unfit(WrongState, "/payload/subtask_id",
			fmt.Sprintf("The subtask is %s; a result is taken once, while it is executing.", sub.State),
			"wait: the next subtask begins when the reviewer has acknowledged the review of this one, or with a new dispatch")
	}
	// answers are matched with criteria by their order, so the numbers must agree.
	if len(r.Assessment.Met) != len(t.Criteria) {
		return unfit(Misaligned, "/payload/self_assessment/criteria_met",
			fmt.Sprintf("There are %d criteria and %d answers.", len(t.Criteria), len(r.Assessment.Met)),
			strconv.Itoa(len(t.Criteria))+" values, one for each criterion of the dispatch in its order")
	}
	if refusal := s.checkGit(); refusal != nil {
		return refusal
	}
	sub.State, sub.Result, sub.Complete = Reported, m.MsgID, r.Status == "complete"
	sub.Commit, sub.Head = r.Commit, ""
	if git := s.w.Git; git != nil {
		sub.Head, sub.Commit, sub.Claim = git.Head, cmp.Or(git.Commit, r.Commit), git.Look
		if git.Look != nil {
			t.Pin, t.Told = git.Head, ""
		}
	}
	s.await(m)
	return nil
}

// request takes a review_request. TSK-8: a task has at most one open review, since a verdict does
// not say which request it answers.
func (s *step) request(m *Message) *Refusal {
	r, t := m.Request, s.t
	const resultRef = "/payload/task_result_ref"
	sub := t.findSubtask(func(x *Subtask) bool { return x.Result == r.ResultRef })
	if sub == nil {
		return unfit(RefMismatch, resultRef, "This is not the last result of its subtask.",
			"the last task_result of the subtask")
	}
	// partial work is not reviewed.
	if !sub.Complete {
		return unfit(ResultNotComplete, resultRef, "The result is not complete.", "a new dispatch, or an escalation")
	}
	// the reviewer reads the criteria from that dispatch.
	if sub.Dispatch != r.DispatchRef {
		return unfit(RefMismatch, "/payload/original_dispatch_ref", "The subtask was last dispatched with another message.",
			sub.Dispatch)
	}
	if sub.State != Reported && sub.State != Triage || t.Review != "" {
		return unfit(WrongState, resultRef,
			fmt.Sprintf("The subtask is %s, and a task has one open review at the most.", sub.State),
			"a result that was reported and is not under review")
	}
	// the coordinator must know how near the lock is. Our count is the truth.
	if int64(r.RejectCount) != t.Count {
		return unfit(WrongRejectCount, "/payload/reject_count", fmt.Sprintf("The task was rejected %d times.", t.Count),
			strconv.FormatInt(t.Count, 10))
	}
	// TSK-41.
	if r.Scope == "incremental" && sub.Verdict == "" {
		return unfit(NoPriorVerdict, "/payload/review_scope",
			"incremental needs an earlier verdict, and there is none.", "full")
	}
	// R-310, with the checks that CI reported to us. The semantic layer has looked at those that the
	// coordinator reports.
	if name := failedCheck(t.CI); name != "" {
		return unfit(CIGated, "/payload/ci_status", "The build "+name+" failed, so a review cannot be requested.",
			"a task_dispatch that fixes the build")
	}
	if refusal := s.checkGit(); refusal != nil {
		return refusal
	}
	if sub.State == Reported {
		s.ackImplicitly(sub.Result)
	}
	// The admin knows that the branch was moved after the result, so that is what is reviewed.
	if git := s.w.Git; git != nil && git.Look != nil && sub.Head == "" && git.Head != "" {
		sub.Head, sub.Commit, t.Pin = git.Head, git.Head, git.Head
	}
	sub.State, t.Review, t.Reviewed = ReviewRequested, m.MsgID, sub.ID
	s.await(m)
	return nil
}

// escalation takes an escalation of an agent. TSK-16: critical holds the task, warning its sender,
// info nobody. After the end of a task it is only shown.
func (s *step) escalation(m *Message) {
	e := m.Escalation
	s.t.Open = append(s.t.Open, Opened{m.MsgID, e.Type, e.Severity, m.From, ""})
	// an info escalation says that its sender goes on.
	if s.t.over() || e.Severity == "info" {
		return
	}
	h := Hold{Kind: HoldSuspended, Cause: m.MsgID, Scope: "party:" + string(m.From), Since: s.now}
	if e.Severity == "critical" {
		h.Scope, h.Critical = ScopeTask, true
	}
	s.t.Holds = append(s.t.Holds, h)
}
