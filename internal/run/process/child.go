package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"signalbox/internal/run/engine"
)

// child is a started process, at the head of a process group of its own.
type child struct {
	cmd        *exec.Cmd
	id         string
	stdout     *os.File
	stderr     *os.File
	stdin      *os.File
	gone       chan struct{} // closed when it has been waited for
	wrapped    bool          // the process is the wall around the CLI, and not the CLI
	stderrDone chan struct{}
}

// start starts the CLI with the prompt on its standard input.
func (r *run) start() (*child, error) {
	path, err := exec.LookPath(r.Engine.Command(r.Job))
	if err != nil {
		return nil, r.explainStart(err)
	}
	if path, err = filepath.Abs(path); err != nil { // the run works in another folder
		return nil, r.explainStart(err)
	}
	cmd := exec.Command(path, r.Engine.Args(r.Job)...) //nolint:noctx // ended by its group, in steps
	cmd.Dir = r.Job.Dir
	cmd.Env = append(append(r.environment(), r.Engine.Env()...), r.Env...)
	cmd.Env = append(cmd.Env, RunVariable+"="+r.ID)
	if r.Job.Dir != "" { // opencode goes by it, and ours is that of the person's shell
		cmd.Env = append(cmd.Env, "PWD="+r.Job.Dir)
	}
	c := &child{cmd: cmd, id: r.ID, gone: make(chan struct{}), stderrDone: make(chan struct{})}
	if r.Wrap != nil {
		c.wrapped = true
		r.Wrap(cmd, func(text string) { r.later(func() { r.stream.Warn(text) }) })
	}
	var theirs []*os.File
	defer func() { closeAll(theirs) }()
	pipe := func() (read, write *os.File) {
		if err == nil {
			read, write, err = os.Pipe()
		}
		return read, write
	}
	input, toInput := pipe()
	stdout, toStdout := pipe()
	stderr, toStderr := pipe()
	theirs = []*os.File{input, toStdout, toStderr}
	if err != nil {
		closeAll([]*os.File{toInput, stdout, stderr})
		return nil, r.explainStart(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, toStdout, toStderr
	c.stdin, c.stdout, c.stderr = toInput, stdout, stderr
	adoptOrphans()
	ended, err := Start(cmd)
	if err != nil {
		closeAll([]*os.File{toInput, stdout, stderr})
		return nil, r.explainStart(err)
	}
	go func() { <-ended; close(c.gone) }() // how it ended is in its state
	go func() {
		_, _ = c.stdin.WriteString(r.Engine.Input(r.Job)) // one that reads nothing is not held up
		_ = c.stdin.Close()
	}()
	go func() { defer close(c.stderrDone); r.keepStderr(stderr) }()
	return c, nil
}

// Start starts a command in a process group of its own, which the kernel kills when we die, where it can (RUN-23). The
// channel gets what Wait returns.
func Start(cmd *exec.Cmd) (<-chan error, error) {
	cmd.SysProcAttr = ownGroup()
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// The kernel goes by the thread that started it. Go ends threads at will, so this goroutine keeps its
		// thread until the process is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// environment is what the CLI gets of ours (RUN-19).
func (r *run) environment() []string {
	all := engine.Personal(os.Environ())
	if r.Listed {
		all = r.Engine.Listed(os.Environ(), r.Job.Settings)
	}
	return slices.DeleteFunc(all, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(r.Unset, name)
	})
}

// closeAll closes the files that were opened.
func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// end makes sure that the process and everything it started is gone, and returns the
// exit code, negative for a signal. A process that has written its result is given a
// moment to leave by itself; one that has to stop is told at once (RUN-21).
func (c *child) end(now bool, l Limits) (code int) {
	if now || !c.wait(l.Result) {
		c.signal(syscall.SIGTERM)
		if !c.wait(l.Term) {
			c.signal(syscall.SIGKILL)
			c.wait(l.Term) // one that hangs in the kernel is not waited for
		}
	}
	c.sweep(min(l.Result, l.Term))
	_ = c.stdin.Close()
	select {
	case <-c.gone:
	default:
		return -int(syscall.SIGKILL)
	}
	state, _ := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if state.Signaled() { //nolint:misspell // the standard library spells it so
		return -int(state.Signal())
	}
	return state.ExitStatus()
}

// wait waits for the process, at most so long, and reports whether it is gone. One that
// is gone already is gone also for a wait of zero.
func (c *child) wait(d time.Duration) bool {
	select {
	case <-c.gone:
		return true
	default:
	}
	select {
	case <-c.gone:
		return true
	case <-time.After(d):
		return false
	}
}

// signal sends a signal to the whole process group. With a sandbox gone, all that is in it is killed at once, so those in
// it are asked to leave.
func (c *child) signal(s syscall.Signal) {
	if !c.wrapped || s != syscall.SIGTERM {
		_ = syscall.Kill(-c.cmd.Process.Pid, s)
		return
	}
	for _, pid := range c.survivors() {
		if pid != c.cmd.Process.Pid {
			_ = syscall.Kill(pid, s)
		}
	}
}

// sweep ends what the process has left behind, in its group or anywhere else with the
// run's mark in its environment (RUN-22). We are the parent of orphans, so the dead are
// reaped.
func (c *child) sweep(grace time.Duration) {
	seen := map[int]bool{}
	c.signalSurvivors(seen, syscall.SIGTERM, grace)
	c.signalSurvivors(seen, syscall.SIGKILL, killTime)
	for pid := range seen {
		reap(pid)
	}
}

// killTime is how long the kernel may take to end what was killed.
const killTime = 5 * time.Second

// signalSurvivors sends a signal to every process that is left, and waits until they are gone.
// Processes that appear meanwhile are left to the next call.
func (c *child) signalSurvivors(seen map[int]bool, s syscall.Signal, wait time.Duration) {
	left := c.survivors()
	for _, pid := range left {
		seen[pid] = true
		_ = syscall.Kill(pid, s)
	}
	for deadline := time.Now().Add(wait); len(left) > 0 && time.Now().Before(deadline); left = c.survivors() {
		time.Sleep(5 * time.Millisecond)
	}
}

// survivors are the live processes of the run.
func (c *child) survivors() (pids []int) {
	for _, p := range processes() {
		if p.pid != os.Getpid() && !p.zombie && (p.group == c.cmd.Process.Pid || p.marked(c.id)) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// marked reports whether a process has the run's mark in its environment. A process may
// change its environment, so the mark finds strays and stops no attacker.
func (p proc) marked(id string) bool {
	return id != "" && strings.Contains("\x00"+environ(p.pid), "\x00"+RunVariable+"="+id+"\x00")
}
