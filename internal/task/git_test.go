package task_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// repo is a repository in a temporary folder.
type repo struct {
	t    *testing.T
	path string
}

func newRepo(t *testing.T, path string) *repo {
	t.Helper()
	r := &repo{t, path}
	testbed.Folder(t, path)
	r.git("init", "-q", "-b", "trunk")
	r.commit("README", "one\n")
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	return testbed.Git(r.t, r.path, args...)
}

// commit writes a file and commits it.
func (r *repo) commit(name, text string) string {
	r.t.Helper()
	testbed.Write(r.t, filepath.Join(r.path, name), text)
	r.git("add", ".")
	r.git("commit", "-q", "-m", name)
	return r.git("rev-parse", "HEAD")
}

// withRoot starts a node that looks into repositories below a folder.
func withRoot(t *testing.T, address, root string) *node {
	t.Helper()
	return start(t, address, func(o *task.Options) { o.RepoRoots, o.WatchEvery = []string{root}, 20*time.Millisecond })
}

func TestARepositoryIsLookedInto(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		root := t.TempDir()
		n := withRoot(t, address, root)
		r := newRepo(t, filepath.Join(root, "app"))
		r.git("update-ref", "refs/remotes/origin/trunk", "HEAD")
		r.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
		in := func(pairs ...any) []byte { return dispatch(taskT, 1, append([]any{"repo", r.path}, pairs...)...) }

		n.refuse(amp.RepoNotGit, amp.InMessage, in("repo", root))
		n.refuse(amp.RepoNotGit, amp.InMessage, in("repo", filepath.Join(root, "absent")))
		n.refuse(amp.BranchProtected, amp.InMessage, in("branch", "origin/trunk"))
		if n.status(taskT) != "suspended" {
			t.Error("a dispatch to the first branch is not escalated")
		}
		s, err := n.tasks.Task(t.Context(), "default", taskT)
		if err != nil {
			t.Fatal(err)
		}
		n.want("planning", amp.InInstruction, instruct(taskT, "resume", "escalation_refs", []string{s.Open[0].ID}))

		d := in()
		n.want("dispatched", amp.InMessage, d)
		n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		r.git("checkout", "-q", "-b", "elsewhere")
		elsewhere := r.commit("b.go", "x\n")
		r.git("checkout", "-q", "-b", "feature/timer", "trunk")
		hash := r.commit("a.go", "one\ntwo\n")
		n.refuse(amp.CommitUnknown, amp.InMessage, result(taskT, 1, "commit_hash", "0123456789"))
		n.refuse(amp.CommitNotOnBranch, amp.InMessage, result(taskT, 1, "commit_hash", elsewhere))
		a := n.want("reported", amp.InMessage, result(taskT, 1, "commit_hash", hash[:9]))
		if len(a.Warnings) != 1 || a.Warnings[0].Code != amp.WarnDiff ||
			!strings.Contains(a.Warnings[0].Detail, "2 lines added and 0 removed in 1 files") {
			t.Errorf("%+v", a.Warnings)
		}
		s, _ = n.tasks.Task(t.Context(), "default", taskT)
		if s.Subtasks[0].Commit != hash {
			t.Errorf("pinned to %q, want %q", s.Subtasks[0].Commit, hash)
		}
		n.WantClean()
	})
}

// reported is a task whose result is reported, in a repository of its own.
func reported(t *testing.T, n *node, path string) (r *repo, d, res []byte, hash string) {
	t.Helper()
	r = newRepo(t, path)
	r.git("update-ref", "refs/remotes/origin/trunk", "HEAD")
	r.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
	d = dispatch(taskT, 1, "repo", path)
	n.want("dispatched", amp.InMessage, d)
	n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
	r.git("checkout", "-q", "-b", "feature/timer")
	hash = r.commit("a.go", "one\n")
	res = result(taskT, 1, "commit_hash", hash)
	if a := n.want("reported", amp.InMessage, res); len(a.Warnings) != 0 {
		t.Errorf("%+v", a.Warnings)
	}
	return r, d, res, hash
}

func TestABranchIsFrozenAfterAResult(t *testing.T) {
	root := t.TempDir()
	// nobody watches
	n := start(t, filepath.Join(t.TempDir(), "db"), func(o *task.Options) { o.RepoRoots = []string{root} })
	r, d, res, _ := reported(t, n, filepath.Join(root, "app"))
	r.commit("late.go", "sneaked in\n")
	wrong := n.refuse(amp.BranchFrozen, amp.InMessage, request(taskT, idOf(d), idOf(res), 0))
	if wrong.Escalation == nil {
		t.Error("nobody hears of it")
	}
	n.refuse(amp.Suspended, amp.InMessage, result(taskT, 1))
	n.want("reported", amp.InInstruction, instruct(taskT, "resume", "escalation_refs", []string{*wrong.Escalation}))
	n.want("review_requested", amp.InMessage, request(taskT, idOf(d), idOf(res), 0)) // the admin has seen it
}

func TestTheServerNoticesWhatNobodyReports(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		for name, c := range map[string]struct {
			do    func(*repo)
			scope string
			kind  string
		}{
			"a frozen branch moves": {func(r *repo) { r.commit("late.go", "x\n") }, "party:executor", "permission_denied"},
			"unapproved work is merged": {func(r *repo) {
				r.git("branch", "-f", "trunk", "feature/timer")
			}, "task", "branch_violation"},
		} {
			t.Run(name, func(t *testing.T) {
				root := t.TempDir()
				var place string
				if strings.HasPrefix(address, "postgres") {
					place = storetest.Schema(t, os.Getenv("SIGNALBOX_TEST_POSTGRES"))
				} else {
					place = filepath.Join(t.TempDir(), "db")
				}
				n := withRoot(t, place, root)
				r, _, _, _ := reported(t, n, filepath.Join(root, "app"))
				ctx := t.Context()
				go func() { _ = n.tasks.Run(ctx) }()
				c.do(r)
				testbed.Until(t, "the escalation", func() bool { return n.status(taskT) == "suspended" })
				s, err := n.tasks.Task(t.Context(), "default", taskT)
				if err != nil || s.Holds[0].Scope != c.scope || s.Open[0].Type != c.kind {
					t.Errorf("%+v %+v %v", s.Holds, s.Open, err)
				}
			})
		}
	})
}

func TestDirectFixesAreMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		taken      bool
	}{
		"a small one":             {"a.go", "once\n", true},
		"one that is too large":   {"a.go", "1\n2\n3\n4\n5\n6\n", false},
		"one that nobody told of": {"b.go", "x\n", false},
		"one in a strange file":   {"b\t\"\n.go", "x\n", false},
		"one that is not text":    {"a.go", "\x00\x01", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			n := start(t, filepath.Join(t.TempDir(), "db"), func(o *task.Options) { o.RepoRoots = []string{root} })
			r, d, res, _ := reported(t, n, filepath.Join(root, "app"))
			n.want("review_requested", amp.InMessage, request(taskT, idOf(d), idOf(res), 0))
			r.commit(c.file, c.text)
			v := verdict(taskT, "approved_with_fix", 0.95)
			if c.taken {
				n.want("verdict_reported", amp.InMessage, v)
			} else {
				n.refuse(amp.FixScope, amp.InMessage, v)
			}
		})
	}
}

// TestNothingOfAHostileRepositoryIsRun names repositories that would like to run a
// program or to be followed elsewhere.
func TestNothingOfAHostileRepositoryIsRun(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	mark := filepath.Join(outside, "mark")
	evil := testbed.Script(t, filepath.Join(outside, "evil.sh"), "touch "+mark+"\ncat\n")
	secret := newRepo(t, filepath.Join(outside, "secret"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n := start(t, filepath.Join(t.TempDir(), "db"), func(o *task.Options) { o.RepoRoots = []string{root} })
	i := 0
	for name, c := range map[string]struct {
		make  func(path string)
		taken bool // as a repository like any other
	}{
		"a configuration full of programs": {func(path string) {
			r := newRepo(t, path)
			for key, value := range map[string]string{
				"core.fsmonitor": evil, "core.hooksPath": outside, "core.sshCommand": evil, "core.pager": evil, "core.editor": evil,
				"diff.external":   evil,
				"diff.x.textconv": evil, "diff.x.command": evil, "filter.x.clean": evil, "filter.x.smudge": evil,
				"filter.x.process": evil, "gpg.program": evil,
				"log.showSignature": "true", "credential.helper": evil, "alias.rev-parse": "!" + evil,
				"alias.diff-tree": "!" + evil, "core.alternateRefsCommand": evil,
				"uploadpack.packObjectsHook": evil, "include.path": filepath.Join(outside, "absent"),
				"diff.orderFile": filepath.Join(outside, "fifo"),
			} {
				r.git("config", key, value)
			}
			testbed.Write(t, filepath.Join(path, ".git", "info", "attributes"), "* diff=x filter=x\n")
			for _, hook := range []string{"post-checkout", "pre-commit", "reference-transaction", "post-index-change"} {
				must(os.Symlink(evil, filepath.Join(path, ".git", "hooks", hook)))
			}
		}, true},
		"a remote that is a program": {func(path string) {
			r := newRepo(t, path)
			r.git("config", "extensions.partialClone", "origin")
			r.git("config", "core.repositoryFormatVersion", "1")
			r.git("config", "remote.origin.promisor", "true")
			r.git("config", "remote.origin.url", "ext::"+evil)
		}, true},
		"a link out of the folder": {func(path string) { must(os.Symlink(secret.path, path)) }, false},
		"a .git that is a link out": {func(path string) {
			must(os.Mkdir(path, 0o700))
			must(os.Symlink(filepath.Join(secret.path, ".git"), filepath.Join(path, ".git")))
		}, false},
		"a .git file that leads out": {func(path string) {
			testbed.Write(t, filepath.Join(path, ".git"), "gitdir: "+secret.path+"/.git\n")
		}, false},
		"a .git file that leads up": {func(path string) {
			testbed.Write(t, filepath.Join(path, ".git"), "gitdir: ../../../../../../../..\n")
		}, false},
		"a .git that is a pipe": {func(path string) {
			must(os.Mkdir(path, 0o700))
			must(syscall.Mkfifo(filepath.Join(path, ".git"), 0o600))
		}, false},
		"a common folder that is elsewhere": {func(path string) {
			newRepo(t, path)
			testbed.Write(t, filepath.Join(path, ".git", "commondir"), secret.path+"/.git\n")
		}, false},
		"a configuration that is a pipe": {func(path string) {
			newRepo(t, path)
			must(os.Remove(filepath.Join(path, ".git", "config")))
			must(syscall.Mkfifo(filepath.Join(path, ".git", "config"), 0o600))
		}, false},
		"a configuration that is no language": {func(path string) {
			newRepo(t, path)
			testbed.Write(t, filepath.Join(path, ".git", "config"), "[[[\n")
		}, false},
		"a linked working folder": {func(path string) {
			r := newRepo(t, path+"-main")
			r.git("worktree", "add", "-q", "-b", "other", path)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			i++
			id := fmt.Sprintf("T-2026-%03d", i)
			path := filepath.Join(root, fmt.Sprintf("repo%d", i))
			c.make(path)
			began := time.Now()
			d := dispatch(id, 1, "repo", path)
			if !c.taken {
				n.refuse(amp.RepoNotGit, amp.InMessage, d)
			} else {
				n.want("dispatched", amp.InMessage, d)
				n.want("executing", amp.InAck, ack(id, idOf(d), amp.Executor))
				n.refuse(amp.CommitUnknown, amp.InMessage, result(id, 1, "commit_hash", "0123456789012345678901234567890123456789"))
			}
			if took := time.Since(began); took > testbed.Patience {
				t.Errorf("it took %s", took)
			}
			if _, err := os.Stat(mark); err == nil {
				t.Error("a program of the repository was run")
			}
		})
	}
}

// TestBranchesAreCheckedAsGitDoes, and those that look like another are not taken either.
func TestBranchesAreCheckedAsGitDoes(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	number := 100
	try := func(branch string) (string, *task.ErrorRecord) {
		number++
		id := fmt.Sprintf("T-2026-%d", number)
		_, wrong := n.take(n.parties[amp.Coordinator], amp.InMessage, dispatch(id, 1, "branch", branch))
		if wrong != nil {
			return "", wrong
		}
		found, err := n.tasks.Task(t.Context(), "default", id)
		if err != nil {
			t.Fatal(err)
		}
		return found.Branch, nil
	}
	for branch, want := range map[string]string{
		"feature/x": "feature/x", "refs/heads/feature/x": "feature/x", "heads/feature/x": "feature/x", "größe": "größe",
		"mainline": "mainline", "feature/main": "feature/main",
	} {
		if got, wrong := try(branch); got != want || wrong != nil {
			t.Errorf("%q became %q: %+v", branch, got, wrong)
		}
	}
	for _, branch := range []string{
		"HEAD", "head", "@", "./main", "main/.", ".hidden", "a/.b", "a.lock", "a/b.lock/c", "a..b", "a//b", "/a", "a/", "a.", "-a",
		"a b", "a~1", "a^", "a:b", "a?", "a*", "a[b", `a\b`, "a@{1}", "ma\u200bin", "main\u200b", "\ufeffmain", "ma\u00adin", "a\u202eb",
		"a\x01b", "a\x7fb", "refs/tags/x", "refs/remotes/origin/x", "refs/heads/refs/heads/main", "heads/HEAD", "mai\u0301n",
	} {
		if got, wrong := try(branch); wrong == nil || wrong.Errors[0].Pointer != "/payload/branch" {
			t.Errorf("%q became %q: %+v", branch, got, wrong)
		}
	}
	for _, branch := range []string{"MAIN", "refs/heads/master", "heads/main", "refs/heads/MaIn"} {
		if _, wrong := try(branch); wrong == nil || wrong.Errors[0].Code != amp.BranchProtected {
			t.Errorf("%q: %+v", branch, wrong)
		}
	}
	// Whatever git refuses, we do.
	rapid.Check(t, func(r *rapid.T) {
		branch := rapid.StringOfN(rapid.RuneFrom([]rune("ab./-@{}~^:?*[\\ HEADlock\u200b")), 1, 12, -1).Draw(r, "branch")
		known := exec.CommandContext(t.Context(), "git", "check-ref-format", "refs/heads/"+amp.PlainBranch(branch)).Run() == nil
		if _, wrong := try(branch); wrong == nil && !known {
			r.Fatalf("%q is taken, and git does not take it", branch)
		}
	})
	n.WantClean()
}
