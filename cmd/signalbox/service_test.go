package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/testbed"
)

// installed is a service below a folder, as `service install --root` leaves it.
func installed(t *testing.T) (root, unit string) {
	t.Helper()
	root = t.TempDir()
	mustRun(t, root, "service", "install", "--root", root, "--data", "/var/lib/signalbox", "--listen", "127.0.0.1:0")
	text := testbed.Read(t, root+"/etc/systemd/system/signalbox.service")
	return root, string(text)
}

func TestTheServiceIsWhatSystemdTakes(t *testing.T) {
	t.Parallel()
	root, unit := installed(t)
	testbed.Program(t, "systemd-analyze")
	// The program of the unit is below the folder, and systemd looks for it.
	file := filepath.Join(t.TempDir(), "signalbox.service")
	local := strings.ReplaceAll(unit, "/usr/local/bin/signalbox", root+"/usr/local/bin/signalbox")
	testbed.Write(t, file, local)
	for _, args := range [][]string{{"verify", file}, {"security", "--offline=yes", "--threshold=20", file}} {
		out, err := exec.CommandContext(testbed.Context(t), "systemd-analyze", args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
		}
	}

	before, err := os.Stat(root + "/etc/systemd/system/signalbox.service")
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, root, "service", "install", "--root", root, "--data", "/var/lib/signalbox", "--listen", "127.0.0.1:0")
	after, err := os.Stat(root + "/etc/systemd/system/signalbox.service")
	if err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a second installation changes something: %v", err)
	}
	data := root + "/var/lib/signalbox/kept"
	testbed.Folder(t, data)
	for _, want := range []string{"The service is gone", "There is no service"} {
		if out := mustRun(t, root, "service", "uninstall", "--root", root); !strings.Contains(out, want) {
			t.Errorf("uninstall: %s", out)
		}
	}
	_ = filepath.WalkDir(filepath.Join(root, "etc"), func(path string, d fs.DirEntry, _ error) error {
		if !d.IsDir() {
			t.Errorf("uninstall leaves %s", path)
		}
		return nil
	})
	if _, err := os.Stat(data); err != nil {
		t.Errorf("uninstall takes the data: %v", err)
	}

	for args, want := range map[string]string{
		"--user root": "a user of its own", "--user a;b": "a user of its own", "--data data": "an absolute path",
		"--data /var/lib/x%n": "an absolute path", "--listen 7446": "an address and a port",
	} {
		code, out := run(t, root, append([]string{"service", "install", "--print"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s", args, code, out)
		}
	}
}

// The users of TestTheServiceHasAUserOfItsOwn. No machine has them: systemd and Debian give out neither.
const (
	serviceUser  = 64001
	personUser   = 64002 // a member of the service's group
	strangerUser = 64003
)

// TestTheServiceHasAUserOfItsOwn runs the line of the unit as its user, with the folders as systemd makes them. A person,
// and the agents of that person, can use the hooks and read nothing of the server.
func TestTheServiceHasAUserOfItsOwn(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		testbed.Missing(t, "this test becomes other users, which takes root")
	}
	root, unit := installed(t)
	data, shared := filepath.Join(root, "state"), filepath.Join(root, "run")
	program := root + "/usr/local/bin/signalbox"
	for dir, mode := range map[string]os.FileMode{
		data: octal(t, unit, "StateDirectoryMode"), shared: octal(t, unit, "RuntimeDirectoryMode"),
	} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, serviceUser, serviceUser); err != nil {
			t.Fatal(err)
		}
	}
	passable(t, root)
	line := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)[1]
	line = strings.NewReplacer("/usr/local/bin/signalbox", program, "/var/lib/signalbox", data).Replace(line)
	as := func(user uint32, groups []uint32, name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.Background(), name, args...)
		cmd.Dir, cmd.Env = "/", append(cleanEnv(), "HOME="+shared, "SIGNALBOX_DATA="+shared)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: groups}}
		return cmd
	}
	words := strings.Fields(line)
	server := as(serviceUser, nil, words[0], words[1:]...)
	environment := regexp.MustCompile(`(?m)^Environment=(\S+)=`).FindStringSubmatch(unit)[1]
	server.Env = append(cleanEnv(), environment+"="+shared)
	log := &testbed.Buffer{}
	server.Stdout, server.Stderr = log, log
	testbed.Background(t, server)
	testbed.Until(t, "the service is ready", func() bool { return strings.Contains(log.String(), "is ready at") }, log)
	if strings.Contains(log.String(), "code=") {
		t.Errorf("the journal has a sign-in code:\n%s", log)
	}

	// `systemctl reload` is this line, as the same user.
	line = regexp.MustCompile(`(?m)^ExecReload=(.*)$`).FindStringSubmatch(unit)[1]
	line = strings.NewReplacer("/usr/local/bin/signalbox", program, "/var/lib/signalbox", data).Replace(line)
	words = strings.Fields(line)
	text, err := as(serviceUser, nil, words[0], words[1:]...).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "Nothing has changed") {
		t.Errorf("reload: %v %s", err, text)
	}

	for user, groups := range map[uint32][]uint32{personUser: {serviceUser}, strangerUser: nil} {
		for _, file := range []string{"operator.token", "signalbox.db", "ledger.key", "webhook.key", "server.url", "lock"} {
			if out, err := as(user, groups, "cat", filepath.Join(data, file)).CombinedOutput(); err == nil ||
				!strings.Contains(string(out), "Permission denied") {
				t.Errorf("user %d reads %s: %v %s", user, file, err, out)
			}
		}
	}
	out, err := as(personUser, []uint32{serviceUser}, "cat", filepath.Join(shared, "server.url")).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "http://127.0.0.1:") {
		t.Errorf("a member of the group does not find the server: %v %s", err, out)
	}
	// A hook of the person is answered by the server, one of a stranger is denied in its place.
	const event = `{"jsonrpc":"2.0","id":1,"method":"ahp/handshake","params":{"protocol_version":"2.4","agent_info":` +
		`{"framework":"test","version":"1","capabilities":[]},"session_id":"s1","agent_id":"x"}}`
	ask := func(user uint32, groups []uint32) string {
		cmd := as(user, groups, program, "harness", "stdio")
		cmd.Stdin = strings.NewReader(event + "\n")
		var out bytes.Buffer
		cmd.Stdout = &out
		timer := time.AfterFunc(testbed.Patience, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		_ = cmd.Run()
		return out.String()
	}
	ask(personUser, []uint32{serviceUser})
	ask(strangerUser, nil)
	names := agentsOf(t, as(serviceUser, nil, program, "agents", "ls", "--json", "--data", data))
	if !strings.Contains(names, "local-64002") || strings.Contains(names, "local-64003") {
		t.Errorf("agents: %s", names)
	}
	refused, _ := as(personUser, nil, program, "service", "install").CombinedOutput()
	if !strings.Contains(string(refused), "takes root") {
		t.Errorf("without root: %s", refused)
	}
	walls, _ := as(personUser, []uint32{serviceUser}, program, "doctor").CombinedOutput()
	if !strings.Contains(string(walls), "stands own user") {
		t.Errorf("doctor of the person: %s", walls)
	}
}

// passable lets every user reach what is in a folder.
func passable(t *testing.T, folder string) {
	t.Helper()
	for dir := folder; dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			if err := os.Chmod(dir, 0o711); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// octal is a mode in the unit.
func octal(t *testing.T, unit, key string) (mode os.FileMode) {
	t.Helper()
	found := regexp.MustCompile(key + `=0([0-7]{3})`).FindStringSubmatch(unit)
	if found == nil {
		t.Fatalf("the unit has no %s:\n%s", key, unit)
	}
	for _, digit := range found[1] {
		mode = mode<<3 | os.FileMode(digit-'0')
	}
	return mode
}

// agentsOf is what a command prints.
func agentsOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return string(out)
}
