package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"signalbox/internal/web"
)

func newLogin(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "login", Short: "Print an address that signs you in to the dashboard",
		Long: "Print an address that signs the operator of your token in to the dashboard. It can be\nused once, within five minutes.",
		Args: exactly(0, "no arguments"),
	})
	c.RunE = func(c *cobra.Command, _ []string) error {
		var made web.Login
		if err := a.call(c.Context(), "POST", "/ops/login", nil, &made); err != nil {
			return err
		}
		return a.show(made, func(w io.Writer) { _, _ = fmt.Fprintln(w, made.URL) })
	}
	return c
}
