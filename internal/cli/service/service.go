// Package service is `signalbox service`: it installs the server as a service of systemd with a user of
// its own, so that what runs as a person, agents too, can read neither its token nor its database.
//
// It writes files and calls the programs of the system that make users and start services. It talks to no
// server and knows no setting but those of the unit. Installing twice changes nothing; removing leaves
// the data and the user, who owns it.
package service

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/file"
)

// New is the group `service`.
func New(a *command.App) *command.Command {
	return command.Group("service", "The server as a service of systemd, with a user of its own: install, uninstall",
		newInstall(a), newUninstall(a))
}

// installer writes an installation below root, "" for this machine.
type installer struct {
	app *command.App
	Service
	root    string
	changed bool // a file is not what it was
}

// newInstall is `service install`.
func newInstall(a *command.App) *command.Command {
	c := &command.Command{
		Use: "install", Short: "Install the server as a service of systemd, with a user of its own",
		Long: `Install the server as a service of systemd. It gets a user of its own, a data folder that only this user
can read, and a unit that lets it do little else. Programs of other users, agents too, can then read
neither the operator token nor the database. Members of the user's group may use the socket for
hooks, in ` + command.SharedFolder + `; people sign in with ` + "`signalbox login --cli`" + `.

The program is copied to ` + programFile + `, unless it is in a folder of the system already.`,
		Example: "  sudo signalbox service install\n  signalbox service install --print", Args: command.NoArguments(),
	}
	i := &installer{app: a}
	var allow string
	var show bool
	c.Flags().StringVar(&i.User, "user", "signalbox", "the user of the service, made if there is none")
	c.Flags().StringVar(&i.Listen, "listen", "127.0.0.1:7446", "the address to listen on")
	c.Flags().StringVar(&allow, "allow", os.Getenv("SUDO_USER"), "a user whose agents are supervised by the service: joins its group")
	c.Flags().BoolVar(&show, "print", false, "print the unit, and change nothing")
	rootFlag(c, &i.root)
	c.RunE = func(c *command.Command, _ []string) error {
		if err := i.complete(); err != nil {
			return err
		}
		if show {
			for line := range strings.Lines(i.unit()) {
				a.Out.Print("%s", strings.TrimSuffix(line, "\n"))
			}
			return nil
		}
		if err := i.mayWrite("install"); err != nil {
			return err
		}
		return i.install(c.Context(), allow)
	}
	return c
}

// newUninstall is `service uninstall`.
func newUninstall(a *command.App) *command.Command {
	c := &command.Command{
		Use: "uninstall", Short: "Stop the service and remove it; its data and its user stay", Args: command.NoArguments(),
	}
	i := &installer{app: a}
	rootFlag(c, &i.root)
	c.RunE = func(c *command.Command, _ []string) error {
		if err := i.mayWrite("uninstall"); err != nil {
			return err
		}
		return i.uninstall(c.Context())
	}
	return c
}

// rootFlag is for those who build images.
func rootFlag(c *command.Command, root *string) {
	c.Flags().StringVar(root, "root", "", "write below this folder and start nothing, to build an image")
}

// userForm is what Debian takes for the name of a system user.
var userForm = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,30}$`)

// complete checks what was given and fills in the rest. A unit is lines and words, so what would end either is
// refused.
func (i *installer) complete() error {
	if i.Data = i.app.Data; i.Data == "" {
		i.Data = stateFolder + "signalbox"
	}
	switch {
	case !userForm.MatchString(i.User) || i.User == "root":
		return command.Usage("--user should be the name of a user of its own, such as signalbox, and is %q.", i.User)
	case !filepath.IsAbs(i.Data) || strings.ContainsAny(i.Data, " \t\n%\"'\\$;") || i.Data != filepath.Clean(i.Data):
		return command.Usage("--data should be an absolute path without blanks, such as /var/lib/signalbox, and is %q.", i.Data)
	case strings.ContainsAny(i.Listen, " \t\n%\"'\\$;") || !strings.Contains(i.Listen, ":"):
		return command.Usage("--listen should be an address and a port, such as 127.0.0.1:7446, and is %q.", i.Listen)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// A program that somebody else can replace would run with the service's power.
	if i.Program = programFile; slices.Contains([]string{"/usr/bin", "/usr/local/bin"}, filepath.Dir(self)) && i.root == "" {
		i.Program = self
	}
	return nil
}

// mayWrite refuses who may not change the system.
func (i *installer) mayWrite(what string) error {
	if i.root == "" && os.Getuid() != 0 {
		return fault.New(fault.Forbidden,
			"This changes the system and takes root: run `sudo signalbox service %s`. `signalbox service install --print` shows "+
				"the unit.", what)
	}
	return nil
}

// install writes the files, makes the user and starts the service.
func (i *installer) install(ctx context.Context, allow string) error {
	if err := i.copyProgram(); err != nil {
		return err
	}
	if err := i.write(sysusersFile, []byte(i.sysusers()), 0o644); err != nil {
		return err
	}
	if err := i.write(unitFile, []byte(i.unit()), 0o644); err != nil {
		return err
	}
	if i.root != "" {
		i.app.Out.Print("Wrote the service below %s. systemd-sysusers makes its user when the image starts.", i.root)
		return nil
	}
	if err := i.makeUser(ctx); err != nil {
		return err
	}
	if allow != "" && allow != "root" {
		if err := call(ctx, "usermod", "-a", "-G", i.User, allow); err != nil {
			return err
		}
	}
	if err := i.makeData(); err != nil {
		return err
	}
	return i.start(ctx, allow)
}

// copyProgram puts this program where only root can change it.
func (i *installer) copyProgram() error {
	self, err := os.Executable()
	if err != nil || i.Program == self {
		return err
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return i.write(i.Program, text, 0o755)
}

// write writes a file as a whole, if it is not there yet with the same content.
func (i *installer) write(path string, text []byte, mode fs.FileMode) error {
	path = filepath.Join(i.root, path)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return os.Chmod(path, mode)
	}
	i.changed = true
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = file.Replace(path, text, mode)
	}
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Check that the file system is not read-only.", path)
	}
	return nil
}

// makeUser makes the user and its group. systemd-sysusers does nothing if they exist.
func (i *installer) makeUser(ctx context.Context) error {
	if _, err := exec.LookPath("systemd-sysusers"); err == nil {
		return call(ctx, "systemd-sysusers", sysusersFile)
	}
	if call(ctx, "getent", "passwd", i.User) == nil {
		return nil
	}
	return call(ctx, "useradd", "--system", "--user-group", "--home-dir", i.Data, "--shell", "/usr/sbin/nologin", i.User)
}

// makeData makes a data folder that is not below the folder of systemd, which makes the others.
func (i *installer) makeData() error {
	if strings.HasPrefix(i.Data, stateFolder) {
		return nil
	}
	if err := os.MkdirAll(i.Data, 0o700); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot create the data folder %s.", i.Data)
	}
	return errors.Join(call(context.Background(), "chown", i.User+":", i.Data), os.Chmod(i.Data, 0o700))
}

// start has systemd run the service, if there is one.
func (i *installer) start(ctx context.Context, allow string) error {
	if !systemdRuns() {
		i.app.Out.Print("Wrote %s. systemd does not run here; `systemctl enable --now signalbox` starts it where it does.", unitFile)
		return nil
	}
	steps := [][]string{{"daemon-reload"}, {"enable", "--now", "signalbox"}}
	if i.changed {
		steps = append(steps, []string{"restart", "signalbox"})
	}
	for _, step := range steps {
		if err := call(ctx, "systemctl", step...); err != nil {
			return err
		}
	}
	i.app.Out.Print("Signalbox runs as the user %s, with its data in %s.", i.User, i.Data)
	if allow != "" {
		i.app.Out.Print("%s joined the group %s, which holds from the next sign-in on.", allow, i.User)
	}
	i.app.Out.Print("Sign in to the dashboard:   sudo signalbox login --data %s", i.Data)
	i.app.Out.Print("Sign in on a terminal:      signalbox login --cli")
	return nil
}

// systemdRuns reports whether systemd is what started this machine.
func systemdRuns() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// uninstall stops the service and removes its files.
func (i *installer) uninstall(ctx context.Context) error {
	runs := i.root == "" && systemdRuns()
	if _, err := os.Stat(filepath.Join(i.root, unitFile)); errors.Is(err, fs.ErrNotExist) {
		i.app.Out.Print("There is no service to remove.")
		return nil
	}
	if runs {
		if err := call(ctx, "systemctl", "disable", "--now", "signalbox"); err != nil {
			return err
		}
	}
	for _, path := range []string{unitFile, sysusersFile} {
		if err := os.Remove(filepath.Join(i.root, path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(err, fault.StoreReadOnly, "Cannot remove %s.", filepath.Join(i.root, path))
		}
	}
	if runs {
		if err := call(ctx, "systemctl", "daemon-reload"); err != nil {
			return err
		}
	}
	i.app.Out.Print("The service is gone. Its data, its user and %s are still there.", programFile)
	return nil
}

// call runs a program of the system. Its own words are part of the error.
func call(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Conflict, "`%s %s` failed: %s", name, strings.Join(args, " "),
		strings.TrimSpace(string(out)))
}
