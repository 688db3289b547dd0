package hook_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/cli/hook"
	"signalbox/internal/kin"
	"signalbox/internal/testbed"
)

// replacing replaces the first place of a text.
func replacing(old, by string) func(string) string {
	return func(text string) string { return strings.Replace(text, old, by, 1) }
}

// TestHooksThatWereChangedAreNotIntact installs hooks into settings that hold something else, changes
// them as an agent would, and as a person would.
func TestHooksThatWereChangedAreNotIntact(t *testing.T) {
	for _, c := range []struct {
		tool, name string
		change     func(text string) string
		intact     bool
	}{
		{"claude-code", "nothing", func(s string) string { return s }, true},
		{"claude-code", "another member", replacing("{", `{"theme": "dark",`), true},
		{"claude-code", "another layout", func(s string) string { return strings.ReplaceAll(s, "\n", "\n ") }, true},
		{"claude-code", "a switch", replacing("{", `{"disableAllHooks": true,`), false},
		{
			"claude-code", "a matcher",
			replacing(`"hooks": [`, `"matcher": "None", "hooks": [`), false,
		},
		{"claude-code", "another program", replacing("/opt/signalbox", "/bin/true"), false},
		{"claude-code", "another event", replacing("PreToolUse", "None"), false},
		{"claude-code", "a time that is too short", replacing("20", "1"), false},
		{"claude-code", "no JSON", func(string) string { return "{" }, false},
		{"claude-code", "everything", func(string) string { return "{}" }, false},
		{"codex", "nothing", func(s string) string { return s }, true},
		{"codex", "everything", func(string) string { return "{}" }, false},
		{"gemini", "a comment", func(s string) string { return "// mine\n" + s }, true},
		{
			"gemini", "a switch",
			replacing("{", `{"hooksConfig": {"enabled": false},`), false,
		},
		{"amp", "nothing", func(s string) string { return s }, true},
		{
			"amp", "a rule before it",
			replacing("[", `[{"tool": "*", "action": "allow"},`), false,
		},
	} {
		t.Run(c.tool+" "+c.name, func(t *testing.T) {
			tool := hook.Named(c.tool)
			file := filepath.Join(t.TempDir(), "settings.json")
			command := tool.Command("/opt/signalbox", "--data", "/srv/data")
			if _, err := tool.Install(file, command, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			testbed.Write(t, file, c.change(string(testbed.Read(t, file))))
			h := kin.Hook{Tool: c.tool, File: file, Command: command, Seconds: 20}
			if err := hook.Intact(h); (err == nil) != c.intact {
				t.Errorf("%v", err)
			}
			if c.tool == "amp" && c.intact {
				delegate := filepath.Join(filepath.Dir(file), hook.DelegateFile)
				testbed.Write(t, delegate, "#!/bin/true\n")
				if hook.Intact(h) == nil {
					t.Error("a delegate that allows everything is taken for ours")
				}
			}
		})
	}
}
