package cli

import (
	"fmt"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/counter"
	"signalbox/internal/fault"
	"signalbox/internal/server"
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
	w.Print("started     %s", output.Since(s.StartedAt))
	w.Print("database    %s", s.Database)
	w.Print("ledger      %s entries, %s under a signed checkpoint%s",
		output.Thousands(s.Entries), output.Thousands(s.Checkpoint), signs)
	w.Print("origin      %s", s.Origin)
	w.Print("memory      %d MB", s.Memory>>20)
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
		Use: "counters", Short: "Runs, tokens, cost and decisions, by deck, agent or day", Args: command.NoArguments(),
		Example: `  signalbox counters
  signalbox counters --by day --project job-search --from 2026-11-01 --to 2026-11-15`,
	})
	by := c.Flags().String("by", "deck", "deck, agent or day")
	// The flags have the names of the query parameters. One that is not given is left
	// out.
	filters := map[string]*string{}
	for name, meaning := range map[string]string{
		"workspace": "only this workspace", "project": "only this deck", "agent": "only this agent, by name or id",
		"from": "the first day (UTC), such as 2026-11-01; 30 days up to the last when absent",
		"to":   "the last day; today when absent",
	} {
		filters[name] = c.Flags().String(name, "", meaning)
	}
	c.RunE = func(c *command.Command, _ []string) error {
		parts, known := countersBy[*by]
		if !known {
			return command.Usage("--by should be deck, agent or day, and is %q.", *by)
		}
		q := api.Query{}
		for name, value := range filters {
			q[name] = *value
		}
		return command.Ask(c.Context(), a, api.Find("/ops/counters", q), func(w output.Printer, r counter.Report) {
			// The total is the server's. It is not the sum of the rows: a median cannot
			// be added up.
			rows := append(parts(r), countersRow("total", r.Total))
			w.Table("", []string{
				map[string]string{"deck": "DECK", "agent": "AGENT", "day": "DAY"}[*by],
				"DONE", "FAILED", "INTERRUPTED", "TOKENS IN", "OUT", "COST", "GATES", "APPROVED", "REJECTED", "EXPIRED", "WAITING",
				"MEDIAN",
			}, rows)
			if r.OldestWaiting != nil {
				w.Print("The oldest gate was opened %s.", output.Since(*r.OldestWaiting))
			}
		})
	}
	return c
}

// countersBy turns a report into rows, for each value of --by.
var countersBy = map[string]func(counter.Report) [][]string{
	"deck": func(r counter.Report) (rows [][]string) {
		for _, d := range r.Decks {
			rows = append(rows, countersRow(d.Workspace+"/"+d.Name, d.Counts))
		}
		return rows
	},
	"agent": func(r counter.Report) (rows [][]string) {
		for _, g := range r.Agents {
			name := g.Name
			if name == "" {
				name = g.ID // it is gone
			}
			rows = append(rows, countersRow(g.Workspace+"/"+name, g.Counts))
		}
		return rows
	},
	"day": func(r counter.Report) (rows [][]string) {
		for _, d := range r.Days {
			rows = append(rows, countersRow(d.Day, d.Counts))
		}
		return rows
	},
}

// countersRow prints one sum. COST is in US dollars as agents reported it, which is an
// estimate. MEDIAN is how long a gate waited for its decision, "-" if none was decided.
func countersRow(name string, s counter.Sum) []string {
	median := "-"
	if s.MedianSeconds != nil {
		median = time.Duration(*s.MedianSeconds * float64(time.Second)).Round(time.Second).String()
	}
	row := []string{name}
	for _, n := range []int64{s.Runs.Completed, s.Runs.Failed, s.Runs.Interrupted, s.InputTokens, s.OutputTokens} {
		row = append(row, output.Thousands(n))
	}
	row = append(row, fmt.Sprintf("$%.2f", s.CostUSD))
	for _, n := range []int64{s.Gates.Opened, s.Gates.Approved, s.Gates.Rejected, s.Gates.Expired, s.Gates.Waiting} {
		row = append(row, output.Thousands(n))
	}
	return append(row, median)
}
