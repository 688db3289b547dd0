package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"signalbox/internal/cli/output"
	"signalbox/internal/server"
)

// examineWalls says which walls stand between agents or strangers and an operator's power: those of the
// data folder as this user finds it, and those of the server's settings. status is that of the
// running server, nil if none answers.
func examineWalls(data string, settings server.SettingList, status *server.Status) []server.Wall {
	walls := append([]server.Wall{userWall(data)}, settings.Walls()...)
	if status != nil && status.Forwarder != nil {
		f := status.Forwarder
		walls = append(walls, server.Wall{What: "unknown proxy", Text: fmt.Sprintf(
			"a reverse proxy at %s passes requests on (%s, last %s), and server.trusted_proxies does not name it. If it is "+
				"yours, set public_url, and run `signalbox config set server.trusted_proxies %s`; else find out who runs it.",
			f.Address, f.Sign, output.Since(f.At), f.Address)})
	}
	return walls
}

// userWall says whether the server's secrets are out of reach for what this user starts. Agents run as the
// person who starts them, and read what that person can read.
func userWall(data string) server.Wall {
	w := server.Wall{What: "own user"}
	info, err := os.Stat(data)
	if os.IsNotExist(err) {
		w.Text = "there is no data folder at " + data + " yet"
		return w
	}
	_, readable := os.Stat(filepath.Join(data, server.TokenFile))
	if os.IsPermission(err) || os.IsPermission(readable) {
		w.Stands, w.Text = true, "the server has a user of its own: this user cannot read "+data
		return w
	}
	owner := -1
	if stat, ok := infoSys(info); ok {
		owner = int(stat.Uid)
	}
	const how = "`sudo signalbox service install` gives the server a user of its own."
	switch {
	case err != nil:
		w.Text = "cannot look at " + data
	case info.Mode().Perm()&0o077 != 0:
		w.Text = "others may look into " + data + "; run chmod 700 on it"
	case owner == 0 && os.Getuid() == 0:
		w.Text = "the server runs as root, as what root starts does. " + how
	case owner == os.Getuid():
		w.Text = "the server runs as the user who runs this: every program of that user, agents too, can read its operator " +
			"token and its database. " + how
	default:
		w.Stands, w.Text = true, fmt.Sprintf("the server has a user of its own, %d; only that user and root can read %s",
			owner, data)
	}
	return w
}

// infoSys is the system's part of a file's information; there is none after an error.
func infoSys(info fs.FileInfo) (*syscall.Stat_t, bool) {
	if info == nil {
		return nil, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return stat, ok
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
