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

// newConfig is the group `config`. These commands read and write files and need no
// server. They work on the configuration that the next start would use; `doctor` shows
// the one that the running server uses.
func newConfig(a *command.App) *command.Command {
	return command.Group("config", "The configuration: show what is in force, set a key, check a file",
		newConfigShow(a), newConfigSet(a), newConfigCheck(a))
}

// newConfigShow lists every key with its value and its source: a flag, a variable,
// FILE:LINE, or the default. Secrets are printed as [redacted], since they are of type
// wire.Secret.
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

// printSettings prints settings in the order of server.Settings, which is grouped by
// topic. An empty value is printed as "-" to keep the columns readable.
func printSettings(w output.Printer, all server.SettingList) {
	rows := output.Rows(all.Settings, func(s server.SettingValue) []string {
		return []string{s.Key, cmp.Or(s.Value, "-"), s.Source, s.Meaning}
	})
	w.Table("", []string{"KEY", "VALUE", "FROM", "MEANING"}, rows)
}

// newConfigSet edits the configuration file in place. Comments, order and all other
// lines stay. The value is checked before the file is touched, so a wrong value never
// leaves a file that the next start refuses.
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
			// Folder and file are for the owner alone: the file may hold passwords and
			// tokens.
			if err = os.MkdirAll(a.DataDir(), 0o700); err == nil {
				err = os.WriteFile(path, changed, 0o600)
			}
			if err != nil {
				return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Check that this user may write there.", path)
			}
			a.Out.Print("Set %s in %s. The server reads it when it starts.", args[0], path)
			return nil
		},
	}
}

// newConfigCheck checks syntax, names and values of a file without applying it. It looks
// at this one file only: flags and environment may still override what it says.
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
			a.Out.Print("%s is valid: %d keys.", path, keys)
			return nil
		},
	}
}
