package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/run/engine"
)

// watch waits until the run is over: its result is out, its process is gone, or it has
// to end. In the last case it returns why.
func (r *run) watch(c *child, read <-chan struct{}) (why error) {
	look := time.NewTicker(r.Limits.step())
	defer look.Stop()
	w := watcher{run: r, at: time.Now()}
	for {
		select {
		case <-r.result:
			return nil
		case <-read:
			return nil
		case <-c.gone:
			return nil
		case now := <-look.C:
			if why := w.look(now); why != "" {
				return StoppedError{why, engine.ByTime}
			}
		case <-r.ctx.Done():
			return stopReason(context.Cause(r.ctx), context.Cause(r.ctx))
		}
	}
}

// watcher adds up how long the CLI of a run has taken, and how long it has been silent. What others take does not
// count: a person who is asked, and we, while its last line is still being recorded.
type watcher struct {
	*run
	at            time.Time
	lines         int64
	silent, total time.Duration
	warned        bool
}

// step is how often is looked at a run: often enough for the shortest of its limits.
func (l Limits) step() time.Duration {
	shortest := l.Start
	for _, d := range []time.Duration{l.Idle, l.Total} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return min(max(shortest/20, 10*time.Millisecond), 250*time.Millisecond)
}

// stallPart is the part of a limit after which people are warned that a CLI is silent.
const stallPart = 3

// look says why the run has to end at a moment, "" if it may go on.
func (w *watcher) look(now time.Time) string {
	passed := now.Sub(w.at)
	w.at = now
	if lines := w.heardLines.Load(); lines != w.lines {
		w.lines, w.silent, w.warned = lines, 0, false
		w.total += passed
	} else if waits := w.reads.Load()%2 == 1; waits && (w.Asking == nil || !w.Asking()) {
		w.silent += passed
		w.total += passed
	}
	limit, name := w.Limits.Idle, "idle"
	if w.lines == 0 {
		limit, name = w.Limits.Start, "start"
	}
	switch {
	case limit > 0 && w.silent >= limit:
		if w.lines == 0 {
			return w.neverStarted()
		}
		return fmt.Sprintf("%s was silent for %s, which is as long as it may be (%s). %s", w.Engine.Name, limit, w.setting(name),
			w.lastDone())
	case w.Limits.Total > 0 && w.total >= w.Limits.Total:
		return fmt.Sprintf("%s has taken %s, which is as long as it may (%s). %s", w.Engine.Name, w.Limits.Total, w.setting("total"),
			w.lastDone())
	case limit > 0 && w.silent >= limit/stallPart && !w.warned:
		w.warned = true
		w.warn(w.lines, fmt.Sprintf("%s has been silent for %s, and is ended after %s. %s", w.Engine.Name,
			w.silent.Round(time.Second/10), limit, w.lastDone()))
	}
	return ""
}

// setting is how people change a limit.
func (r *run) setting(name string) string {
	return fmt.Sprintf("--%s-timeout, runs.%s.%s_timeout", name, r.Engine.Name, name)
}

// warn shows that the CLI is silent, unless it has said something meanwhile. Whoever records events may hold us up, and
// must not hold up watch.
func (r *run) warn(lines int64, text string) {
	r.later(func() {
		if int64(r.stream.Heard()) == lines {
			r.stream.Stall(text)
		}
	})
}

// later does something with the stream beside whoever reads it, unless the run is over.
func (r *run) later(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.warnings.Go(func() {
		r.translating.Lock()
		defer r.translating.Unlock()
		do()
	})
}

// lastDone is what the CLI last did, for the person who asks why it hangs.
func (r *run) lastDone() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.Action == nil {
		return "It had done nothing yet."
	}
	did := "It last finished"
	if r.last.Phase != engine.Done {
		did = "It was last at"
	}
	title := []rune(strings.Join(strings.Fields(r.last.Action.Title), " "))
	if len(title) > maxLast {
		title = append(title[:maxLast:maxLast], '…')
	}
	return fmt.Sprintf("%s this %s, %s ago: %s", did, strings.ReplaceAll(string(r.last.Action.Kind), "_", " "),
		time.Since(r.lastAt).Round(time.Second/10), string(title))
}

// maxLast is how many characters of a title a message has.
const maxLast = 200

// neverStarted is the message about a CLI that has written nothing we understand (RUN-20),
// with what it wrote for people: usually a login prompt.
func (r *run) neverStarted() string {
	text := fmt.Sprintf("%s has written nothing that could be understood for %s (%s). Is it logged in? Run "+
		"%#q in a terminal and see what it asks for.", r.Engine.Name, r.Limits.Start, r.setting("start"), r.Engine.Command(r.Job))
	r.mu.Lock()
	defer r.mu.Unlock()
	if said := engine.Excerpt(r.said); said != "" {
		text += "\n" + said
	}
	return text
}

// grace are the limits for the end of the process. One that was silent for too long has had its time, and whoever waits
// for it is told at once.
func (r *run) grace(why error) Limits {
	l := r.Limits
	if stopped, ok := errors.AsType[StoppedError](why); ok && stopped.Cause == engine.ByTime {
		l.Term, l.Result = min(l.Term, lateTerm), min(l.Result, lateTerm)
	}
	return l
}

// lateTerm is how long a CLI that has exceeded a limit may take to leave.
const lateTerm = 500 * time.Millisecond
