package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
)

func newRunLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls", Short: "List runs, the newest first", Args: exactly(0, "no arguments")})
	status := c.Flags().String("status", "", "running, done or failed; all when absent")
	limit := c.Flags().Int("limit", 20, "how many at the most")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := url.Values{"limit": {fmt.Sprint(*limit)}, "status": {*status}}
		var page run.Page
		if err := a.call(c.Context(), "GET", "/runs?"+q.Encode(), nil, &page); err != nil {
			return err
		}
		return a.show(page, func(w io.Writer) {
			var rows [][]string
			for _, r := range page.Runs {
				prompt, _, _ := strings.Cut(r.Prompt, "\n")
				if cut := []rune(prompt); len(cut) > 60 {
					prompt = string(cut[:60]) + "…"
				}
				rows = append(rows, []string{r.ID, string(r.Status), r.Engine, since(r.OpenedAt), thousands(r.Tokens), fmt.Sprintf("$%.4f", r.CostUSD), prompt})
			}
			table(w, "There are no runs.", []string{"ID", "STATUS", "ENGINE", "BEGAN", "TOKENS", "COST", "PROMPT"}, rows)
		})
	}
	return c
}

func newRunShow(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "show RUN_ID", Short: "Show a run and what it did, and follow it while it goes on",
		Args: exactly(1, "the id of a run, from `signalbox run ls`"),
	})
	follow := c.Flags().Bool("follow", false, "go on until the run is completed")
	after := c.Flags().Int64("after", 0, "only events with a greater number")
	c.RunE = func(c *cobra.Command, args []string) error {
		var r run.Run
		if err := a.call(c.Context(), "GET", "/runs/"+url.PathEscape(args[0]), nil, &r); err != nil {
			return err
		}
		if !a.json {
			printRun(a.out, r)
		}
		return a.retell(c.Context(), r, *after, *follow)
	}
	return c
}

func printRun(w io.Writer, r run.Run) {
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%-10s %s\n", name, printable(strings.ReplaceAll(value, "\n", " ")))
		}
	}
	line("run", r.ID)
	line("status", string(r.Status))
	line("engine", strings.TrimSpace(r.Engine+" "+r.Model))
	line("folder", r.Dir)
	line("prompt", r.Prompt)
	line("opened", r.OpenedAt.Local().Format(time.DateTime)+" by "+r.OpenedBy)
	line("used", fmt.Sprintf("%s tokens, $%.4f", thousands(r.Tokens), r.CostUSD))
	line("stop", r.Stop)
}

// retell prints the events of a run. A server that goes away while it is followed is
// waited for.
func (a *app) retell(ctx context.Context, r run.Run, after int64, follow bool) error {
	e, err := engine.Find(r.Engine)
	if err != nil {
		return err
	}
	for ended := false; !ended; {
		err := a.readEvents(ctx, r.ID, &after, follow, func(n run.Numbered, event engine.Event) {
			ended = event.Type == engine.Completed
			a.printNumbered(e, n, event)
		})
		switch {
		case !follow || ctx.Err() != nil:
			return err
		case fault.Is(err, fault.NotFound) || fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden):
			return err // which another try will not change
		case !ended:
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (a *app) printNumbered(e *engine.Engine, n run.Numbered, event engine.Event) {
	if a.json {
		text, _ := json.Marshal(n)
		_, _ = fmt.Fprintf(a.out, "%s\n", text)
		return
	}
	switch event.Type {
	case engine.Acted:
		_, _ = fmt.Fprintf(a.out, "%6d  %s\n", n.N, actionLine(event))
	case engine.Completed:
		if event.Error != "" {
			_, _ = fmt.Fprintf(a.out, "failed: %s\n", printableLines(event.Error))
		}
		printOutcome(a.out, e, event)
	default:
	}
}

// readEvents reads events from the server and keeps after at the last one.
func (a *app) readEvents(ctx context.Context, id string, after *int64, follow bool, fn func(run.Numbered, engine.Event)) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	res, err := c.do(ctx, http.MethodGet, fmt.Sprintf("/runs/%s/events?after=%d&follow=%v", url.PathEscape(id), *after, follow), nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewReader(res.Body)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // broken off: who follows asks again from the last event
		}
		var n run.Numbered
		var event engine.Event
		if err := errors.Join(json.Unmarshal(line, &n), json.Unmarshal(n.Event, &event)); err != nil {
			return fault.Wrap(err, fault.Internal, "The server's answer is not what a Signalbox sends.")
		}
		*after = n.N
		fn(n, event)
	}
}

func newRunCancel(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "cancel RUN_ID", Short: "Tell a run to stop", Args: exactly(1, "the id of a run, from `signalbox run ls`")})
	reason := c.Flags().String("reason", "", "why; it is recorded")
	c.RunE = func(c *cobra.Command, args []string) error {
		var r run.Run
		if err := a.call(c.Context(), "POST", "/runs/"+url.PathEscape(args[0])+"/cancel", run.CancelRequest{Reason: *reason}, &r); err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%s is told to stop.\n", r.ID) })
	}
	return c
}

func newRunTranslate(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "translate --engine NAME", Short: "Turn what an agent CLI wrote, on standard input, into events on standard output",
		Example: "  amp --stream-json -x < prompt.txt | signalbox run translate --engine amp",
		Args:    exactly(0, "no arguments: the stream is standard input"),
	}
	var name, dir, resume string
	var job engine.Job
	c.Flags().StringVar(&name, "engine", "", "the engine: "+strings.Join(engine.Names(), ", "))
	c.Flags().StringVar(&dir, "cwd", "", "the folder that titles are relative to; the current one when absent")
	c.Flags().StringVar(&resume, "resume", "", "the session that the run was to go on with")
	c.Flags().StringVar(&job.Settings.Model, "model", "", "the model that was configured")
	c.Flags().StringVar(&job.Settings.Mode, "mode", "", "the mode that was configured")
	c.RunE = func(*cobra.Command, []string) error {
		e, err := engine.Find(name)
		if err != nil {
			return usage("%s", fault.From(err).Message)
		}
		if job.Dir = dir; dir == "" {
			job.Dir, _ = os.Getwd()
		}
		job.PID = os.Getpid()
		if resume != "" {
			if job.Resume, err = e.ReadResume(resume); err != nil {
				return usage("%s", fault.From(err).Message)
			}
		}
		return translate(a.in, a.out, e, job)
	}
	return c
}

// translate writes the events of a stream.
func translate(in io.Reader, w io.Writer, e *engine.Engine, job engine.Job) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var line []byte
	var failed error
	s := e.NewStream(job, func(event engine.Event) {
		var err error
		if line, err = event.Line(line[:0]); err == nil {
			_, err = out.Write(line)
		}
		failed = errors.Join(failed, err)
	})
	lines := engine.NewLines(in)
	for failed == nil {
		text, tooLong, err := lines.Next()
		if err != nil {
			break
		}
		if tooLong {
			s.TooLong()
		} else {
			s.Line(text)
		}
		if !lines.Buffered() { // whoever reads is not kept waiting
			failed = errors.Join(failed, out.Flush())
		}
	}
	s.Finish(engine.Exit{})
	return errors.Join(failed, out.Flush())
}
