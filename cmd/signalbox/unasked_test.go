package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/run/runtest"
)

// runDid is the result of the tool call in runTool.
const runDid = `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"%s","content":"x",` +
	`"is_error":%t}]}}` + "\n"

// TestASupervisedRunThatActsUnaskedIsStopped: its stream shows a result that no hook was asked about. One CLI
// says that all went well, and the other would go on.
func TestASupervisedRunThatActsUnaskedIsStopped(t *testing.T) {
	t.Parallel()
	did := fmt.Sprintf(runTool+runDid, "a", "a", false)
	for name, cli := range map[string]runtest.CLI{
		"says that all is well": {Stdout: []byte(runInit + did + runResult)},
		"goes on":               {Stdout: []byte(runInit + did + runResult), Hold: filepath.Join(t.TempDir(), "never")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := supervised(t, cli)
			for _, engine := range []string{"amp", "claude"} {
				code, out := run(t, p.dir, "run", engine, "--supervised", "--json", "--cwd", t.TempDir(), "--", "go")
				if code == 0 || !strings.Contains(out, `"error":"the agent acted without a decision: Bash (`) ||
					strings.Contains(out, `"ok":true,"answer"`) {
					t.Errorf("%s: %d %s", engine, code, out)
				}
			}
			if alarms := mustRun(t, p.dir, "alarms", "ls"); !strings.Contains(alarms, "nobody was asked about") {
				t.Errorf("%s", alarms)
			}
		})
	}
}

// TestARealClaudeCodeIsNotStoppedForWhatItAsks, nor for what fails before it begins.
func TestARealClaudeCodeIsNotStoppedForWhatItAsks(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"signalbox-test-tools/claude", "signalbox-test-newest/claude"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			p, start := realClaude(t, program)
			work, m, done := t.TempDir(), startModel(t, anthropic), make(chan string, 1)
			page := filepath.Join(work, "page")
			if err := os.WriteFile(page, []byte("text\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := start(m.url, work, "--supervised", "--", "try them")
			go func() {
				out, _ := cmd.CombinedOutput()
				done <- string(out)
			}()
			m.hear()
			shell := func(command string) turn {
				return turn{tool: "Bash", input: map[string]any{"command": command, "description": "Does it"}}
			}
			for _, call := range []turn{
				{tool: "Read", input: map[string]any{"file_path": page}},
				{tool: "Edit", input: map[string]any{"file_path": page, "old_string": "text", "new_string": "words"}},
				shell("ls"), shell("exit 3"), shell("echo forbidden"),
				{tool: "Bash", input: map[string]any{"description": "It lacks its command"}},
				{tool: "NoSuchTool", input: map[string]any{}},
				{tool: "Read", input: map[string]any{"file_path": filepath.Join(work, "none")}},
				{tool: "TodoWrite", input: map[string]any{"todos": []any{
					map[string]any{"content": "a", "status": "pending", "activeForm": "a"},
				}}},
				{tool: "Write", input: map[string]any{"file_path": filepath.Join(work, "new"), "content": "new"}},
			} {
				m.say(call)
			}
			m.says <- turn{text: "All of them."}
			if out := <-done; !strings.Contains(out, `"answer":"All of them."`) || strings.Contains(out, "without a decision") {
				t.Errorf("%s", out)
			}
			if alarms := mustRun(t, p.dir, "alarms", "ls"); strings.Contains(alarms, "asked about") {
				t.Errorf("%s", alarms)
			}
		})
	}
}
