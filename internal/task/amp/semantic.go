package amp

import (
	"slices"
	"strconv"
	"strings"
)

// Policy is what a server decides for itself, where the protocol leaves room. The zero value is
// not usable; begin with Defaults. It is part of every bundle, because a replay needs the same
// numbers.
type Policy struct {
	RequirePlan   bool    // a person approves a task's plan before its first dispatch
	LockAt        int     // rejects in a row that lock a task
	LowConfidence float64 // below it a verdict waits for the admin
	Heartbeat     int64   // seconds without a write of who has the ball
	StrictLock    bool    // a missing lock warning is refused, and not only warned of
	ConfirmHigh   bool    // the last approval of a task of high risk waits for the admin
	CIRetries     int     // fix dispatches after which a failed build is escalated
	FixTotal      int64   // lines that all direct fixes of a verdict may have together
}

// Defaults are the values that the protocol names. RequirePlan and ConfirmHigh are off: the
// conformance vectors assume so, and the server turns them on.
func Defaults() Policy {
	return Policy{LockAt: 3, LowConfidence: 0.8, Heartbeat: 1800, CIRetries: 2, FixTotal: 12}
}

// checker finds what is wrong with a message that its schema cannot see: fields that contradict
// each other. It collects everything, so that a model can repair the message in one go.
type checker struct {
	m        *Message
	policy   Policy
	problems []Problem
	warnings []Problem
}

// at is the JSON pointer of an item, and of what is in it.
func at(pointer string, n int, rest ...string) string {
	return pointer + "/" + strconv.Itoa(n) + strings.Join(rest, "")
}

// fail adds a problem, with an example where the field has one.
func (c *checker) fail(code Code, pointer, detail, expected string) {
	c.problems = append(c.problems, withExample(Problem{Code: code, Pointer: pointer, Detail: detail, Expected: expected}))
}

// warn adds a warning. A message with warnings only is accepted.
func (c *checker) warn(code Code, pointer, detail string) {
	c.warnings = append(c.warnings, Problem{Code: code, Pointer: pointer, Detail: detail})
}

// check looks at the envelope and then at the payload.
func (c *checker) check() {
	m := c.m
	// the id repeats the type and the task.
	if !strings.HasPrefix(m.MsgID, string(m.Type)+"-"+m.TaskID+"-") {
		c.fail(MsgIDMismatch, "/msg_id", "The id names another type or another task than the envelope.",
			"an id that begins with "+string(m.Type)+"-"+m.TaskID+"-")
	}
	for i, ref := range m.ContextRef {
		if ref == m.MsgID {
			c.fail(RefSelf, at("/context_ref", i), "A message cannot refer to itself.", "an earlier message")
		}
	}
	switch {
	case m.Dispatch != nil:
		c.dispatch(m.Dispatch)
	case m.Result != nil:
		c.result(m.Result)
	case m.Request != nil:
		c.request(m.Request)
	case m.Verdict != nil:
		c.verdict(m.Verdict)
	case m.Escalation != nil:
		c.escalation(m.Escalation)
	}
}

// dispatch checks that subtasks belong to the task and are different.
func (c *checker) dispatch(d *Dispatch) {
	seen := map[string]bool{}
	for i, s := range d.Subtasks {
		if !strings.HasPrefix(s.ID, c.m.TaskID+"-S") {
			c.fail(WrongSubtaskID, at("/payload/subtasks", i, "/subtask_id"), "The subtask belongs to another task.",
				"an id that begins with "+c.m.TaskID+"-S")
		}
		if seen[s.ID] {
			c.fail(DuplicateItem, at("/payload/subtasks", i, "/subtask_id"), "Duplicate subtask.",
				"every subtask once")
		}
		seen[s.ID] = true
	}
}

// result checks R-204 as far as the document goes (how many criteria there are is known to the
// task only), and that a complete result claims no unmet criterion (TSK-27).
func (c *checker) result(r *Result) {
	if !strings.HasPrefix(r.SubtaskID, c.m.TaskID+"-S") {
		c.fail(WrongSubtaskID, "/payload/subtask_id", "The subtask belongs to another task.",
			"an id that begins with "+c.m.TaskID+"-S")
	}
	if len(r.Assessment.Notes) != len(r.Assessment.Met) {
		c.fail(Misaligned, "/payload/self_assessment/notes", "The number of notes differs from the number of criteria.",
			strconv.Itoa(len(r.Assessment.Met))+" notes, one for each criterion")
	}
	// TSK-27, TSK-28.
	if r.Status == "complete" {
		if slices.ContainsFunc(r.Assessment.Met, isFalse) {
			c.fail(ResultInconsistent, "/payload/completion_status", "The result says complete, and a criterion is not met.",
				"partial, with blockers")
		}
		if len(r.WorkLog) == 0 {
			c.warn(WarnEmptyLog, "/payload/work_log", "Reviewers and auditors read the work log, and it is empty.")
		}
		if r.Commit == "" {
			c.warn(WarnNoCommit, "/payload/commit_hash", "Without a commit the review is pinned to nothing.")
		}
	}
}

// isFalse tells false from null, which means "could not be verified" (TSK-4).
func isFalse(b *bool) bool { return b != nil && !*b }

// LockNotice is what a review request should say when the lock is near.
const LockNotice = "Lock is approaching"

// ciFailed are the values of a check that stop a review (TSK-22), in lower case.
var ciFailed = []string{"failed", "failure", "error"}

// request checks references, checks and the lock warning.
func (c *checker) request(r *Request) {
	for pointer, ref := range map[string]string{
		"/payload/original_dispatch_ref": r.DispatchRef,
		"/payload/task_result_ref":       r.ResultRef,
	} {
		if taskOf(ref) != c.m.TaskID {
			c.fail(RefWrongTask, pointer, "The message belongs to another task.", "a message of "+c.m.TaskID)
		}
	}
	if name := failedCheck(r.CI); name != "" {
		c.fail(CIGated, "/payload/ci_status/"+escape(name), "A check failed, so a review cannot be requested.",
			"a task_dispatch that fixes the build")
	}
	// the reviewer should know that one more reject may lock the task.
	if r.RejectCount >= 2 && !strings.Contains(strings.ToLower(r.Notes), strings.ToLower(LockNotice)) {
		if c.policy.StrictLock {
			c.fail(LockWarningRequired, "/payload/coordinator_notes",
				"The next reject may lock the task, and the notes do not say so.", "notes that say: "+LockNotice)
		} else {
			c.warn(WarnLockMissing, "/payload/coordinator_notes", "The next reject may lock the task. Say so: "+LockNotice+".")
		}
	}
}

// failedCheck is the first check that failed, in the order of names, "" if none did. last_updated
// is a time and no check (TSK-22).
func failedCheck(ci map[string]string) string {
	var names []string
	for name, status := range ci {
		if name != "last_updated" && slices.Contains(ciFailed, strings.ToLower(status)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// verdict refuses verdicts that contradict themselves (TSK-26): they would pass defects or move
// the lock unfairly. It also bounds the sum of direct fixes (TSK-25).
func (c *checker) verdict(v *Verdict) {
	failed := slices.ContainsFunc(v.Criteria, func(c Judged) bool { return isFalse(c.Passed) })
	blocking := slices.ContainsFunc(v.Issues, func(i Issue) bool { return i.Severity != "minor" })
	switch {
	// a reject without a blocking issue would move the lock for nothing.
	case v.Decision == "rejected" && !blocking:
		c.fail(VerdictInconsistent, "/payload/issues", "Minor issues do not block, so there is nothing to reject for.",
			"an issue of severity critical or major, or the decision approved")
	case v.Decision != "rejected" && failed:
		c.fail(VerdictInconsistent, "/payload/criteria_results", "A criterion has failed, and the decision approves.",
			"the decision rejected, or passed true or null")
	case v.Decision != "rejected" && blocking:
		c.fail(VerdictInconsistent, "/payload/issues", "A critical or major issue blocks, and the decision approves.",
			"the decision rejected, or only minor issues")
	}
	var total int64
	for _, f := range v.Fixes {
		total += int64(f.Lines)
		if f.Change == "import" {
			c.warn(WarnLegacyImport, "/payload/direct_fixes", "import is read as import_order: only the order may change.")
		}
	}
	// TSK-25: many small fixes are a large one.
	if total > c.policy.FixTotal {
		c.fail(FixScope, "/payload/direct_fixes", "The direct fixes together are larger than a reviewer may make.",
			"at most "+strconv.FormatInt(c.policy.FixTotal, 10)+" lines in all, or the decision rejected")
	}
	if v.Decision != "rejected" && v.unverified() {
		c.warn(WarnUnverified, "/payload/criteria_results", "A criterion is approved that nobody has verified.")
	}
	if v.Confidence < c.policy.LowConfidence {
		c.warn(WarnLowConfidence, "/payload/confidence", "The verdict waits for the admin.")
	}
}

// unverified reports whether a criterion is neither passed nor failed.
func (v *Verdict) unverified() bool {
	for _, r := range v.Criteria {
		if r.Passed == nil {
			return true
		}
	}
	return false
}

// escalation checks TSK-12: nobody escalates in another's name. The server may name the
// coordinator, whose duty it does.
func (c *checker) escalation(e *Escalation) {
	from := c.m.From
	// R-503, TSK-12.
	if e.TriggeredBy != from && (from != System || e.TriggeredBy != Coordinator) {
		c.fail(TriggerMismatch, "/payload/triggered_by", "triggered_by is not the sender.",
			string(from)+"; put others whom it concerns into the description")
	}
	if len(e.Affected) == 0 {
		c.warn(WarnNoAffected, "/payload/affected_msgs", "The admin sees no message that this is about.")
	}
}
