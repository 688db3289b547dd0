package amp

import (
	"slices"
	"strconv"
	"strings"
)

// Policy is what a server decides for itself. The zero value is not one; see Defaults.
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

// Defaults are the values that the protocol names.
func Defaults() Policy {
	return Policy{LockAt: 3, LowConfidence: 0.8, Heartbeat: 1800, CIRetries: 2, FixTotal: 12}
}

// checker finds what is wrong with a message that its schema cannot see.
type checker struct {
	m        *Message
	policy   Policy
	problems []Problem
	warnings []Problem
}

func at(pointer string, n int, rest ...string) string {
	return pointer + "/" + strconv.Itoa(n) + strings.Join(rest, "")
}

func (c *checker) fail(code Code, pointer, detail, expected string) {
	c.problems = append(c.problems, withExample(Problem{Code: code, Pointer: pointer, Detail: detail, Expected: expected}))
}

func (c *checker) warn(code Code, pointer, detail string) {
	c.warnings = append(c.warnings, Problem{Code: code, Pointer: pointer, Detail: detail})
}

func (c *checker) check() {
	m := c.m
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

func (c *checker) dispatch(d *Dispatch) {
	seen := map[string]bool{}
	for i, s := range d.Subtasks {
		if !strings.HasPrefix(s.ID, c.m.TaskID+"-S") {
			c.fail(WrongSubtaskID, at("/payload/subtasks", i, "/subtask_id"), "The subtask belongs to another task.",
				"an id that begins with "+c.m.TaskID+"-S")
		}
		if seen[s.ID] {
			c.fail(DuplicateItem, at("/payload/subtasks", i, "/subtask_id"), "The subtask stands in the list twice.",
				"every subtask once")
		}
		seen[s.ID] = true
	}
}

func (c *checker) result(r *Result) {
	if !strings.HasPrefix(r.SubtaskID, c.m.TaskID+"-S") {
		c.fail(WrongSubtaskID, "/payload/subtask_id", "The subtask belongs to another task.",
			"an id that begins with "+c.m.TaskID+"-S")
	}
	if len(r.Assessment.Notes) != len(r.Assessment.Met) {
		c.fail(Misaligned, "/payload/self_assessment/notes", "There are not as many notes as criteria.",
			strconv.Itoa(len(r.Assessment.Met))+" notes, one for each criterion")
	}
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

func isFalse(b *bool) bool { return b != nil && !*b }

// LockNotice is what a review request should say when the lock is near.
const LockNotice = "Lock is approaching"

// ciFailed are the values of ci_status that keep a review from being asked for.
var ciFailed = []string{"failed", "failure", "error"}

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
		c.fail(CIGated, "/payload/ci_status/"+escape(name), "The build failed: a review would be in vain.",
			"a task_dispatch that fixes the build")
	}
	if r.RejectCount >= 2 && !strings.Contains(strings.ToLower(r.Notes), strings.ToLower(LockNotice)) {
		if c.policy.StrictLock {
			c.fail(LockWarningRequired, "/payload/coordinator_notes",
				"The next reject may lock the task, and the notes do not say so.", "notes that say: "+LockNotice)
		} else {
			c.warn(WarnLockMissing, "/payload/coordinator_notes", "The next reject may lock the task. Say so: "+LockNotice+".")
		}
	}
}

// failedCheck is the first check that failed, "" if none did.
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

func (c *checker) verdict(v *Verdict) {
	failed := slices.ContainsFunc(v.Criteria, func(c Judged) bool { return isFalse(c.Passed) })
	blocking := slices.ContainsFunc(v.Issues, func(i Issue) bool { return i.Severity != "minor" })
	switch {
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

func (c *checker) escalation(e *Escalation) {
	from := c.m.From
	if e.TriggeredBy != from && (from != System || e.TriggeredBy != Coordinator) {
		c.fail(TriggerMismatch, "/payload/triggered_by", "Who sends an escalation answers for it.",
			string(from)+"; whom else it concerns belongs into the description")
	}
	if len(e.Affected) == 0 {
		c.warn(WarnNoAffected, "/payload/affected_msgs", "The admin sees no message that this is about.")
	}
}
