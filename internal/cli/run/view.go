package run

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
)

// shownActions is how many of the last actions a terminal shows.
const shownActions = 5

// maxTitle is how much of a title is shown.
const maxTitle = 300

// view shows a run while it goes on: in place on a terminal, a line for each action
// elsewhere, the events themselves with --json. The answer goes to standard output.
type view struct {
	app    *command.App
	engine *engine.Engine
	began  time.Time
	live   bool
	done   chan struct{}
	ticks  sync.WaitGroup

	mu      sync.Mutex
	actions []engine.Event // the last ones
	steps   int
	usage   engine.Usage
	drawn   int // lines on the terminal
	line    []byte
}

func newView(a *command.App, s process.Spec) *view {
	v := &view{
		app: a, engine: s.Engine, began: time.Now(), live: !a.JSON && output.IsTerminal(a.Err),
		done: make(chan struct{}),
	}
	if v.live {
		v.ticks.Go(v.tick)
	}
	return v
}

// tick keeps the elapsed time true.
func (v *view) tick() {
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			v.mu.Lock()
			v.draw()
			v.mu.Unlock()
		case <-v.done:
			return
		}
	}
}

// event shows an event.
func (v *view) event(e engine.Event, u engine.Usage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.usage = u
	if v.app.JSON {
		v.line, _ = e.Line(v.line[:0])
		_, _ = v.app.Out.Write(v.line)
		return
	}
	if e.Type != engine.Acted || e.Action.Kind == engine.Turn {
		return
	}
	if e.Phase == engine.Begun {
		v.steps++
	}
	v.remember(e)
	if v.live {
		v.draw()
	} else if e.Phase != engine.Updated {
		v.app.Err.Print("%s", actionLine(e))
	}
}

// remember puts an action in the place of what was known of it.
func (v *view) remember(e engine.Event) {
	for i := range v.actions {
		if v.actions[i].Action.ID == e.Action.ID {
			v.actions[i] = e
			return
		}
	}
	v.actions = append(v.actions, e)
	if len(v.actions) > shownActions {
		v.actions = append(v.actions[:0], v.actions[1:]...)
	}
}

// draw shows where the run stands, in the place of what it showed before. Long lines are
// cut by the terminal.
func (v *view) draw() {
	var b strings.Builder
	b.WriteString("\x1b[?7l")
	v.erase(&b)
	_, _ = fmt.Fprintf(&b, "%s\n", v.status("working"))
	for _, a := range v.actions {
		_, _ = fmt.Fprintf(&b, "  %s\n", actionLine(a))
	}
	v.drawn = 1 + len(v.actions)
	b.WriteString("\x1b[?7h")
	_, _ = io.WriteString(v.app.Err, b.String())
}

func (v *view) erase(b *strings.Builder) {
	if v.drawn > 0 {
		_, _ = fmt.Fprintf(b, "\x1b[%dA\x1b[J", v.drawn)
	}
}

// status is one line: how it stands, which engine, for how long, steps, tokens, cost.
func (v *view) status(word string) string {
	parts := []string{word, v.engine.Name, elapsed(time.Since(v.began))}
	if v.steps > 0 {
		parts = append(parts, output.Count(v.steps, "step"))
	}
	if n := v.usage.Budgeted(); n > 0 {
		parts = append(parts, output.Thousands(n)+" tokens")
	}
	if v.usage.CostUSD != nil {
		parts = append(parts, fmt.Sprintf("$%.4f", *v.usage.CostUSD))
	}
	return strings.Join(parts, " · ")
}

func elapsed(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%ds", int(d.Seconds()))
	}
	return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// actionLine is an action in one line.
func actionLine(e engine.Event) string {
	mark := map[engine.Phase]string{engine.Begun: "▸", engine.Updated: "↻", engine.Done: "✓"}[e.Phase]
	if e.OK != nil && !*e.OK {
		mark = "✗"
	}
	title := output.Cut(e.Action.Title, maxTitle)
	prefix := map[engine.Kind]string{
		engine.Command: "$ ", engine.FileChange: "changes ", engine.WebSearch: "searches ",
		engine.Warning: "warning: ",
	}[e.Action.Kind]
	return mark + " " + prefix + output.Printable(title)
}

// end shows the outcome.
func (v *view) end(last engine.Event) {
	close(v.done)
	v.ticks.Wait()
	if v.app.JSON || last.Type != engine.Completed {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	if v.live {
		v.erase(&b)
	}
	word := "done"
	if !*last.OK {
		word = "failed"
	}
	_, _ = fmt.Fprintf(&b, "%s\n", v.status(word))
	if last.Error != "" {
		_, _ = fmt.Fprintf(&b, "%s\n", output.Lines(last.Error))
	}
	_, _ = io.WriteString(v.app.Err, b.String())
	printOutcome(v.app.Out, v.engine, last)
}

// printOutcome prints the answer and the line by which another run goes on.
func printOutcome(w output.Printer, e *engine.Engine, last engine.Event) {
	if last.Answer != "" {
		w.Print("%s", output.Lines(strings.TrimRight(last.Answer, "\n")))
	}
	if last.Resume != nil {
		if line, err := e.FormatResume(*last.Resume); err == nil {
			w.Print("\n%s", output.Printable(line))
		}
	}
}
