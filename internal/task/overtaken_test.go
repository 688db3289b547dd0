package task_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// TestWhatWasReviewedIsWhatCompletes overtakes reviews in every way that git knows.
func TestWhatWasReviewedIsWhatCompletes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		s := newShop(t, address)
		approve := func(j *job) (v []byte) {
			j.t.Helper()
			v = verdict(j.id, "approved", 0.95)
			s.want("verdict_reported", amp.InMessage, v)
			return v
		}
		hear := func(j *job, v []byte, status string) {
			j.t.Helper()
			s.want(status, amp.InAck, ack(j.id, idOf(v), amp.Coordinator))
		}
		t.Run("nobody does", func(t *testing.T) {
			j := s.begin(t).report().review()
			v := approve(j)
			hear(j, v, "completed")
			sub := j.task().Subtasks[0]
			if sub.Claim.Outcome != amp.Verified || sub.Bound.Outcome != amp.Verified || sub.Bound.Commit != j.hash {
				t.Errorf("%+v %+v", sub.Claim, sub.Bound)
			}
		})
		t.Run("a push under review", func(t *testing.T) {
			j := s.begin(t).report().review()
			j.commit("late.go", "sneaked in\n")
			s.refuse(amp.BranchFrozen, amp.InMessage, verdict(j.id, "approved", 0.95))
			j.noticed("branch_violation", "warning")
			// Resuming approves nothing. Once the branch is back, what was reviewed completes.
			j.resume("reviewing")
			s.refuse(amp.BranchFrozen, amp.InMessage, verdict(j.id, "approved", 0.95))
			j.resume("reviewing")
			j.git("reset", "-q", "--hard", j.hash)
			hear(j, approve(j), "completed")
		})
		t.Run("a push under review, and a reject", func(t *testing.T) {
			j := s.begin(t).report().review()
			j.commit("late.go", "sneaked in\n")
			s.want("verdict_reported", amp.InMessage, verdict(j.id, "rejected", 0.95))
			if open := j.task().Open; len(open) != 1 || open[0].Type != "branch_violation" || open[0].Severity != "info" {
				t.Errorf("%+v", open)
			}
		})
		t.Run("a commit of the reviewer that it does not tell of", func(t *testing.T) {
			j := s.begin(t).report().review()
			j.commit("a.go", "once\n")
			s.refuse(amp.BranchFrozen, amp.InMessage, verdict(j.id, "approved", 0.95))
			j.noticed("branch_violation", "warning")
			j.resume("reviewing")
			v := verdict(j.id, "approved_with_fix", 0.95)
			s.want("verdict_reported", amp.InMessage, v)
			hear(j, v, "completed")
			if got := j.task(); got.Subtasks[0].Bound.Commit != j.git("rev-parse", "HEAD") || got.Pin == j.hash {
				t.Errorf("%+v", got.Subtasks[0].Bound)
			}
		})
		t.Run("a fix that is none", func(t *testing.T) {
			j := s.begin(t).report().review()
			s.refuse(amp.FixScope, amp.InMessage, verdict(j.id, "approved_with_fix", 0.95))
		})
		t.Run("a history that is rewritten", func(t *testing.T) {
			j := s.begin(t).report().review()
			j.git("commit", "-q", "--amend", "-m", "the same, they say")
			s.refuse(amp.BranchFrozen, amp.InMessage, verdict(j.id, "approved", 0.95))
			j.noticed("branch_violation", "warning")
			j.resume("reviewing")
			s.refuse(amp.FixScope, amp.InMessage, verdict(j.id, "approved_with_fix", 0.95))
		})
		t.Run("a push after the verdict", func(t *testing.T) {
			j := s.begin(t).report().review()
			v := approve(j)
			j.commit("late.go", "sneaked in\n")
			hear(j, v, "suspended")
			j.noticed("branch_violation", "warning")
			// The admin resumes, and the work is dispatched and reviewed again.
			j.resume("verdict_reported")
			j.d = dispatch(j.id, 1, "repo", j.path)
			s.want("dispatched", amp.InMessage, j.d)
			s.want("executing", amp.InAck, ack(j.id, idOf(j.d), amp.Executor))
			hash := j.commit("late.go", "in the open\n")
			j.r = result(j.id, 1, "commit_hash", hash)
			s.want("reported", amp.InMessage, j.r)
			j.review()
			hear(j, approve(j), "completed")
		})
		t.Run("rework that rewrites what was rejected", func(t *testing.T) {
			j := s.begin(t).report().review()
			v := verdict(j.id, "rejected", 0.95)
			s.want("verdict_reported", amp.InMessage, v)
			hear(j, v, "rework")
			j.d = dispatch(j.id, 1, "repo", j.path)
			s.want("dispatched", amp.InMessage, j.d)
			s.want("executing", amp.InAck, ack(j.id, idOf(j.d), amp.Executor))
			s.refuse(amp.CommitUnknown, amp.InMessage, result(j.id, 1, "commit_hash", j.hash)) // the same again
			put(t, "two\n", j.path, "a.go")
			j.git("commit", "-q", "-a", "--amend", "-m", "better")
			j.r = result(j.id, 1, "commit_hash", j.git("rev-parse", "HEAD"))
			s.want("reported", amp.InMessage, j.r)
			q := request(j.id, idOf(j.d), idOf(j.r), 1)
			s.want("review_requested", amp.InMessage, q)
			hear(j, approve(j), "completed")
		})
		t.Run("two subtasks, one after the other", func(t *testing.T) {
			j := s.begin(t, "subtasks", []object{
				{"subtask_id": fmt.Sprintf("T-2026-%d-S1", s.number+1), "description": "x", "estimated_lines": 1},
				{"subtask_id": fmt.Sprintf("T-2026-%d-S2", s.number+1), "description": "y", "estimated_lines": 1},
			}).report()
			q := request(j.id, idOf(j.d), idOf(j.r), 0)
			s.want("review_requested", amp.InMessage, q)
			s.want("reviewing", amp.InAck, ack(j.id, idOf(q), amp.Reviewer)) // the executor may go on
			hash := j.commit("b.go", "two\n")
			hear(j, approve(j), "executing")
			j.r = result(j.id, 2, "commit_hash", hash,
				"diff_summary", object{"files_changed": []string{"b.go"}, "lines_added": 1, "lines_removed": 0})
			s.want("reported", amp.InMessage, j.r)
			j.review()
			hear(j, approve(j), "completed")
			if got := j.task(); got.Subtasks[0].Bound.Commit != j.hash || got.Subtasks[1].Bound.Commit != hash ||
				got.Subtasks[1].Claim.Outcome != amp.Verified {
				t.Errorf("%+v", got.Subtasks)
			}
		})
		t.Run("a branch that is gone", func(t *testing.T) {
			j := s.begin(t).report().review()
			v := approve(j)
			j.git("checkout", "-q", "main")
			j.git("branch", "-q", "-D", "feature/timer")
			hear(j, v, "suspended")
			j.noticed("branch_violation", "warning")
		})
		t.Run("a merge before the end", func(t *testing.T) {
			j := s.begin(t).report().review()
			v := approve(j)
			j.git("branch", "-q", "-f", "main", "feature/timer")
			hear(j, v, "suspended")
			if got := j.noticed("branch_violation", "critical"); got.Phase != amp.Active {
				t.Errorf("the task is %s", got.Phase)
			}
		})
		t.Run("a merge into a branch of another name", func(t *testing.T) {
			s.number++
			id := fmt.Sprintf("T-2026-%d", s.number)
			j := &job{repo: newRepo(t, filepath.Join(s.root, id)), s: s, id: id} // with the branch trunk, and no remote
			d := dispatch(id, 1, "repo", j.path)
			s.want("dispatched", amp.InMessage, d)
			s.want("executing", amp.InAck, ack(id, idOf(d), amp.Executor))
			j.git("checkout", "-q", "-b", "feature/timer")
			j.d = d
			j.report()
			q := request(id, idOf(d), idOf(j.r), 0)
			s.want("review_requested", amp.InMessage, q)
			v := verdict(id, "rejected", 0.95)
			s.want("verdict_reported", amp.InMessage, v)
			hear(j, v, "rework")
			d = dispatch(id, 1, "repo", j.path)
			s.want("dispatched", amp.InMessage, d)
			s.want("executing", amp.InAck, ack(id, idOf(d), amp.Executor))
			hash := j.commit("a.go", "two\n")
			j.git("branch", "-q", "-f", "trunk", hash)
			s.want("suspended", amp.InMessage, result(id, 1, "commit_hash", hash))
			j.noticed("branch_violation", "critical")
		})
		t.Run("a squashed merge before the end", func(t *testing.T) {
			j := s.begin(t).report()
			j.git("checkout", "-q", "main")
			j.commit("a.go", "one\n")
			s.want("suspended", amp.InMessage, request(j.id, idOf(j.d), idOf(j.r), 0))
			j.noticed("branch_violation", "critical")
		})
		t.Run("a push to the forge's main", func(t *testing.T) {
			j := s.begin(t).report().review()
			j.git("update-ref", "refs/remotes/origin/main", j.hash)
			s.want("suspended", amp.InMessage, verdict(j.id, "approved", 0.95))
			j.noticed("branch_violation", "critical")
		})
		t.Run("a commit on main while executing", func(t *testing.T) {
			j := s.begin(t)
			j.git("checkout", "-q", "main")
			j.commit("b.go", "directly\n")
			j.git("checkout", "-q", "feature/timer")
			hash := j.commit("a.go", "one\n")
			j.r = result(j.id, 1, "commit_hash", hash)
			s.want("suspended", amp.InMessage, j.r)
			j.noticed("branch_violation", "critical")
			j.resume("reported") // the admin knows of it, and it is not said again
			j.review()
			hear(j, approve(j), "completed")
		})
		t.Run("what was approved is merged", func(t *testing.T) {
			j := s.begin(t).report().review()
			hear(j, approve(j), "completed")
			// The next task in the same repository is not disturbed by the merge of the first.
			s.number++
			next := fmt.Sprintf("T-2026-%d", s.number)
			d := dispatch(next, 1, "repo", j.path, "branch", "feature/next")
			s.want("dispatched", amp.InMessage, d)
			s.want("executing", amp.InAck, ack(next, idOf(d), amp.Executor))
			j.git("checkout", "-q", "main")
			j.git("merge", "-q", "--ff-only", "feature/timer")
			j.git("checkout", "-q", "-b", "feature/next")
			hash := j.commit("b.go", "two\n")
			s.want("reported", amp.InMessage, result(next, 1, "commit_hash", hash))
		})
		t.Run("an approval that the admin upholds", func(t *testing.T) {
			j := s.begin(t).report().review()
			v := verdict(j.id, "approved", 0.5)
			s.want("admin_hold", amp.InMessage, v)
			hear(j, v, "admin_hold")
			j.commit("late.go", "sneaked in\n")
			uphold := instruct(j.id, "uphold_verdict")
			s.want("suspended", amp.InInstruction, uphold)
			j.noticed("branch_violation", "warning")
		})
		s.WantClean()
	})
}

// TestTheWatcherNoticesAtOnce what no message has to come for, and completes what was approved at a gate.
func TestTheWatcherNoticesAtOnce(t *testing.T) {
	s := newShop(t, storetest.SQLite(t), func(o *task.Options) { o.WatchEvery = 20 * time.Millisecond })
	pushed, fixed, gone, mained := s.begin(t).report().review(), s.begin(t).report().review(), s.begin(t), s.begin(t)
	gated := s.begin(t).report().review()
	v := verdict(gated.id, "approved", 0.5)
	s.want("admin_hold", amp.InMessage, v)
	s.want("admin_hold", amp.InAck, ack(gated.id, idOf(v), amp.Coordinator))
	waits := s.only()
	late := s.begin(t).report().review() // approved, pushed to, and put back
	v = verdict(late.id, "approved", 0.95)
	s.want("verdict_reported", amp.InMessage, v)
	late.commit("late.go", "sneaked in\n")
	s.want("suspended", amp.InAck, ack(late.id, idOf(v), amp.Coordinator))
	late.git("reset", "-q", "--hard", late.hash)
	ctx := t.Context()
	go func() { _ = s.tasks.Run(ctx) }()
	fixed.commit("a.go", "once\n") // a reviewer may do that, so nobody hears of it until the verdict
	pushed.commit("late.go", "1\n2\n3\n4\n5\n6\n")
	must(t, os.Rename(filepath.Join(gone.path, ".git"), filepath.Join(gone.path, "gone")))
	mained.git("branch", "-q", "-f", "main", mained.commit("b.go", "directly\n"))
	late.resume("verdict_reported")
	s.vote(waits.ID, gate.Ballot{Approve: true})
	for j, status := range map[*job]string{
		pushed: "suspended", gone: "suspended", mained: "suspended", gated: "completed", late: "completed",
	} {
		testbed.Until(t, j.id+" "+status, func() bool { return s.status(j.id) == status })
	}
	pushed.noticed("branch_violation", "warning")
	gone.noticed("permission_denied", "critical")
	mained.noticed("branch_violation", "critical")
	if s.status(fixed.id) != "reviewing" {
		t.Error("a small fix under review is escalated")
	}
	if sub := gated.task().Subtasks[0]; sub.Bound.Commit != gated.hash {
		t.Errorf("%+v", sub.Bound)
	}
}
