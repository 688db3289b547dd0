package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/server"
)

func newUp(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use: "up", Short: "Start the server",
		Long: "Start the server and serve until it is stopped with Ctrl-C or SIGTERM.\n\n" +
			"Everything it needs is made in the data folder on the first start.",
		Args: command.NoArguments(),
	}
	flags := command.AddConfigFlags(c, "listen", "db", "public_url", "tls.cert", "tls.key", "log.level", "log.format")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		s, err := server.New(c.Context(), config, server.Logger(config, a.Err))
		if err != nil {
			return err
		}
		return s.Run(c.Context(), func(s *server.Server) {
			database := map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}[s.Database()]
			if err := s.Refusal(); err != nil {
				_, _ = fmt.Fprintf(a.Out, "SIGNALBOX TAKES NO WRITES. %s\nIt can be read at %s\n", fault.From(err).Message, s.URL())
				return
			}
			_, _ = fmt.Fprintf(a.Out, "%sSignalbox is ready at %s\n", invitation(c, s), s.URL())
			_, _ = fmt.Fprintf(a.Out, "Data is in %s (%s); the operator token is in %s\n",
				config.Data, database, filepath.Join(config.Data, server.TokenFile))
			_, _ = fmt.Fprintf(a.Out, "Try:  %s agents add my-agent%s\n", program(), dataFlag(a, config))
		})
	}
	return c
}

// invitation is the dashboard's address with a code that signs in once.
func invitation(c *cobra.Command, s *server.Server) string {
	address, err := s.LoginURL(c.Context())
	if err != nil {
		return ""
	}
	return "Dashboard: " + address + " (once, within 5 minutes). "
}

// program is how this program is called by somebody who types.
func program() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/signalbox"
	}
	return os.Args[0]
}

// dataFlag is what has to be added for another command to find the folder.
func dataFlag(a *command.App, c *server.Config) string {
	if a.Data == "" {
		return ""
	}
	return " --data " + c.Data
}
