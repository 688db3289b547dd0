package command

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/server"
)

// ConfigFlags are flags that set configuration keys, for commands that read the
// configuration. Only a flag that was given counts; its default is there for the help
// text. --data is not among them, because every command has it.
type ConfigFlags struct {
	file   string
	values map[string]*string
}

// AddConfigFlags gives a command the flag --config, and one for each of the keys.
func AddConfigFlags(c *cobra.Command, keys ...string) *ConfigFlags {
	f := &ConfigFlags{values: map[string]*string{}}
	c.Flags().StringVar(&f.file, "config", "", "a configuration file, instead of "+server.ConfigFile+" in the data folder")
	for _, s := range server.Settings {
		if slices.Contains(keys, s.Key) {
			f.values[s.Key] = c.Flags().String(flagOf(s.Key), s.Default, s.Meaning)
		}
	}
	return f
}

// flagOf is the flag of a key: --public-url for public_url.
func flagOf(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// Load reads the configuration: flags, environment, file.
func (f *ConfigFlags) Load(a *App, c *cobra.Command) (*server.Config, error) {
	given := map[string]string{}
	for key, value := range f.values {
		if c.Flags().Changed(flagOf(key)) {
			given[key] = *value
		}
	}
	if a.Data != "" {
		given["data"] = a.Data
	}
	file := f.file
	if file == "" {
		file = os.Getenv("SIGNALBOX_CONFIG")
	}
	return server.Load(given, os.Environ(), file)
}
