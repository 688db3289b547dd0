package cli

import (
	"cmp"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/roster"
	"signalbox/internal/server"
)

// operatorArgument completes the usage error of every command that takes a name.
const operatorArgument = "the name of the operator"

// operatorPath is the path of an operator in the API. Names of operators are unique on a
// server, so it needs no workspace.
func operatorPath(name string) string { return api.Path("/ops/operators/{}", name) }

// newOperatorsLs lists operators. WORKSPACE is the one they are confined to, or "all".
func newOperatorsLs(a *command.App) *command.Command {
	c := a.Listing("List the operators")
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get("/ops/operators"), func(w output.Printer, all roster.OperatorList) {
			rows := output.Rows(all.Operators, func(p roster.Person) []string {
				return []string{p.Name, string(p.Role), cmp.Or(p.Workspace, "all"), contacts(p), output.Since(p.AddedAt)}
			})
			w.Table("There are no operators.", []string{"NAME", "ROLE", "WORKSPACE", "CONTACTS", "ADDED"}, rows)
		})
	}
	return c
}

// newOperatorsAdd adds an operator. The token is printed once; the server keeps its
// hash. The workspace can only be chosen here: nobody is moved between workspaces later.
func newOperatorsAdd(a *command.App) *command.Command {
	c := a.About("add NAME", "Add an operator and print the token, shown only once", operatorArgument)
	workspace := c.Flags().String("workspace", "", "the workspace they are confined to; every workspace when absent")
	role := c.Flags().String("role", string(roster.Operator), "what they may do: "+strings.Join(roster.Roles, ", "))
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.NewOperator{Name: args[0], Role: *role, Workspace: *workspace}
		return command.Ask(c.Context(), a, api.Post("/ops/operators", in),
			func(w output.Printer, added roster.AddedOperator) {
				w.Print("%s\nThis is the token of %s (%s). It is shown only once.", added.Token, args[0], *role)
			})
	}
	return c
}

// contacts lists the ids under which channels know an operator, in a fixed order of
// channels.
func contacts(p roster.Person) string {
	var all []string
	for _, channel := range roster.ContactChannels() {
		if contact := p.Contacts[channel]; contact != "" {
			all = append(all, channel+":"+contact)
		}
	}
	return cmp.Or(strings.Join(all, " "), "-")
}

// newOperatorsSet sets contacts. A contact is what makes a button in a chat count as
// somebody's vote, so it has to be the id that the service vouches for, not a display
// name. Two operators cannot have the same one.
func newOperatorsSet(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "set NAME", Short: "Set the ids under which chat channels and e-mail know an operator",
		Long: `Set the ids under which chat channels and e-mail know an operator. Whoever presses a
button in a channel votes as the operator with that id. Ids without a flag stay as they
are; an empty one is removed.`,
		Example: "  signalbox operators set ann --slack U024BE7LH --telegram 4711",
		Args:    command.Exactly(1, operatorArgument),
	})
	given := map[string]*string{
		"slack":    c.Flags().String("slack", "", "the member id in Slack, such as U024BE7LH"),
		"telegram": c.Flags().String("telegram", "", "the user's number in Telegram, such as 4711"),
		"email":    c.Flags().String("email", "", "the e-mail address"),
	}
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.OperatorChange{Contacts: map[string]string{}}
		for channel, contact := range given {
			if c.Flags().Changed(channel) {
				in.Contacts[channel] = *contact
			}
		}
		if len(in.Contacts) == 0 {
			return command.Usage(
				"Name something to change, for example `signalbox operators set %s --slack U024BE7LH`.", args[0])
		}
		return command.Ask(c.Context(), a, api.Patch(operatorPath(args[0]), in), func(w output.Printer, p roster.Person) {
			w.Print("%s: %s", p.Name, contacts(p))
		})
	}
	return c
}

// newOperatorsRm removes an operator. Their tokens stop working. Votes that were cast
// stay counted, and the name stays in the ledger. The server refuses to remove the last
// admin.
func newOperatorsRm(a *command.App) *command.Command {
	return &command.Command{
		Use: "rm NAME", Short: "Remove an operator and their tokens", Args: command.Exactly(1, operatorArgument),
		RunE: func(c *command.Command, args []string) error {
			return remove(c, a, operatorPath(args[0]), "Removed "+args[0]+" and their tokens.")
		},
	}
}

// newOperatorsToken issues one more token, for a second machine or in place of a lost
// one. The old ones keep working; `keys ls` shows them and `keys revoke` ends them.
func newOperatorsToken(a *command.App) *command.Command {
	c := a.About("token NAME", "Issue another token for an operator; it is shown only once", operatorArgument)
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Post(operatorPath(args[0])+"/token", nil),
			func(w output.Printer, made roster.AddedOperator) {
				w.Print("%s\nThis is a new token of %s. It is shown only once.", made.Token, args[0])
			})
	}
	return c
}

// newForgetPasskeys opens the database itself: a server asks for a signature before it removes a
// passkey, and who has lost all of theirs has none.
func newForgetPasskeys(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "forget-passkeys NAME", Short: "Remove all passkeys of an operator who lost them; the server must be stopped",
		Long: `Remove all passkeys of an operator who lost them, so that they can enrol a new one. The
server must be stopped. The ledger says that this was done, and so does every page of the
dashboard after the next start.`,
		Args: command.Exactly(1, operatorArgument),
	})
	flags := command.AddConfigFlags(c, "db")
	c.RunE = func(c *command.Command, args []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		count, err := server.ForgetPasskeys(c.Context(), config, args[0])
		if err != nil {
			return err
		}
		return a.Show(map[string]int{"forgotten": count}, func(w output.Printer) {
			if count == 0 {
				w.Print("%s has no passkeys. Nothing was changed.", args[0])
				return
			}
			w.Print("Forgot %d of %s, who can enrol the next one in a browser, without a signature.", count, args[0])
		})
	}
	return c
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
	c := a.Listing("List the workspaces")
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
	c := a.About("add NAME", "Add a workspace", "the name of the workspace")
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.NewWorkspace{Name: args[0]}
		if err := a.Call(c.Context(), api.Post("/ops/workspaces", in), nil); err != nil {
			return err
		}
		return a.Show(in, func(w output.Printer) { w.Print("Added workspace %s.", in.Name) })
	}
	return c
}

// newWorkspacesSet changes to which others a workspace is open.
func newWorkspacesSet(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "set WORKSPACE", Short: "Open a workspace to the agents of others, or close it",
		Long: "Agents of other workspaces can neither write to the agents of a workspace, nor find them or see whether they " +
			"are online, unless it is open to theirs.",
		Example: "  signalbox workspaces set default --open-to finance   # finance may write to default\n" +
			"  signalbox workspaces set default --open-to \"\"        # nobody may",
		Args: command.Exactly(1, "the name of the workspace"),
	})
	open := c.Flags().StringSlice("open-to", nil, "all workspaces whose agents may write to its agents; \"\" for none")
	_ = c.MarkFlagRequired("open-to")
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.WorkspaceChange{OpenTo: new([]string)}
		*in.OpenTo = append([]string{}, *open...)
		return command.Ask(c.Context(), a, api.Patch(api.Path("/ops/workspaces/{}", args[0]), in),
			func(w output.Printer, is roster.Workspace) {
				if len(is.OpenTo) == 0 {
					w.Print("The workspace %s is closed to all others.", is.Name)
					return
				}
				w.Print("The workspace %s is open to agents of %s.", is.Name, strings.Join(is.OpenTo, ", "))
			})
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
