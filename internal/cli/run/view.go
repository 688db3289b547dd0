package run

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/show"
)

// shownActions is how many of the last actions a terminal shows.
const shownActions = 5

// maxTitle is how many characters of a title are shown.
const maxTitle = 300

// view shows a run while it goes on: in place on a terminal, one line per action
// elsewhere, the events themselves with --json. Progress goes to standard error and the
// answer to standard output, so that a pipe gets the answer alone. mu guards what is
// below it: events come from the run's goroutine, and ticks from another.
type view struct {
	app    *command.App
	engine *engine.Engine
	// recorded is the id of the run on the server, "" if it is not there.
	recorded string
	began    time.Time
	// live: standard error is a terminal, and what is shown is redrawn in place.
	live  bool
	done  chan struct{}
	ticks sync.WaitGroup

	mu sync.Mutex
	// actions are shown on the terminal, at most shownActions; steps counts all that have
	// begun.
	actions []engine.Event // the last ones
	steps   int
	dropped int // of them are shown no longer
	usage   engine.Usage
	awaited []run.Awaited // the decisions that the run waits for
	trouble string        // why nothing can be recorded, "" if it can be
	// drawn are how wide the lines are that the last draw has left on the terminal, for erase.
	drawn []int
	line  []byte
}

// newView begins to show the run. end stops it.
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

// tick keeps the elapsed time right between events.
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
		_ = v.app.Out.JSON(bytes.TrimSuffix(v.line, []byte("\n")))
		return
	}
	// A turn is not an action that people think of as one.
	if e.Type != engine.Acted || e.Action.Kind == engine.Turn {
		return
	}
	if e.Phase == engine.Begun {
		v.steps++
	}
	if v.live && e.Action.Kind == engine.Warning { // it stays, above what is redrawn
		if e.Phase != engine.Updated {
			v.clear()
			v.app.Err.Print("%s", actionLine(e))
			v.draw()
		}
		return
	}
	v.remember(e)
	if v.live {
		v.draw()
	} else if e.Phase != engine.Updated {
		v.app.Err.Print("%s", actionLine(e))
	}
}

// await says at which gates a person is awaited, and where they can be decided: each once, above what is redrawn, so
// that its address stays whole.
func (v *view) await(all []run.Awaited) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.awaited
	v.awaited = all
	waits := waiting(all)
	if v.live {
		v.clear()
	}
	for _, a := range all {
		if !slices.ContainsFunc(known, func(k run.Awaited) bool { return k.Gate == a.Gate }) {
			v.app.Err.Print("waits %s\n  %s", awaitedLine(a), a.Link)
		}
	}
	if waits == 0 && waiting(known) > 0 {
		v.app.Err.Print("It is decided; the run goes on.")
	}
	if v.live {
		v.draw()
	}
}

// waiting is how many decisions hold up the run.
func waiting(all []run.Awaited) (n int) {
	for _, a := range all {
		if !a.Outlasts {
			n++
		}
	}
	return n
}

// troubled shows that nothing can be recorded, and why, and that it can be again.
func (v *view) troubled(why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.trouble = why
	switch {
	case v.live:
		v.draw()
	case why != "":
		v.app.Err.Print("The run is held up, since nothing can be recorded: %s", why)
	default:
		v.app.Err.Print("The run is recorded again.")
	}
}

// remember replaces what is shown of an action (RUN-6), or adds it and drops the
// oldest.
func (v *view) remember(e engine.Event) {
	for i := range v.actions {
		if v.actions[i].Action.ID == e.Action.ID {
			v.actions[i] = e
			return
		}
	}
	v.actions = append(v.actions, e)
	if len(v.actions) > shownActions {
		v.dropped++
		v.actions = append(v.actions[:0], v.actions[1:]...)
	}
}

// draw shows where the run stands, in place of what it drew before. Lines are cut to the width of the terminal, and
// line wrap is off in case that has just become another one, so that the number of rows is known. The caller holds the
// lock.
func (v *view) draw() {
	lines := []string{v.status("working")}
	if v.trouble != "" {
		lines = append(lines, show.Text("held up, since nothing can be recorded: "+v.trouble))
	}
	if n := waiting(v.awaited); n > 0 {
		lines = append(lines, "waits for a person: "+output.Count(n, "decision"))
	}
	for _, a := range v.actions {
		lines = append(lines, "  "+string(actionLine(a)))
	}
	columns := v.app.Err.TerminalWidth()
	var b strings.Builder
	b.WriteString("\x1b[?7l")
	v.erase(&b, columns)
	v.drawn = v.drawn[:0]
	for _, line := range lines {
		if columns > 1 {
			line = output.Shorten(line, columns-1)
		}
		v.drawn = append(v.drawn, output.Width(line))
		b.WriteString(line + "\n")
	}
	b.WriteString("\x1b[?7h")
	_, _ = io.WriteString(v.app.Err.Exactly(), b.String())
}

// reflows says that the terminal wraps the lines anew that are on it when it becomes narrower. All do but xterm.
var reflows = os.Getenv("XTERM_VERSION") == ""

// clear takes away what was drawn, for what is to stay. The caller holds the lock.
func (v *view) clear() {
	var b strings.Builder
	v.erase(&b, v.app.Err.TerminalWidth())
	v.drawn = v.drawn[:0]
	_, _ = io.WriteString(v.app.Err.Exactly(), b.String())
}

// erase moves up over what was drawn, and clears it. A terminal that has become narrower has put the lines that no
// longer fit onto several rows each.
func (v *view) erase(b *strings.Builder, columns int) {
	rows := 0
	for _, wide := range v.drawn {
		rows++
		if reflows && columns > 0 {
			rows += max(wide-1, 0) / columns
		}
	}
	if rows > 0 {
		_, _ = fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", rows)
	}
}

// status is one line: the status, the engine, the time, steps, tokens, cost.
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

// elapsed is a duration as people read it.
func elapsed(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%ds", int(d.Seconds()))
	}
	return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// actionLine is an action on one line.
func actionLine(e engine.Event) output.Shown {
	// The marks are those of the tools that people know these streams from.
	mark := map[engine.Phase]string{engine.Begun: "▸", engine.Updated: "↻", engine.Done: "✓"}[e.Phase]
	if e.OK != nil && !*e.OK {
		mark = "✗"
	}
	title := output.Cut(e.Action.Title, maxTitle)
	prefix := map[engine.Kind]string{
		engine.Command: "$ ", engine.FileChange: "changes ", engine.WebSearch: "searches ",
		engine.Warning: "warning: ",
	}[e.Action.Kind]
	line := mark + " " + prefix + show.Text(title)
	if why := e.Problem(); why != "" {
		line += " · " + show.Text(output.Cut(why, maxTitle))
	}
	return output.Shown(line)
}

// end stops the ticks and shows the outcome.
func (v *view) end(last engine.Event) {
	close(v.done)
	v.ticks.Wait()
	// With --json the last event has been printed already.
	if v.app.JSON || last.Type != engine.Completed {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	if v.live {
		v.erase(&b, v.app.Err.TerminalWidth())
	}
	if v.live && v.recorded == "" { // nobody else has them
		if v.dropped > 0 {
			_, _ = fmt.Fprintf(&b, "  %s before these, which were not recorded\n", output.Count(v.dropped, "action"))
		}
		for _, a := range v.actions {
			_, _ = fmt.Fprintf(&b, "  %s\n", actionLine(a))
		}
	}
	_, _ = fmt.Fprintf(&b, "%s\n", v.status(outcome(last)))
	if v.live && v.recorded != "" && len(v.actions) > 0 { // which are no longer on the screen
		_, _ = fmt.Fprintf(&b, "all steps: signalbox runs show %s\n", v.recorded)
	}
	if last.Error != "" {
		_, _ = fmt.Fprintf(&b, "%s\n", output.Lines(last.Error))
	}
	_, _ = io.WriteString(v.app.Err.Exactly(), b.String())
	printOutcome(v.app.Out, v.engine, last)
}

// outcome is how a run has ended, in words.
func outcome(last engine.Event) string {
	switch {
	case last.OK != nil && *last.OK:
		return string(run.Done)
	case last.Cause != "":
		return (&run.Run{Status: run.Status(last.Cause.Outcome()), Cause: last.Cause}).Outcome()
	}
	return string(run.Failed)
}

// printOutcome prints the answer, and the line that resumes the session.
func printOutcome(w output.Printer, e *engine.Engine, last engine.Event) {
	if last.Answer != "" {
		w.Print("%s", output.Lines(strings.TrimRight(last.Answer, "\n")))
	}
	if last.Resume != nil {
		if line, err := e.FormatResume(*last.Resume); err == nil {
			w.Print("\n%s", line)
		}
	}
}
