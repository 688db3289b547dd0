package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/server"
)

// configFlags are the flags that set configuration keys. The data folder is a flag
// of every command.
type configFlags struct {
	file   string
	values map[string]*string
}

func addConfigFlags(c *cobra.Command, keys ...string) *configFlags {
	f := &configFlags{values: map[string]*string{}}
	c.Flags().StringVar(&f.file, "config", "", "a configuration file, instead of "+server.ConfigFile+" in the data folder")
	for _, s := range server.Settings {
		for _, key := range keys {
			if s.Key == key {
				name := strings.NewReplacer(".", "-", "_", "-").Replace(key)
				f.values[key] = c.Flags().String(name, s.Default, s.Meaning)
			}
		}
	}
	return f
}

func (f *configFlags) load(a *app, c *cobra.Command) (*server.Config, error) {
	given := map[string]string{}
	for key, value := range f.values {
		if c.Flags().Changed(strings.NewReplacer(".", "-", "_", "-").Replace(key)) {
			given[key] = *value
		}
	}
	if a.data != "" {
		given["data"] = a.data
	}
	file := f.file
	if file == "" {
		file = os.Getenv("SIGNALBOX_CONFIG")
	}
	return server.Load(given, os.Environ(), file)
}

func newUp(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "up", Short: "Start the server",
		Long: "Start the server and serve until it is stopped with Ctrl-C or SIGTERM.\n\nEverything it needs is made in the data folder on the first start.",
		Args: exactly(0, "no arguments"),
	}
	flags := addConfigFlags(c, "listen", "db", "public_url", "tls.cert", "tls.key", "log.level", "log.format")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config, err := flags.load(a, c)
		if err != nil {
			return err
		}
		s, err := server.New(c.Context(), config, server.Logger(config, a.err))
		if err != nil {
			return err
		}
		return s.Run(c.Context(), func(s *server.Server) {
			database := map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}[s.Database()]
			if err := s.Refusal(); err != nil {
				_, _ = fmt.Fprintf(a.out, "SIGNALBOX TAKES NO WRITES. %s\nIt can be read at %s\n", fault.From(err).Message, s.URL())
				return
			}
			_, _ = fmt.Fprintf(a.out, "%sSignalbox is ready at %s\n", invitation(c, s), s.URL())
			_, _ = fmt.Fprintf(a.out, "Data is in %s (%s); the operator token is in %s\n", config.Data, database, filepath.Join(config.Data, server.TokenFile))
			_, _ = fmt.Fprintf(a.out, "Try:  %s agents add my-agent%s\n", program(), dataFlag(a, config))
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
func dataFlag(a *app, c *server.Config) string {
	if a.data == "" {
		return ""
	}
	return " --data " + c.Data
}
