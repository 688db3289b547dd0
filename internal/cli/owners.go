package cli

import (
	"net/url"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/roster"
)

// newOwners is the group `owners`. An owner can register agents with a key, and can do
// nothing else: no gate, no ledger, no other owner's agents.
func newOwners(a *command.App) *command.Command {
	return command.Group("owners", "The people and teams who may register agents: list, add, remove, new key",
		newOwnersLs(a), newOwnersAdd(a), newOwnersRm(a), newOwnersKey(a))
}

// newOwnersLs lists owners; there are few, so the API has no pages for them.
func newOwnersLs(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{Use: "ls", Short: "List the owners", Args: command.NoArguments()})
	workspace := onlyWorkspaceFlag(c)
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get(api.InWorkspace("/ops/owners", *workspace)),
			func(w output.Printer, all roster.OwnerList) {
				none := "There are no owners. Add one with `signalbox owners add NAME`."
				if *workspace != "" {
					none = "There are no owners in workspace " + *workspace + "."
				}
				w.Table(none, []string{"NAME", "WORKSPACE", "ADDED"}, output.Rows(all.Owners, func(o roster.Owner) []string {
					return []string{o.Name, o.Workspace, output.Since(o.AddedAt)}
				}))
			})
	}
	return c
}

// newOwnersAdd adds an owner to a workspace, in which all agents of this owner will be.
func newOwnersAdd(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "add NAME", Short: "Add an owner and print the key, shown only once", Args: command.Exactly(1, ownerArgument),
	})
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.NewOwner{Name: args[0], Workspace: *workspace}
		return command.Ask(c.Context(), a, api.Post("/ops/owners", in), func(w output.Printer, added roster.AddedOwner) {
			w.Print("%s\nThis is the key with which %s registers agents in workspace %s. It is shown only once.",
				added.Key, added.Owner.Name, added.Owner.Workspace)
		})
	}
	return c
}

// ownerArgument completes the usage error of every command that takes a name.
const ownerArgument = "the name of the owner"

// ownerPath is the path of an owner in the API, without the workspace, which the same
// name needs where it exists twice.
func ownerPath(name string) string { return "/ops/owners/" + url.PathEscape(name) }

// newOwnersRm removes an owner. The agents stay and keep working: removing a person
// should not stop production. Use `agents rm` for those that should go.
func newOwnersRm(a *command.App) *command.Command {
	c := &command.Command{
		Use: "rm NAME", Short: "Remove an owner and their keys; their agents stay", Args: command.Exactly(1, ownerArgument),
	}
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return remove(c, a, api.InWorkspace(ownerPath(args[0]), *workspace),
			"Removed "+args[0]+" and their keys. Their agents stay.")
	}
	return c
}

// newOwnersKey issues one more key. The old ones keep working until they are revoked.
func newOwnersKey(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "key NAME", Short: "Issue another key for an owner; it is shown only once",
		Args: command.Exactly(1, ownerArgument),
	})
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return issue(c, a, api.Post(api.InWorkspace(ownerPath(args[0])+"/key", *workspace), nil), "")
	}
	return c
}
