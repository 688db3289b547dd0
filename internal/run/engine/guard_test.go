package engine_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/run/engine"
	"signalbox/internal/testbed"
)

// TestASupervisedRunAllowsNothingInAdvance for every engine, whatever the settings say.
func TestASupervisedRunAllowsNothingInAdvance(t *testing.T) {
	dangerous := []string{
		"--dangerously-allow-all", "--dangerously-skip-permissions",
		"--dangerously-bypass-approvals-and-sandbox", "yolo", "--auto",
	}
	for _, e := range engine.All() {
		j := engine.Job{Settings: engine.Settings{AllowAll: true}}
		allows := func() bool {
			return slices.ContainsFunc(e.Args(j), func(arg string) bool { return slices.Contains(dangerous, arg) })
		}
		if !allows() && e.Name != "pi" { // pi asks nobody and has no such flag
			t.Errorf("%s: %q", e.Name, e.Args(j))
		}
		j.Supervised = true
		if allows() {
			t.Errorf("%s: %q", e.Name, e.Args(j))
		}
		if _, err := e.Guard(t.TempDir(), "signalbox"); (err == nil) != (e.Name == "amp" || e.Name == "claude") ||
			(err == nil) != (e.MaySupervise() == nil) {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
}

// TestAGuardThatCannotAskSaysNo runs what the CLIs would: with a Signalbox that allows,
// one that refuses, one that fails in another way, and none.
func TestAGuardThatCannotAskSaysNo(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "signal box")
	for _, c := range []struct {
		script string
		want   int
	}{
		{"exit 0\n", 0},
		{"exit 3\n", 2},
		{"exit 1\n", 2},
		{"kill -9 $$\n", 2},
		{"", 2},
	} {
		_ = os.Remove(program)
		if c.script != "" {
			testbed.Script(t, program, c.script)
		}
		for name, command := range guards(t, program) {
			err := exec.CommandContext(t.Context(), "sh", "-c", command).Run()
			var exit *exec.ExitError
			got := 0
			if errors.As(err, &exit) {
				got = exit.ExitCode()
			}
			if got != c.want {
				t.Errorf("%s with %q: %d", name, c.script, got)
			}
		}
	}
}

// guards are the commands that the CLIs run before a tool call.
func guards(t *testing.T, program string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, e := range engine.All() {
		if e.MaySupervise() != nil {
			continue
		}
		args, err := e.Guard(t.TempDir(), program, "--data", "a 'folder'")
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Args(engine.Job{Supervised: true, Guard: args}); !strings.Contains(strings.Join(got, " "),
			strings.Join(args, " ")) {
			t.Errorf("%s: %q", e.Name, got)
		}
		text := []byte(args[1])
		if e.Name == "amp" {
			text = testbed.Read(t, args[1])
		}
		var settings struct {
			Permissions []struct{ Tool, Action, To string } `json:"amp.permissions"`
			Hooks       struct {
				PreToolUse []struct {
					Matcher string
					Hooks   []struct{ Command string }
				}
			} `json:"hooks"`
		}
		if err := json.Unmarshal(text, &settings); err != nil {
			t.Fatal(err)
		}
		if e.Name == "amp" {
			p := settings.Permissions[0]
			if p.Tool != "*" || p.Action != "delegate" {
				t.Errorf("%+v", p)
			}
			all[e.Name] = p.To
		} else {
			all[e.Name] = settings.Hooks.PreToolUse[0].Hooks[0].Command
		}
	}
	return all
}
