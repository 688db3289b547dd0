package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/hook"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/kin"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/links"
	"signalbox/internal/reload"
	"signalbox/internal/server"
)

// finding is the result of one check. Text says what was found, and for a problem what
// to do about it. A missing thing that the first start will make is not a problem: OK is
// true.
type finding struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// newDoctor checks this machine and, if it can be reached, the server. It changes
// nothing and may run beside the server. Problems make the exit code 1, so that it can
// be used in scripts; notes about the configuration do not.
func newDoctor(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "doctor", Short: "Check this machine and the server, and show the configuration in force",
		Args: command.NoArguments(),
	})
	flags := command.AddConfigFlags(c, "listen", "db")
	c.RunE = func(c *command.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		found, status := examineAll(c.Context(), a, config)
		// The running server is the authority on its own settings. What this command
		// reads may differ from it: other flags, another environment, a file that was
		// edited since.
		settings, of := config.InForce(), "as the next start of the server would read it"
		if running, at := runningSettings(c.Context(), a); running != nil {
			config.Warnings = append(config.Warnings, changedSince(*running, settings)...)
			settings, of = *running, "of the server that is running at "+at
		}
		walls := append(examineWalls(a.DataDir(), settings, status), processWalls(c.Context(), a)...)
		report := map[string]any{
			"findings": found, "walls": walls, "settings": settings.Settings, "of": of,
			"warnings": config.Warnings,
		}
		err = a.Show(report, func(w output.Printer) {
			for _, f := range found {
				mark := "ok  "
				if !f.OK {
					mark = "BAD "
				}
				w.Print("%s %-11s %s", mark, f.What, f.Text)
			}
			for _, warning := range config.Warnings {
				w.Print("note %-11s %s", "settings", warning)
			}
			printWalls(w, walls)
			w.Print("\nThe configuration, %s:\n", of)
			printSettings(w, settings)
		})
		for _, f := range found {
			if err == nil && !f.OK {
				return fault.New(fault.Conflict, "Some checks failed; see the lines marked BAD.")
			}
		}
		return err
	}
	return c
}

// runningSettings returns the configuration of the running server and its address.
// Settings are nil if no server can be reached, or if the token's role may not read
// them; the caller then shows what the next start would use.
func runningSettings(ctx context.Context, a *command.App) (settings *server.SettingList, at string) {
	cl, err := a.Client()
	if err != nil || cl.Call(ctx, api.Get("/ops/settings"), &settings) != nil {
		return nil, ""
	}
	return settings, cl.Base
}

// changedSince warns of settings that were changed in the file after the server had read
// it. Values from a flag or from the environment of `up` are left out: they override the
// file, and this process has neither of them.
func changedSince(running, read server.SettingList) (warnings []string) {
	inForce := map[string]server.SettingValue{}
	for _, s := range running.Settings {
		inForce[s.Key] = s
	}
	for _, s := range read.Settings {
		r := inForce[s.Key]
		if r.Value != s.Value && ofFile(r.Source) && ofFile(s.Source) {
			what := "Restart the server."
			if s.TakesEffect != reload.Restart {
				what = "Run `signalbox config reload`."
			}
			warnings = append(warnings, fmt.Sprintf("%s is %q in the running server and %q in the file. %s",
				s.Key, r.Value, s.Value, what))
		}
	}
	return warnings
}

// ofFile reports whether the configuration file decides about a value: its source is
// FILE:LINE, or it is the default, which the file could have overridden.
func ofFile(source string) bool {
	line := source[strings.LastIndexByte(source, ':')+1:]
	_, err := strconv.Atoi(line)
	return err == nil || source == "default"
}

// examineAll runs the checks from the bottom up. A full disk explains a broken database,
// so the first BAD line is the one to look at first. status is nil if no server answers.
func examineAll(ctx context.Context, a *command.App, config *server.Config) (all []finding, status *server.Status) {
	running, status := examineServer(ctx, a)
	all = []finding{
		examineFolder(config),
		examineDisk(config),
		examineDatabase(ctx, config),
		examineKey(config),
		running,
		examineHooks(),
	}
	if status != nil {
		all = append(append(all, examineLinks(ctx, a)...), examineAudit(status.Audit)...)
		for _, one := range status.Exports {
			text, good := one.Text(time.Now())
			all = append(all, finding{"export", good, one.Name + " " + text})
		}
		if b := status.Backup; b != nil {
			all = append(all, finding{"backups", b.Problem == "" && !b.Overdue, b.Text()})
		}
	}
	return all, status
}

// examineLinks looks at the other providers and hosts that the server exchanges mail with: what waits for each, and why
// the last call failed.
func examineLinks(ctx context.Context, a *command.App) (all []finding) {
	cl, err := a.Client()
	if err != nil {
		return nil
	}
	var known links.Links
	if err := cl.Call(ctx, api.Get("/ops/mail/links"), &known); err != nil {
		return []finding{bad("mail links", err)}
	}
	for _, l := range known.Links {
		text := fmt.Sprintf("%s, %s waiting", cmp.Or(l.URL, "found when it is needed"), output.Thousands(l.Waiting))
		if l.Registrar {
			text += ", decides about addresses"
		}
		if l.LastError != "" {
			text += "; the last call failed: " + l.LastError
		}
		all = append(all, finding{l.Kind + " " + l.Name, l.LastError == "", text})
	}
	return all
}

// examineHooks looks for hooks that let their CLI go on when our program is gone.
func examineHooks() finding {
	home, _ := os.UserHomeDir()
	folder, _ := os.Getwd()
	var names []string
	for _, found := range hook.Installed(home, folder, os.Getenv) {
		if found.Open {
			return finding{"hooks", false, fmt.Sprintf("%s goes on if our program is gone, by %s; install its hooks again",
				found.Tool.Title, found.File)}
		}
		names = append(names, found.Tool.Title)
	}
	if len(names) == 0 {
		return finding{"hooks", true, "none in your settings or in this folder"}
	}
	return finding{"hooks", true, strings.Join(names, ", ")}
}

// bad is the finding for an error. It prints the message that is meant for people and
// leaves the cause out.
func bad(what string, err error) finding {
	return finding{what, false, fault.From(err).Message}
}

// examineFolder tries to create a file. Permission bits alone would not tell: the file
// system may be mounted read-only, or an ACL may forbid it.
func examineFolder(config *server.Config) finding {
	if isShared(config.Data) {
		return finding{"data folder", true, "closed to this user, as a service's should be"}
	}
	f, err := os.CreateTemp(config.Data, ".doctor-*")
	if os.IsNotExist(err) {
		return finding{"data folder", true, config.Data + " does not exist yet; `signalbox up` creates it"}
	}
	if err != nil {
		return finding{"data folder", false, "this user cannot write to " + config.Data}
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	return finding{"data folder", true, config.Data + " can be written to"}
}

// examineDisk reads the free space that this user may use. The folder may not exist yet,
// so it goes up to the nearest parent that does. Less than 512 MB counts as a problem:
// SQLite needs room for its write-ahead log, and a full disk stops all writes.
func examineDisk(config *server.Config) finding {
	dir := config.Data
	for {
		var s syscall.Statfs_t
		if err := syscall.Statfs(dir, &s); err == nil {
			free := s.Bavail * uint64(s.Bsize) >> 20
			return finding{"disk", free > 512, fmt.Sprintf("%s MB free", output.Thousands(int64(free)))}
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		return finding{"disk", false, "cannot read the free space"}
	}
}

// examineDatabase opens the database as the server would, but never creates or migrates
// it. The newest signed checkpoint is compared with the entries, which is fast; `ledger
// verify` checks every body.
func examineDatabase(ctx context.Context, config *server.Config) finding {
	if config.DB.Reveal() == "" {
		if _, err := os.Stat(filepath.Join(config.Data, server.DatabaseFile)); os.IsNotExist(err) {
			return finding{"database", true, "SQLite, not created yet"}
		}
	}
	db, err := server.OpenExisting(ctx, config)
	if fault.Is(err, fault.NotFound) {
		return finding{"database", true, "PostgreSQL, reached; no Signalbox in it yet"}
	}
	if err != nil {
		return bad("database", err)
	}
	defer db.Close()
	var head int64
	if err := db.Read.QueryRowContext(ctx, "SELECT seq FROM ledger_head WHERE id = 1").Scan(&head); err != nil {
		return bad("database", err)
	}
	if err := ledger.Compare(ctx, db, config.Data); err != nil {
		return bad("database", err)
	}
	return finding{"database", true, fmt.Sprintf("%s, %s entries, as they were signed", db.Name(), output.Thousands(head))}
}

// examineKey checks the file of the private signing key. A node without it serves and
// writes, but does not sign checkpoints; that is right for some nodes of a cluster, and
// a loss on a single node, so it is reported. A key that others can read lets them forge
// checkpoints.
func examineKey(config *server.Config) finding {
	private := filepath.Join(config.Data, ledger.KeyFile)
	info, err := os.Stat(private)
	switch {
	case os.IsNotExist(err):
		if _, err := os.Stat(filepath.Join(config.Data, ledger.PublicKeyFile)); err == nil {
			return finding{
				"ledger key", false,
				private + " is missing: this node does not sign checkpoints; copy it from the node " +
					"that made the ledger, or from a backup",
			}
		}
		return finding{"ledger key", true, "not created yet"}
	case err != nil:
		return finding{"ledger key", false, "cannot look at " + private}
	case info.Mode().Perm()&0o077 != 0:
		return finding{"ledger key", false, "others can read " + private + "; run chmod 600 on it"}
	}
	return finding{"ledger key", true, private}
}

// examineServer asks the server for its status. A server that is not running is not a
// problem: doctor is also run before the first start.
func examineServer(ctx context.Context, a *command.App) (finding, *server.Status) {
	cl, err := a.Client()
	if err != nil {
		return finding{"server", true, "not running here"}, nil
	}
	var s server.Status
	if err := cl.Call(ctx, api.Get("/ops/status"), &s); err != nil {
		if fault.Is(err, api.Unreachable) {
			return finding{"server", true, "not running at " + cl.Base}, nil
		}
		return bad("server", err), nil
	}
	if !s.Ready {
		return finding{"server", false, s.Problem}, &s
	}
	if text := reloadProblem(&s); text != "" {
		return finding{"server", false, text}, &s
	}
	return finding{
		"server", true,
		fmt.Sprintf("ready at %s, %s entries, %s under a checkpoint", cl.Base, output.Thousands(s.Entries),
			output.Thousands(s.Checkpoint)),
	}, &s
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
		RunE: func(c *command.Command, args []string) error {
			path := filepath.Join(a.DataDir(), server.ConfigFile)
			content, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fault.Wrap(err, fault.InvalidConfig, "Cannot read %s.", path)
			}
			changed, err := server.SetInFile(path, content, args[0], args[1])
			if err != nil {
				return err
			}
			if err := reportConfig(c.Context(), a, changed); err != nil {
				return err
			}
			if err = os.MkdirAll(a.DataDir(), 0o700); err == nil {
				err = server.WriteConfig(path, changed)
			}
			if err != nil {
				return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Check that this user may write there.", path)
			}
			what := "The server reads it when it starts."
			if i := slices.Index(server.Keys(), args[0]); server.Settings[i].Reload() != reload.Restart {
				what = "`signalbox config reload` puts it in force."
			}
			a.Out.Print("Set %s in %s. %s", args[0], path, what)
			return nil
		},
	}
}

// reportConfig tells a running server what the file will hold. An agent is refused here; a change that nobody
// reports is an alarm.
func reportConfig(ctx context.Context, a *command.App, file []byte) error {
	cl, err := a.Client()
	if err != nil || a.Elsewhere("") {
		return nil //nolint:nilerr // no server has run in this data folder yet
	}
	sum := sha256.Sum256(file)
	err = cl.Call(ctx, api.Put("/ops/config", kin.NewConfig{SHA256: hex.EncodeToString(sum[:])}), nil)
	if fault.Is(err, fault.AgentsProcess) {
		return err
	}
	return nil // a server that does not hear of it says so in an alarm
}

// newConfigReload confirms the file by its digest, so that the server puts in force what this command has read and
// nothing that was written since. A file that is not valid is refused here already.
func newConfigReload(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "reload", Short: "Confirm the configuration file, and have the running server read it again",
		Long: `Confirm the configuration file, and have the running server read it again. It prints what changed: what is in
force now, and what waits for a restart. A file that a start would refuse changes nothing.

SIGHUP reads the file again too, and confirms nothing: settings that could give somebody power stay as they
are until an operator confirms them with this command, or sets them with ` + "`signalbox config set`" + `.`,
		Args: command.NoArguments(),
	})
	flags := command.AddConfigFlags(c)
	c.RunE = func(c *command.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		ask := api.Post("/ops/config/reload", kin.NewConfig{SHA256: config.FileSum()})
		return command.Ask(c.Context(), a, ask, func(w output.Printer, r reload.Result) {
			if len(r.Changes) == 0 {
				w.Print("Nothing has changed.")
				return
			}
			w.Table("", []string{"KEY", "FROM", "TO", "IS"}, output.Rows(r.Changes, func(c reload.Change) []string {
				return []string{c.Key, cmp.Or(c.From, "-"), cmp.Or(c.To, "-"), c.Is}
			}))
		})
	}
	return c
}

// reloadProblem is what somebody has to do about the last reload, "" if nothing.
func reloadProblem(s *server.Status) string {
	if s.Reload == nil {
		return ""
	}
	if s.Reload.Problem != "" {
		return "the configuration was not reloaded, and the old one is in force: " + s.Reload.Problem
	}
	if keys := s.Reload.Held(); len(keys) > 0 {
		return "the configuration file was changed by somebody who did not confirm it, and is held back: " +
			strings.Join(keys, ", ") + "; `signalbox config reload` confirms it"
	}
	return ""
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
