package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/web"
)

func newLogin(a *command.App) *cobra.Command {
	return a.WithJSON(&cobra.Command{
		Use: "login", Short: "Print an address that signs you in to the dashboard",
		Long: "Print an address that signs the operator of your token in to the dashboard. It can be\n" +
			"used once, within five minutes.",
		Args: command.NoArguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			return command.Ask(c.Context(), a, api.Post("/ops/login", nil), func(w io.Writer, made web.Login) {
				_, _ = fmt.Fprintln(w, made.URL)
			})
		},
	})
}
