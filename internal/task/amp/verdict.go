package amp

import (
	"fmt"
	"slices"
	"strconv"
)

const rejected = "rejected"

func (s *step) verdict(m *Message) *Refusal {
	v, t := m.Verdict, s.t
	if t.Review == "" {
		return unfit(WrongState, "/type", "No review is open.", "a verdict after a review_request")
	}
	want := len(t.Criteria)
	if got := len(v.Criteria); got > want || got < want && v.Decision != rejected {
		return unfit(Misaligned, "/payload/criteria_results", fmt.Sprintf("There are %d criteria and %d results.", want, got),
			strconv.Itoa(want)+" results, one for each criterion in its order; a reject may have fewer")
	}
	if refusal := s.git(); refusal != nil {
		return refusal
	}
	s.answered(t.Review)
	sub := t.subtask(func(x *Subtask) bool { return x.ID == t.Reviewed })
	sub.State, sub.Verdict, sub.Decision, sub.Heard = VerdictReported, m.MsgID, v.Decision, false
	t.Review, t.Reviewed = "", ""
	s.await(m)
	if why := s.mustWait(v); why != "" {
		cause := s.raise("unknown", "warning", "verdict "+m.MsgID,
			"The verdict "+v.Decision+" on "+sub.ID+" waits for you: "+why+" Uphold it, or decide otherwise.",
			Hold{Kind: HoldAdmin, Scope: ScopeTask}, m.MsgID)
		t.Held = &Held{Verdict: m.MsgID, Subtask: sub.ID, Escalation: cause}
		return nil
	}
	s.count(sub)
	return nil
}

// mustWait is why a verdict waits for the admin, "" if it does not.
func (s *step) mustWait(v *Verdict) string {
	switch approves := v.Decision != rejected; {
	case v.Confidence < s.LowConfidence:
		return fmt.Sprintf("the reviewer's confidence is %.2f.", v.Confidence)
	case approves && s.t.Risk == "high" && v.unverified():
		return "the risk is high, and a criterion is not verified."
	case approves && s.t.Risk == "high" && s.ConfirmHigh && s.approved() == len(s.t.Subtasks)-1:
		return "the risk is high, and it would complete the task."
	}
	return ""
}

func (s *step) approved() (n int) {
	for _, sub := range s.t.Subtasks {
		if sub.State == Approved {
			n++
		}
	}
	return n
}

// count adds a reject, and locks the task when there are too many in a row.
func (s *step) count(sub *Subtask) {
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

// settle draws the consequence of a verdict that was heard and is not held.
func (s *step) settle(sub *Subtask) {
	if sub.State != VerdictReported || !sub.Heard || s.t.Held != nil {
		return
	}
	if sub.Decision == rejected {
		sub.State = Rework
		return
	}
	sub.State, s.t.Streak = Approved, 0
	if s.approved() == len(s.t.Subtasks) {
		s.t.Phase = Completed
		s.quiet()
	}
}

// quiet ends everything that is under way. Escalations that hold nothing stay open.
func (s *step) quiet() {
	for _, a := range slices.Clone(s.t.Awaiting) {
		s.drop(a.MsgID)
	}
	for _, h := range slices.Clone(s.t.Holds) {
		s.close(h.Cause, string(s.t.Phase))
	}
	s.t.Review, s.t.Reviewed, s.t.Held = "", "", nil
}
