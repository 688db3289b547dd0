package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// userArgument completes the usage error of every command that takes a name.
const userArgument = "the name of the user"

// userPath is the path of a user in the API, in a workspace, which the same name needs where it exists twice.
func userPath(name, further, workspace string) string {
	return api.InWorkspace(api.Path("/ops/users/{}", name)+further, workspace)
}

// newUsers is the group `users`. Agents act on behalf of users. A user can register agents with a key, and can do
// nothing else: no gate, no ledger, no other user's agents. Version 0.1 called them owners.
func newUsers(a *command.App) *command.Command {
	c := command.Group("users", "The people and teams on whose behalf agents act: list, add, change, suspend, remove, key",
		newUsersLs(a), newUsersAdd(a), newUsersShow(a), newUsersSet(a), newUsersSuspend(a, true), newUsersSuspend(a, false),
		newUsersRm(a), newUsersKey(a))
	c.Aliases = []string{"owners"}
	return c
}

// newUsersLs lists users; there are few, so the API has no pages for them.
func newUsersLs(a *command.App) *command.Command {
	c := a.Listing("List the users")
	workspace := onlyWorkspaceFlag(c)
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get(api.InWorkspace("/ops/users", *workspace)),
			func(w output.Printer, all roster.UserList) {
				none := "There are no users. Add one with `signalbox users add NAME`."
				if *workspace != "" {
					none = "There are no users in workspace " + *workspace + "."
				}
				w.Table(none, []string{"NAME", "WORKSPACE", "E-MAIL", "SCOPES", "STATE", "SOURCE", "ADDED"},
					output.Rows(all.Users, func(u roster.User) []string {
						return []string{
							u.Name, u.Workspace, cmp.Or(u.Email, "-"), scopesText(u.Scopes), userState(u), u.Source,
							output.Since(u.AddedAt),
						}
					}))
			})
	}
	return c
}

// scopesText is a list of scopes for people; none is said, since an empty cell would read as everything.
func scopesText(scopes []string) string { return cmp.Or(strings.Join(scopes, " "), "none") }

func userState(u roster.User) string {
	if u.Suspended {
		return "suspended"
	}
	return "active"
}

// userFlags are the settings of a user that `add` and `set` take.
type userFlags struct {
	c      *command.Command
	email  *string
	scopes *[]string
	limits *[]string
}

func addUserFlags(c *command.Command) userFlags {
	return userFlags{
		c, c.Flags().String("email", "", "the e-mail address, by which agents can name the user, too"),
		c.Flags().StringSlice("scopes", nil, "what agents may do for the user, such as email.send,tools.*; * is everything"),
		c.Flags().StringArray("limit", nil, "a number for rules, as name=number; may be given more than once"),
	}
}

// read is what the flags change. Flags that are not given change nothing.
func (f userFlags) read() (in roster.UserChange, err error) {
	if f.c.Flags().Changed("email") {
		in.Email = f.email
	}
	if f.c.Flags().Changed("scopes") {
		scopes := slices.DeleteFunc(slices.Clone(*f.scopes), func(s string) bool { return s == "" })
		in.Scopes = &scopes
	}
	if f.c.Flags().Changed("limit") {
		limits := map[string]int64{}
		for _, l := range *f.limits {
			name, number, _ := strings.Cut(l, "=")
			if limits[name], err = strconv.ParseInt(number, 10, 64); err != nil {
				return in, command.Usage("--limit should be name=number, such as --limit actions_per_minute=60, and is %q.", l)
			}
		}
		in.Limits = &limits
	}
	return in, nil
}

// newUsersAdd adds a user to a workspace, in which all agents of this user will be.
func newUsersAdd(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "add NAME", Short: "Add a user and print the key, shown only once", Args: command.Exactly(1, userArgument),
		Example: "  signalbox users add alice --email alice@example.com --scopes email.read,email.send",
	})
	workspace, flags := workspaceFlag(c), addUserFlags(c)
	c.RunE = func(c *command.Command, args []string) error {
		set, err := flags.read()
		if err != nil {
			return err
		}
		in := roster.NewUser{Name: args[0], Workspace: *workspace, Email: *flags.email, Scopes: set.Scopes}
		if set.Limits != nil {
			in.Limits = *set.Limits
		}
		return command.Ask(c.Context(), a, api.Post("/ops/users", in), func(w output.Printer, added roster.AddedUser) {
			w.Print("%s\nThis is the key with which %s registers agents in workspace %s. It is shown only once.",
				added.Key, added.User.Name, added.User.Workspace)
		})
	}
	return c
}

// printUser prints a user in two columns.
func printUser(w output.Printer, u roster.User) {
	var limits []string
	for _, name := range slices.Sorted(maps.Keys(u.Limits)) {
		limits = append(limits, fmt.Sprintf("%s=%d", name, u.Limits[name]))
	}
	for _, row := range [][2]string{
		{"name", u.Name},
		{"id", u.ID},
		{"workspace", u.Workspace},
		{"e-mail", u.Email},
		{"scopes", scopesText(u.Scopes)},
		{"limits", strings.Join(limits, " ")},
		{"state", userState(u)},
		{"source", u.From()},
		{"added", output.Since(u.AddedAt)},
	} {
		w.Print("%-10s %s", row[0], cmp.Or(row[1], "none"))
	}
}

// newUsersShow shows one user.
func newUsersShow(a *command.App) *command.Command {
	c := a.About("show NAME", "Show a user", userArgument)
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Get(userPath(args[0], "", *workspace)), printUser)
	}
	return c
}

// newUsersSet changes what agents may do for a user, from their next call on.
func newUsersSet(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "set NAME", Short: "Change a user; settings without a flag stay as they are",
		Example: "  signalbox users set alice --scopes email.read --limit actions_per_minute=60",
		Args:    command.Exactly(1, userArgument),
	})
	workspace, flags := workspaceFlag(c), addUserFlags(c)
	c.RunE = func(c *command.Command, args []string) error {
		in, err := flags.read()
		if err != nil {
			return err
		}
		if in.Email == nil && in.Scopes == nil && in.Limits == nil {
			return command.Usage("Name something to change, for example `signalbox users set %s --scopes email.read`.", args[0])
		}
		return command.Ask(c.Context(), a, api.Patch(userPath(args[0], "", *workspace), in), printUser)
	}
	return c
}

// newUsersSuspend is `suspend` or, with suspend false, `resume`. Whatever agents try on behalf of a suspended user is
// blocked.
func newUsersSuspend(a *command.App, suspend bool) *command.Command {
	use, short := "suspend NAME", "Block everything that agents do on behalf of a user"
	done := "%s is suspended: nothing is done on their behalf."
	if !suspend {
		use, short, done = "resume NAME", "Let agents act again for a suspended user", "%s is resumed."
	}
	c := a.About(use, short, userArgument)
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		r := api.Patch(userPath(args[0], "", *workspace), roster.UserChange{Suspended: &suspend})
		return command.Ask(c.Context(), a, r, func(w output.Printer, u roster.User) { w.Print(done, u.Name) })
	}
	return c
}

// newUsersRm removes a user. The agents stay and keep working: removing a person
// should not stop production. Use `agents rm` for those that should go.
func newUsersRm(a *command.App) *command.Command {
	c := &command.Command{
		Use: "rm NAME", Short: "Remove a user and their keys; their agents stay", Args: command.Exactly(1, userArgument),
	}
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return remove(c, a, userPath(args[0], "", *workspace), "Removed "+args[0]+" and their keys. Their agents stay.")
	}
	return c
}

// newUsersKey issues one more key. The old ones keep working until they are revoked.
func newUsersKey(a *command.App) *command.Command {
	c := a.About("key NAME", "Issue another key for a user; it is shown only once", userArgument)
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return issue(c, a, api.Post(userPath(args[0], "/key", *workspace), nil), "")
	}
	return c
}
