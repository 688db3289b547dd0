package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/roster"
)

func newWorkspaces(a *command.App) *cobra.Command {
	return command.Group("workspaces", "The workspaces, each walled off from the others: list, add",
		newWorkspacesLs(a), newWorkspacesAdd(a))
}

// workspaceFlag is the workspace that something belongs to.
func workspaceFlag(c *cobra.Command) *string {
	return c.Flags().String("workspace", "", "the workspace; default when absent")
}

// onlyWorkspaceFlag is the workspace that a list is narrowed to.
func onlyWorkspaceFlag(c *cobra.Command) *string {
	return c.Flags().String("workspace", "", "only those of this workspace")
}

func newWorkspacesLs(a *command.App) *cobra.Command {
	c := a.WithJSON(&cobra.Command{Use: "ls", Short: "List the workspaces", Args: command.NoArguments()})
	c.RunE = func(c *cobra.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get("/ops/workspaces"), func(w io.Writer, all roster.WorkspaceList) {
			for _, name := range all.Workspaces {
				_, _ = fmt.Fprintln(w, name)
			}
		})
	}
	return c
}

func newWorkspacesAdd(a *command.App) *cobra.Command {
	c := a.WithJSON(&cobra.Command{
		Use: "add NAME", Short: "Add a workspace", Args: command.Exactly(1, "the name of the workspace"),
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		in := roster.NewWorkspace{Name: args[0]}
		if err := a.Call(c.Context(), api.Post("/ops/workspaces", in), nil); err != nil {
			return err
		}
		return a.Show(in, func(w io.Writer) { _, _ = fmt.Fprintf(w, "Added workspace %s.\n", in.Name) })
	}
	return c
}

// remove removes what is at the path, and says so.
func remove(c *cobra.Command, a *command.App, path, done string) error {
	if err := a.Call(c.Context(), api.Delete(path), nil); err != nil {
		return err
	}
	a.Print("%s", done)
	return nil
}
