package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/run/engine"
	"signalbox/internal/testbed"
)

// permitted is a job of an engine that is held to a mode, and what holds it.
func permitted(t *testing.T, e *engine.Engine, m engine.Mode, s engine.Settings) (engine.Job, engine.Permission) {
	t.Helper()
	j := engine.Job{Mode: m, Dir: t.TempDir(), Settings: s}
	held, err := e.Permit(engine.Permit{
		Mode: m, Job: j, Dir: t.TempDir(), Program: "signal box", Reach: []string{"--via", "a 'socket'"},
	})
	if err != nil {
		t.Fatalf("%s, %s: %v", e.Name, m, err)
	}
	j.Guard = held.Args
	return j, held
}

// TestEachModeIsSaidToEachCLI: only full lets it do everything, and settings of before change nothing of that.
func TestEachModeIsSaidToEachCLI(t *testing.T) {
	t.Setenv("IS_SANDBOX", "1") // this may be root, to whom Claude Code refuses it
	dangerous := []string{
		"--dangerously-allow-all", "--dangerously-skip-permissions", "--dangerously-bypass-approvals-and-sandbox", "yolo", "--auto",
	}
	// A supervised one asks us before each call, and nobody else.
	asksOnlyUs := []string{"codex", "gemini", "opencode"}
	for _, e := range engine.All() {
		seen := map[string]engine.Mode{}
		for _, m := range engine.Modes {
			j, held := permitted(t, e, m, engine.Settings{AllowAll: true})
			args := e.Args(j)
			all := slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(dangerous, arg) })
			want := m == engine.Full && e.Name != "pi" ||
				m == engine.Supervised && slices.Contains(asksOnlyUs, e.Name) && held.Home == ""
			if all != want {
				t.Errorf("%s, %s: %q", e.Name, m, args)
			}
			if !strings.Contains(strings.Join(args, "\x00"), strings.Join(held.Args, "\x00")) {
				t.Errorf("%s, %s: %q lacks %q", e.Name, m, args, held.Args)
			}
			var text strings.Builder // what it is told, with the files that it is to read
			for _, one := range append(slices.Clone(args), held.Env...) {
				text.WriteString(one)
				_, file, _ := strings.Cut(one, "=")
				for _, name := range []string{one, file} {
					if content, err := os.ReadFile(name); err == nil {
						text.Write(content)
					}
				}
			}
			if before, known := seen[text.String()]; known {
				t.Errorf("%s: %s is %s", e.Name, m, before)
			}
			seen[text.String()] = m
		}
	}
}

// TestTheModeOfARun is the one that was asked for, or that of the settings, or edit. Words of the CLI hold while no mode
// is named.
func TestTheModeOfARun(t *testing.T) {
	for _, c := range []struct {
		engine string
		asked  engine.Mode
		s      engine.Settings
		want   engine.Mode
	}{
		{"amp", "", engine.Settings{}, engine.Edit},
		{"pi", "", engine.Settings{Mode: "anthropic"}, engine.Edit},
		{"amp", "", engine.Settings{Mode: "smart", AllowAll: true}, engine.Full},
		{"claude", "", engine.Settings{Mode: "plan"}, engine.Own},
		{"codex", "", engine.Settings{Mode: "read-only", Permissions: engine.Read}, engine.Read},
		{"gemini", engine.Supervised, engine.Settings{AllowAll: true, Permissions: engine.Full}, engine.Supervised},
	} {
		e, err := engine.Find(c.engine)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.ModeOf(c.asked, c.s); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for _, bad := range []string{"", "own", "Full", "yolo"} {
		if _, err := engine.ParseMode(bad); err == nil {
			t.Errorf("%q is a mode", bad)
		}
	}
}

// TestWhatAModeDoesNotAllowIsSeen in the stream of a CLI that does not do as it was told.
func TestWhatAModeDoesNotAllowIsSeen(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		engine string
		kind   engine.Kind
		ok     *bool
		phase  engine.Phase
		in     []engine.Mode
	}{
		{"amp", engine.Command, &yes, engine.Done, []engine.Mode{engine.Read, engine.Edit}},
		{"amp", engine.Command, &no, engine.Done, nil},
		{"amp", engine.Command, nil, engine.Begun, nil},
		{"codex", engine.Command, &yes, engine.Done, nil}, // in its sandbox
		{"codex", engine.FileChange, &yes, engine.Done, []engine.Mode{engine.Read}},
		{"pi", engine.FileChange, &yes, engine.Done, []engine.Mode{engine.Read}},
		{"pi", engine.Tool, &yes, engine.Done, nil},
	} {
		e := engine.Event{
			Type: engine.Acted, Engine: c.engine, Phase: c.phase, OK: c.ok, Action: &engine.Action{ID: "a", Kind: c.kind},
		}
		for _, m := range append(slices.Clone(engine.Modes), engine.Own) {
			if got := e.Exceeds(m) != ""; got != slices.Contains(c.in, m) {
				t.Errorf("%+v in %s: %v", c, m, got)
			}
		}
	}
}

// TestFilesMayBeChangedInTheFolderOnly, with links resolved, and not where a change would run something later.
func TestFilesMayBeChangedInTheFolderOnly(t *testing.T) {
	folder, outside := t.TempDir(), t.TempDir()
	for name, to := range map[string]string{
		"out": outside, "in": folder, "nowhere": filepath.Join(outside, "new"), "up": "..",
	} {
		if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for arguments, may := range map[string]bool{
		`{"path":"page"}`: true, `{"file_path":"` + folder + `/new/deep/page"}`: true, `{"path":"in/page"}`: true,
		`{"path":"a/../page"}`: true, `{"filePath":"page"}`: true,
		`{"path":"../page"}`: false, `{"path":"` + outside + `/page"}`: false, `{"path":"out/page"}`: false, `{"path":"out"}`: false,
		`{"path":"nowhere"}`: false, `{"path":"up/page"}`: false, `{"path":"` + folder + `2/page"}`: false, `{"path":"."}`: false,
		`{"path":".git/hooks/pre-commit"}`: false, `{"path":"sub/.Claude/settings.json"}`: false, `{"path":".mcp.json"}`: false,
		`{"path":"in/.pi/extensions/x.js"}`: false, `{"path":"page","file_path":"/etc/passwd"}`: false,
		`{}`: false, `{"path":7}`: false, `[]`: false, `{"path":"page"`: false, `{"path":"page","path":"../x"}`: false, ``: false,
	} {
		if why := engine.MayChange(folder, []byte(arguments)); (why == "") != may {
			t.Errorf("%s: %q", arguments, why)
		}
	}
	if why := engine.MayChange(filepath.Join(folder, "gone"), []byte(`{"path":"page"}`)); why == "" {
		t.Error("a folder that is gone")
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
		j := engine.Job{Mode: engine.Supervised, Dir: t.TempDir()}
		held, err := e.Permit(engine.Permit{
			Mode: engine.Supervised, Job: j, Dir: t.TempDir(), Program: program, Reach: []string{"--data", "a 'folder'"},
		})
		if err != nil {
			t.Fatal(err)
		}
		type group struct{ Hooks []struct{ Command string } }
		var settings struct {
			Permissions []struct{ Tool, Action, To string } `json:"amp.permissions"`
			Hooks       struct{ PreToolUse, BeforeTool []group }
		}
		text := []byte(held.Args[len(held.Args)-1])
		switch e.Name {
		case "amp":
			text = testbed.Read(t, held.Args[1])
		case "gemini":
			_, file, _ := strings.Cut(held.Env[0], "=")
			if held.Home != "" { // not as root
				file = held.Home + "/.gemini/extensions/signalbox/hooks/hooks.json"
			}
			text = testbed.Read(t, file)
		case "codex": // TOML, of which the text is as in JSON
			_, after, _ := strings.Cut(string(text), "command=")
			command, _, _ := strings.Cut(after, ",timeout=")
			if err := json.Unmarshal([]byte(command), &command); err != nil {
				t.Fatal(err)
			}
			all[e.Name] = command
			continue
		case "opencode", "pi":
			continue // plugins: TestPluginsDoNotGoOnWithoutAPermission
		}
		if err := json.Unmarshal(text, &settings); err != nil {
			t.Fatal(err)
		}
		switch e.Name {
		case "amp":
			p := settings.Permissions[0]
			if p.Tool != "*" || p.Action != "delegate" {
				t.Errorf("%+v", p)
			}
			all[e.Name] = p.To
		case "gemini":
			all[e.Name] = settings.Hooks.BeforeTool[0].Hooks[0].Command
		default:
			all[e.Name] = settings.Hooks.PreToolUse[0].Hooks[0].Command
		}
	}
	return all
}

// TestPluginsDoNotGoOnWithoutAPermission, but on a plain one, and take another input along.
func TestPluginsDoNotGoOnWithoutAPermission(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		testbed.Missing(t, "node is not installed: %v", err)
	}
	const answer = `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":%q%s}}`
	for name, call := range map[string]string{
		"opencode": `const hooks = await plugin.Signalbox({directory: "/"});
const output = {args: {command: "ls"}};
await hooks["tool.execute.before"]({sessionID: "s", tool: "bash", callID: "c"}, output);
console.log(JSON.stringify(output.args));`,
		"pi": `let handler;
plugin.default({on: (_, f) => { handler = f; }});
const event = {toolName: "bash", toolCallId: "c", input: {command: "ls"}};
await handler(event, {cwd: "/", sessionManager: {getSessionId: () => "s"}});
console.log(JSON.stringify(event.input));`,
	} {
		e, err := engine.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		program := filepath.Join(dir, "signal box")
		if _, err := e.Permit(engine.Permit{Mode: engine.Supervised, Dir: dir, Program: program}); err != nil {
			t.Fatal(err)
		}
		run := `const plugin = await import("file://` + dir + `/signalbox-` + name + `.mjs");` + "\n" + call
		for script, want := range map[string]string{
			"cat >/dev/null; echo '" + fmt.Sprintf(answer, "allow", "") + "'":                                       `{"command":"ls"}`,
			"cat >/dev/null; echo '" + fmt.Sprintf(answer, "allow", `,"updatedInput":{"cmd":"true"}`) + "'":         `{"cmd":"true"}`,
			"cat >/dev/null; echo '" + fmt.Sprintf(answer, "deny", `,"permissionDecisionReason":"Not here."`) + "'": "Not here.",
			"cat >/dev/null; echo '" + fmt.Sprintf(answer, "allow", "") + "'; exit 2":                               "refused",
			"echo why >&2; exit 1": "why", "echo {}": "refused", "true": "refused", "kill -9 $$": "refused", "": "refused",
		} {
			_ = os.Remove(program)
			if script != "" {
				if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it is to be run
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", run).CombinedOutput()
			allowed := strings.HasPrefix(want, "{")
			if (err == nil) != allowed || !strings.Contains(string(out), want) && (allowed || want != "refused") {
				t.Errorf("%s, %q: %v %s", name, script, err, out)
			}
		}
	}
}
