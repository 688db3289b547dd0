package cli

import (
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
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
