package cli

import (
	"cmp"
	"net/url"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/roster"
)

func newOperators(a *command.App) *command.Command {
	return command.Group("operators", "The people who decide: list, add, change, remove, new token",
		newOperatorsLs(a), newOperatorsAdd(a), newOperatorsSet(a), newOperatorsRm(a), newOperatorsToken(a))
}

const operatorArgument = "the name of the operator"

// operatorPath is where the operators' API has an operator.
func operatorPath(name string) string { return "/ops/operators/" + url.PathEscape(name) }

func newOperatorsLs(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{Use: "ls", Short: "List the operators", Args: command.NoArguments()})
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

func newOperatorsAdd(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "add NAME", Short: "Add an operator and print the token, this once", Args: command.Exactly(1, operatorArgument),
	})
	workspace := c.Flags().String("workspace", "", "the workspace they are confined to; every workspace when absent")
	role := c.Flags().String("role", string(roster.Operator), "what they may do: "+strings.Join(roster.Roles, ", "))
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.NewOperator{Name: args[0], Role: *role, Workspace: *workspace}
		return command.Ask(c.Context(), a, api.Post("/ops/operators", in),
			func(w output.Printer, added roster.AddedOperator) {
				w.Print("%s\nThis is the token of %s (%s). It is shown this once.", added.Token, args[0], *role)
			})
	}
	return c
}

// contacts are by what channels know an operator.
func contacts(p roster.Person) string {
	var all []string
	for _, channel := range roster.ContactChannels() {
		if contact := p.Contacts[channel]; contact != "" {
			all = append(all, channel+":"+contact)
		}
	}
	return cmp.Or(strings.Join(all, " "), "-")
}

func newOperatorsSet(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "set NAME", Short: "Say by what channels know an operator; what is not given stays as it is",
		Long: "Say by what channels know an operator. Who presses a button in a channel votes as the\n" +
			"operator who has that contact. An empty contact is taken away.",
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
			return command.Usage("Say what to change, as in `signalbox operators set %s --slack U024BE7LH`.", args[0])
		}
		return command.Ask(c.Context(), a, api.Patch(operatorPath(args[0]), in), func(w output.Printer, p roster.Person) {
			w.Print("%s: %s", p.Name, contacts(p))
		})
	}
	return c
}

func newOperatorsRm(a *command.App) *command.Command {
	return &command.Command{
		Use: "rm NAME", Short: "Remove an operator and their tokens", Args: command.Exactly(1, operatorArgument),
		RunE: func(c *command.Command, args []string) error {
			return remove(c, a, operatorPath(args[0]), "Removed "+args[0]+" and their tokens.")
		},
	}
}

func newOperatorsToken(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "token NAME", Short: "Make a further token for an operator and print it, this once",
		Args: command.Exactly(1, operatorArgument),
	})
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Post(operatorPath(args[0])+"/token", nil),
			func(w output.Printer, made roster.AddedOperator) {
				w.Print("%s\nThis is a new token of %s. It is shown this once.", made.Token, args[0])
			})
	}
	return c
}
