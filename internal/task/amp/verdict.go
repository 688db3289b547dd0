package amp

import (
	"fmt"
	"slices"
	"strconv"
)

// rejected is the decision that sends a subtask back.
const rejected = "rejected"

// verdict takes a review_verdict, which answers the one open review. TSK-5: an approval needs a
// result for every criterion; a reject may stop at the first that failed.
func (s *step) verdict(m *Message) *Refusal {
	v, t := m.Verdict, s.t
	// TSK-8 makes "the open review" unique.
	if t.Review == "" {
		return unfit(WrongState, "/type", "No review is open.", "a verdict after a review_request")
	}
	want := len(t.Criteria)
	if got := len(v.Criteria); got > want || got < want && v.Decision != rejected {
		return unfit(Misaligned, "/payload/criteria_results", fmt.Sprintf("There are %d criteria and %d results.", want, got),
			strconv.Itoa(want)+" results, one for each criterion in its order; a reject may have fewer")
	}
	if refusal := s.checkGit(); refusal != nil {
		return refusal
	}
	s.ackImplicitly(t.Review)
	sub := t.findSubtask(func(x *Subtask) bool { return x.ID == t.Reviewed })
	sub.State, sub.Verdict, sub.Decision, sub.Heard = VerdictReported, m.MsgID, v.Decision, false
	if git := s.w.Git; git != nil && git.Look != nil {
		sub.Bound = git.Look
		if git.Head != "" { // with what the reviewer has fixed
			sub.Head, t.Pin, t.Told = git.Head, git.Head, ""
		}
	}
	t.Review, t.Reviewed = "", ""
	s.await(m)
	// The verdict is stored but has no consequence yet, and does not count (TSK-24).
	if why := s.mustWait(v); why != "" {
		cause := s.raise("unknown", "warning", "verdict "+m.MsgID,
			"The verdict "+v.Decision+" on "+sub.ID+" waits for you: "+why+" Uphold it, or decide otherwise.",
			Hold{Kind: HoldAdmin, Scope: ScopeTask}, m.MsgID)
		t.Held = &Held{Verdict: m.MsgID, Subtask: sub.ID, Escalation: cause}
		return nil
	}
	s.countReject(sub)
	return nil
}

// mustWait is why a verdict waits for the admin, "" if it does not: low confidence, high
// risk with something unverified (TSK-6), or the approval that would complete a task of high risk
// (TSK-49).
func (s *step) mustWait(v *Verdict) string {
	switch approves := v.Decision != rejected; {
	case v.Confidence < s.LowConfidence:
		return fmt.Sprintf("the reviewer's confidence is %.2f.", v.Confidence)
	case approves && s.t.Risk == "high" && v.unverified():
		return "the risk is high, and a criterion is not verified."
	case approves && s.t.Risk == "high" && s.ConfirmHigh && s.countApproved() == len(s.t.Subtasks)-1:
		return "the risk is high, and it would complete the task."
	}
	return ""
}

// countApproved is how many subtasks are approved.
func (s *step) countApproved() (n int) {
	for _, sub := range s.t.Subtasks {
		if sub.State == Approved {
			n++
		}
	}
	return n
}

// countReject counts a reject, and locks the task when there are too many in a row (R-511, TSK-1).
// It is called when a verdict is stored or upheld, not when it is acknowledged, so that a
// coordinator cannot delay the lock.
func (s *step) countReject(sub *Subtask) {
	if sub.Decision != rejected {
		return
	}
	s.t.Count++
	s.t.Streak++
	s.t.Lifetime++
	if s.t.Streak >= int64(s.LockAt) {
		s.raise("hallucination_lock", "critical", "lock",
			fmt.Sprintf("%s was rejected %d times in a row. The task is locked: look at the diff "+
				"yourself, split the task, or terminate it.", s.t.ID, s.t.Streak),
			Hold{Kind: HoldLocked, Scope: ScopeTask}, sub.Dispatch, sub.Verdict)
	}
}

// applyVerdict draws the consequence of a verdict that was acknowledged and is not held. The last
// approval completes the task.
func (s *step) applyVerdict(sub *Subtask) {
	// Both must have happened: the coordinator's ack, and the admin's decision if one is needed.
	if sub.State != VerdictReported || !sub.Heard || s.t.Held != nil {
		return
	}
	if sub.Decision == rejected {
		sub.State = Rework
		return
	}
	last := s.countApproved() == len(s.t.Subtasks)-1
	if last && !s.mayComplete() {
		return
	}
	sub.State, s.t.Streak = Approved, 0
	if last {
		s.t.Phase = Completed
		s.endAll()
		s.endPlans("")
	}
}

// endAll ends everything that is under way when a task ends. Escalations that hold nothing stay
// open: the admin has not read them yet.
func (s *step) endAll() {
	for _, a := range slices.Clone(s.t.Awaiting) {
		s.stopAwaiting(a.MsgID)
	}
	for _, h := range slices.Clone(s.t.Holds) {
		s.close(h.Cause, string(s.t.Phase))
	}
	s.t.Review, s.t.Reviewed, s.t.Held = "", "", nil
}
