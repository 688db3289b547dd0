package engine_test

import (
	"strings"
	"testing"

	"signalbox/internal/run/engine"
)

// TestArgumentsOfTheOtherEngines; amp's are among the recorded cases. The prompt is never
// one of them: it is standard input.
func TestArgumentsOfTheOtherEngines(t *testing.T) {
	full := engine.Job{Prompt: "do it", Settings: engine.Settings{Model: "m", Mode: "x"}}
	for _, c := range []struct {
		name   string
		resume engine.Resume
		allow  bool
		want   string
	}{
		{"claude", engine.Resume{}, false, "-p --output-format stream-json --verbose --include-partial-messages --model m --permission-mode x"},
		{
			"claude",
			engine.Resume{Value: "c1"},
			true,
			"-p --output-format stream-json --verbose --include-partial-messages --resume c1 --model m --permission-mode x --dangerously-skip-permissions",
		},
		{
			"claude",
			engine.Resume{Latest: true},
			false,
			"-p --output-format stream-json --verbose --include-partial-messages --continue --model m --permission-mode x",
		},
		{
			"codex",
			engine.Resume{},
			false,
			"-c notify=[] --model m exec --json --skip-git-repo-check --color=never --sandbox x -",
		},
		{
			"codex",
			engine.Resume{Value: "0199"},
			true,
			"-c notify=[] --model m exec --json --skip-git-repo-check --color=never " +
				"--dangerously-bypass-approvals-and-sandbox resume 0199 -",
		},
		{
			"codex",
			engine.Resume{Latest: true},
			false,
			"-c notify=[] --model m exec --json --skip-git-repo-check --color=never --sandbox x resume --last -",
		},
		{"gemini", engine.Resume{}, false, "--output-format stream-json --model m --approval-mode x --skip-trust"},
		{
			"gemini",
			engine.Resume{Value: "gx"},
			true,
			"--resume gx --output-format stream-json --model m --approval-mode yolo --skip-trust",
		},
		{
			"gemini",
			engine.Resume{Latest: true},
			false,
			"--resume latest --output-format stream-json --model m --approval-mode x --skip-trust",
		},
		{"opencode", engine.Resume{}, false, "run --format json --title= --model m --agent x"},
		{"opencode", engine.Resume{Value: "ses_1"}, true, "run --format json --session ses_1 --model m --agent x --auto"},
		{"opencode", engine.Resume{Latest: true}, false, "run --format json --continue --model m --agent x"},
		{"pi", engine.Resume{}, true, "--print --mode json --provider x --model m"},
		{"pi", engine.Resume{Value: "abcd"}, false, "--print --mode json --provider x --model m --session abcd"},
		{"pi", engine.Resume{Latest: true}, false, "--print --mode json --provider x --model m --continue"},
	} {
		e, err := engine.Find(c.name)
		if err != nil {
			t.Fatal(err)
		}
		j := full
		j.Resume, j.Settings.AllowAll = c.resume, c.allow
		if got := strings.Join(e.Args(j), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if e.Input(j) != "do it" {
			t.Errorf("%s does not get the prompt", c.name)
		}
		j.Override = "other"
		if got := strings.Join(e.Args(j), " "); !strings.Contains(got, "--model other") {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}
