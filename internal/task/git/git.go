// Package git reads git repositories that agents name: only below folders that an operator
// allows, without symbolic links out of them, and so that nothing of theirs is run.
//
// It owns how git is called: hooks, filters, external programs, every protocol and the
// configuration of the machine are off, and each command has a time limit. It must not know of
// tasks, and changes nothing.
package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Repository is a git repository below an allowed folder. An agent named its path and may have
// written its contents: nothing in it is trusted, and nothing of it is run. It holds no process
// and needs no closing.
type Repository struct {
	dir string // the folder of its objects and refs, without symbolic links
	own bool   // it is the caller's own, and may borrow objects of others
}

const (
	// timeLimit is how long one git command may take. A repository can be made to be slow.
	timeLimit = 5 * time.Second
	// maxOutput is how many bytes of git's output are read; maxFile bounds the files that we read
	// ourselves.
	maxOutput = 8 << 20
	maxFile   = 4 << 10
)

// UnfitError says in a sentence why a repository cannot be looked at. It names nothing outside of the repository, so
// it may be shown to the agent that has named the path.
type UnfitError string

func (u UnfitError) Error() string { return string(u) }

// errNowhere is for paths that do not exist and for those that lead out alike: an agent must not learn what else is
// on the machine.
const errNowhere UnfitError = "there is no .git at the path, or it leads out of the folders that may be looked into"

// Slow reports whether git was stopped because it took too long.
func Slow(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// inside resolves symbolic links and checks that the result is below one of the roots. The roots
// are resolved too, since an operator may name one by a link.
func inside(roots []string, path string) (string, error) {
	plain, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", errNowhere
	}
	for _, root := range roots {
		if root, err := filepath.EvalSymlinks(root); err == nil && below(root, plain) {
			return plain, nil
		}
	}
	return "", errNowhere
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

// Open finds the repository of a working folder. A repository that borrows objects, or pretends to another history than
// it has, is not opened; see Check.
func Open(ctx context.Context, roots []string, path string) (*Repository, error) {
	r, err := find(roots, path)
	if err == nil {
		err = r.Check(ctx)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// find finds the repository of a working folder. Its .git is a folder, or, in a linked working
// tree or a submodule, a file that names one. Each of them must stay below the roots: otherwise an
// agent could have us read any repository of the machine.
func find(roots []string, path string) (*Repository, error) {
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
			return nil, UnfitError(".git is a file that names no folder")
		}
		if dir, err = inside(roots, relativeTo(work, named)); err != nil {
			return nil, err
		}
	} else if !info.IsDir() {
		return nil, UnfitError(".git is neither a folder nor a file")
	}
	// A linked working folder has its refs and objects elsewhere.
	if common, err := readLine(filepath.Join(dir, "commondir")); err == nil {
		if dir, err = inside(roots, relativeTo(dir, common)); err != nil {
			return nil, err
		}
	}
	return &Repository{dir: dir}, nil
}

// Place is the folder of the repository's objects and refs. Another place is another repository.
func (r *Repository) Place() string { return r.dir }

// Check refuses a repository whose objects may be those of another one, or whose history is not what its commits say:
// alternates, symbolic links, grafts, replaced objects, and a history that was cut off. It is asked before a look and
// after it, since the repository is in the hands of others meanwhile.
func (r *Repository) Check(ctx context.Context) error {
	for name, why := range map[string]string{
		"objects/info/alternates":      "it borrows objects of another repository (objects/info/alternates)",
		"objects/info/http-alternates": "it borrows objects of another repository (objects/info/http-alternates)",
		"info/grafts":                  "it pretends that commits have other parents (info/grafts)",
		"shallow":                      "its history is cut off (shallow); git fetch --unshallow gets the rest",
	} {
		if info, err := os.Lstat(filepath.Join(r.dir, name)); err == nil && (info.Size() > 0 || !info.Mode().IsRegular()) {
			return UnfitError(why)
		}
	}
	for name, folder := range map[string]bool{"config": false, "HEAD": false, "packed-refs": false, "refs": true} {
		info, err := os.Lstat(filepath.Join(r.dir, name))
		if err == nil && info.IsDir() != folder || err == nil && !folder && !info.Mode().IsRegular() {
			return UnfitError(name + " is a symbolic link, or something else that it should not be")
		}
	}
	objects := filepath.Join(r.dir, "objects")
	err := filepath.WalkDir(objects, func(at string, e fs.DirEntry, err error) error {
		if at != objects && errors.Is(err, fs.ErrNotExist) { // git has tidied up meanwhile
			return nil
		}
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return UnfitError("its objects cannot be read, or some are symbolic links")
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	out, ok, err := r.run(ctx, "", "for-each-ref", "--count=1", "--format=%(refname)", "refs/replace")
	switch {
	case err != nil:
		return err
	case !ok:
		return UnfitError("git cannot read it")
	case out != "":
		return UnfitError("it replaces objects by others (refs/replace)")
	}
	return nil
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
	// Files that repeat what commits say, and that whoever can write them can have say something else.
	"-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false",
}

// Environment is the environment in which git runs: where programs are, and switches that turn off
// the configuration of machine and user, prompts, lazy fetching and external programs.
func Environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=none", "GIT_PROTOCOL_FROM_USER=0",
		"GIT_NO_LAZY_FETCH=1", "GIT_ASKPASS=false", "GIT_EDITOR=false", "GIT_EXTERNAL_DIFF=false",
		"GIT_GRAFT_FILE=" + os.DevNull, "GIT_NO_REPLACE_OBJECTS=1",
	}
}

// run runs a git command that only reads, with a text on its standard input. ok is false if git answers no, by its
// exit code; err is for everything else, such as a timeout. The process group is killed at the end of ctx, with
// whatever git has started.
func (r *Repository) run(ctx context.Context, input string, args ...string) (out string, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append(append([]string{"--git-dir=" + r.dir}, options...), args...)...)
	cmd.Dir, cmd.Env = r.dir, Environment()
	var said bytes.Buffer
	cmd.Stdin = strings.NewReader(input)
	cmd.Stdout = &limited{&said, maxOutput}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Whatever it has started ends with it.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if r.own {
		err = cmd.Start()
	} else {
		err = confine(r.dir, cmd.Start)
	}
	if err == nil {
		err = cmd.Wait()
	}
	if exit, refused := errors.AsType[*exec.ExitError](err); refused && exit.Exited() && ctx.Err() == nil {
		return said.String(), false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("git %s: %w", args[0], cmp.Or(ctx.Err(), err))
	}
	return said.String(), true, nil
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
