package kin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"signalbox/internal/proc"
	"signalbox/internal/testbed"
)

func TestTheProcessBehindAHookIsFound(t *testing.T) {
	for _, c := range []struct {
		name        string
		args, shell []string
		pipe, runs  bool
	}{
		{"a hook", []string{"/opt/signalbox", "hook", "claude-code", "--data", "/d"}, nil, true, false},
		{
			"behind the shell of a CLI",
			[]string{"/opt/signalbox", "hook", "claude-code", "--data", "/d"},
			[]string{"/bin/sh", "-c", "/opt/signalbox hook claude-code --data '/d' || exit 2"},
			true, true,
		},
		{
			"a CLI that was told about hooks",
			[]string{"/opt/signalbox", "hook", "claude-code", "--data", "/d"},
			[]string{"claude", "-p", "why does /opt/signalbox hook claude-code --data /d fail?"},
			true, false,
		},
		{
			"behind a program that ends it in time",
			[]string{"signalbox", "hook", "claude-code"},
			[]string{"timeout", "-s", "KILL", "26", "signalbox", "hook", "claude-code"},
			true, true,
		},
		{"a pipe", []string{"signalbox", "harness", "stdio"}, nil, true, false},
		{"a client", []string{"a3s", "code"}, nil, false, false},
		{"nothing", nil, nil, false, false},
	} {
		if got := isPipe(c.args); got != c.pipe {
			t.Errorf("%s: isPipe is %v", c.name, got)
		}
		if got := runs(c.shell, c.args); got != c.runs {
			t.Errorf("%s: runs is %v", c.name, got)
		}
	}
}

func TestACommandAtAPromptIsAPersons(t *testing.T) {
	shell := proc.Process{ID: proc.ID{PID: 10}, Group: 10, Session: 10, Terminal: 7, Foreground: 20}
	typedCommand := proc.Process{ID: proc.ID{PID: 20}, Parent: 10, Group: 20, Session: 10, Terminal: 7, Foreground: 20}
	inBackground := typedCommand
	inBackground.Foreground = 30
	cli := shell
	cli.PID, cli.Group = 11, 20
	if !typed(typedCommand, shell) || typed(inBackground, shell) || typed(typedCommand, cli) {
		t.Error("a prompt is taken for a CLI, or the other way round")
	}
}

func TestAnAgentWithItsHarnessInItsCommandLineIsTheClient(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		return testbed.Script(t, filepath.Join(dir, name), text)
	}
	pipe := write("signalbox", "echo $$; read line\n")
	agent := write("agent", "\"$@\"; exit $?\n")
	cmd := exec.CommandContext(t.Context(), agent, pipe, "harness", "stdio")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	line := proc.Line(pid)
	// As if a person had typed it: its group is in front, and its shell leads the session.
	line[1].Terminal, line[1].Group, line[1].Foreground = 7, cmd.Process.Pid, cmd.Process.Pid
	line[2].Session, line[2].Group = line[2].PID, line[2].PID
	if got, ok := client(line); !ok || got.PID != cmd.Process.Pid {
		t.Errorf("the client is %d (%v), want %d", got.PID, ok, cmd.Process.Pid)
	}
	_ = in.Close()
	_ = cmd.Wait() // it has nothing more to say
}

func TestKinAreFoundByTheirParents(t *testing.T) {
	own, _ := proc.Read(os.Getpid())
	cgroup, uid := own.Cgroup(), own.UID()
	init := proc.Process{ID: proc.ID{PID: 1, Start: 1}}
	shell := proc.Process{ID: proc.ID{PID: -10, Start: 100}, Parent: 1}
	cli := proc.Process{ID: proc.ID{PID: -11, Start: 200}, Parent: -10}
	tool := proc.Process{ID: proc.ID{PID: -12, Start: 300}, Parent: -11}
	approve := proc.Process{ID: proc.ID{PID: -13, Start: 300}, Parent: -10}
	supervisor := proc.Process{ID: proc.ID{PID: -14, Start: 250}, Parent: -10}
	root := &Root{ID: cli.ID, Cgroup: cgroup, UID: uid}
	below := &Root{ID: supervisor.ID, Cgroup: cgroup, UID: uid, Below: true}
	roots := map[proc.ID]*Root{root.ID: root, below.ID: below}
	ended := map[proc.ID]*Root{root.ID: {ID: cli.ID, Cgroup: cgroup, UID: uid, ended: own.Start - 1}}
	for _, c := range []struct {
		name  string
		line  []proc.Process
		roots map[proc.ID]*Root
		want  bool
	}{
		{"the CLI", []proc.Process{cli, shell, init}, roots, true},
		{"what it runs", []proc.Process{tool, cli, shell, init}, roots, true},
		{"another process with its number", []proc.Process{{ID: proc.ID{PID: -11, Start: 900}}, shell, init}, roots, false},
		{"the shell that started it", []proc.Process{shell, init}, roots, false},
		{"a command of that shell", []proc.Process{approve, shell, init}, roots, false},
		{"a supervisor", []proc.Process{supervisor, shell, init}, roots, false},
		{"what a supervisor starts", []proc.Process{tool, supervisor, shell, init}, roots, true},
		{"one that was detached", []proc.Process{own, init}, roots, true},
		{"a child of one that was detached", []proc.Process{approve, own, init}, roots, true},
		{"one that was started after the agent's end", []proc.Process{own, init}, ended, false},
		{"one from outside of the namespace", []proc.Process{own}, roots, false},
	} {
		if got := belongs(c.line, c.roots, 0); (got != nil) != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if got := belongs([]proc.Process{own, init}, roots, own.PID); got != nil {
		t.Errorf("the server itself: %v", got)
	}
}
