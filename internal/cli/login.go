package cli

import (
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/web"
)

// newLogin prints an address and opens no browser: the command often runs on a server
// over SSH. The address holds a one-time code in place of the token, so that the token
// never gets into the history of a browser.
func newLogin(a *command.App) *command.Command {
	return a.WithJSON(&command.Command{
		Use: "login", Short: "Print an address that signs you in to the dashboard",
		Long: `Print an address that signs the operator of your token in to the dashboard. It can be
used once, within five minutes.`,
		Args: command.NoArguments(),
		RunE: func(c *command.Command, _ []string) error {
			return command.Ask(c.Context(), a, api.Post("/ops/login", nil), func(w output.Printer, made web.Login) {
				w.Print("%s", made.URL)
			})
		},
	})
}
