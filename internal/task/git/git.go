// Package git reads git repositories that agents name: only below folders that an operator
// allows, without symbolic links out of them, and so that nothing of theirs is run.
//
// It owns how git is called: hooks, filters, external programs, every protocol and the
// configuration of the machine are off, and each command has a time limit. It must not know of
// tasks, and changes nothing.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Repository is a git repository below an allowed folder. An agent named its path and may have
// written its contents: nothing in it is trusted, and nothing of it is run. It holds no process
// and needs no closing.
type Repository struct {
	dir string // the folder of its objects and refs, without symbolic links
}

const (
	// timeLimit is how long one git command may take. A repository can be made to be slow.
	timeLimit = 5 * time.Second
	// maxOutput is how many bytes of git's output are read; maxFile bounds the files that we read
	// ourselves.
	maxOutput = 1 << 20
	maxFile   = 4 << 10
)

var errNotAllowed = errors.New("the path leads out of the folders that may be looked into")

// inside resolves symbolic links and checks that the result is below one of the roots. The roots
// are resolved too, since an operator may name one by a link.
func inside(roots []string, path string) (string, error) {
	plain, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	for _, root := range roots {
		if root, err := filepath.EvalSymlinks(root); err == nil && below(root, plain) {
			return plain, nil
		}
	}
	return "", errNotAllowed
}

// below reports whether path is root or inside of it. Both must be absolute and clean.
func below(root, path string) bool {
	rest, err := filepath.Rel(root, path)
	return err == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator))
}

// Reachable reports whether a path is to be looked at at all, by its text alone. Other paths are
// on other machines, or none of our business.
func Reachable(roots []string, path string) bool {
	for _, root := range roots {
		if below(filepath.Clean(root), filepath.Clean(path)) {
			return true
		}
	}
	return false
}

// Open finds the repository of a working folder. Its .git is a folder, or, in a linked working
// tree or a submodule, a file that names one. Each of them must stay below the roots: otherwise an
// agent could have us read any repository of the machine.
func Open(ctx context.Context, roots []string, path string) (*Repository, error) {
	work, err := inside(roots, path)
	if err != nil {
		return nil, err
	}
	dir, err := inside(roots, filepath.Join(work, ".git"))
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() {
		named, err := readLine(dir)
		if err != nil {
			return nil, err
		}
		named, ok := strings.CutPrefix(named, "gitdir: ")
		if !ok {
			return nil, errors.New(".git is a file that names no folder")
		}
		if dir, err = inside(roots, relativeTo(work, named)); err != nil {
			return nil, err
		}
	} else if !info.IsDir() {
		return nil, errors.New(".git is neither a folder nor a file")
	}
	// A linked working folder has its refs and objects elsewhere.
	if common, err := readLine(filepath.Join(dir, "commondir")); err == nil {
		if dir, err = inside(roots, relativeTo(dir, common)); err != nil {
			return nil, err
		}
	}
	r := &Repository{dir}
	if _, ok, err := r.run(ctx, "rev-parse", "--git-dir"); err != nil || !ok {
		return nil, errors.Join(errors.New("git cannot read it"), err)
	}
	return r, nil
}

// relativeTo is path as seen from dir, as git reads its own files.
func relativeTo(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// readLine reads a small regular file of one line. A pipe or a device would block.
func readLine(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", errors.New("not a small file")
	}
	text, err := os.ReadFile(name)
	return strings.TrimSpace(string(text)), err
}

// options switch off everything by which a repository's own configuration could have a program run
// or something fetched.
var options = []string{
	"--no-optional-locks", "--no-replace-objects", "--no-pager", "--literal-pathspecs",
	"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.attributesFile=" + os.DevNull, "-c",
	"core.sshCommand=false",
	"-c", "core.untrackedCache=false", "-c", "core.gitProxy=", "-c", "credential.helper=", "-c", "diff.external=", "-c",
	"diff.orderFile=", "-c", "protocol.allow=never",
	"-c", "protocol.ext.allow=never", "-c", "protocol.file.allow=never", "-c", "safe.directory=*", "-c",
	"core.alternateRefsCommand=false", "-c", "gc.auto=0",
}

// Environment is the environment in which git runs: where programs are, and switches that turn off
// the configuration of machine and user, prompts, lazy fetching and external programs.
func Environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=none", "GIT_PROTOCOL_FROM_USER=0",
		"GIT_NO_LAZY_FETCH=1", "GIT_ASKPASS=false", "GIT_EDITOR=false", "GIT_EXTERNAL_DIFF=false",
	}
}

// run runs a git command that only reads. ok is false if git answers no, by its exit code; err is
// for everything else, such as a timeout. The process group is killed at the end of ctx, with
// whatever git has started.
func (r *Repository) run(ctx context.Context, args ...string) (out string, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append(append([]string{"--git-dir=" + r.dir}, options...), args...)...)
	cmd.Dir, cmd.Env = r.dir, Environment()
	var said bytes.Buffer
	cmd.Stdout = &limited{&said, maxOutput}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Whatever it has started ends with it.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if exit, refused := errors.AsType[*exec.ExitError](err); refused && exit.Exited() && ctx.Err() == nil {
		return strings.TrimSpace(said.String()), false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(said.String()), true, nil
}

// limited accepts a number of bytes and then fails, which ends git.
type limited struct {
	to   io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("git says too much")
	}
	l.left -= len(p)
	return l.to.Write(p)
}

// Commit is the full hash of a commit, "" if there is none. --end-of-options keeps a name from
// being read as an option.
func (r *Repository) Commit(ctx context.Context, name string) (string, error) {
	hash, ok, err := r.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil || !ok {
		return "", err
	}
	return hash, nil
}

// Head is the commit that a branch points to, "" if there is no such branch.
func (r *Repository) Head(ctx context.Context, branch string) (string, error) {
	return r.Commit(ctx, "refs/heads/"+branch)
}

// DefaultBranch is the branch that the repository itself protects: the default branch of its
// origin, or HEAD of a bare repository. HEAD of a working folder is just what is checked out, and
// says nothing; then the answer is "".
func (r *Repository) DefaultBranch(ctx context.Context) (string, error) {
	name, ok, err := r.run(ctx, "symbolic-ref", "--quiet", "refs/remotes/origin/HEAD")
	if err != nil {
		return "", err
	}
	if ok {
		return strings.TrimPrefix(name, "refs/remotes/origin/"), nil
	}
	if bare, ok, err := r.run(ctx, "rev-parse", "--is-bare-repository"); err != nil || !ok || bare != "true" {
		return "", err
	}
	name, _, err = r.run(ctx, "symbolic-ref", "--quiet", "HEAD")
	return strings.TrimPrefix(name, "refs/heads/"), err
}

// Contains reports whether ancestor is reachable from the commit of, or is the same.
func (r *Repository) Contains(ctx context.Context, of, ancestor string) (bool, error) {
	_, ok, err := r.run(ctx, "merge-base", "--is-ancestor", ancestor, of)
	return ok, err
}

// Change is what a diff does to a file, in lines.
type Change struct{ Added, Removed int64 }

// Diff is what changed between two commits, by file. Renames count as a deletion and an addition,
// so that the numbers do not depend on a heuristic. Files that are not text count as 0 lines.
func (r *Repository) Diff(ctx context.Context, from, to string) (map[string]Change, error) {
	out, ok, err := r.run(ctx, "diff-tree", "-r", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--no-color", "--ignore-submodules=all", from, to, "--")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("git cannot compare the commits")
	}
	files := map[string]Change{}
	for line := range strings.SplitSeq(out, "\x00") {
		parts := strings.SplitN(line, "\t", 3)
		if len(parts) != 3 {
			continue
		}
		added, _ := strconv.ParseInt(parts[0], 10, 64) // "-" for what is not text
		removed, _ := strconv.ParseInt(parts[1], 10, 64)
		files[parts[2]] = Change{added, removed}
	}
	return files, nil
}
