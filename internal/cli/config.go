package cli

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/server"
)

func newConfig(a *command.App) *command.Command {
	return command.Group("config", "The configuration: show what is in force, set a key, check a file",
		newConfigShow(a), newConfigSet(a), newConfigCheck(a))
}

func newConfigShow(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "show", Short: "Show every key, its value and where it came from", Args: command.NoArguments(),
	})
	flags := command.AddConfigFlags(c)
	c.RunE = func(c *command.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		return a.Show(config.InForce(), func(w output.Printer) { printSettings(w, config.InForce()) })
	}
	return c
}

func printSettings(w output.Printer, all server.SettingList) {
	rows := output.Rows(all.Settings, func(s server.SettingValue) []string {
		return []string{s.Key, cmp.Or(s.Value, "-"), s.Source, s.Meaning}
	})
	w.Table("", []string{"KEY", "VALUE", "FROM", "MEANING"}, rows)
}

func newConfigSet(a *command.App) *command.Command {
	return &command.Command{
		Use: "set KEY VALUE", Short: "Set a key in the configuration file of the data folder",
		Example: "  signalbox config set ledger.retention 90d", Args: command.Exactly(2, "a key and a value"),
		RunE: func(_ *command.Command, args []string) error {
			path := filepath.Join(a.DataDir(), server.ConfigFile)
			content, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fault.Wrap(err, fault.InvalidConfig, "Cannot read %s.", path)
			}
			changed, err := server.SetInFile(path, content, args[0], args[1])
			if err != nil {
				return err
			}
			if err = os.MkdirAll(a.DataDir(), 0o700); err == nil {
				err = os.WriteFile(path, changed, 0o600)
			}
			if err != nil {
				return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Check that this user may.", path)
			}
			a.Out.Print("Set %s in %s. The server reads it when it starts.", args[0], path)
			return nil
		},
	}
}

func newConfigCheck(a *command.App) *command.Command {
	return &command.Command{
		Use: "check [FILE]", Short: "Check a configuration file", Args: command.AtMost(1, "one file, or nothing"),
		RunE: func(_ *command.Command, args []string) error {
			path := filepath.Join(a.DataDir(), server.ConfigFile)
			if len(args) == 1 {
				path = args[0]
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return fault.Wrap(err, fault.InvalidConfig, "Cannot read %s.", path)
			}
			keys, err := server.CheckFile(path, content)
			if err != nil {
				return err
			}
			a.Out.Print("%s is right: %d keys.", path, keys)
			return nil
		},
	}
}
