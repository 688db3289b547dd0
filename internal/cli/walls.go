package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"signalbox/internal/alarm"
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/hook"
	"signalbox/internal/cli/output"
	"signalbox/internal/kin"
	"signalbox/internal/server"
)

// examineWalls says which walls stand between agents or strangers and an operator's power: those of the
// data folder as this user finds it, and those of the server's settings. status is that of the
// running server, nil if none answers.
func examineWalls(data string, settings server.SettingList, status *server.Status) []server.Wall {
	walls := append([]server.Wall{userWall(data)}, append(settings.Walls(), commitWall(settings))...)
	if status != nil {
		clock := server.Wall{What: "clock", Stands: status.Clock.Problem == "", Text: status.Clock.Problem}
		if clock.Stands {
			clock.Text = "the clocks agree, and a jump is an alarm"
		}
		walls = append(walls, clock)
		for _, one := range status.Witnesses {
			wall := server.Wall{What: "witness", Stands: one.Problem == "", Text: one.Name + ": " + one.Problem}
			if wall.Stands {
				wall.Text = one.Name + " cosigns the ledger"
			}
			walls = append(walls, wall)
		}
	}
	if status != nil && status.Forwarder != nil {
		f := status.Forwarder
		walls = append(walls, server.Wall{What: "unknown proxy", Text: fmt.Sprintf(
			"a reverse proxy at %s passes requests on (%s, last %s), and server.trusted_proxies does not name it. If it is "+
				"yours, set public_url, and run `signalbox config set server.trusted_proxies %s`; else find out who runs it.",
			f.Address, f.Sign, output.Since(f.At), f.Address)})
	}
	return walls
}

// commitWall says whether what tasks say of commits is checked, and how the server learns of what nobody tells it.
func commitWall(settings server.SettingList) server.Wall {
	is := map[string]string{}
	for _, s := range settings.Settings {
		is[s.Key] = s.Value
	}
	if is["tasks.repo_roots"] == "" {
		return server.Wall{What: "commits", Text: "what agents say of their commits is believed, and shown as unverified. " +
			"Run `signalbox config set tasks.repo_roots /srv/repos`, with the folder of your repositories."}
	}
	text := "what agents say of commits below " + is["tasks.repo_roots"] + " is checked with every message and by " +
		"reading the branches every 30 seconds; no hook of git and no webhook of a forge is used. What cannot be checked is "
	if is["tasks.require_git"] == "false" {
		return server.Wall{What: "commits", Stands: true, Text: text + "unverified"}
	}
	return server.Wall{What: "commits", Stands: true, Text: text + "refused"}
}

// userWall says whether the server's secrets are out of reach for what this user starts. Agents run as the
// person who starts them, and read what that person can read.
func userWall(data string) server.Wall {
	w := server.Wall{What: "own user"}
	token, err := os.Open(filepath.Join(data, server.TokenFile))
	if isShared(data) || os.IsPermission(err) {
		w.Stands, w.Text = true, "the server has a user of its own: this user cannot read its data"
		return w
	}
	if err != nil {
		w.Text = "no server has been started with its data in " + data + " yet"
		return w
	}
	defer func() { _ = token.Close() }()
	folder, err := os.Stat(data)
	if err != nil {
		w.Text = "cannot look at " + data
		return w
	}
	owner := -1
	if stat, ok := folder.Sys().(*syscall.Stat_t); ok {
		owner = int(stat.Uid)
	}
	switch {
	case folder.Mode().Perm()&0o077 != 0:
		w.Text = "others may look into " + data + "; run chmod 700 on it"
	case owner == os.Getuid():
		w.Text = "the server runs as the user who runs this: every program of that user, agents too, can read its operator " +
			"token and its database. `sudo signalbox service install` gives the server a user of its own."
	default:
		w.Stands, w.Text = true, fmt.Sprintf("the server has a user of its own, %d; only that user and root can read %s",
			owner, data)
	}
	return w
}

// processWalls say whether the server sees which process calls, and whether the hooks that it watches are
// in place. There are none if the server cannot be asked, or is on another machine.
func processWalls(ctx context.Context, a *command.App) (walls []server.Wall) {
	cl, err := a.Client()
	if err != nil {
		return nil
	}
	var w kin.Walls
	if cl.Call(ctx, api.Get("/ops/walls"), &w) != nil || w.Host != kin.Host() {
		return nil
	}
	one := server.Wall{What: "processes", Stands: w.Processes}
	switch {
	case !w.Processes:
		one.Text = "the server cannot see which process calls: an agent with an operator's token decides; use passkeys"
	case w.UID == os.Getuid():
		one.Text = "the server sees which process calls, and refuses those of agents"
	default:
		one.Stands = false
		one.Text = "the server has a user of its own, and cannot tell which of your processes calls; use passkeys"
	}
	walls = append(walls, one)
	for _, h := range w.Hooks {
		if h.Host != w.Host {
			continue
		}
		one := server.Wall{What: "hooks", Stands: true, Text: "in place in " + h.File + ", and watched"}
		if err := hook.Intact(h); err != nil {
			one.Stands = false
			one.Text = fmt.Sprintf("%s: %s; run `signalbox hook install %s`", h.File, err, h.Tool)
		}
		walls = append(walls, one)
	}
	return walls
}

// isShared reports whether a folder is that in which a service shows where it is, and not its data folder.
func isShared(data string) bool {
	_, url := os.Stat(filepath.Join(data, server.URLFile))
	_, token := os.Stat(filepath.Join(data, server.TokenFile))
	return url == nil && os.IsNotExist(token)
}

// printWalls prints one line for each wall. An open wall is not a failed check: some are open because
// somebody wants them to be.
func printWalls(w output.Printer, walls []server.Wall) {
	w.Print("\nWalls:")
	for _, wall := range walls {
		mark := "stands"
		if !wall.Stands {
			mark = "OPEN"
		}
		w.Print("%-6s %-13s %s", mark, wall.What, wall.Text)
	}
}

// newAlarmsLs prints what nobody should have done, with what to do about it.
func newAlarmsLs(a *command.App) *command.Command {
	c := a.Listing("List the alarms that are open, the newest first")
	all := c.Flags().Bool("all", false, "those that were closed too")
	c.RunE = func(c *command.Command, _ []string) error {
		path := "/ops/alarms"
		if *all {
			path += "?all=true"
		}
		return command.Ask(c.Context(), a, api.Get(path), func(w output.Printer, list alarm.List) {
			if len(list.Alarms) == 0 {
				w.Print("There are no alarms.")
			}
			for _, one := range list.Alarms {
				w.Print("%s  %s  %s", one.ID, output.Since(one.RaisedAt), one.Title)
				w.Field("what", one.Detail)
				w.Field("agent", one.Agent)
				w.Field("closed by", one.ClosedBy)
				w.Field("note", one.Note)
			}
		})
	}
	return c
}

// newAlarmsClose closes one that somebody has looked at.
func newAlarmsClose(a *command.App) *command.Command {
	c := a.About("close ALARM_ID", "Close an alarm that you have looked at",
		"the id of an alarm, from `signalbox alarms ls`")
	note := c.Flags().String("note", "", "what you found")
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(
			c.Context(),
			a,
			api.Post(api.Path("/ops/alarms/{}/close", args[0]), alarm.Closing{Note: *note}),
			func(w output.Printer, one alarm.Alarm) { w.Print("%s is closed.", one.ID) },
		)
	}
	return c
}
