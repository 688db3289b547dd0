package process_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/runtest"
	"signalbox/internal/testbed"
)

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
