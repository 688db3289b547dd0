package process_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/runtest"
	"signalbox/internal/run/vector"
	"signalbox/internal/testbed"
)

func TestMain(m *testing.M) {
	runtest.Main()
	holdALock()
	goleak.VerifyTestMain(m)
}

const (
	initLine   = `{"type":"system","subtype":"init","session_id":"T-same","tools":[]}` + "\n"
	resultLine = `{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"T-same"}` + "\n"
)

// quick are limits that a test can wait for.
var quick = process.Limits{Start: 20 * time.Second, Result: 150 * time.Millisecond, Term: 300 * time.Millisecond}

// log collects events; they come one after another.
type log struct {
	mu     sync.Mutex
	events []engine.Event
	usage  engine.Usage
	first  chan struct{} // closed with the first event
}

func newLog() *log { return &log{first: make(chan struct{})} }

func (l *log) add(e engine.Event, u engine.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events = append(l.events, e); len(l.events) == 1 {
		close(l.first)
	}
	l.usage = u
}

// last is the completed event; there is exactly one.
func (l *log) last(t *testing.T) engine.Event {
	t.Helper()
	n := 0
	for _, e := range l.events {
		if e.Type == engine.Completed {
			n++
		}
	}
	if n != 1 || l.events[len(l.events)-1].Type != engine.Completed {
		t.Fatalf("%d completed in %d events", n, len(l.events))
	}
	return l.events[len(l.events)-1]
}

func spec(t *testing.T, cli runtest.CLI) process.Spec {
	t.Helper()
	e, err := engine.Find("amp")
	if err != nil {
		t.Fatal(err)
	}
	return process.Spec{
		ID: "run_" + strconv.Itoa(os.Getpid()) + strings.ReplaceAll(t.Name(), "/", "_"), Engine: e, Limits: quick,
		Job: engine.Job{Prompt: "fix it", Dir: t.TempDir(), Settings: engine.Settings{Command: cli.Write(t), AllowAll: true}},
	}
}

func run(t *testing.T, s process.Spec) *log {
	t.Helper()
	l := newLog()
	process.Run(t.Context(), s, l.add)
	return l
}

// TestVectorsThroughRealProcesses replays every recorded run of amp.
func TestVectorsThroughRealProcesses(t *testing.T) {
	cases, err := vector.Load("../engine/testdata/amp")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		// Those about paths in a folder that is not here are in the translator's test.
		if text, dir := string(c.Stream), c.Input.Dir; strings.Contains(text, `"`+dir+`/`) ||
			strings.Contains(text, " "+dir) || strings.Contains(text, `path":"`+dir) {
			continue
		}
		testbed.Parallel(t, c.Name, func(t *testing.T) {
			s := spec(t, runtest.CLI{Stdout: c.Stream, Stderr: c.Input.Stderr, Exit: c.Input.ExitCode})
			command := s.Job.Settings.Command
			s.Job = c.Job()
			s.Job.Settings.Command, s.Job.Dir = command, ""
			l := run(t, s)
			// The cases have no warnings of malformed lines: those are of the process, and not of the translation.
			told := 0
			l.events = slices.DeleteFunc(l.events, func(e engine.Event) bool {
				malformed := strings.Contains(e.Message, "wrote a line that is not JSON")
				if malformed {
					told++
				}
				return malformed
			})
			if problem := c.Compare(l.events); problem != "" {
				t.Errorf("%s\n%+v", problem, l.events)
			}
			if want := map[string]int{"030-malformed-lines-skipped": 3}[c.Name]; told != want {
				t.Errorf("%d malformed lines were told, want %d", told, want)
			}
		})
	}
}

func TestThePromptIsOnStandardInput(t *testing.T) {
	witness := filepath.Join(t.TempDir(), "witness")
	s := spec(t, runtest.CLI{Stdout: []byte(initLine + resultLine), Witness: witness})
	s.Job.Prompt = "--help " + strings.Repeat("a long prompt ", 50_000) // more than a pipe or a command line takes
	e := run(t, s).last(t)
	if !*e.OK || e.Answer != "done" {
		t.Errorf("%+v", e)
	}
	got := testbed.Read(t, witness)
	if want := "--dangerously-allow-all\x00--stream-json\x00-x\n" + s.Job.Prompt; string(got) != want {
		t.Errorf("%.200q", got)
	}
}

func TestAProgramThatIsNotThere(t *testing.T) {
	s := spec(t, runtest.CLI{})
	s.Job.Settings.Command = "no-such-program-here"
	if e := run(t, s).last(t); *e.OK ||
		!strings.Contains(e.Error, "was not found. Install it with `npm install -g @ampcode/cli`") {
		t.Errorf("%q", e.Error)
	}
	s = spec(t, runtest.CLI{})
	s.Job.Dir = filepath.Join(s.Job.Dir, "missing")
	if e := run(t, s).last(t); *e.OK || !strings.Contains(e.Error, "the folder of the run does not exist") {
		t.Errorf("%q", e.Error)
	}
}

func TestACLIThatAsksForALoginIsGivenUp(t *testing.T) {
	s := spec(t, runtest.CLI{Stdout: []byte("\x1b[91mNo API key found.\x1b[0m Starting login flow...\n" +
		"visit https://amp.example/login?authToken=secret\n"), Linger: time.Minute})
	s.Limits.Start = 300 * time.Millisecond
	e := run(t, s).last(t)
	if *e.OK || e.Cause != engine.ByTime || !strings.Contains(e.Error, "Is it logged in?") ||
		!strings.Contains(e.Error, "\nNo API key found. Starting") || strings.Contains(e.Error, "secret") {
		t.Errorf("%q", e.Error)
	}
}

// TestALingeringProcessIsEnded: the events are out at once, and the session is free after
// the grace.
func TestALingeringProcessIsEnded(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprintf("stubborn %v", stubborn), func(t *testing.T) {
			began := time.Now()
			l := run(t, spec(t, runtest.CLI{Stdout: []byte(initLine + resultLine), Linger: time.Minute, Stubborn: stubborn}))
			if e := l.last(t); !*e.OK {
				t.Errorf("%+v", e)
			}
			if took := time.Since(began); took > 45*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestCancellingEndsTheGroupWithOneCompleted(t *testing.T) {
	for _, c := range []struct {
		name, want string
		cause      error
		stubborn   bool
		of         engine.Cause
	}{
		{
			"with a reason", "the day's budget is used up",
			process.StoppedError{Reason: "the day's budget is used up", Cause: engine.ByBudget},
			false, engine.ByBudget,
		},
		{"without", "the run was cancelled", nil, false, engine.ByPerson},
		{"a stubborn one", "the run was cancelled", nil, true, engine.ByPerson},
		{"a failure", "the session was taken", process.StoppedError{Reason: "the session was taken"}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			l := newLog()
			go func() { <-l.first; cancel(c.cause) }()
			process.Run(ctx, spec(t,
				runtest.CLI{Stdout: []byte(initLine), Linger: time.Minute, Stubborn: c.stubborn, Stderr: []string{"working"}}),
				l.add)
			if e := l.last(t); *e.OK || !strings.HasPrefix(e.Error, c.want+"\n") || e.Resume.Value != "T-same" || e.Cause != c.of {
				t.Errorf("%q by %q", e.Error, e.Cause)
			}
		})
	}
}

// TestWhatIsLeftBehindIsEnded: a process in a session of its own, with the output open.
func TestWhatIsLeftBehindIsEnded(t *testing.T) {
	orphan := filepath.Join(t.TempDir(), "pid")
	e := run(t, spec(t, runtest.CLI{Stdout: []byte(initLine + resultLine), Orphan: orphan})).last(t)
	if !*e.OK {
		t.Errorf("%+v", e)
	}
	text := testbed.Read(t, orphan)
	pid, _ := strconv.Atoi(string(text))
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d lives, or was not waited for", pid)
	}
}

func TestEverythingThatWasWrittenIsRead(t *testing.T) {
	line := `{"type":"assistant","message":{"content":[{"type":"text","text":"x"}]}}` + "\n"
	s := spec(t, runtest.CLI{Stdout: []byte(line), Repeat: 20_000, Exit: 3})
	if e := run(t, s).last(t); len(e.Answer) != 20_001 || !strings.HasPrefix(e.Error, "amp failed (rc=3).") {
		t.Errorf("%d of the answer, %q", len(e.Answer), e.Error)
	}
}

func TestABudgetStopsTheRunWhileItRuns(t *testing.T) {
	spend := `{"type":"assistant","session_id":"T-same","message":{"content":[{"type":"tool_use","id":"a",` +
		`"name":"Bash","input":{}}],"usage":{"input_tokens":600,"output_tokens":1}}}` + "\n"
	s := spec(t, runtest.CLI{Stdout: []byte(initLine + spend + spend), Linger: time.Minute})
	s.Stop = func(u engine.Usage) (over process.StoppedError) {
		if u.Budgeted() >= 1000 {
			over = process.StoppedError{Reason: "the budget of 1000 tokens is used up", Cause: engine.ByBudget}
		}
		return over
	}
	l := run(t, s)
	if e := l.last(t); *e.OK || !strings.HasPrefix(e.Error, "the budget of 1000 tokens is used up") ||
		l.usage.Tokens.Input != 1200 || e.Cause != engine.ByBudget {
		t.Errorf("%q, %+v", e.Error, l.usage)
	}
}

// order is what happened, over several runs.
type order struct {
	mu   sync.Mutex
	what []string
}

func (o *order) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.what = append(o.what, what)
}

// recorded hands events to a log and to the order.
func (o *order) recorded(name string, l *log) func(engine.Event, engine.Usage) {
	return func(e engine.Event, u engine.Usage) {
		if e.Type != engine.Acted {
			o.add(name + " " + string(e.Type))
		}
		l.add(e, u)
	}
}

// TestRunsOfOneSessionTakeTurns runs two on one session, each with locks of its own, as
// two processes would have.
func TestRunsOfOneSessionTakeTurns(t *testing.T) {
	for _, c := range []struct {
		name     string
		a, b     string // the sessions to go on with
		overlap  bool   // their processes may
		parallel bool   // their events may
	}{
		{"two that go on", "T-same", "T-same", false, false},
		{"a new one, then one that goes on", "", "T-same", false, false},
		{"two new ones", "", "", true, false},
		{"other sessions", "T-same", "T-other", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, logFile := t.TempDir(), filepath.Join(t.TempDir(), "log")
			var o order
			var wg sync.WaitGroup
			hold := filepath.Join(dir, "go")
			begin := func(name, resume string) *log {
				l := newLog()
				stream := strings.ReplaceAll(initLine+resultLine, "T-same", or(resume, "T-same"))
				s := spec(t, runtest.CLI{Stdout: []byte(stream), Hold: hold, Log: logFile})
				s.ID += name
				s.Lock = process.Locks{Dir: dir}.Take
				s.Job.Resume = engine.Resume{Engine: "amp", Value: resume}
				wg.Go(func() { process.Run(t.Context(), s, o.recorded(name, l)) })
				return l
			}
			a := begin("A", c.a)
			<-a.first
			b := begin("B", c.b)
			if c.parallel {
				<-b.first
			}
			if c.overlap {
				testbed.Until(t, "both to begin", func() bool { return strings.Count(testbed.ReadAny(logFile), "begin") == 2 })
			}
			testbed.Write(t, hold, "")
			wg.Wait()
			if got := strings.Join(o.what, ", "); !c.parallel && got != "A started, A completed, B started, B completed" {
				t.Errorf("events: %s", got)
			}
			if got := testbed.ReadAny(logFile); !c.overlap && strings.Index(got, "end") > strings.LastIndex(got, "begin") {
				t.Errorf("the processes overlapped: %s", got)
			}
		})
	}
}

// TestARunThatSaysTwiceWhatItIsHasItsLockOnce: pi tells its model late.
func TestARunThatSaysTwiceWhatItIsHasItsLockOnce(t *testing.T) {
	text := testbed.Read(t, "../engine/testdata/others/pi-success.jsonl")
	s := spec(t, runtest.CLI{Stdout: text})
	pi, err := engine.Find("pi")
	if err != nil {
		t.Fatal(err)
	}
	s.Engine = pi
	locks := process.Locks{Dir: t.TempDir()}
	s.Lock = locks.Take
	l := run(t, s)
	told := 0
	for _, e := range l.events {
		if e.Type == engine.Started {
			told++
		}
	}
	if e := l.last(t); told != 2 || !*e.OK {
		t.Errorf("%d started, %+v", told, e)
	}
	release, err := locks.Take(t.Context(), "pi:abcd1234-0000-0000-0000-000000000000")
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestALockIsFreeWhenItsHolderDies kills a process that has it.
func TestALockIsFreeWhenItsHolderDies(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.CommandContext(t.Context(), self)
	holder.Env = append(os.Environ(), "SIGNALBOX_TEST_HOLD="+dir)
	if _, err := holder.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "the lock to be held", func() bool { return testbed.ReadAny(filepath.Join(dir, "held")) != "" })
	locks := process.Locks{Dir: dir}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := locks.Take(soon, "amp:T-1"); err == nil {
		t.Fatal("two have the lock")
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	release, err := locks.Take(t.Context(), "amp:T-1")
	if err != nil {
		t.Fatal(err)
	}
	release()
	_ = holder.Wait()
}

// holdALock is the other process.
func holdALock() {
	dir := os.Getenv("SIGNALBOX_TEST_HOLD")
	if dir == "" {
		return
	}
	if _, err := (process.Locks{Dir: dir}).Take(context.Background(), "amp:T-1"); err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "held"), []byte("yes"), 0o600); err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, if it kills nobody
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
