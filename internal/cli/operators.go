package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/roster"
)

func newOperators(a *app) *cobra.Command {
	return group("operators", "The people who decide: list, add, change, remove, new token",
		newOperatorsLs(a), newOperatorsAdd(a), newOperatorsSet(a), newOperatorsRm(a), newOperatorsToken(a))
}

func newOperatorsLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls", Short: "List the operators", Args: exactly(0, "no arguments")})
	c.RunE = func(c *cobra.Command, _ []string) error {
		var all roster.OperatorList
		if err := a.call(c.Context(), "GET", "/ops/operators", nil, &all); err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			var rows [][]string
			for _, p := range all.Operators {
				rows = append(rows, []string{p.Name, string(p.Role), cmp.Or(p.Workspace, "all"), contacts(p), since(p.AddedAt)})
			}
			table(w, "There are no operators.", []string{"NAME", "ROLE", "WORKSPACE", "CONTACTS", "ADDED"}, rows)
		})
	}
	return c
}

func newOperatorsAdd(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "add NAME", Short: "Add an operator and print the token, this once", Args: exactly(1, "the name of the operator")})
	workspace := c.Flags().String("workspace", "", "the workspace they are confined to; every workspace when absent")
	role := c.Flags().String("role", string(roster.Operator), "what they may do: "+strings.Join(roster.Roles, ", "))
	c.RunE = func(c *cobra.Command, args []string) error {
		var added roster.AddedOperator
		if err := a.call(c.Context(), "POST", "/ops/operators", roster.NewOperator{Name: args[0], Role: *role, Workspace: *workspace}, &added); err != nil {
			return err
		}
		return a.show(added, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s\nThis is the token of %s (%s). It is shown this once.\n", added.Token, args[0], *role)
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

func newOperatorsSet(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "set NAME", Short: "Say by what channels know an operator; what is not given stays as it is",
		Long:    "Say by what channels know an operator. Who presses a button in a channel votes as the\noperator who has that contact. An empty contact is taken away.",
		Example: "  signalbox operators set ann --slack U024BE7LH --telegram 4711", Args: exactly(1, "the name of the operator"),
	})
	given := map[string]*string{
		"slack":    c.Flags().String("slack", "", "the member id in Slack, such as U024BE7LH"),
		"telegram": c.Flags().String("telegram", "", "the user's number in Telegram, such as 4711"),
		"email":    c.Flags().String("email", "", "the e-mail address"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		in := roster.OperatorChange{Contacts: map[string]string{}}
		for channel, contact := range given {
			if c.Flags().Changed(channel) {
				in.Contacts[channel] = *contact
			}
		}
		if len(in.Contacts) == 0 {
			return usage("Say what to change, as in `signalbox operators set %s --slack U024BE7LH`.", args[0])
		}
		var p roster.Person
		if err := a.call(c.Context(), "PATCH", "/ops/operators/"+url.PathEscape(args[0]), in, &p); err != nil {
			return err
		}
		return a.show(p, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%s: %s\n", p.Name, contacts(p)) })
	}
	return c
}

func newOperatorsRm(a *app) *cobra.Command {
	c := &cobra.Command{Use: "rm NAME", Short: "Remove an operator and their tokens", Args: exactly(1, "the name of the operator")}
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := a.call(c.Context(), "DELETE", "/ops/operators/"+url.PathEscape(args[0]), nil, nil); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(a.out, "Removed %s and their tokens.\n", args[0])
		return nil
	}
	return c
}

func newOperatorsToken(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "token NAME", Short: "Make a further token for an operator and print it, this once", Args: exactly(1, "the name of the operator")})
	c.RunE = func(c *cobra.Command, args []string) error {
		var made roster.AddedOperator
		if err := a.call(c.Context(), "POST", "/ops/operators/"+url.PathEscape(args[0])+"/token", nil, &made); err != nil {
			return err
		}
		return a.show(made, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s\nThis is a new token of %s. It is shown this once.\n", made.Token, args[0])
		})
	}
	return c
}
