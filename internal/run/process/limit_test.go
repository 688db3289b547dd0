package process

import (
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/run/engine"
)

// TestASilentCLIIsFoundWithinAStepOfItsLimitAndGoneWithinTwoSeconds, by a clock of the test's own: how often is looked,
// and what each part of the end may take, add up to less than two seconds whatever the limits are.
func TestASilentCLIIsFoundWithinAStepOfItsLimitAndGoneWithinTwoSeconds(t *testing.T) {
	amp, err := engine.Find("amp")
	if err != nil {
		t.Fatal(err)
	}
	for _, limits := range []Limits{
		DefaultLimits(),
		{Start: time.Minute, Idle: 3 * time.Second, Total: time.Hour, Result: 2 * time.Second, Term: 10 * time.Second},
		{Start: time.Minute, Idle: time.Hour, Total: 5 * time.Second, Result: time.Minute, Term: time.Minute},
		{Start: 90 * time.Second, Total: 24 * time.Hour, Result: 2 * time.Second, Term: 10 * time.Second},
	} {
		limit := limits.Total
		if limits.Idle > 0 {
			limit = min(limits.Idle, limit)
		}
		r := &run{Spec: Spec{Engine: amp, Limits: limits}}
		r.heardLines.Store(1)
		r.reads.Store(1) // it waits for a line
		began := time.Date(2026, 3, 6, 22, 10, 0, 0, time.UTC)
		w := watcher{run: r, at: began, lines: 1, warned: true}
		now := began
		for why := ""; why == ""; why = w.look(now) {
			if now = now.Add(limits.step()); now.Sub(began) > limit+time.Minute {
				t.Fatalf("%+v: it goes on", limits)
			}
		}
		found := now.Sub(began)
		if found < limit || found > limit+limits.step() {
			t.Errorf("%+v: found after %s", limits, found)
		}
		l := r.grace(StoppedError{"silent", engine.ByTime})
		// SIGTERM and then SIGKILL for the process, the same for what it has left behind, and what is in its pipe.
		if end := found - limit + l.Term + min(l.Result, l.Term) + giveUp; end > 2*time.Second {
			t.Errorf("%+v: the end comes %s after the limit", limits, end)
		}
	}
}

// TestTimeAtAGateCountsForNoLimit, by a clock of the test's own, and the time after it counts again.
func TestTimeAtAGateCountsForNoLimit(t *testing.T) {
	amp, err := engine.Find("amp")
	if err != nil {
		t.Fatal(err)
	}
	var asking atomic.Bool
	r := &run{Spec: Spec{
		Engine: amp, Limits: Limits{Start: time.Minute, Idle: time.Minute, Total: time.Minute}, Asking: asking.Load,
	}}
	r.heardLines.Store(1)
	r.reads.Store(1)
	now := time.Date(2026, 3, 6, 22, 10, 0, 0, time.UTC)
	w := watcher{run: r, at: now, lines: 1, warned: true}
	pass := func(d time.Duration) string {
		now = now.Add(d)
		return w.look(now)
	}
	asking.Store(true)
	if why := pass(time.Hour); why != "" {
		t.Errorf("while a person is awaited: %s", why)
	}
	asking.Store(false)
	if why := pass(59 * time.Second); why != "" {
		t.Errorf("before the limit: %s", why)
	}
	if why := pass(time.Second); why == "" {
		t.Error("after the limit it goes on")
	}
}
