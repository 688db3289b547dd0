package run

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

// runPath is the path of a run in the API.
func runPath(id string) string { return api.Path("/runs/{}", id) }

// newLs lists runs.
func newLs(a *command.App) *command.Command {
	c := a.Listing("List runs, the newest first")
	status := c.Flags().String("status", "", "only runs that are running, completed, failed, cancelled or stopped")
	user := c.Flags().String("user", "", "only runs on behalf of this user: a name, an id or an e-mail")
	limit := c.Flags().Int("limit", 20, "how many at the most")
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{"limit": *limit, "status": *status, "user": *user}
		return command.Ask(c.Context(), a, api.Find("/runs", q), func(w output.Printer, page run.Page) {
			header, rows := table(page.Runs, max(w.TerminalWidth(), width))
			w.Table("There are no runs.", header, rows)
		})
	}
	return c
}

// width is that of a table which is not shown on a terminal, and leastPrompt how much of a prompt says something.
const (
	width       = 80
	leastPrompt = 8
)

// table is a line for each run. Of the prompt there is what fits, also where nobody narrows the table.
func table(runs []run.Run, room int) (header []string, rows [][]string) {
	header = []string{"ID", "STATUS", "ENGINE", "BEGAN", "COST", "PROMPT"}
	rows = output.Rows(runs, func(r run.Run) []string {
		return []string{
			r.ID, string(r.Status), r.Engine, output.Since(r.OpenedAt), fmt.Sprintf("$%.2f", r.CostUSD), r.Prompt,
		}
	})
	room = prompts(header, rows, room)
	for _, row := range rows {
		row[len(row)-1] = output.Shorten(show.Text(output.Cut(row[len(row)-1], room)), room)
	}
	return header, rows
}

// prompts is how many columns are left for the last column of a table, the prompts.
func prompts(header []string, rows [][]string, room int) int {
	for i := range len(header) - 1 {
		widest := output.Width(header[i])
		for _, row := range rows {
			widest = max(widest, output.Width(row[i]))
		}
		room -= widest + output.Gap
	}
	return max(room, leastPrompt)
}

// newShow shows a run with its events.
func newShow(a *command.App) *command.Command {
	c := a.About("show RUN_ID", "Show a run and its events; --follow waits for more",
		"the id of a run, from `signalbox runs ls`")
	follow := c.Flags().Bool("follow", false, "follow the run until it is completed")
	after := c.Flags().Int64("after", 0, "only events with a greater number")
	trace := c.Flags().Bool("trace", false, "instead of events the entries of the run, and what was decided and done under it")
	c.RunE = func(c *command.Command, args []string) error {
		var r run.Run
		if err := a.Call(c.Context(), api.Get(runPath(args[0])), &r); err != nil {
			return err
		}
		if !a.JSON {
			printRun(a.Out, r)
		}
		if *trace {
			return printTrace(c.Context(), a, r.ID, *after)
		}
		return printEvents(c.Context(), a, r, *after, *follow)
	}
	return c
}

// printTrace prints what belongs to a run, in every protocol.
func printTrace(ctx context.Context, a *command.App, id string, after int64) error {
	for {
		var page ledger.EntryPage
		if err := a.Call(ctx, api.Get(fmt.Sprintf("%s/trace?after=%d&limit=1000", runPath(id), after)), &page); err != nil {
			return err
		}
		for _, e := range page.Entries {
			err := a.Show(e, func(w output.Printer) {
				w.Print("%6d  %s  %-18s %-18s %s", e.Seq, e.At.Local().Format(time.DateTime), e.Kind, e.Actor, e.Subject)
			})
			if err != nil {
				return err
			}
		}
		if len(page.Entries) == 0 {
			return nil
		}
		after = page.Next
	}
}

// printRun prints the fields of a run. Prompts may have several lines, which are
// joined.
func printRun(w output.Printer, r run.Run) {
	line := func(name, value string) { w.Field(name, strings.ReplaceAll(value, "\n", " ")) }
	line("run", r.ID)
	line("status", r.Outcome())
	line("engine", strings.TrimSpace(r.Engine+" "+r.Model))
	if r.Mode != "" {
		line("mode", string(r.Mode)+": "+r.Mode.Meaning())
	}
	if r.Sandbox {
		line("sandbox", "yes, with calls to "+strings.Join(append([]string{"its provider"}, r.Hosts...), ", "))
	}
	line("folder", r.Dir)
	line("prompt", r.Prompt)
	line("opened", output.Moment(r.OpenedAt)+" by "+r.OpenedBy)
	line("for", r.User)
	used := fmt.Sprintf("%s tokens, $%.4f", output.Thousands(r.Tokens), r.CostUSD)
	if r.Metered == run.Proxy {
		used += fmt.Sprintf(" in %s through the proxy", output.Count(int(r.Calls), "call"))
	}
	line("used", used)
	if r.Said != nil {
		line("says", fmt.Sprintf("%s tokens, $%.4f, which is not counted again", output.Thousands(r.Said.Tokens), r.Said.USD))
	}
	line("held up", r.Trouble)
	line("stop", r.Stop)
	for _, a := range r.Awaited {
		line("waits", awaitedLine(a))
		line("decide", a.Link)
	}
}

// awaitedLine says that a person is awaited, and where.
func awaitedLine(a run.Awaited) string {
	meanwhile := ""
	if a.Outlasts {
		meanwhile = "; the run goes on meanwhile"
	}
	return fmt.Sprintf("for a person since %s: %s (%s asks%s)", a.Since.Local().Format(time.TimeOnly), a.Title, a.Agent, meanwhile)
}

// printEvents prints the events of a run. While it follows a run, it waits for a server that
// goes away, and goes on after the last event it has: nothing is printed twice
// (RUN-38).
func printEvents(ctx context.Context, a *command.App, r run.Run, after int64, follow bool) error {
	e, err := engine.Find(r.Engine)
	if err != nil {
		return err
	}
	for ended := false; !ended; {
		err := readEvents(ctx, a, r.ID, &after, follow, func(line []byte, n run.Numbered, event engine.Event) {
			ended = event.Type == engine.Completed
			if a.JSON {
				_ = a.Out.JSON(bytes.TrimSuffix(line, []byte("\n")))
			} else {
				printNumbered(a.Out, e, n, event)
			}
		})
		switch {
		// Without --follow one answer is all there is.
		case !follow || ctx.Err() != nil:
			return err
		case fault.Is(err, fault.NotFound) || fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden):
			return err // which another try will not change
		case !ended:
			clock.Pause(ctx, 300*time.Millisecond)
		}
	}
	return nil
}

// printNumbered prints an event with its number, which --after takes.
func printNumbered(w output.Printer, e *engine.Engine, n run.Numbered, event engine.Event) {
	switch event.Type {
	case engine.Acted:
		w.Print("%6d  %s", n.N, actionLine(event))
	case engine.Completed:
		if event.Error != "" {
			w.Print("%s: %s", outcome(event), output.Lines(event.Error))
		}
		printOutcome(w, e, event)
	default:
	}
}

// readEvents reads events from the server, each with the line that it came in, and
// keeps after at the last one. A connection that breaks off is not an error: the caller
// asks again.
func readEvents(ctx context.Context, a *command.App, id string, after *int64, follow bool,
	fn func([]byte, run.Numbered, engine.Event),
) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	res, err := c.Do(ctx, api.Get(fmt.Sprintf("%s/events?after=%d&follow=%v", runPath(id), *after, follow)))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	// A line may have megabytes, so it is read without a limit of a scanner; the server
	// bounds events.
	in := bufio.NewReader(res.Body)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // broken off: who follows asks again from the last event
		}
		var n run.Numbered
		var event engine.Event
		// A line that is cut off has no line break and does not come here.
		if err := errors.Join(wire.UnmarshalPart(line, &n), wire.UnmarshalPart(n.Event, &event)); err != nil {
			return fault.Wrap(err, fault.Internal, "The server's answer is not that of a Signalbox.")
		}
		*after = n.N
		fn(line, n, event)
	}
}

// newCancel tells a run to stop.
func newCancel(a *command.App) *command.Command {
	c := a.About("cancel RUN_ID", "Tell a run to stop", "the id of a run, from `signalbox runs ls`")
	reason := c.Flags().String("reason", "", "why; it is recorded")
	c.RunE = func(c *command.Command, args []string) error {
		in := run.CancelRequest{Reason: *reason}
		return command.Ask(c.Context(), a, api.Post(runPath(args[0])+"/cancel", in), func(w output.Printer, r run.Run) {
			w.Print("%s is told to stop.", r.ID)
		})
	}
	return c
}
