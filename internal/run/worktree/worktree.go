// Package worktree owns the git worktree of a run: where it is, its branch, what the agent has changed in it, and how it
// goes away again (RUN-62 in docs/protocols/runs.md). It runs git, and knows no engine and no server.
package worktree

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/run/sandbox"
)

// Tree is the worktree of a run, on a branch of its own. Open makes it, and Remove ends it.
type Tree struct {
	Repository string // the folder of the repository that it belongs to
	Dir        string // the worktree
	Work       string // the folder of the run in it
	Branch     string
	Base       string // the commit from which it began
	Left       bool   // the repository has changes that are in no commit, and not in the worktree

	git    string // the folder of git that all worktrees of the repository share
	own    string // that of this worktree
	within func(*exec.Cmd)
}

// branches is the folder of the branches of runs.
const branches = "signalbox"

// Check refuses a folder of which no worktree can be made.
func Check(ctx context.Context, dir string) error {
	_, _, err := find(ctx, dir)
	return err
}

// find finds the repository of a folder, and the commit that is checked out.
func find(ctx context.Context, dir string) (top, head string, err error) {
	top, err = ask(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return "", "", fault.Wrap(err, fault.InvalidRequest, "%.200q is in no git repository, so a run there can have no worktree of its "+
			"own. Make one with `git init`, or run without --worktree.", dir).About("worktree")
	}
	if head, err = ask(ctx, dir, "rev-parse", "--verify", "HEAD^{commit}"); err != nil {
		return "", "", fault.Wrap(err, fault.InvalidRequest, "The repository %.200q has no commit yet, from which a worktree could begin. "+
			"Make one with `git commit`.", top).About("worktree")
	}
	return top, head, nil
}

// State is the folder in which the worktrees of this user's runs are.
func State() (string, error) {
	return file.State("worktrees")
}

// Open makes the worktree of a run, from the commit that is checked out in the folder.
func Open(ctx context.Context, dir, run string) (*Tree, error) {
	top, head, err := find(ctx, dir)
	if err != nil {
		return nil, err
	}
	state, err := State()
	if err != nil {
		return nil, err
	}
	t := &Tree{
		Repository: top, Base: head, Dir: filepath.Join(state, run), Branch: branches + "/" + run, within: func(*exec.Cmd) {},
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot make the folder %s for worktrees.", state)
	}
	changes, err := ask(ctx, top, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return nil, broken(err)
	}
	t.Left = changes != ""
	if _, err := ask(ctx, top, "worktree", "add", "--quiet", "-b", t.Branch, t.Dir, head); err != nil {
		return nil, broken(err)
	}
	prefix, err := ask(ctx, dir, "rev-parse", "--show-prefix")
	if err == nil {
		t.Work = filepath.Join(t.Dir, prefix)
		err = os.MkdirAll(t.Work, 0o700) // it may have nothing that is in a commit
	}
	if err == nil {
		t.git, err = ask(ctx, t.Dir, "rev-parse", "--path-format=absolute", "--git-common-dir")
	}
	if err == nil {
		t.own, err = ask(ctx, t.Dir, "rev-parse", "--absolute-git-dir")
	}
	if err != nil {
		t.Remove(ctx)
		return nil, broken(err)
	}
	return t, nil
}

// broken is the error about git that does not do what it should.
func broken(err error) error {
	return fault.Wrap(err, fault.InvalidRequest, "The worktree of the run cannot be made: %.300s.", err).About("worktree")
}

// Shares are what an agent in a sandbox has of the repository: it reads all of it, adds objects, and moves the branches of
// runs. Objects that were there are packed before, so that none can be put in their place; settings, hooks and other
// branches stay as they are.
func (t *Tree) Shares(ctx context.Context) ([]sandbox.Bind, error) {
	if _, err := ask(ctx, t.Repository, "repack", "-d", "-q"); err != nil {
		return nil, broken(err)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{t.git}, parts...)...) }
	binds := []sandbox.Bind{{Path: t.git}}
	for _, one := range []sandbox.Bind{
		{Path: at("objects"), Writable: true},
		{Path: at("objects", "pack")},
		{Path: at("objects", "info")},
		{Path: at("refs", "heads", branches), Writable: true},
		{Path: at("logs", "refs", "heads", branches), Writable: true},
		{Path: t.own, Writable: true},
	} {
		if err := os.MkdirAll(one.Path, 0o755); err != nil { //nolint:gosec // as git does
			return nil, broken(err)
		}
		binds = append(binds, one)
	}
	settings := filepath.Join(t.own, "config.worktree") // what is not there could be made
	if f, err := os.OpenFile(settings, os.O_CREATE|os.O_RDONLY, 0o600); err == nil {
		_ = f.Close()
	}
	for _, name := range []string{"commondir", "gitdir", "config.worktree"} {
		binds = append(binds, sandbox.Bind{Path: filepath.Join(t.own, name)})
	}
	return binds, nil
}

// Within has git run in the sandbox of the run when it looks at what the agent has left: that may tell git to run programs.
func (t *Tree) Within(wrap func(*exec.Cmd)) { t.within = wrap }

// Diff is what a run has changed.
type Diff struct {
	Stat string // how much of each file
	Text string // unified, the beginning if it is long
	Cut  bool
}

// maxDiff is how much of a difference is kept, in bytes.
const maxDiff = 256 << 10

// Changes finds out what the agent has changed, in commits or not. New files are among it, unless git ignores them.
func (t *Tree) Changes(ctx context.Context) (d Diff, err error) {
	const script = `export GIT_INDEX_FILE="$(mktemp -u)" && trap 'rm -f "$GIT_INDEX_FILE"' EXIT &&
git read-tree "$1" && git add --all . && git diff --cached --no-ext-diff --no-textconv --no-color "$2" "$1"`
	out := func(format string, most int) (text string, cut bool, err error) {
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, "sh", t.Base, format)
		cmd.Dir, cmd.Env = t.Dir, environment()
		t.within(cmd)
		var said bytes.Buffer
		cmd.Stderr = &said
		pipe, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return "", false, err
		}
		all, err := io.ReadAll(io.LimitReader(pipe, int64(most)+1))
		_, _ = io.Copy(io.Discard, pipe)
		if e := cmd.Wait(); e != nil {
			return "", false, errors.New(strings.TrimSpace(said.String()))
		}
		cut = len(all) > most
		return strings.ToValidUTF8(string(all[:min(len(all), most)]), "\uFFFD"), cut, err
	}
	if d.Stat, _, err = out("--stat=100", maxDiff); err != nil {
		return d, err
	}
	d.Text, d.Cut, err = out("--patch", maxDiff)
	return d, err
}

// IsEmpty reports whether nothing was changed.
func (d Diff) IsEmpty() bool { return d.Text == "" && d.Stat == "" }

// Summary is the last line of the stat: how many files and lines.
func (d Diff) Summary() string {
	lines := strings.Split(strings.TrimSpace(d.Stat), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// Remove removes the worktree and its branch. Nothing of what is in it is looked at.
func (t *Tree) Remove(ctx context.Context) {
	_ = os.RemoveAll(t.Dir)
	_, _ = ask(ctx, t.Repository, "worktree", "prune")
	_, _ = ask(ctx, t.Repository, "branch", "--quiet", "-D", t.Branch)
}

// environment is that of git: what it needs, and nothing that a program of the agent could use.
func environment() (env []string) {
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0")
}

// ask runs git in a folder, and returns what it says.
func ask(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.fsmonitor=false"}, args...)...)
	cmd.Dir, cmd.Env = dir, environment()
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if text := strings.TrimSpace(said.String()); err != nil && text != "" {
		err = errors.New(text)
	}
	return strings.TrimRight(string(out), "\n"), err
}
