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

	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/task/proof"
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
		_, err = proof.Verify(b, j.s.Ledger.Key())
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
		"another author":       {amp.CommitUnknown, "author", claim("commit_hash", hash, "x_author", "ines@example.com")},
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
	s.want("reported", amp.InMessage, claim("commit_hash", hash, "x_author", "Kay <kay@example.com>"))
	got := j.task().Subtasks[0].Claim
	if got.Outcome != amp.Verified || got.Commit != hash || got.Author != "Kay <kay@example.com>" || got.Commits != 2 ||
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

// TestEntriesOfBeforeAreReplayedAsTheyWere: what git showed then had no look in it, binds nothing, and x_files was
// anything.
func TestEntriesOfBeforeAreReplayedAsTheyWere(t *testing.T) {
	p := amp.Defaults()
	d := dispatch(taskT, 1, "x_files", "src")
	r := result(taskT, 1, "x_author", 7)
	v := verdict(taskT, "approved", 0.95)
	e := amp.NewEngine(p)
	for _, c := range []struct {
		kind  amp.Kind
		raw   []byte
		agent string
		git   *amp.GitFacts
	}{
		{amp.InMessage, d, "ada", &amp.GitFacts{Commit: "b0"}},
		{amp.InAck, ack(taskT, idOf(d), amp.Executor), "kay", nil},
		{amp.InMessage, r, "kay", &amp.GitFacts{Commit: "c1", Head: "c1"}},
		{amp.InMessage, request(taskT, idOf(d), idOf(r), 0), "ada", &amp.GitFacts{}},
		{amp.InMessage, v, "rex", &amp.GitFacts{}},
		{amp.InAck, ack(taskT, idOf(v), amp.Coordinator), "ada", nil},
	} {
		in, refusal := p.Read(c.kind, c.raw)
		if refusal == nil {
			_, refusal = e.Do(in, amp.World{Now: 1, Agent: c.agent, Git: c.git, ByWord: true})
		}
		if refusal != nil {
			t.Fatal(refusal)
		}
	}
	got := e.Tasks[taskT]
	if got.Phase != amp.Completed || got.Place != "" || got.Pin != "" || got.Subtasks[0].Claim != nil {
		t.Errorf("%+v", got)
	}
	in, _ := p.Read(amp.InMessage, d)
	if _, refusal := amp.NewEngine(p).Do(in, amp.World{Now: 1, Agent: "ada"}); refusal == nil ||
		!refusal.Has(amp.WrongFormat) {
		t.Errorf("today it is taken: %v", refusal)
	}
}
