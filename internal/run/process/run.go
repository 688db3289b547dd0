package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/run/engine"
)

// Limits bound what a run waits for.
type Limits struct {
	Start  time.Duration // until the CLI writes something that is JSON
	Idle   time.Duration // from one line of JSON to the next; 0 is no limit
	Total  time.Duration // all in all; 0 is no limit
	Result time.Duration // until it leaves after its result
	Term   time.Duration // until it leaves after SIGTERM
}

// DefaultLimits are right for CLIs that talk to a model over the internet.
func DefaultLimits() Limits {
	return Limits{
		Start: 90 * time.Second, Idle: 30 * time.Minute, Total: 24 * time.Hour,
		Result: 2 * time.Second, Term: 10 * time.Second,
	}
}

// Spec says what to run.
type Spec struct {
	ID     string // of the run; what its processes have in their environment
	Engine *engine.Engine
	Job    engine.Job
	Env    []string // beside our own environment
	Unset  []string // names of variables that it does not get
	Listed bool     // of our own environment the CLI gets what is on a list, and not all but what is Signalbox's
	Limits Limits
	// Lock takes the lock of a session and waits for it (RUN-27); nil takes none. It
	// returns early when ctx ends.
	Lock func(ctx context.Context, thread string) (release func(), err error)
	// Stop is asked after each line why the run must not go on, the zero value if it may; nil lets it
	// go on. Budgets are checked here, while the CLI is still running.
	Stop func(engine.Usage) StoppedError
	// Wrap puts the command into a sandbox, and keeps warn for what is refused there; nil is none.
	Wrap func(cmd *exec.Cmd, warn func(text string))
	// Asking reports whether somebody is asked about what the CLI is about to do; nil is nobody. That time does not count
	// for Idle and Total.
	Asking func() bool
}

// StoppedError is the cause with which a run's context ends when somebody orders it to
// stop: a person, a budget, the server. One without a Cause is a failure.
type StoppedError struct {
	Reason string
	Cause  engine.Cause
}

// Error is the reason.
func (s StoppedError) Error() string { return s.Reason }

// UserVariable and DelegationVariable say to everything that a run starts on whose behalf it is: the user, and the
// token of the handoff under which it works. Hooks send them with each step, and the server finds out what is true of
// it.
const (
	UserVariable       = "SIGNALBOX_USER"
	DelegationVariable = "SIGNALBOX_DELEGATION"
	// DelegationServer is the address of the server that has given the token, and the only one that gets it.
	DelegationServer = "SIGNALBOX_DELEGATION_SERVER"
)

// Hand is the environment of a process that was handed work by a server.
func Hand(token, server string) []string {
	return []string{DelegationVariable + "=" + token, DelegationServer + "=" + server}
}

// Handed is the token of what this process was handed by the server at an address, "" for nothing. A command shows it
// with what it calls as another agent, so that it is found again under the run.
func Handed(address string) string {
	if !engine.SameServer(os.Getenv(DelegationServer), address) {
		return ""
	}
	return os.Getenv(DelegationVariable)
}

// RunVariable is in the environment of everything that a run starts, with the run's id
// (RUN-19).
const RunVariable = "SIGNALBOX_RUN"

// run is a run that is under way.
type run struct {
	Spec
	stream *engine.Stream
	lines  *engine.Lines
	emit   func(engine.Event, engine.Usage)
	ctx    context.Context //nolint:containedctx // the run is this context: it ends when the run has to
	stop   context.CancelCauseFunc

	release func()        // of the session's lock
	locked  bool          // it was asked for, or is no longer needed
	result  chan struct{} // closed when completed is out
	// reads counts how often the reader has asked for a line and got one. It is odd while the reader waits, by
	// which drain tells a reader that waits from one that is busy.
	reads atomic.Int64

	// translating is held while lines become events, which the reader does, and while watch warns of silence.
	translating sync.Mutex
	heardLines  atomic.Int64 // signs of life
	warnings    sync.WaitGroup

	mu     sync.Mutex
	over   bool         // nothing more is warned of
	last   engine.Event // the last thing that it did
	lastAt time.Time
	stderr []string
	said   []string // lines that are no JSON, before the first that is: perhaps a login prompt
}

// Run runs a CLI to its end. Each event is handed to emit with what the run has used by
// then. When ctx ends, the run is stopped, with the cause as its reason. Exactly one
// event is completed, and it is the last (RUN-1), also if the program does not exist.
func Run(ctx context.Context, s Spec, emit func(engine.Event, engine.Usage)) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	whole, err := s.Engine.Whole(s.Job)
	s.Job.Resume = whole
	r := &run{
		Spec: s, emit: emit, ctx: ctx, stop: stop, release: func() {}, result: make(chan struct{}),
	}
	r.stream = s.Engine.NewStream(s.Job, r.handleEvent)
	defer func() { r.release() }()
	var exit engine.Exit
	if err == nil {
		exit, err = r.execute()
	}
	if stopped, ok := errors.AsType[StoppedError](err); ok {
		exit.Cause = stopped.Cause
	}
	if err != nil {
		exit.Reason = err.Error()
	}
	r.stream.Finish(exit)
}

// handleEvent hands an event on. A new run takes the lock of its session before anybody is
// told which one it is (RUN-27), so nobody can start a second run of it too early.
func (r *run) handleEvent(e engine.Event) {
	if e.Type == engine.Acted && e.Action.Kind != engine.Turn && !e.IsStall() {
		r.mu.Lock()
		r.last, r.lastAt = e, time.Now()
		r.mu.Unlock()
	}
	if e.Type == engine.Started {
		r.lockNew(e.Resume.Thread())
	}
	r.emit(e, r.stream.Usage())
	r.checkStop()
}

// checkStop stops a run that must not go on. Not every line that says what was used is an event.
func (r *run) checkStop() {
	if r.Stop == nil {
		return
	}
	if stopped := r.Stop(r.stream.Usage()); stopped.Reason != "" {
		r.stop(stopped)
	}
}

// lockNew takes the lock of a session that was not known before. A run may emit started
// twice; and once its process is gone there is nothing to keep apart.
func (r *run) lockNew(thread string) {
	if r.Lock == nil || r.locked {
		return
	}
	r.locked = true
	release, err := r.Lock(r.ctx, thread)
	if err != nil {
		r.stop(stopReason(context.Cause(r.ctx), fmt.Errorf("the session is in use by another run: %w", err)))
		return
	}
	r.release = sync.OnceFunc(release)
}

// execute starts the process and reads what it writes until it is gone. The error is why
// the run had to end, or why it could not begin.
func (r *run) execute() (engine.Exit, error) {
	if r.Lock != nil && r.Job.Resume.Value != "" {
		r.locked = true
		release, err := r.Lock(r.ctx, r.Job.Resume.Thread())
		if err != nil {
			return engine.Exit{}, stopReason(err, err)
		}
		r.release = sync.OnceFunc(release)
	}
	c, err := r.start()
	if err != nil {
		return engine.Exit{}, err
	}
	r.stream.SetPID(c.cmd.Process.Pid)
	r.lines = engine.NewLines(c.stdout)
	read := make(chan struct{})
	go func() { defer close(read); r.read() }()
	why := r.watch(c, read)
	code := c.end(why != nil, r.grace(why))
	r.drain(c, read)
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.warnings.Wait()
	// Finish may emit started now. The process is gone, so its session needs no lock.
	r.locked = true
	closeAll([]*os.File{c.stdout, c.stderr})
	exit := engine.Exit{Code: code, Stderr: r.keptStderr()}
	return exit, why
}

// drain waits until everything that was written is read. By now nobody of the run is
// left to write. A pipe that does not end is held open by a stranger, and is given up
// when nothing comes from it for giveUp.
func (r *run) drain(c *child, read <-chan struct{}) {
	for before := int64(-1); ; {
		select {
		case <-read:
			select {
			case <-c.stderrDone:
			case <-time.After(giveUp):
				_ = c.stderr.SetReadDeadline(time.Now())
				<-c.stderrDone
			}
			return
		case <-time.After(giveUp):
		}
		now := r.reads.Load()
		if now == before && now%2 == 1 {
			_ = c.stdout.SetReadDeadline(time.Now())
		}
		before = now
	}
}

// giveUp is how long nothing has to come from a pipe that nobody should have open.
const giveUp = 500 * time.Millisecond

// stopReason is the error that says why the run was ended from outside: by the cause of its context, or else otherwise.
func stopReason(cause, otherwise error) error {
	stopped, ok := errors.AsType[StoppedError](cause)
	switch {
	case ok:
		return stopped
	case errors.Is(cause, context.Canceled):
		return StoppedError{"the run was cancelled", engine.ByPerson}
	case errors.Is(cause, context.DeadlineExceeded):
		return StoppedError{"the time limit of the run has passed", engine.ByTime}
	}
	return otherwise
}

// maxSaid is how many lines that are no JSON are kept for the message about silence.
const maxSaid = 5

// read translates lines until the result. Then it reads on and ignores what comes
// (RUN-15): a process that cannot write its last lines does not end.
func (r *run) read() {
	for {
		r.reads.Add(1)
		line, tooLong, err := r.lines.Next()
		r.reads.Add(1)
		if err != nil {
			return
		}
		switch {
		case r.stream.Completed():
			continue
		case tooLong:
			r.translating.Lock()
			r.stream.TooLong()
			r.translating.Unlock()
		default:
			r.translate(line)
		}
		if r.stream.Understood() {
			r.heardLines.Store(int64(r.stream.Heard()))
		} else {
			r.remember(line)
		}
		if r.stream.Completed() {
			close(r.result)
		}
	}
}

// translate makes a line into events.
func (r *run) translate(line []byte) {
	r.translating.Lock()
	defer r.translating.Unlock()
	if !r.stream.Line(line) {
		r.stream.Malformed(line)
	}
	r.checkStop()
}

// remember keeps a line that is no JSON, in case no JSON follows.
func (r *run) remember(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := strings.TrimSpace(string(line)); text != "" && len(r.said) < maxSaid {
		r.said = append(r.said, text[:min(len(text), 200)])
	}
}

// keptStderr are the lines of standard error that were kept.
func (r *run) keptStderr() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr
}

// keepStderr keeps the first lines of standard error, where the cause is, and reads
// past the rest so that the CLI is not held up by a full pipe.
func (r *run) keepStderr(f *os.File) {
	for lines := engine.NewLines(f); ; {
		line, tooLong, err := lines.Next()
		if err != nil {
			return
		}
		r.mu.Lock()
		if len(r.stderr) < engine.MaxStderr && !tooLong {
			r.stderr = append(r.stderr,
				strings.ToValidUTF8(strings.TrimRight(string(line[:min(len(line), 4096)]), "\r"), "\uFFFD"))
		}
		r.mu.Unlock()
	}
}

// explainStart explains why the program could not be started. Go reports a missing
// folder in the same way as a missing program.
func (r *run) explainStart(err error) error {
	command := r.Engine.Command(r.Job)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		if _, dir := os.Stat(r.Job.Dir); r.Job.Dir != "" && dir != nil {
			return fmt.Errorf("the folder of the run does not exist: %s", r.Job.Dir)
		}
		return fmt.Errorf("the program %s was not found. Install it with `%s`, or say where it is with "+
			"`signalbox config set runs.%s.command PATH`", command, r.Engine.Install, r.Engine.Name)
	}
	return fmt.Errorf("%s cannot be started: %w", command, err)
}
