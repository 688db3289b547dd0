// Package runtest gives tests agent CLIs that do as they are told: a program that
// replays a stream with given timing, exit code and signals. Only tests import it.
//
// The program is the test's own binary, started again, so that nothing has to be built
// or installed. A test's TestMain calls Main first, which does not return in a process
// that is to be a CLI. What the CLI should do comes in an environment variable.
package runtest

import (
	"bytes"
	"encoding/json" // what a test tells the CLI has a time.Duration in it
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// variable makes a process a fake CLI; it holds a CLI as JSON.
const variable = "SIGNALBOX_TEST_CLI"

// CLI says what a fake CLI does. The zero value writes nothing and exits with 0. The
// fields take effect in the order of run: witness, orphan, standard error, stream,
// linger, exit.
type CLI struct {
	Stdout   []byte        `json:"stdout"` // written first
	Pause    time.Duration `json:"pause"`  // before each line
	Hold     string        `json:"hold"`   // the last line waits until this file is there
	Stderr   []string      `json:"stderr"`
	Exit     int           `json:"exit"`     // negative for the signal that ends it
	Linger   time.Duration `json:"linger"`   // how long it stays after it has written everything
	Stubborn bool          `json:"stubborn"` // SIGTERM is ignored
	// a process is left behind, in a session of its own, and its id is written to this file
	Orphan  string `json:"orphan"`
	Witness string `json:"witness"` // the arguments and standard input are written to this file
	Log     string `json:"log"`     // "begin" and "end" are appended to this file
	Repeat  int    `json:"repeat"`  // Stdout is written that many times more
	Ready   string `json:"ready"`   // made when everything is written
	Ask     string `json:"ask"`     // before the last line it asks whether it may run this command; see asked
	Refused []byte `json:"refused"` // written instead of the last line when it may not
}

// Main turns the process into a fake CLI if it was started as one. TestMain calls it
// before anything else.
func Main() {
	if text := os.Getenv(variable); text != "" {
		var c CLI
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			panic(err)
		}
		os.Exit(c.run())
	}
}

// Write makes a program that does what c says, in a folder of the test, and returns its
// path. The program ignores its arguments, so it can stand in for any engine.
func (c CLI) Write(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cli.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cli")
	// The script hands the arguments on, which Witness records and Ask reads.
	script := fmt.Sprintf("#!/bin/sh\n%s=\"$(cat '%s/cli.json')\" exec '%s' \"$@\"\n", variable, dir, self)
	if len(text) > 50_000 { // too much for the environment
		t.Fatal("the stream of a fake CLI is too long; use Repeat")
	}
	// A program that is started at this moment would have the file open for writing, and
	// then ours cannot be started: text file busy.
	// The lock keeps other goroutines from forking while the file is open.
	syscall.ForkLock.RLock()
	err = os.WriteFile(path, []byte(script), 0o700) //nolint:gosec // it is to be run
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// note appends a line to the log, with the process id. Appends of one line are atomic,
// so several CLIs may share it.
func (c CLI) note(what string) {
	if c.Log == "" {
		return
	}
	f, err := os.OpenFile(c.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(f, "%s %d\n", what, os.Getpid())
	_ = f.Close()
}

// run does what c says, and returns the exit code.
func (c CLI) run() int {
	c.note("begin")
	// A CLI that ignores SIGTERM has to be killed (RUN-21).
	if c.Stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	if c.Witness != "" {
		input, _ := io.ReadAll(os.Stdin)
		put(c.Witness, strings.Join(os.Args[1:], "\x00")+"\n"+string(input))
	}
	if c.Orphan != "" {
		c.abandon()
	}
	for _, line := range c.Stderr {
		_, _ = fmt.Fprintln(os.Stderr, line)
	}
	// Repeat makes streams that are too long for the environment.
	for range c.Repeat {
		_, _ = os.Stdout.Write(c.Stdout)
	}
	c.write()
	if c.Ready != "" {
		put(c.Ready, "")
	}
	time.Sleep(c.Linger)
	c.note("end")
	if c.Exit < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.Signal(-c.Exit))
		time.Sleep(time.Minute)
	}
	return c.Exit
}

// write writes the stream line by line. The last line is usually the result, so Hold
// and Ask come before it.
func (c CLI) write() {
	lines := bytes.SplitAfter(c.Stdout, []byte("\n"))
	if n := len(lines); n > 1 && len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	for i, line := range lines {
		time.Sleep(c.Pause)
		if i == len(lines)-1 && c.Hold != "" {
			for {
				if _, err := os.Stat(c.Hold); err == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		if i == len(lines)-1 && c.Ask != "" && !c.asked() {
			line = c.Refused
		}
		_, _ = os.Stdout.Write(bytes.ReplaceAll(line, []byte(Now), strconv.AppendInt(nil, time.Now().UnixMicro(), 10)))
	}
}

// Now stands in Stdout for the time at which its line is written, in microseconds, to
// measure how long events take.
const Now = "{now}"

// asked asks for permission as Claude Code or amp does: through the hook, or the
// permission delegate, of the settings in its arguments. It reports whether it may go
// on, and logs the answer.
func (c CLI) asked() bool {
	settings, hook := []byte("{}"), false
	for i, arg := range os.Args[1:] {
		switch arg {
		case "--settings":
			settings, hook = []byte(os.Args[i+2]), true
		case "--settings-file":
			settings, _ = os.ReadFile(os.Args[i+2])
		}
	}
	var s struct {
		Permissions []struct {
			To string `json:"to"`
		} `json:"amp.permissions"`
		Hooks struct {
			PreToolUse []struct {
				Hooks []struct {
					Command string `json:"command"`
				} `json:"hooks"`
			} `json:"PreToolUse"`
		} `json:"hooks"`
	}
	if err := json.Unmarshal(settings, &s); err != nil {
		panic(err)
	}
	input, _ := json.Marshal(map[string]string{"command": c.Ask}) // plain text always encodes
	var cmd *exec.Cmd
	if hook {
		cmd = exec.Command("sh", "-c", s.Hooks.PreToolUse[0].Hooks[0].Command) //nolint:noctx // as the CLI
		input = fmt.Appendf(nil, `{"session_id":"S-%d","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":%s}`,
			os.Getpid(), input)
	} else {
		cmd = exec.Command(s.Permissions[0].To) //nolint:noctx // as the CLI
		cmd.Env = append(os.Environ(), "AGENT_TOOL_NAME=Bash", fmt.Sprintf("AMP_THREAD_ID=T-%d", os.Getpid()))
	}
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &said, &said
	err := cmd.Run()
	// amp reads the exit code, Claude Code the answer; either is a refusal here.
	refused := err != nil || strings.Contains(said.String(), `"deny"`)
	c.note(fmt.Sprintf("refused=%t %s", refused, strings.ReplaceAll(said.String(), "\n", " ")))
	return !refused
}

// abandon leaves a process behind that holds standard output open and has left the
// process group: what a CLI's own children do at their worst.
func (c CLI) abandon() {
	child := exec.Command("sleep", "300") //nolint:noctx // it is to be left behind
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		panic(err)
	}
	put(c.Orphan, fmt.Sprint(child.Process.Pid))
}

// put writes a file, or ends the fake CLI loudly.
func put(path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
}
