package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// TestARunHasAWorktreeOfItsOwn, in a sandbox and without: the folder of the person stays as it is, what was changed is shown
// in the terminal and on the page, and a worktree in which nothing was changed goes away.
func TestARunHasAWorktreeOfItsOwn(t *testing.T) {
	t.Parallel()
	// commits says in which the agent commits a part of it.
	const commits = `git -c user.name=A -c user.email=a@example.com commit -qam 'the agent' || exit 1
`
	for name, args := range map[string][]string{"plain": {"--mode", "full"}, "sandbox": {"--mode", "full", "--sandbox"}} {
		testbed.Parallel(t, name, func(t *testing.T) {
			takesSandbox(t)
			does := filepath.Join(t.TempDir(), "does")
			b := newBoxed(t, "runs: {amp: {command: "+testbed.Script(t, does, "echo '"+strings.TrimSpace(runInit)+"'\ncat >/dev/null\n. ./does.sh\n"+
				"echo '"+strings.TrimSpace(runResult)+"'\n")+"}}\n")
			testbed.Write(t, filepath.Join(b.work, ".gitignore"), "signalbox-data\n")
			testbed.Write(t, filepath.Join(b.work, "does.sh"), "echo more >>page\n"+commits+"echo new >added\npwd >where; git status --short >>where\n"+
				"echo '[core] fsmonitor = x' >>\"$(git rev-parse --git-common-dir)/config\"\n"+
				"echo x >\"$(git rev-parse --git-common-dir)/hooks/post-checkout\"\ngit branch -f master HEAD^ && echo moved >moved\n")
			if name == "plain" { // which may do all that
				testbed.Write(t, filepath.Join(b.work, "does.sh"), "echo more >>page\n"+commits+"echo new >added\n")
			}
			testbed.Git(t, b.work, "add", ".gitignore", "does.sh")
			testbed.Git(t, b.work, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "what it does")
			testbed.Write(t, filepath.Join(b.work, "page"), "not committed\n")
			settings := testbed.ReadAny(filepath.Join(b.work, ".git", "config"))
			head := testbed.Git(t, b.work, "rev-parse", "HEAD")
			out, err := b.run(t, "amp", append(args, "--worktree", "--", "go")...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var runs struct {
				Runs []struct {
					ID       string
					Worktree bool
				}
			}
			b.p.get("/runs?limit=1", &runs)
			id := runs.Runs[0].ID
			branch, tree := "signalbox/"+id, filepath.Join(b.home, ".local", "state", "signalbox", "worktrees", id)
			for _, text := range []string{
				"Changes without a commit stay in", "+more", "+new", "2 files changed", "git merge " + branch, "git worktree remove --force " + tree,
			} {
				if name == "sandbox" && text == "2 files changed" {
					text = "3 files changed" // it says where it is
				}
				if !strings.Contains(out, text) {
					t.Errorf("it does not say %q:\n%s", text, out)
				}
			}
			if got := testbed.ReadAny(filepath.Join(b.work, "page")); got != "not committed\n" {
				t.Errorf("the person's file is %q", got)
			}
			if got := testbed.Git(t, b.work, "log", "--format=%s", "-1", branch); strings.TrimSpace(got) != "the agent" || !runs.Runs[0].Worktree {
				t.Errorf("the branch ends with %q: %+v", got, runs)
			}
			if now := testbed.Git(t, b.work, "rev-parse", "HEAD"); now != head {
				t.Errorf("the person's branch was moved")
			}
			_, hook := os.Stat(filepath.Join(b.work, ".git", "hooks", "post-checkout"))
			if got := testbed.ReadAny(filepath.Join(b.work, ".git", "config")); got != settings || hook == nil {
				t.Errorf("git has settings or hooks of the agent: %s", got)
			}
			if shown := mustRun(t, b.data, "runs", "show", "--json", id); !strings.Contains(shown, "+more") {
				t.Errorf("recorded is %s", shown)
			}
			testbed.Git(t, b.work, "fsck")
			testbed.Git(t, b.work, "worktree", "remove", "--force", tree)

			// Nothing is changed: nothing is left.
			testbed.Write(t, filepath.Join(b.work, "does.sh"), "true\n")
			testbed.Git(t, b.work, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "nothing", "does.sh")
			out, err = b.run(t, "amp", append(args, "--worktree", "--", "go")...)
			left, _ := os.ReadDir(filepath.Dir(tree))
			if err != nil || len(left) != 0 || !strings.Contains(out, "Nothing was changed in the worktree") ||
				strings.Contains(testbed.Git(t, b.work, "branch", "--list", "signalbox/*"), "\n ") {
				t.Errorf("%v, %v is left\n%s", err, left, out)
			}
		})
	}
}

// TestAWorktreeThatCannotBeMadeIsRefused before anything starts.
func TestAWorktreeThatCannotBeMadeIsRefused(t *testing.T) {
	t.Parallel()
	dir, plain, empty := t.TempDir(), t.TempDir(), t.TempDir()
	testbed.Git(t, empty, "init", "-q")
	configure(t, dir, fmt.Sprintf("runs: {budget_tokens: 1000, folders: [%s, %s]}\n", plain, empty))
	p := up(t, dir)
	for folder, says := range map[string]string{plain: "is in no git repository", empty: "has no commit yet"} {
		if code, out := run(t, dir, "run", "amp", "--cwd", folder, "--worktree", "--", "go"); code == 0 || !strings.Contains(out, says) {
			t.Errorf("%d %s", code, out)
		}
		status, answer, err := p.call(http.MethodPost, "/runs", `{"engine":"amp","prompt":"go","worktree":true,"dir":"`+folder+`"}`)
		if err != nil || status != http.StatusBadRequest || !strings.Contains(answer, says) {
			t.Errorf("%d %s %v", status, answer, err)
		}
	}
	if code, out := run(t, dir, "run", "amp", "--resume", "T-1", "--worktree", "--", "go"); code == 0 || !strings.Contains(out, "--cwd") {
		t.Errorf("%d %s", code, out)
	}
	var runs struct{ Runs []any }
	p.get("/runs", &runs)
	if len(runs.Runs) != 0 {
		t.Errorf("something has begun: %v", runs)
	}
}
