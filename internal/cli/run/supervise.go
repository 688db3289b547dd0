package run

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/server"
)

// supervisor watches runs that the server has opened, until the last of them has ended.
// mu guards watched and over.
type supervisor struct {
	*command.App
	config func() (*server.Config, error)
	file   string // that of the configuration, "" for that of the data folder

	mu sync.Mutex
	// watched counts the runs under way. When it falls to 0, over is set for good and the
	// process ends.
	watched  int
	over     bool // the last run has ended; nothing more is taken
	listener net.Listener
	wg       sync.WaitGroup
}

// newSupervise is the command that the server starts for each run. One process watches
// many runs (RUN-40), because a process of ours takes more memory than a run: one that
// is started while there is another hands its run over, and ends.
func newSupervise(a *command.App) *command.Command {
	c := &command.Command{
		Use: "supervise RUN_ID", Short: "Watch a run that the server has opened", Hidden: true,
		Args: command.Exactly(1, "the id of a run"),
	}
	config := command.AddConfigFlags(c)
	c.RunE = func(c *command.Command, args []string) error {
		s := &supervisor{App: a, config: func() (*server.Config, error) { return config.Load(a, c) }, file: c.Flag("config").Value.String()}
		return s.run(c.Context(), args[0])
	}
	return c
}

const (
	// handTime is how long another supervisor may take to answer.
	handTime = 10 * time.Second
	// handTries is how often one is looked for that is just beginning or ending.
	handTries = 20
	handPause = 50 * time.Millisecond
)

// run hands the run over, or watches it and those that others hand over, until all have
// ended.
func (s *supervisor) run(ctx context.Context, id string) error {
	taken, release, err := s.joinOrListen(ctx, id)
	if taken || err != nil {
		return err
	}
	defer release()
	s.watched = 1
	if s.listener != nil {
		// Runs of others are watched by this process until the last of them has ended, also
		// after its own.
		s.wg.Go(func() { s.accept(ctx) })
	}
	err = s.watch(ctx, id)
	s.wg.Wait()
	return err
}

// joinOrListen hands the run to another supervisor, or becomes the one that others hand theirs
// to. If neither works after handTries, it watches its run alone: a run is never left
// without a supervisor.
func (s *supervisor) joinOrListen(ctx context.Context, id string) (taken bool, release func(), err error) {
	path, err := s.socket()
	if err != nil {
		return false, nil, err
	}
	// Another supervisor may be about to listen, or about to end: then neither step works,
	// and a moment later one does.
	for range handTries {
		if taken, err := handOver(ctx, path, id); taken || err != nil {
			return taken, nil, err
		}
		if release, err := s.listen(ctx, path); err == nil {
			return false, release, nil
		}
		clock.Pause(ctx, handPause)
	}
	return false, func() {}, nil
}

// socket is where supervisors of the same program with the same environment and configuration file meet. The
// CLI follows from all three, so a run is only handed to a supervisor whose CLI would be the
// same.
func (s *supervisor) socket() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(self, program.Size(), program.ModTime().UnixNano(), s.file,
		strings.Join(os.Environ(), "\n"))))
	return filepath.Join(s.DataDir(), "runs", fmt.Sprintf("%x.sock", sum[:6])), nil
}

// handOver gives a run to the supervisor that listens at the path; false if there is
// none. If one takes the connection and does not answer, it may have taken the run, and
// the run must not run twice: that is an error.
func handOver(ctx context.Context, path, id string) (taken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return false, nil // there is none
	}
	defer func() { _ = conn.Close() }()
	// Both directions: neither a process that is stopped nor one that hangs may keep us.
	_ = conn.SetDeadline(time.Now().Add(handTime))
	if _, err := fmt.Fprintln(conn, id); err != nil {
		return false, nil // it is gone
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	// A connection that was closed without an answer has not taken the run; silence may
	// have.
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, fault.Wrap(err, fault.Internal,
			"The supervisor does not answer, so it is not known whether it watches %s.", id)
	}
	return answer == handTaken, nil
}

// handTaken is the answer of a supervisor that has taken a run.
const handTaken = "taken\n"

// listen makes this process the one that others hand their runs to. The lock belongs to
// the process and goes with it, however it ends; a socket may be left behind, so
// holding the lock is what permits to replace it.
func (s *supervisor) listen(ctx context.Context, path string) (release func(), err error) {
	lock, err := os.OpenFile(strings.TrimSuffix(path, ".sock")+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		// Whoever holds the lock owns the socket, so one that is there was left by a process
		// that has died.
		_ = os.Remove(path)
		s.listener, err = (&net.ListenConfig{}).Listen(ctx, "unix", path)
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return func() { _ = s.listener.Close(); _ = lock.Close() }, nil
}

// accept takes runs of others until nothing is left to watch.
func (s *supervisor) accept(ctx context.Context) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(handTime))
		id, err := bufio.NewReader(conn).ReadString('\n')
		// The run is counted before it is acknowledged, so that the process cannot end in
		// between.
		if err == nil && s.addWatched() {
			_, _ = fmt.Fprint(conn, handTaken)
			s.wg.Go(func() { s.logFailure(strings.TrimSpace(id), s.watch(ctx, strings.TrimSpace(id))) })
		}
		_ = conn.Close()
	}
}

// addWatched counts another run, and reports false if the last one has ended: this process is
// about to exit, and the other watches its run itself.
func (s *supervisor) addWatched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.watched++
	}
	return !s.over
}

// removeWatched counts a run that has ended. With the last one nothing more is taken.
func (s *supervisor) removeWatched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched--
	// Closing the listener ends accept, and with it the process.
	if s.over = s.watched == 0; s.over && s.listener != nil {
		_ = s.listener.Close()
	}
}

// logFailure writes what went wrong to the log of the run, where its own process would have
// written it.
func (s *supervisor) logFailure(id string, failed error) {
	if failed == nil {
		return
	}
	if f, err := os.OpenFile(filepath.Join(s.DataDir(), "runs", filepath.Base(id)+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		_, _ = fmt.Fprintln(f, failed)
		_ = f.Close()
	}
}

// reachTime is how long a supervisor looks for a server that it cannot reach: it may be starting again.
const reachTime = 10 * time.Minute

// take reads a run and makes this process the one that watches it, as soon as the server can be reached. ended says
// that nothing is to be watched any more.
func (s *supervisor) take(ctx context.Context, id string, r *runner) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	pulse := run.Pulse{Handoff: true, Supervisor: rand.Text()}
	for {
		var orders run.Orders
		cl, err := s.Client()
		if err == nil {
			r.server = recording(s.App, cl)
			err = cl.Call(ctx, api.Post("/runs/"+id+"/pulse", pulse), &orders)
		}
		if err == nil {
			err = cl.Call(ctx, api.Get("/runs/"+id), &r.opened)
		}
		if err == nil {
			r.opened.Handoff = orders.Handoff
			return orders.Ended, nil
		}
		if code := fault.From(err).Code; ctx.Err() != nil || code != api.Unreachable && code.Status() < http.StatusInternalServerError {
			return false, err
		}
		clock.Pause(ctx, handPause)
	}
}

// watch watches one run to its end. If it returns an error before the CLI has started,
// the server completes the run when the lease ends (RUN-35).
func (s *supervisor) watch(ctx context.Context, id string) error {
	defer s.removeWatched()
	// Read for each run: the configuration may have changed since this process was started.
	loaded, err := s.config()
	if err != nil {
		return err
	}
	// A supervised run is always recorded: without the server there would be no run to
	// watch.
	r := &runner{App: s.App, record: true}
	ended, err := s.take(ctx, id, r)
	if err != nil || ended {
		return err
	}
	o := r.opened
	e, err := engine.Find(o.Engine)
	if err != nil {
		return err
	}
	limits := processLimits(o.Limits)
	if o.Limits == (run.Limits{}) { // it was opened by version 0.1
		limits = processLimits(loaded.Runs.Limits(e.Name))
	}
	r.budget, r.user = o.Budget, o.User
	r.trouble = func(why string) {
		if why != "" {
			s.logFailure(o.ID, errors.New("the run is held up: "+why))
		}
	}
	r.spec = process.Spec{ID: o.ID, Engine: e, Limits: limits, Listed: true, Job: engine.Job{
		Prompt: o.Prompt, Dir: o.Dir, Override: o.Model, Mode: o.Mode, Settings: loaded.Runs.Engines[e.Name],
		Resume: engine.Resume{Engine: e.Name, Value: o.Resume},
	}}
	if o.Mode == "" { // it was opened by version 0.1
		r.spec.Job.Mode = e.ModeOf(map[bool]engine.Mode{true: engine.Supervised}[o.Supervised], r.spec.Job.Settings)
	}
	r.boxing = boxing{boxed: o.Sandbox, hosts: o.Hosts, hidden: hidden(s.App, loaded)}
	r.planting = planting{wanted: o.Worktree}
	r.named = r.spec.Job.Mode == engine.Read || o.Named || r.spec.Job.Settings.Permissions != ""
	// The server may be away for long. What the agent did is not lost for that.
	_, err = r.execute(ctx, func(engine.Event, engine.Usage) {}, 24*time.Hour)
	return err
}
