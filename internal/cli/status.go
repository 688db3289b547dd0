package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/server"
)

func newStatus(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "status", Short: "Tell how the server is", Args: exactly(0, "no arguments")})
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := a.client()
		if err != nil {
			return err
		}
		var s server.Status
		if err := cl.call(c.Context(), "GET", "/ops/status", nil, &s); err != nil {
			return err
		}
		if err := a.show(s, func(w io.Writer) { printStatus(w, cl.base, s) }); err != nil {
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
	_, _ = fmt.Fprintf(w, "started     %s\n", since(s.StartedAt))
	_, _ = fmt.Fprintf(w, "database    %s\n", s.Database)
	_, _ = fmt.Fprintf(w, "ledger      %s entries, %s under a signed checkpoint%s\n", thousands(s.Entries), thousands(s.Checkpoint), signs)
	_, _ = fmt.Fprintf(w, "origin      %s\n", s.Origin)
	_, _ = fmt.Fprintf(w, "memory      %d MB\n", s.Memory>>20)
}

func newVersion(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "version", Short: "Print the version", Args: exactly(0, "no arguments")})
	c.RunE = func(*cobra.Command, []string) error {
		b := server.ReadBuild()
		return a.show(b, func(w io.Writer) {
			_, _ = fmt.Fprintln(w, strings.Join(strings.Fields("signalbox "+b.Version+" "+b.Commit+" "+b.Go+" "+b.System), " "))
		})
	}
	return c
}
