package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/run/engine"
)

// Spec says what a box is for.
type Spec struct {
	Engine  *engine.Engine
	Program string // of the engine, with its whole path
	Dir     string // the folder of the run, which its agent may change
	Own     string // a folder of this run alone, which its CLI may read
	Changed string // a folder in Own that its CLI may change, "" for none
	Self    string // Signalbox
	// Hidden are files and folders that are not to be seen, also where they are in the folder of the run.
	Hidden    []string
	Beside    []Bind   // what there is beside Dir; later ones lie over those before
	Server    string   // where the Signalbox server is called, "" for nowhere
	Forward   []string // further addresses of this machine that Signalbox has for the run, as HOST:PORT
	Unchanged bool     // the agent may not change Dir either
	Hosts     []string // what it may call beside that, as HOST or HOST:PORT
}

// Bind is a file or folder that is in a box as it is outside.
type Bind struct {
	Path     string
	Writable bool
}

// Box is a sandbox that is set up. Open makes it, Wrap puts a command into it, Close ends it.
type Box struct {
	spec    Spec
	start   []string // bubblewrap, with what it needs here
	args    []string // what is in the box
	forward []string
	proxy   string
	home    string
	logins  []login
	kept    []string  // folders outside that are changed in the box
	opened  time.Time // by the clock of files
	door    *door

	mu   sync.Mutex
	warn func(text string)
}

// Open sets a box up. Whatever it cannot do refuses the run.
func Open(ctx context.Context, s Spec) (b *Box, err error) {
	b = &Box{spec: s, home: engine.HomeDir(), warn: func(string) {}}
	if b.start, err = build(ctx); err != nil {
		return nil, err
	}
	if s.Own, err = filepath.EvalSymlinks(s.Own); err != nil {
		return nil, cannot(err, s.Own)
	}
	if err := b.checkDir(); err != nil {
		return nil, err
	}
	if err := b.fill(); err != nil {
		return nil, err
	}
	exact := slices.Clone(s.Forward)
	if s.Server != "" {
		target, err := serverTarget(s.Server)
		if err != nil {
			return nil, err
		}
		exact = append(exact, target)
	}
	b.door, err = openDoor(b.doorPath(), exact, s.Hosts, b.refused)
	if err != nil {
		return nil, err
	}
	b.listen()
	return b, nil
}

// serverTarget is the target for the address of a server.
func serverTarget(address string) (string, error) {
	at, err := url.Parse(address)
	if err != nil || at.Host == "" {
		return "", fault.New(fault.InvalidRequest, "The address of the server should look like http://127.0.0.1:7446, and is %.100q.", address)
	}
	if at.Port() == "" && at.Scheme == "http" {
		return Target(net.JoinHostPort(at.Hostname(), "80"))
	}
	return Target(at.Host)
}

// doorPath is where the door is, outside and inside.
func (b *Box) doorPath() string { return filepath.Join(b.spec.Own, "door.sock") }

// listen chooses where the inside listens: at the addresses that are this machine's outside, and at one for the proxy.
func (b *Box) listen() {
	taken := map[string]bool{}
	for _, target := range b.door.exact {
		host, port, _ := net.SplitHostPort(target)
		if ip := net.ParseIP(host); (host == "localhost" || ip != nil && ip.IsLoopback()) && !taken[port] {
			taken[port] = true
			b.forward = append(b.forward, net.JoinHostPort("127.0.0.1", port)+"="+target)
		}
	}
	port := 3128
	for taken[fmt.Sprint(port)] {
		port++
	}
	b.proxy = net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
}

// Look puts a command into the box that only looks at what is there.
func (b *Box) Look(cmd *exec.Cmd) { b.wrap(cmd) }

// Wrap puts a command into the box. warn is told what is refused to it.
func (b *Box) Wrap(cmd *exec.Cmd, warn func(text string)) {
	b.mu.Lock()
	b.warn = warn
	b.mu.Unlock()
	b.wrap(cmd)
}

func (b *Box) wrap(cmd *exec.Cmd) {
	args := append(append(slices.Clone(b.start), b.args...), "--chdir", cmp.Or(cmd.Dir, b.spec.Dir))
	args = append(args, "--", b.spec.Self, "runs", "inside", "--door", b.doorPath(), "--proxy", b.proxy)
	for _, one := range b.forward {
		args = append(args, "--forward", one)
	}
	args = append(append(args, "--", cmd.Path), cmd.Args[1:]...)
	cmd.Path, cmd.Args, cmd.Dir = b.start[0], args, ""
}

// refused tells people what the agent was refused.
func (b *Box) refused(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.warn(text)
}

// Env is what a command in the box has in its environment, beside what it is given.
func (b *Box) Env() []string {
	proxy := "http://" + b.proxy
	env := []string{"TMPDIR=/tmp", "IS_SANDBOX=1", "NODE_USE_ENV_PROXY=1"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		env = append(env, name+"="+proxy)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		env = append(env, name+"=localhost,127.0.0.1")
	}
	if b.spec.Server != "" {
		env = append(env, "SIGNALBOX_SERVER="+b.spec.Server)
	}
	return env
}

// Unset are variables that lead to what is outside of the box.
var Unset = []string{
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
	"XDG_RUNTIME_DIR", "ALL_PROXY", "all_proxy",
}

// Close ends the box: its command is gone by now.
func (b *Box) Close() {
	b.door.close()
	for _, one := range b.logins {
		one.carryBack()
	}
	for _, folder := range b.kept {
		b.unlink(folder)
	}
}

// checkDir refuses a folder that would bring along what the box is to keep out.
func (b *Box) checkDir() error {
	s := &b.spec
	origin, err := filepath.EvalSymlinks(s.Dir)
	if info, e := os.Stat(origin); err != nil || e != nil || !info.IsDir() {
		return fault.New(fault.InvalidRequest, "A run in a sandbox works in a folder that is there, and %.200q is none.", s.Dir).About("dir")
	}
	home, _ := filepath.EvalSymlinks(b.home)
	refuse := func(what string) error {
		return fault.New(fault.InvalidRequest, "A run in a sandbox cannot work in %.200q: %s. Give it a folder of its own, such as that "+
			"of a repository.", s.Dir, what).About("dir")
	}
	for _, dir := range []string{s.Dir, origin} {
		switch {
		case within(home, dir), within(b.home, dir):
			return refuse("that has your home folder")
		case within(s.Own, dir), within(s.Self, dir) && dir == "/":
			return refuse("that has the folder for temporary files")
		case isSystem(dir), slices.ContainsFunc(append([]string{"/etc", "/proc", "/dev", "/run", "/sys"}, systemFolders...),
			func(one string) bool { return within(one, dir) }):
			return refuse("that is a part of the system")
		}
	}
	for _, f := range b.folders() {
		if at, err := filepath.EvalSymlinks(f.Path); err == nil && (within(origin, at) || within(at, origin)) {
			return refuse("there " + s.Engine.Name + " keeps its own things")
		}
	}
	for _, hidden := range s.Hidden {
		if at, err := filepath.EvalSymlinks(hidden); err == nil && within(origin, at) {
			return refuse("that belongs to the Signalbox server")
		}
	}
	return nil
}

// folders are those of the engine, for this user.
func (b *Box) folders() []engine.Folder { return b.spec.Engine.Folders(b.home, os.Getenv) }

// fill decides what is in the box. What comes later lies over what came before.
func (b *Box) fill() error {
	s := b.spec
	own := filepath.Join(s.Own, "box")
	add := func(args ...string) { b.args = append(b.args, args...) }
	for _, name := range []string{"home", "tmp", "nothing"} {
		if err := os.MkdirAll(filepath.Join(own, name), 0o700); err != nil {
			return cannot(err, own)
		}
	}
	empty := filepath.Join(own, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		return cannot(err, own)
	}
	info, err := os.Lstat(empty)
	if err != nil {
		return cannot(err, own)
	}
	b.opened = changed(info)
	add(system()...)
	add("--bind", filepath.Join(own, "tmp"), "/tmp", "--bind", filepath.Join(own, "tmp"), "/var/tmp")
	add("--bind", filepath.Join(own, "home"), b.home)
	for i, f := range b.folders() {
		args, err := b.folder(f, filepath.Join(own, fmt.Sprint("folder", i)))
		if err != nil {
			return err
		}
		add(args...)
	}
	add(programs(s.Program, b.home, 0)...)
	origin, _ := filepath.EvalSymlinks(s.Dir)
	bind := "--bind"
	if s.Unchanged {
		bind = "--ro-bind"
	}
	for _, dir := range slices.Compact([]string{s.Dir, origin}) {
		add(bind, origin, dir)
		args, err := repository(origin, dir)
		if err != nil {
			return err
		}
		add(args...)
	}
	for _, one := range s.Beside {
		if one.Writable {
			add("--bind", one.Path, one.Path)
		} else {
			add("--ro-bind", one.Path, one.Path)
		}
	}
	for _, hidden := range s.Hidden {
		at, err := filepath.EvalSymlinks(hidden)
		if err != nil || !within(at, origin) {
			continue // not there, or not in the box anyway
		}
		rest := strings.TrimPrefix(at, origin)
		for _, dir := range slices.Compact([]string{s.Dir, origin}) {
			if info, err := os.Stat(at); err == nil && info.IsDir() {
				add("--ro-bind", filepath.Join(own, "nothing"), dir+rest)
			} else {
				add("--ro-bind", empty, dir+rest)
			}
		}
	}
	add("--ro-bind", s.Own, s.Own, "--ro-bind", filepath.Join(own, "nothing"), own)
	if s.Changed != "" {
		add("--bind", s.Changed, s.Changed)
	}
	if !isSystem(s.Self) {
		add("--ro-bind", s.Self, s.Self)
	}
	add("--remount-ro", "/")
	return nil
}

// repository are the arguments that keep the agent from what makes git run programs: hooks and settings, which a person's
// next command of git would obey. All of what git keeps stays as it is; a run with a worktree of its own can commit.
func repository(origin, dir string) (args []string, err error) {
	git := filepath.Join(origin, ".git")
	info, err := os.Lstat(git)
	switch {
	case os.IsNotExist(err):
		return nil, nil
	case err != nil:
		return nil, cannot(err, git)
	case info.Mode()&os.ModeSymlink != 0:
		return nil, fault.New(fault.InvalidRequest, "A run in a sandbox cannot work in %.200q: its .git is a link, which the agent could "+
			"replace.", dir).About("dir")
	}
	args = append(args, "--ro-bind", git, filepath.Join(dir, ".git"))
	// The same holds for submodules: a person's git looks into them.
	text, _ := os.ReadFile(filepath.Join(origin, ".gitmodules"))
	for line := range strings.Lines(string(text)) {
		name, path, _ := strings.Cut(line, "=")
		path = strings.TrimSpace(path)
		if strings.TrimSpace(name) != "path" || !filepath.IsLocal(path) {
			continue
		}
		for _, one := range []string{filepath.Join(path, ".git"), path} { // one that is not there yet stays as it is
			from, err := filepath.EvalSymlinks(filepath.Join(origin, one))
			if err == nil && within(from, origin) {
				args = append(args, "--ro-bind", from, filepath.Join(dir, one))
				break
			}
		}
	}
	return args, nil
}

// cannot is the error about something that could not be set up.
func cannot(err error, path string) error {
	return fault.Wrap(err, fault.StoreReadOnly, "Cannot prepare the sandbox of the run in %s.", path)
}
