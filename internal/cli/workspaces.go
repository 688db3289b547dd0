package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"signalbox/internal/roster"
)

func newWorkspaces(a *app) *cobra.Command {
	return group("workspaces", "The workspaces, each walled off from the others: list, add", newWorkspacesLs(a), newWorkspacesAdd(a))
}

func newWorkspacesLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls", Short: "List the workspaces", Args: exactly(0, "no arguments")})
	c.RunE = func(c *cobra.Command, _ []string) error {
		var all roster.WorkspaceList
		if err := a.call(c.Context(), "GET", "/ops/workspaces", nil, &all); err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			for _, name := range all.Workspaces {
				_, _ = fmt.Fprintln(w, name)
			}
		})
	}
	return c
}

func newWorkspacesAdd(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "add NAME", Short: "Add a workspace", Args: exactly(1, "the name of the workspace")})
	c.RunE = func(c *cobra.Command, args []string) error {
		in := roster.NewWorkspace{Name: args[0]}
		if err := a.call(c.Context(), "POST", "/ops/workspaces", in, nil); err != nil {
			return err
		}
		return a.show(in, func(w io.Writer) { _, _ = fmt.Fprintf(w, "Added workspace %s.\n", in.Name) })
	}
	return c
}
