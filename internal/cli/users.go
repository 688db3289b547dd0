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
)

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
