package rules

import (
	"cmp"
	"fmt"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/rulebook"
)

// layerFlags say which layer of the policy a command is about: the server's, that of a workspace, or that of a user.
type layerFlags struct{ workspace, user *string }

func addLayerFlags(c *command.Command) layerFlags {
	return layerFlags{
		c.Flags().String("workspace", "", "the layer of this workspace; the server's when absent, or that of the only "+
			"workspace that your token is for"),
		c.Flags().String("user", "", "the layer of this user of the workspace"),
	}
}

// at is a path of the API for the layer.
func (l layerFlags) at(path string, q api.Query) string {
	all := api.Query{"workspace": *l.workspace, "user": *l.user}
	for name, value := range q {
		all[name] = value
	}
	return all.At(path)
}

// of is the layer as a part of a sentence after a version: "" for the server's, or that of the token's workspace.
func (l layerFlags) of() string {
	switch {
	case *l.user != "":
		return fmt.Sprintf(" for the user %s of workspace %s", *l.user, cmp.Or(*l.workspace, "default"))
	case *l.workspace != "":
		return " for workspace " + *l.workspace
	}
	return ""
}

// newLayers lists the layers that are in force.
func newLayers(a *command.App) *command.Command {
	c := a.Listing("List the layers of the policy: the server's, those of workspaces and of users")
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get("/ops/policy/layers"), func(w output.Printer, all rulebook.LayerList) {
			w.Table("There are no layers.", []string{"WORKSPACE", "USER", "VERSION", "RULES", "APPLIED", "BY"},
				output.Rows(all.Layers, func(l rulebook.AppliedLayer) []string {
					rules := fmt.Sprint(l.Rules)
					if l.Broken {
						rules = "cannot be read"
					}
					return []string{
						cmp.Or(l.Workspace, "-"), cmp.Or(l.Name, "-"), fmt.Sprint(l.Version.Number), rules,
						output.Since(l.Version.AppliedAt), l.Version.AppliedBy,
					}
				}))
		})
	}
	return c
}
