package cli

import (
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/roster"
)

// newWorkspaces is the group `workspaces`. Workspaces cannot be removed: entries in the
// ledger belong to them.
func newWorkspaces(a *command.App) *command.Command {
	return command.Group("workspaces", "The workspaces, each walled off from the others: list, add",
		newWorkspacesLs(a), newWorkspacesAdd(a))
}

// workspaceFlag is --workspace for commands that name one thing. Empty means the
// workspace "default", which every server has.
func workspaceFlag(c *command.Command) *string {
	return c.Flags().String("workspace", "", "the workspace; default when absent")
}

// onlyWorkspaceFlag is --workspace for lists. Empty means every workspace that the
// operator may see. It is a function of its own because the same flag has another
// default here.
func onlyWorkspaceFlag(c *command.Command) *string {
	return c.Flags().String("workspace", "", "only those of this workspace")
}

// newWorkspacesLs prints bare names, one per line, for use in scripts.
func newWorkspacesLs(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{Use: "ls", Short: "List the workspaces", Args: command.NoArguments()})
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get("/ops/workspaces"), func(w output.Printer, all roster.WorkspaceList) {
			for _, name := range all.Workspaces {
				w.Print("%s", name)
			}
		})
	}
	return c
}

// newWorkspacesAdd adds a workspace. Only operators who are not confined to a workspace
// can do that.
func newWorkspacesAdd(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "add NAME", Short: "Add a workspace", Args: command.Exactly(1, "the name of the workspace"),
	})
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.NewWorkspace{Name: args[0]}
		if err := a.Call(c.Context(), api.Post("/ops/workspaces", in), nil); err != nil {
			return err
		}
		return a.Show(in, func(w output.Printer) { w.Print("Added workspace %s.", in.Name) })
	}
	return c
}

// remove deletes what is at the path and prints done. The API answers without a body, so
// there is nothing to show as JSON.
func remove(c *command.Command, a *command.App, path, done string) error {
	if err := a.Call(c.Context(), api.Delete(path), nil); err != nil {
		return err
	}
	a.Out.Print("%s", done)
	return nil
}
