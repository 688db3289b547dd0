package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/counter"
	"signalbox/internal/fault"
	"signalbox/internal/server"
	"signalbox/internal/show"
)

// newStatus shows the state of the server. The exit code is 0 only if it is ready, so
// the command can serve as a health check where /readyz cannot be reached.
func newStatus(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{Use: "status", Short: "Show the state of the server", Args: command.NoArguments()})
	c.RunE = func(c *command.Command, _ []string) error {
		cl, err := a.Client()
		if err != nil {
			return err
		}
		var s server.Status
		if err := cl.Call(c.Context(), api.Get("/ops/status"), &s); err != nil {
			return err
		}
		if err := a.Show(s, func(w output.Printer) { printStatus(w, cl.Base, s) }); err != nil {
			return err
		}
		if !s.Ready {
			return fault.New(fault.StoreUnavailable, "The server is running, but it is not ready.")
		}
		return nil
	}
	return c
}

// printStatus prints the state. Entries that are not under a checkpoint yet are normal
// for half a second; a gap that stays means that no node signs.
func printStatus(w output.Printer, base string, s server.Status) {
	state := "ready"
	if !s.Ready {
		state = "NOT READY: " + s.Problem
	}
	signs := ""
	if !s.Signs {
		signs = " (this node does not sign)"
	}
	w.Print("server      %s, version %s, %s", base, s.Version, state)
	if text := reloadProblem(&s); text != "" {
		w.Print("settings    %s", text)
	}
	w.Print("started     %s", output.Since(s.StartedAt))
	w.Print("database    %s", s.Database)
	w.Print("ledger      %s entries, %s under a signed checkpoint%s",
		output.Thousands(s.Entries), output.Thousands(s.Checkpoint), signs)
	w.Print("audit       %s", auditLine(s.Audit))
	w.Print("origin      %s", s.Origin)
	for _, one := range s.Exports {
		text, _ := one.Text(time.Now())
		w.Print("export      %s %s", one.Name, text)
	}
	w.Print("memory      %d MB", s.Memory>>20)
	if len(s.Witnesses) > 0 {
		w.Print("witnessed   %s entries", output.Thousands(s.Witnessed))
	}
	for _, one := range s.Witnesses {
		if one.Problem != "" {
			w.Print("WITNESS     %s: %s", one.Name, one.Problem)
		}
	}
	if s.Clock.Problem != "" {
		w.Print("CLOCK       %s", s.Clock.Problem)
	}
	waits := output.GatesWait(int(s.Now.GatesWaiting))
	if at := s.Now.OldestSince; at != nil {
		waits += ", the oldest opened " + output.Since(*at)
	}
	w.Print("now         %s; %s of %s agents online; %s", waits, output.Thousands(s.Now.AgentsOnline),
		output.Thousands(s.Now.Agents), output.Count(int(s.Now.RunsRunning), "run")+" in progress")
	w.Print("today       $%.2f, %s tokens, %s, %s blocked", s.Now.Today.CostUSD,
		output.Thousands(s.Now.Today.InputTokens+s.Now.Today.OutputTokens),
		output.Count(int(s.Now.Today.Calls), "model call"), output.Thousands(s.Now.Today.Blocks))
	if s.Backup != nil {
		w.Print("backups     %s", s.Backup.Text())
	}
	if more := s.Now.AlarmsOpen - int64(len(s.Alarms)); more > 0 {
		w.Print("ALARMS      %s are open; the newest of them are:", output.Thousands(s.Now.AlarmsOpen))
	}
	for _, one := range s.Alarms {
		w.Print("ALARM       %s `signalbox alarms ls` has more.", one.Title)
	}
}

// newVersion prints the version of this program, which is not necessarily the server's;
// see status.
func newVersion(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{Use: "version", Short: "Print the version", Args: command.NoArguments()})
	c.RunE = func(*command.Command, []string) error {
		b := server.ReadBuild()
		return a.Show(b, func(w output.Printer) {
			w.Print("%s", strings.Join(strings.Fields("signalbox "+b.Version+" "+b.Commit+" "+b.Go+" "+b.System), " "))
		})
	}
	return c
}

// newCounters prints the report of the counters. The server adds up after the fact, by
// following the ledger, so numbers may be behind by a moment. Days are days of UTC.
func newCounters(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "counters", Short: "Runs, calls, tokens, cost and decisions, by deck, agent, model, protocol, rule, day or hour",
		Args: command.NoArguments(),
		Example: `  signalbox counters
  signalbox counters --by model --from 2026-11-15
  signalbox counters --by day --project job-search --from 2026-11-01 --to 2026-11-15
  signalbox counters --by hour --agent bot --from 2026-11-15T08 --to 2026-11-15T17
  signalbox counters --by rule --csv > rules.csv`,
	})
	by := c.Flags().String("by", counter.ByDeck, strings.Join(counter.Kinds, ", "))
	csv := c.Flags().Bool("csv", false, "print the parts as CSV, with whole numbers and exact dollars")
	// The flags have the names of the query parameters. One that is not given is left
	// out.
	filters := map[string]*string{}
	for name, meaning := range map[string]string{
		"workspace": "only this workspace", "project": "only this deck", "agent": "only this agent, by name or id",
		"from": "the first day (UTC), such as 2026-11-01, or hour, such as 2026-11-01T13; 30 days up to the last when absent",
		"to":   "the last day or hour; today when absent",
	} {
		filters[name] = c.Flags().String(name, "", meaning)
	}
	c.RunE = func(c *command.Command, _ []string) error {
		parts, known := countersBy[*by]
		if !known {
			return command.Usage("--by should be one of %s, and is %q.", strings.Join(counter.Kinds, ", "), *by)
		}
		q := api.Query{}
		// With --json everything is printed, unless --by is given.
		if c.Flags().Changed("by") || !a.JSON {
			q["by"] = *by
		}
		for name, value := range filters {
			q[name] = *value
		}
		return command.Ask(c.Context(), a, api.Find("/ops/counters", q), func(w output.Printer, r counter.Report) {
			if *csv {
				printCSV(w, *by, parts(r))
				return
			}
			// The total is the server's. It is not the sum of the rows: a median cannot
			// be added up.
			var rows [][]string
			for _, p := range append(parts(r), countedPart{"total", r.Total, true}) {
				rows = append(rows, p.row())
			}
			w.Table("", []string{
				strings.ToUpper(*by), "COMPLETED", "FAILED", "CANCELLED", "STOPPED", "INTERRUPTED", "CALLS", "TOKENS IN",
				"OUT", "COST", "BLOCKED", "GATES", "APPROVED", "REJECTED", "EXPIRED", "WAITING", "MEDIAN",
			}, rows)
			if r.OldestWaiting != nil {
				w.Print("The oldest gate was opened %s.", output.Since(*r.OldestWaiting))
			}
		})
	}
	return c
}

// countedPart is a part of a report with its name. waits says whether it is said how many gates wait.
type countedPart struct {
	name  string
	sum   counter.Sum
	waits bool
}

// countersBy are the parts of a report, for each value of --by.
var countersBy = map[string]func(counter.Report) []countedPart{
	counter.ByDeck: func(r counter.Report) (parts []countedPart) {
		for _, d := range r.Decks {
			parts = append(parts, countedPart{d.Workspace + "/" + d.Name, d.Counts, true})
		}
		return parts
	},
	counter.ByAgent: func(r counter.Report) (parts []countedPart) {
		for _, g := range r.Agents {
			name := g.Workspace + "/" + cmp.Or(g.Name, g.ID, "-") // it is gone, or a run is nobody's
			parts = append(parts, countedPart{strings.TrimPrefix(name, "/"), g.Counts, true})
		}
		return parts
	},
	counter.ByModel:    func(r counter.Report) []countedPart { return namedParts(r.Models) },
	counter.ByProtocol: func(r counter.Report) []countedPart { return namedParts(r.Protocols) },
	counter.ByRule:     func(r counter.Report) []countedPart { return namedParts(r.Rules) },
	counter.ByDay: func(r counter.Report) (parts []countedPart) {
		for _, d := range r.Days {
			parts = append(parts, countedPart{d.Day, d.Counts, false})
		}
		return parts
	},
	counter.ByHour: func(r counter.Report) (parts []countedPart) {
		for _, h := range r.Hours {
			parts = append(parts, countedPart{h.Hour, h.Counts, false})
		}
		return parts
	},
}

// namedParts are those of models, protocols and rules. What has none has a dash.
func namedParts(all []counter.NameSum) (parts []countedPart) {
	for _, one := range all {
		parts = append(parts, countedPart{cmp.Or(one.Name, "-"), one.Counts, false})
	}
	return parts
}

// row prints one part. COST is in US dollars, by what agents reported and what calls took by the price table. MEDIAN is
// how long a gate waited for its decision, "-" if none was decided.
func (p countedPart) row() []string {
	s, row := p.sum, []string{p.name}
	for _, n := range []int64{
		s.Runs.Completed, s.Runs.Failed, s.Runs.Cancelled, s.Runs.Stopped, s.Runs.Interrupted, s.Calls, s.InputTokens,
		s.OutputTokens,
	} {
		row = append(row, output.Thousands(n))
	}
	row = append(row, fmt.Sprintf("$%.2f", s.CostUSD), output.Thousands(s.Blocks))
	for _, n := range []int64{s.Gates.Opened, s.Gates.Approved, s.Gates.Rejected, s.Gates.Expired} {
		row = append(row, output.Thousands(n))
	}
	waiting, median := "-", "-"
	if p.waits {
		waiting = output.Thousands(s.Gates.Waiting)
	}
	if s.MedianSeconds != nil {
		median = time.Duration(*s.MedianSeconds * float64(time.Second)).Round(time.Second).String()
	}
	return append(row, waiting, median)
}

// printCSV prints parts for spreadsheets and programs. A name that a program of this kind would take for a formula
// has an apostrophe before it.
func printCSV(w output.Printer, by string, parts []countedPart) {
	line := func(cells ...string) {
		for i, text := range cells {
			text = show.Text(text)
			if text != "" && strings.ContainsRune("=+-@", rune(text[0])) && len(text) > 1 {
				text = "'" + text
			}
			if strings.ContainsAny(text, ",\"") {
				text = `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
			}
			cells[i] = text
		}
		w.Print("%s", strings.Join(cells, ","))
	}
	line(by, "runs_completed", "runs_failed", "runs_interrupted", "runs_cancelled", "runs_stopped", "calls", "estimated_calls",
		"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "blocks", "gates_opened",
		"gates_approved", "gates_rejected", "gates_expired", "gates_withdrawn")
	for _, p := range parts {
		s, cells := p.sum, []string{p.name}
		for _, n := range []int64{
			s.Runs.Completed, s.Runs.Failed, s.Runs.Interrupted, s.Runs.Cancelled, s.Runs.Stopped, s.Calls, s.EstimatedCalls,
			s.InputTokens, s.OutputTokens,
			s.CacheReadTokens, s.CacheWriteTokens,
		} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		cells = append(cells, strconv.FormatFloat(s.CostUSD, 'f', 9, 64))
		for _, n := range []int64{
			s.Blocks, s.Gates.Opened, s.Gates.Approved, s.Gates.Rejected, s.Gates.Expired, s.Gates.Withdrawn,
		} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		line(cells...)
	}
}
