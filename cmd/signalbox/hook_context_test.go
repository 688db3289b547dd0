package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inFolder is a sample that is said to come from a folder.
func inFolder(t *testing.T, name, text, folder string) []byte {
	t.Helper()
	return bytes.ReplaceAll(sample(t, name, text), []byte("/srv/ines/shop"), []byte(folder))
}

func TestAGateOfAHookShowsWhatLedToIt(t *testing.T) {
	t.Parallel()
	p := hooked(t, "3s")
	folder := filepath.Join(t.TempDir(), "shop")
	for _, args := range [][]string{
		{"init", "-q", "-b", "prices", folder},
		{"-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-q", "--allow-empty", "-m", "first"},
		{"-C", folder, "worktree", "add", "-q", "-b", "hotfix", folder + "-hotfix"},
	} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	if err := os.MkdirAll(filepath.Join(folder, "web"), 0o700); err != nil {
		t.Fatal(err)
	}
	const run = "run_01jt4k9q2m8x3v7b5n6c0d1e2f"
	for _, c := range []struct{ tool, prompt, step, folder, branch string }{
		{"claude-code", "claude-prompt.json", "claude-pre.json", folder + "/web", "prices"},
		{"codex", "codex-prompt.json", "codex-pre.json", folder + "-hotfix", "hotfix"},
		{"gemini", "gemini-prompt.json", "gemini-pre.json", folder, "prices"},
	} {
		ask := func(file, text string) {
			t.Helper()
			// It works in the folder, as the hooks of CLIs do; claude-code names its folder.
			in := inFolder(t, file, text, c.folder)
			env := []string{"SIGNALBOX_RUN=" + run, "CLAUDE_PROJECT_DIR=" + c.folder}
			if got := hookIn(t, c.folder, in, env, c.tool, "--data", p.dir); got.code != 0 {
				t.Fatalf("%s: %+v", c.tool, got)
			}
		}
		ask(c.prompt, "Put the prices online")
		ask(c.step, "ls -l")
		ask(c.step, "deploy prices")
		shown := mustRun(t, p.dir, "gates", "show", p.pending(t))
		for _, want := range []string{
			"folder     " + c.folder + "\n", "led to it  last prompt: Put the prices online\n",
			"led to it  branch: " + c.branch + "\n", ": ls -l\n", "run        " + run + " (signalbox runs show " + run + ")\n",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("%s: the gate does not show %q:\n%s", c.tool, want, shown)
			}
		}
		mustRun(t, p.dir, "gates", "reject", p.pending(t), "--note", "no")
	}
}
