package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/server"
)

func newStatus(a *command.App) *cobra.Command {
	c := a.WithJSON(&cobra.Command{Use: "status", Short: "Tell how the server is", Args: command.NoArguments()})
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := a.Client()
		if err != nil {
			return err
		}
		var s server.Status
		if err := cl.Call(c.Context(), api.Get("/ops/status"), &s); err != nil {
			return err
		}
		if err := a.Show(s, func(w io.Writer) { printStatus(w, cl.Base, s) }); err != nil {
			return err
		}
		if !s.Ready {
			return fault.New(fault.StoreUnavailable, "The server runs, and is not well.")
		}
		return nil
	}
	return c
}

func printStatus(w io.Writer, base string, s server.Status) {
	state := "ready"
	if !s.Ready {
		state = "NOT READY: " + s.Problem
	}
	signs := ""
	if !s.Signs {
		signs = " (this node does not sign)"
	}
	_, _ = fmt.Fprintf(w, "server      %s, version %s, %s\n", base, s.Version, state)
	_, _ = fmt.Fprintf(w, "started     %s\n", output.Since(s.StartedAt))
	_, _ = fmt.Fprintf(w, "database    %s\n", s.Database)
	_, _ = fmt.Fprintf(w, "ledger      %s entries, %s under a signed checkpoint%s\n",
		output.Thousands(s.Entries), output.Thousands(s.Checkpoint), signs)
	_, _ = fmt.Fprintf(w, "origin      %s\n", s.Origin)
	_, _ = fmt.Fprintf(w, "memory      %d MB\n", s.Memory>>20)
}

func newVersion(a *command.App) *cobra.Command {
	c := a.WithJSON(&cobra.Command{Use: "version", Short: "Print the version", Args: command.NoArguments()})
	c.RunE = func(*cobra.Command, []string) error {
		b := server.ReadBuild()
		return a.Show(b, func(w io.Writer) {
			_, _ = fmt.Fprintln(w, strings.Join(strings.Fields("signalbox "+b.Version+" "+b.Commit+" "+b.Go+" "+b.System), " "))
		})
	}
	return c
}
