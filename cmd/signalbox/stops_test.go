package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/testbed"
)

// stopped is an agent whose model the test speaks for, in a folder of its own. Its hooks start program, which
// is ours, and can be taken away.
type stopped struct {
	*process
	folder, program string
	// says has the agent run a shell command, and returns what its model then hears.
	says func(command string) string
	// end ends the agent.
	end func()
	// changes says that the agent does what a rule has made of its call.
	changes bool
}

// newStopped is an agent before it is started: a server with the rules, and folders.
func newStopped(t *testing.T) *stopped {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	s := &stopped{process: up(t, dir), folder: filepath.Join(root, "app"), program: filepath.Join(root, "signalbox")}
	mustRun(t, dir, "policy", "apply", writeFile(t, stopRules))
	err := os.Mkdir(s.folder, 0o700)
	if err == nil {
		err = os.Link(binary, s.program)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stopRules decide about commands by a word in them.
const stopRules = `version: 1
rules:
  - {name: no, on: [action], when: 'event.command.contains("forbidden")', then: block, reason: "Not here."}
  - {name: person, on: [action], when: 'event.command.contains("pending")', then: gate, reason: "A person looks."}
  - {name: later, on: [action], when: 'event.command.contains("busy")', then: defer, retry_after: 7s,` +
	` reason: "The line is taken."}
  - {name: softly, on: [action], when: 'event.command.contains("original")', then: modify,` +
	` set: {arguments: {command: "touch changed"}}}
`

// has reports whether a file was made.
func (s *stopped) has(name string) bool {
	_, err := os.Stat(filepath.Join(s.folder, name))
	return err == nil
}

// try has the agent make a file, and checks whether it is made and what the model hears.
func (s *stopped) try(name string, made bool, hears ...string) {
	s.t.Helper()
	told := s.says("touch " + name)
	if s.has(name) != made {
		s.t.Errorf("%s was made: %v; the model was told %s", name, !made, told)
	}
	for _, text := range hears {
		if !strings.Contains(told, text) {
			s.t.Errorf("%s: the model was not told %q: %s", name, text, told)
		}
	}
}

// decisionsHold goes through what a rule or a person can say. Nothing happens but what was allowed, and
// the ledger names who decided.
func (s *stopped) decisionsHold(t *testing.T) {
	t.Helper()
	s.try("allowed", true)
	s.try("forbidden", false, "Not here.")
	s.try("pending", false, "gate_", "again")
	mustRun(t, s.dir, "gates", "approve", s.pending(t), "--note", "I looked.")
	s.try("pending", true)
	s.try("busy", false, "The line is taken.", "again in 7 s")
	s.try("original", false)
	if s.has("changed") != s.changes {
		t.Errorf("the agent did what the rule wants instead: %v", s.has("changed"))
	}
	want := []verdict{
		{"allow", "default"}, {"block", "no"}, {"gate", "person"}, {"defer", "later"}, {"modify", "softly"},
	}
	if diff := cmp.Diff(want, decisions(s.process)); diff != "" {
		t.Errorf("what was tried (-) and the ledger (+):\n%s", diff)
	}
}

// failuresHold has the server killed while a call waits, and before one is made.
func (s *stopped) failuresHold(t *testing.T) {
	t.Helper()
	told := make(chan string, 1)
	go func() { told <- s.says("touch pending-2") }()
	s.pending(t)
	s.kill()
	if said := testbed.Receive(t, "the agent", told); s.has("pending-2") || !strings.Contains(said, "refused") {
		t.Errorf("the server was killed while a call waited: %s", said)
	}
	s.try("dead", false, "refused")
}

// programFailsHold takes the program of the hooks away, and has it crash.
func (s *stopped) programFailsHold(t *testing.T) {
	t.Helper()
	if err := os.Remove(s.program); err != nil {
		t.Fatal(err)
	}
	s.try("missing", false)
	testbed.Script(t, s.program, "kill -SEGV $$\n")
	s.try("crashed", false)
	err := os.Remove(s.program)
	if err == nil {
		err = os.Link(binary, s.program)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stopCLIs are the CLIs of the matrix: the name in realCLIs, and where the program comes from.
var stopCLIs = map[string]struct{ name, program string }{
	"claude-code 2.1.197": {"claude-code", "signalbox-test-tools-locked/claude"},
	"claude-code newest":  {"claude-code", "signalbox-test-newest-locked/claude"},
	"codex":               {"codex", "signalbox-test-clis-locked/codex"},
	"gemini":              {"gemini", "signalbox-test-clis-locked/gemini"},
}

// startCLI starts a real CLI with our hooks. install are more flags of `hook install`, args the arguments of
// the CLI; nil are those with which it asks nobody but its hooks.
func (s *stopped) startCLI(t *testing.T, which string, install []string, args func(*stopped, *model) []string) *model {
	t.Helper()
	cli := realCLIs[stopCLIs[which].name]
	home, m := filepath.Join(filepath.Dir(s.folder), "home"), startModel(t, cli.api)
	env := append(append(cleanEnv(), cli.env(m)...), "HOME="+home, "NO_PROXY=*", "TERM=dumb")
	testbed.Write(t, filepath.Join(home, ".gemini", "settings.json"),
		`{"security": {"auth": {"selectedType": "gemini-api-key"}}}`)
	hooks := exec.CommandContext(t.Context(), s.program,
		append([]string{"hook", "install", stopCLIs[which].name, "--data", s.dir}, install...)...)
	hooks.Env = env
	if out, err := hooks.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if args == nil {
		args = func(s *stopped, m *model) []string { return cli.args(&site{root: filepath.Dir(s.folder)}, m) }
	}
	cmd := exec.CommandContext(t.Context(), npmProgram(t, stopCLIs[which].program), args(s, m)...)
	cmd.Dir, cmd.Env = s.folder, env
	runLogged(t, cmd)
	m.hear()
	s.says = func(command string) string { return m.say(cli.call(action{command: command})) }
	s.end = func() {
		m.says <- turn{text: "It is done."}
		_ = cmd.Wait() // its code may tell of hooks that could not report
	}
	return m
}

// TestStopsHoldInEveryCLI is the matrix: what the policy, a person, a server that dies and a program that is
// gone stop is not done by any CLI, although it asks nobody but its hooks.
func TestStopsHoldInEveryCLI(t *testing.T) {
	t.Parallel()
	for which := range stopCLIs {
		testbed.Parallel(t, which, func(t *testing.T) {
			s := newStopped(t)
			s.startCLI(t, which, nil, nil)
			s.changes = stopCLIs[which].name != "claude-code" // which would ask, and nobody is there
			s.decisionsHold(t)
			s.programFailsHold(t)
			s.failuresHold(t)
			s.end()
		})
	}
}

// ownPermissions are the arguments with which a CLI asks somebody who is not there before it runs a command.
var ownPermissions = map[string]func(s *stopped, m *model) []string{
	"claude-code 2.1.197": func(*stopped, *model) []string { return []string{"-p", "Try them."} },
	"claude-code newest":  func(*stopped, *model) []string { return []string{"-p", "Try them."} },
	"codex": func(_ *stopped, m *model) []string {
		bypass := realCLIs["codex"].args(nil, m) // what comes after the flag that skips approvals and the sandbox
		return append([]string{"exec", "--skip-git-repo-check", "--sandbox", "read-only"}, bypass[2:]...)
	},
	"gemini": func(*stopped, *model) []string {
		return []string{
			"--allowed-tools", "run_shell_command(touch original)", "--model", "gemini-2.5-flash", "--prompt", "Try them.",
		}
	},
}

// TestThePolicyDoesNotWidenTheCLIsOwnPermissions: what a rule allows or changes, and without --final what a
// person approves, is still a matter of the CLI's own permissions. With --final a person's word is the last.
func TestThePolicyDoesNotWidenTheCLIsOwnPermissions(t *testing.T) {
	t.Parallel()
	for which, args := range ownPermissions {
		for _, final := range []bool{false, true} {
			if final && stopCLIs[which].name != "claude-code" {
				continue
			}
			testbed.Parallel(t, fmt.Sprintf("%s final %v", which, final), func(t *testing.T) {
				s := newStopped(t)
				s.startCLI(t, which, map[bool][]string{true: {"--final"}}[final], args)
				s.try("allowed", false)
				s.try("original", false)
				if s.has("changed") {
					t.Error("a change of the policy went past the CLI's own permissions")
				}
				s.try("pending", false)
				mustRun(t, s.dir, "gates", "approve", s.pending(t), "--note", "I looked.")
				s.try("pending", final)
				s.end()
			})
		}
	}
}

// a3sAgent is A3S Code 4.3.3 as testdata/a3s makes it, which scripts/test-tools has built.
func a3sAgent(t *testing.T) string {
	t.Helper()
	agent := testbed.Cache(t, "signalbox-test-a3s", "a3s-agent")
	if _, err := os.Stat(agent); err != nil { // not every machine of CI has a Rust that builds it
		t.Skip("A3S Code is not built; scripts/test-tools does that, with cargo")
	}
	return agent
}

// startA3S starts A3S Code 4.3.3 with our harness, over a transport of AHP.
func (s *stopped) startA3S(t *testing.T, transport ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), a3sAgent(t), append([]string{s.folder}, transport...)...)
	cmd.Env = append(cleanEnv(), "HOME="+filepath.Dir(s.folder), "NO_PROXY=*")
	model, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	told, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string)
	runLogged(t, cmd)
	go func() {
		defer close(heard)
		lines := bufio.NewReader(told)
		for line, err := lines.ReadString('\n'); err == nil; line, err = lines.ReadString('\n') {
			heard <- line
		}
	}()
	s.says = func(command string) string {
		_, _ = fmt.Fprintln(model, command)
		return testbed.Receive(t, "A3S Code to ask its model", heard)
	}
	s.end = func() {
		_ = model.Close() // it asks again, for what it should remember
		for line := range heard {
			_ = line // until it ends
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	testbed.Receive(t, "A3S Code to ask its model", heard)
}

// TestStopsHoldInA3SCode, which acts on block alone, and goes on after an error and after silence. It starts
// our harness as a program, which denies while the server is gone. Over HTTP nobody can: see docs/limits.md.
func TestStopsHoldInA3SCode(t *testing.T) {
	t.Parallel()
	testbed.Parallel(t, "stdio", func(t *testing.T) {
		s := newStopped(t)
		// The call is not in the agent's own command line: then it would be taken for a part of the pipe.
		start := testbed.Script(t, filepath.Join(filepath.Dir(s.folder), "harness.sh"),
			"exec '"+s.program+"' harness stdio --data '"+s.dir+"'\n")
		s.startA3S(t, "stdio", start)
		s.decisionsHold(t)
		s.failuresHold(t)
		s.end()
		// Without the program it does not start.
		cmd := exec.CommandContext(t.Context(), a3sAgent(t), s.folder, "stdio", s.program+"-gone", "harness", "stdio")
		cmd.Stdin = strings.NewReader("touch missing\n")
		if out, err := cmd.CombinedOutput(); err == nil || s.has("missing") {
			t.Errorf("%v %s", err, out)
		}
	})
	testbed.Parallel(t, "http", func(t *testing.T) {
		s := newStopped(t)
		var added struct{ Keys map[string]string }
		if err := json.Unmarshal([]byte(mustRun(t, s.dir, "agents", "add", "a3s", "--json")), &added); err != nil {
			t.Fatal(err)
		}
		s.startA3S(t, "http", s.url+"/ahp", added.Keys["signal"])
		s.decisionsHold(t)
		s.end()
	})
}

// TestStopsHoldInAmp: Amp needs an account, so a stand-in asks the delegate as Amp does: the tool in the
// environment, its arguments on standard input, and the exit code for an answer. 0 is a yes and 2 a no; after
// any other Amp asks at its terminal.
func TestStopsHoldInAmp(t *testing.T) {
	t.Parallel()
	s := newStopped(t)
	home := filepath.Join(filepath.Dir(s.folder), "home")
	install := exec.CommandContext(t.Context(), s.program, "hook", "install", "amp", "--data", s.dir)
	install.Env = append(cleanEnv(), "HOME="+home)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var settings struct {
		Permissions []struct{ Tool, Action, To string } `json:"amp.permissions"`
	}
	text := testbed.Read(t, filepath.Join(home, ".config", "amp", "settings.json"))
	if err := json.Unmarshal(text, &settings); err != nil || len(settings.Permissions) != 1 || settings.Permissions[0].Action != "delegate" {
		t.Fatalf("%v %s", err, text)
	}
	s.says = func(command string) string {
		input, _ := json.Marshal(map[string]string{"cmd": command})
		ask := exec.CommandContext(t.Context(), settings.Permissions[0].To)
		ask.Env, ask.Stdin, ask.Dir = slices.Concat(install.Env, ampEnv), bytes.NewReader(input), s.folder
		out, err := ask.CombinedOutput()
		if code := ask.ProcessState.ExitCode(); code != 0 && code != 2 {
			t.Errorf("%s: exit code %d: %s", command, code, out)
		}
		if err == nil {
			do := exec.CommandContext(t.Context(), "sh", "-c", command)
			do.Dir = s.folder
			err = do.Run()
		}
		return fmt.Sprintf("%s %v", out, err)
	}
	s.decisionsHold(t)
	s.programFailsHold(t)
	s.failuresHold(t)
}
