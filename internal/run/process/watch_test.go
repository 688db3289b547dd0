package process_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/runtest"
	"signalbox/internal/testbed"
)

const toolLine = `{"type":"assistant","session_id":"T-same","message":{"content":[{"type":"tool_use","id":"a",` +
	`"name":"Bash","input":{"cmd":"make\nall"}}]}}` + "\n"

// timed runs a CLI, and returns how long it took from the moment at which its stall was shown, or from its first event.
func timed(t *testing.T, s process.Spec) (l *log, after time.Duration) {
	t.Helper()
	l = newLog()
	var from time.Time
	process.Run(t.Context(), s, func(e engine.Event, u engine.Usage) {
		if from.IsZero() || e.IsStall() {
			from = time.Now()
		}
		l.add(e, u)
	})
	return l, time.Since(from)
}

// TestASilentCLIIsEndedWithinTwoSecondsOfItsLimit, however stubborn it is and whatever it leaves behind, and the error
// says what it last did. Before that people are warned.
func TestASilentCLIIsEndedWithinTwoSecondsOfItsLimit(t *testing.T) {
	for name, c := range map[string]struct {
		cli   runtest.CLI
		limit func(*process.Limits)
		warns string
		says  []string
	}{
		"silent after its start": {
			runtest.CLI{Stdout: []byte(initLine), Linger: time.Hour},
			func(l *process.Limits) { l.Idle = 3 * time.Second },
			"amp has been silent for ",
			[]string{"amp was silent for 3s, which is as long as it may be (--idle-timeout, runs.amp.idle_timeout). It had done nothing yet."},
		},
		"silent at its work": {
			runtest.CLI{
				Stdout: []byte(initLine + toolLine), Linger: time.Hour, Stubborn: true, Orphan: filepath.Join(t.TempDir(), "pid"),
			},
			func(l *process.Limits) { l.Idle = 3 * time.Second }, "It was last at this command, ",
			[]string{"amp was silent for 3s", "It was last at this command, ", " ago: make all"},
		},
		"what it says is not JSON": {
			runtest.CLI{Stdout: []byte(initLine + strings.Repeat("still working\n", 100)), Pause: 50 * time.Millisecond, Linger: time.Hour},
			func(l *process.Limits) { l.Idle = 3 * time.Second }, "",
			[]string{"amp was silent for 3s"},
		},
		"never starts": {
			runtest.CLI{Stdout: []byte("Please sign in.\n"), Linger: time.Hour, Stubborn: true},
			func(l *process.Limits) { l.Start, l.Idle = 3*time.Second, time.Millisecond },
			"amp has been silent for ",
			[]string{"amp has written nothing that could be understood for 3s (--start-timeout, runs.amp.start_timeout)", "Please sign in."},
		},
		"goes on and on": {
			runtest.CLI{Stdout: []byte(strings.Repeat(initLine+toolLine, 90)), Pause: 50 * time.Millisecond, Linger: time.Hour},
			func(l *process.Limits) { l.Total = 3 * time.Second }, "",
			[]string{"amp has taken 3s, which is as long as it may (--total-timeout, runs.amp.total_timeout). It was last at"},
		},
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			s := spec(t, c.cli)
			s.Limits = process.DefaultLimits()
			c.limit(&s.Limits)
			l, after := timed(t, s)
			e := l.last(t)
			for _, text := range c.says {
				if !strings.Contains(e.Error, text) {
					t.Errorf("the error lacks %q: %s", text, e.Error)
				}
			}
			if *e.OK || e.Cause != engine.ByTime || e.Outcome != "stopped" {
				t.Errorf("%+v", e)
			}
			warned := 0
			for _, one := range l.events {
				if one.IsStall() {
					warned++
					if !strings.Contains(one.Action.Title, c.warns) || one.Action.Kind != engine.Warning {
						t.Errorf("%+v", one.Action)
					}
				}
			}
			if warned != 1 && c.warns != "" {
				t.Errorf("%d warnings", warned)
			}
			// The warning comes after a third of the limit, so two thirds are left, and two seconds more. This machine may be busy.
			if c.warns != "" && after > testbed.Patience/2 {
				t.Errorf("it took %s", after)
			}
			t.Logf("it was over %s after the warning", after.Round(time.Millisecond))
		})
	}
}

// TestACLIThatGoesOnIsNotEnded: each sign of life counts, and so does each that has ended a silence.
func TestACLIThatGoesOnIsNotEnded(t *testing.T) {
	hold := filepath.Join(t.TempDir(), "go")
	s := spec(t, runtest.CLI{Stdout: []byte(initLine + toolLine + resultLine), Hold: hold})
	s.Limits.Idle = 9 * time.Second // a third of which is soon over
	var silent atomic.Bool
	asked := make(chan struct{})
	s.Asking = silent.Load // from the warning on a person is asked, for as long as it takes
	l := newLog()
	done := make(chan struct{})
	go func() {
		defer close(done)
		process.Run(context.WithoutCancel(t.Context()), s, func(e engine.Event, u engine.Usage) {
			l.add(e, u)
			if e.IsStall() && !silent.Swap(true) {
				close(asked)
			}
		})
	}()
	testbed.Receive(t, "a warning", asked)
	testbed.Write(t, hold, "")
	testbed.Receive(t, "the end", done)
	e := l.last(t)
	var begun, ended int
	for _, one := range l.events {
		if one.Action != nil && one.Action.Kind == engine.Warning {
			if one.IsStall() {
				begun++
			} else if one.OK != nil && *one.OK && one.Phase == engine.Done {
				ended++
			}
		}
	}
	if !*e.OK || begun != 1 || ended != 1 {
		t.Errorf("%d silences began and %d ended: %+v", begun, ended, e)
	}
}

// TestTimeInWhichAPersonIsAskedDoesNotCount, not for silence and not for the whole.
func TestTimeInWhichAPersonIsAskedDoesNotCount(t *testing.T) {
	hold := filepath.Join(t.TempDir(), "go")
	s := spec(t, runtest.CLI{Stdout: []byte(initLine + toolLine + resultLine), Hold: hold})
	s.Limits.Idle, s.Limits.Total = 2*time.Second, 2*time.Second
	looked := make(chan struct{}, 10_000)
	s.Asking = func() bool {
		select {
		case looked <- struct{}{}:
		default:
		}
		return true
	}
	l, done := newLog(), make(chan struct{})
	go func() { defer close(done); process.Run(t.Context(), s, l.add) }()
	testbed.Receive(t, "the first event", l.first)
	for range 30 { // looks of a tenth of a second each: longer than both limits
		testbed.Receive(t, "a look at the run", looked)
	}
	testbed.Write(t, hold, "")
	testbed.Receive(t, "the end", done)
	if e := l.last(t); !*e.OK {
		t.Errorf("%+v", e)
	}
}
