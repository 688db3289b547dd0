package task_test

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// shop is a node that looks into repositories below a folder, for tasks that each have one of their own.
type shop struct {
	*node
	t      *testing.T
	root   string
	number int
}

func newShop(t *testing.T, address string, options ...func(*task.Options)) *shop {
	t.Helper()
	root := t.TempDir()
	look := func(o *task.Options) { o.RepoRoots, o.RequireGit = []string{root}, true }
	return &shop{start(t, address, append([]func(*task.Options){look}, options...)...), t, root, 100}
}

// job is a task in a repository of its own.
type job struct {
	*repo
	s    *shop
	id   string
	base string
	d    []byte // the dispatch
	r    []byte // the result
	hash string // what it reported
}

// begin has a task dispatched and claimed. Its repository has a main branch, and a remote's.
func (s *shop) begin(t *testing.T, pairs ...any) *job {
	t.Helper()
	s.number++
	id := fmt.Sprintf("T-2026-%d", s.number)
	j := &job{repo: newRepo(t, filepath.Join(s.root, id)), s: s, id: id}
	j.git("branch", "-M", "main")
	j.git("update-ref", "refs/remotes/origin/main", "HEAD")
	j.base = j.git("rev-parse", "HEAD")
	j.d = dispatch(id, 1, append([]any{"repo", j.path}, pairs...)...)
	s.want("dispatched", amp.InMessage, j.d)
	s.want("executing", amp.InAck, ack(id, idOf(j.d), amp.Executor))
	j.git("checkout", "-q", "-b", "feature/timer")
	return j
}

// report commits and reports it.
func (j *job) report() *job {
	j.t.Helper()
	j.hash = j.commit("a.go", "one\n")
	j.r = result(j.id, 1, "commit_hash", j.hash)
	j.s.want("reported", amp.InMessage, j.r)
	return j
}

// review has the review begin.
func (j *job) review() *job {
	j.t.Helper()
	q := request(j.id, idOf(j.d), idOf(j.r), 0)
	j.s.want("review_requested", amp.InMessage, q)
	j.s.want("reviewing", amp.InAck, ack(j.id, idOf(q), amp.Reviewer))
	return j
}

// task is the task as it stands, as its bundle proves it.
func (j *job) task() *amp.Task {
	j.t.Helper()
	b, err := j.s.tasks.Bundle(j.t.Context(), "default", j.id)
	if err == nil {
		err = b.Verify(j.s.Ledger.Key())
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return b.State
}

// noticed wants the task held, with an escalation of a type, and not completed.
func (j *job) noticed(kind, severity string) *amp.Task {
	j.t.Helper()
	t := j.task()
	if t.Status() != "suspended" || len(t.Open) == 0 || t.Open[0].Type != kind || t.Open[0].Severity != severity {
		j.t.Errorf("the task is %s with %+v, want an escalation %s (%s)", t.Status(), t.Open, kind, severity)
	}
	return t
}

// resume answers what is open.
func (j *job) resume(status string) {
	j.t.Helper()
	j.s.want(status, amp.InInstruction, instruct(j.id, "resume", "escalation_refs", []string{j.task().Open[0].ID}))
}

func put(t *testing.T, text string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	_ = os.MkdirAll(filepath.Dir(name), 0o755)
	_ = os.Remove(name)
	testbed.Write(t, name, text)
}

// must fails a test for an error in its preparation.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSabotageIsAFailure does to repositories, between dispatch and result, what an executor would do that has no
// work to show, or wants what is not its own read. Nothing of it is taken for something that nobody could look at.
func TestSabotageIsAFailure(t *testing.T) {
	s := newShop(t, storetest.SQLite(t))
	outside := newRepo(t, filepath.Join(t.TempDir(), "outside"))
	secret := outside.commit("salaries-of-everybody.csv", "1\n")
	out := filepath.Join(outside.path, ".git")
	const made = "0123456789012345678901234567890123456789"
	for name, c := range map[string]struct {
		why string
		do  func(t *testing.T, j *job, dir string) (commit string)
	}{
		"a .git that was moved": {"there is no .git", func(t *testing.T, _ *job, dir string) string {
			must(t, os.Rename(dir, dir+"-away"))
			return made
		}},
		"a broken config": {"git cannot read it", func(t *testing.T, _ *job, dir string) string {
			put(t, "[[[\n", dir, "config")
			return made
		}},
		"alternates that lead out": {"borrows objects", func(t *testing.T, j *job, dir string) string {
			put(t, out+"/objects\n", dir, "objects", "info", "alternates")
			j.git("update-ref", "refs/heads/feature/timer", secret)
			return secret
		}},
		"alternates of the same folder": {"borrows objects", func(t *testing.T, j *job, dir string) string {
			other := newRepo(t, filepath.Join(s.root, "other"))
			put(t, filepath.Join(other.path, ".git", "objects")+"\n", dir, "objects", "info", "alternates")
			return j.commit("a.go", "one\n")
		}},
		"objects that are a link": {"its objects", func(t *testing.T, j *job, dir string) string {
			must(t, os.RemoveAll(filepath.Join(dir, "objects")))
			must(t, os.Symlink(filepath.Join(out, "objects"), filepath.Join(dir, "objects")))
			j.git("update-ref", "refs/heads/feature/timer", secret)
			return secret
		}},
		"one object that is a link": {"its objects", func(t *testing.T, _ *job, dir string) string {
			at := filepath.Join("objects", secret[:2], secret[2:])
			must(t, os.MkdirAll(filepath.Join(dir, "objects", secret[:2]), 0o755))
			must(t, os.Symlink(filepath.Join(out, at), filepath.Join(dir, at)))
			return secret
		}},
		"packs that are a link": {"its objects", func(t *testing.T, _ *job, dir string) string {
			must(t, os.RemoveAll(filepath.Join(dir, "objects", "pack")))
			must(t, os.Symlink(filepath.Join(out, "objects", "pack"), filepath.Join(dir, "objects", "pack")))
			return secret
		}},
		"a branch that is a link": {"refs/heads/feature/timer is", func(t *testing.T, j *job, dir string) string {
			hash := j.commit("a.go", "one\n")
			own := filepath.Join(dir, "refs", "heads", "feature", "timer")
			must(t, os.Remove(own))
			must(t, os.Symlink(filepath.Join(out, "refs", "heads", "trunk"), own))
			return hash
		}},
		"grafts": {"info/grafts", func(t *testing.T, j *job, dir string) string {
			j.git("checkout", "-q", "--orphan", "new")
			orphan := j.commit("a.go", "one\n")
			j.git("branch", "-q", "-M", "new", "feature/timer")
			put(t, orphan+" "+j.base+"\n", dir, "info", "grafts")
			return orphan
		}},
		"objects that are replaced": {"refs/replace", func(_ *testing.T, j *job, _ string) string {
			hash := j.commit("a.go", "one\n")
			j.git("checkout", "-q", "--orphan", "new")
			orphan := j.commit("b.go", "two\n")
			j.git("replace", orphan, hash)
			j.git("branch", "-q", "-M", "new", "feature/timer")
			return orphan
		}},
		"a history that is cut off": {"shallow", func(t *testing.T, j *job, dir string) string {
			hash := j.commit("a.go", "one\n")
			put(t, hash+"\n", dir, "shallow")
			return hash
		}},
		"a .git file that leads elsewhere": {"leads to another repository", func(t *testing.T, j *job, dir string) string {
			other := newRepo(t, filepath.Join(s.root, "elsewhere"))
			other.git("fetch", "-q", j.path, "main")
			other.git("checkout", "-q", "-b", "feature/timer", "FETCH_HEAD")
			hash := other.commit("a.go", "one\n")
			must(t, os.Rename(dir, dir+"-away"))
			put(t, "gitdir: "+other.path+"/.git\n", j.path, ".git")
			return hash
		}},
		"a common folder that is elsewhere": {"there is no .git", func(t *testing.T, _ *job, dir string) string {
			put(t, out+"\n", dir, "commondir")
			return secret
		}},
		"a commit that is not what its hash says": {"not what its hash says", func(t *testing.T, j *job, dir string) string {
			// The parent of what is reported is made up: its name is the hash of something else, its content leads to the
			// base.
			tree := j.git("rev-parse", "HEAD^{tree}")
			const by = "\nauthor a <a@example.com> 1 +0000\ncommitter a <a@example.com> 1 +0000\n\nx\n"
			text := "tree " + tree + "\nparent " + j.base + by
			var packed bytes.Buffer
			z := zlib.NewWriter(&packed)
			_, _ = fmt.Fprintf(z, "commit %d\x00%s", len(text), text)
			must(t, z.Close())
			put(t, packed.String(), dir, "objects", made[:2], made[2:])
			put(t, "tree "+tree+"\nparent "+made+by, j.path, "raw")
			hash := j.git("hash-object", "-t", "commit", "--literally", "-w", "raw")
			put(t, hash+"\n", dir, "refs", "heads", "feature", "timer")
			return hash
		}},
	} {
		t.Run(name, func(t *testing.T) {
			j := s.begin(t)
			commit := c.do(t, j, filepath.Join(j.path, ".git"))
			wrong := s.refuse(amp.RepoNotGit, amp.InMessage, result(j.id, 1, "commit_hash", commit))
			if wrong.Escalation == nil {
				t.Error("nobody hears of it")
			}
			if text := string(encode(wrong)); strings.Contains(text, "salaries") {
				t.Errorf("a name of another repository came back: %s", text)
			}
			stands := j.noticed("permission_denied", "critical")
			if got := stands.Subtasks[0].Claim; got == nil || got.Outcome != amp.Failed || !strings.Contains(got.Reason, c.why) {
				t.Errorf("the claim is %+v", got)
			}
			if shown := stands.Show("default").Subtasks[j.id+"-S1"].Claim; shown == nil || shown.Outcome != amp.Failed {
				t.Errorf("the record shows %+v", shown)
			}
		})
	}
	s.WantClean()
}

// TestFalseClaimsAreRefused reports commits of a repository that nobody has touched.
func TestFalseClaimsAreRefused(t *testing.T) {
	s := newShop(t, storetest.SQLite(t))
	j := s.begin(t)
	old := j.commit("a.go", "one\n")
	hash := j.commit("b.go", "two\n")
	j.git("checkout", "-q", "-b", "elsewhere", "main")
	elsewhere := j.commit("c.go", "three\n")
	j.git("branch", hash[:12], elsewhere) // a branch whose name is the beginning of a hash
	diff := object{"files_changed": []string{"a.go", "b.go"}, "lines_added": 2, "lines_removed": 0}
	claim := func(pairs ...any) []byte { return result(j.id, 1, append([]any{"diff_summary", diff}, pairs...)...) }
	for name, c := range map[string]struct {
		code  amp.Code
		check string
		raw   []byte
	}{
		"no such commit":       {amp.CommitUnknown, "object", claim("commit_hash", strings.Repeat("01", 20))},
		"the base":             {amp.CommitNotOnBranch, "branch", claim("commit_hash", j.base)},
		"another branch's":     {amp.CommitNotOnBranch, "branch", claim("commit_hash", elsewhere)},
		"not all of it":        {amp.CommitNotOnBranch, "branch", claim("commit_hash", old)},
		"a branch like a hash": {amp.CommitUnknown, "object", claim("commit_hash", hash[:12])},
		"no commit at all":     {amp.CommitUnknown, "object", claim("commit_hash", nil)},
		"another author":       {amp.CommitUnknown, "author", claim("commit_hash", hash, "x_author", "kay@example.com")},
		"no author's name":     {amp.CommitUnknown, "author", claim("commit_hash", hash, "x_author", 7)},
	} {
		t.Run(name, func(t *testing.T) {
			s.refuse(c.code, amp.InMessage, c.raw)
			got := j.task().Subtasks[0].Claim
			if got == nil || got.Outcome != amp.Failed || !slices.ContainsFunc(got.Checks, func(one amp.LookCheck) bool {
				return one.Check == c.check && one.Outcome == amp.Failed
			}) {
				t.Errorf("the claim is %+v", got)
			}
		})
	}
	j.git("branch", "-D", "-q", hash[:12])
	s.want("reported", amp.InMessage, claim("commit_hash", hash, "x_author", "a <a@example.com>"))
	got := j.task().Subtasks[0].Claim
	if got.Outcome != amp.Verified || got.Commit != hash || got.Author != "a <a@example.com>" || got.Commits != 2 ||
		got.Files != 2 || got.Added != 2 || len(got.Checks) != 5 {
		t.Errorf("the claim is %+v", got)
	}

	// Nothing was done: the branch is where it was, and a commit on top of nothing is one of another history.
	k := s.begin(t)
	s.refuse(amp.CommitUnknown, amp.InMessage, result(k.id, 1, "commit_hash", k.base))
	k.git("checkout", "-q", "--orphan", "new")
	orphan := k.commit("a.go", "one\n")
	k.git("branch", "-q", "-M", "new", "feature/timer")
	s.refuse(amp.CommitNotOnBranch, amp.InMessage, result(k.id, 1, "commit_hash", orphan))
	if got := k.task().Subtasks[0].Claim; got.Outcome != amp.Failed || !strings.Contains(got.Reason, "does not descend") {
		t.Errorf("the claim is %+v", got)
	}
	s.WantClean()
}

// TestADiffThatDiffersIsShown and taken all the same.
func TestADiffThatDiffersIsShown(t *testing.T) {
	s := newShop(t, storetest.SQLite(t))
	j := s.begin(t)
	hash := j.commit("a.go", "one\ntwo\n")
	a := s.want("reported", amp.InMessage, result(j.id, 1, "commit_hash", hash))
	got := j.task().Subtasks[0].Claim
	if len(a.Warnings) != 1 || a.Warnings[0].Code != amp.WarnDiff || got.Outcome != amp.Failed ||
		!strings.Contains(got.Reason, "2 lines added") {
		t.Errorf("%+v %+v", a.Warnings, got)
	}
}

// TestWhatNobodyCanSeeIsUnverified, and refused where an operator asks for more.
func TestWhatNobodyCanSeeIsUnverified(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	d, r := dispatch(taskT, 1), result(taskT, 1)
	n.want("dispatched", amp.InMessage, d)
	n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
	n.want("reported", amp.InMessage, r)
	n.want("review_requested", amp.InMessage, request(taskT, idOf(d), idOf(r), 0))
	v := verdict(taskT, "approved", 0.95)
	n.want("verdict_reported", amp.InMessage, v)
	n.want("completed", amp.InAck, ack(taskT, idOf(v), amp.Coordinator))
	got, err := n.tasks.Task(t.Context(), "default", taskT)
	if err != nil {
		t.Fatal(err)
	}
	sub := got.Subtasks[0]
	if sub.Claim.Outcome != amp.Unverified || sub.Bound.Outcome != amp.Unverified || sub.Bound.Commit != "" ||
		!strings.Contains(sub.Claim.Reason, "tasks.repo_roots") {
		t.Errorf("%+v %+v", sub.Claim, sub.Bound)
	}
	s := newShop(t, storetest.SQLite(t))
	wrong := s.refuse(amp.RepoNotGit, amp.InMessage, dispatch(taskT, 1))
	if !strings.Contains(wrong.Errors[0].Expected, "tasks.require_git") {
		t.Errorf("%+v", wrong.Errors)
	}
}

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
		t.Run("an approval at a gate", func(t *testing.T) {
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

// TestLimitsAreCheckedAgainstTheDiff of what was dispatched.
func TestLimitsAreCheckedAgainstTheDiff(t *testing.T) {
	s := newShop(t, storetest.SQLite(t))
	for name, c := range map[string]struct {
		key   string
		value any
		file  string
		held  bool
	}{
		"a forbidden file":           {"forbidden_actions", []string{"modify Info.plist"}, "app/Info.plist", true},
		"another file":               {"forbidden_actions", []string{"modify Info.plist"}, "app/info.go", false},
		"a forbidden folder":         {"forbidden_actions", []string{"Never edit `migrations/`."}, "migrations/1.sql", true},
		"a deletion that is none":    {"forbidden_actions", []string{"delete *.go"}, "a.go", false},
		"an addition":                {"forbidden_actions", []string{"add files in vendor"}, "vendor/x/y.go", true},
		"what git cannot tell":       {"forbidden_actions", []string{"Modify HealthKit permission statement"}, "a.go", false},
		"a file in scope":            {"x_files", []string{"src/**/*.go", "docs/"}, "src/deep/down/a.go", false},
		"a folder in scope":          {"x_files", []string{"src/**/*.go", "docs/"}, "docs/a.md", false},
		"a file out of scope":        {"x_files", []string{"src/**/*.go", "docs/"}, "src/a.sh", true},
		"a name in scope, elsewhere": {"x_files", []string{"README.md"}, "evil/README.md", true},
	} {
		t.Run(name, func(t *testing.T) {
			j := s.begin(t, c.key, c.value)
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(j.path, c.file)), 0o755))
			hash := j.commit(c.file, "one\n")
			diff := object{"files_changed": []string{c.file}, "lines_added": 1, "lines_removed": 0}
			status := "reported"
			if c.held {
				status = "suspended"
			}
			s.want(status, amp.InMessage, result(j.id, 1, "commit_hash", hash, "diff_summary", diff))
			got := j.task().Subtasks[0].Claim
			if c.held != (got.Outcome == amp.Failed) {
				t.Errorf("%+v", got)
			}
			if c.held {
				j.noticed("permission_denied", "warning")
			}
		})
	}
	s.refuse(amp.WrongFormat, amp.InMessage, dispatch("T-2026-900", 1, "repo", s.root+"/T-2026-101", "x_files", "src"))
}
