package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// npmProgram is a program that scripts/test-tools has installed, in any folder of the cache or in the one that
// is named before it; without it the test is skipped, but not where everything is to be tested.
func npmProgram(t *testing.T, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	folders := []string{"signalbox-test-tools", "signalbox-test-clis"}
	if folder, program, named := strings.Cut(name, "/"); named {
		folders, name = []string{folder}, program
	}
	for _, folder := range folders {
		file := filepath.Join(cache, folder, "node_modules", ".bin", name)
		if out, err = exec.CommandContext(t.Context(), file, "--version").CombinedOutput(); err == nil {
			return file
		}
	}
	testbed.Missing(t, "%s is not installed; scripts/test-tools does that: %v %s", name, err, out)
	return ""
}

// runLogged starts a program in the background, and shows what it wrote if the test fails.
func runLogged(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out := &testbed.Buffer{}
	if cmd.Stderr = out; cmd.Stdout == nil {
		cmd.Stdout = out
	}
	testbed.Background(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(out)
		}
	})
}

// realClaude is a server whose claude is the real one, and how a run of it is started with
// a model at the address.
func realClaude(t *testing.T, program string) (p *process, start func(model, work string, args ...string) *exec.Cmd) {
	t.Helper()
	command, dir, home := npmProgram(t, program), t.TempDir(), t.TempDir()
	configure(t, dir, "runs: {claude: {command: "+command+"}}\n")
	p = up(t, dir)
	mustRun(t, dir, "policy", "apply", writeFile(t, hookPolicy))
	return p, func(model, work string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary,
			append([]string{"run", "claude", "--json", "--data", dir, "--cwd", work}, args...)...)
		cmd.Env = append(cleanEnv(), "HOME="+home, "ANTHROPIC_BASE_URL="+model, "ANTHROPIC_API_KEY=sk-ant-none",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "NO_PROXY=*")
		return cmd
	}
}

// TestTheRealClaudeCodeIsSupervised: what a person approves is done, and what they reject,
// or nobody can be asked about, is not.
func TestTheRealClaudeCodeIsSupervised(t *testing.T) {
	t.Parallel()
	p, start := realClaude(t, "claude")
	work, m := t.TempDir(), startModel(t, anthropic)
	deploy := turn{tool: "Bash", input: map[string]any{
		"command": "deploy() { touch deployed; }; deploy", "description": "Deploys",
	}}
	deployed := func() bool { _, err := os.Stat(filepath.Join(work, "deployed")); return err == nil }
	for _, decision := range []string{"reject", "approve"} {
		done, cmd := make(chan string, 1), start(m.url, work, "--supervised", "--", "deploy it")
		go func() {
			out, _ := cmd.CombinedOutput()
			done <- string(out)
		}()
		m.hear()
		m.says <- deploy
		mustRun(t, p.dir, "gates", decision, p.pending(t), "--note", "I looked.")
		if said := m.hear(); deployed() != (decision == "approve") ||
			strings.Contains(said, `"is_error":true`) == deployed() {
			t.Errorf("%s: %s", decision, said)
		}
		m.says <- turn{text: "That was to " + decision}
		if out := <-done; !strings.Contains(out, `"answer":"That was to `+decision) {
			t.Errorf("%s: %s", decision, out)
		}
	}
	_ = os.Remove(filepath.Join(work, "deployed"))
	cmd := start(m.url, work, "--supervised", "--", "deploy it")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.hear()
	p.kill()
	if said := m.say(deploy); !strings.Contains(said, "cannot be asked, so this is refused") || deployed() {
		t.Errorf("without a server: %s", said)
	}
	_ = cmd.Process.Kill() // it would wait for the server, to record the end
	_ = cmd.Wait()
}

// TestTheRealClaudeCodeTakesOurFlags, and says what is wrong where there is no account, no
// such session, and no model.
func TestTheRealClaudeCodeTakesOurFlags(t *testing.T) {
	t.Parallel()
	_, start := realClaude(t, "claude")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for want, c := range map[string]struct {
		env  string
		args []string
	}{
		"Not logged in":         {"ANTHROPIC_API_KEY=", []string{"--budget-usd", "1", "--model", "sonnet"}},
		"No conversation found": {"X=", []string{"--resume", "3f0c9a52-7d41-4b8e-9c66-1e2f5a7b8c90"}},
		"API Error":             {"CLAUDE_CODE_MAX_RETRIES=0", nil},
	} {
		cmd := start(gone.URL, t.TempDir(), append(c.args, "--no-record", "--", "--say hi")...)
		cmd.Env = append(cmd.Env, c.env)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 1 || strings.Count(string(out), `"type":"completed"`) != 1 ||
			!strings.Contains(string(out), want) {
			t.Errorf("%s: %v %s", want, err, out)
		}
	}
}

// TestRealCLIsTakeOurFlags, and what goes wrong without an account, a network or such a
// session is said in one completed. Some of them are large, and are only tried where
// somebody has them.
func TestRealCLIsTakeOurFlags(t *testing.T) {
	t.Parallel()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for engine, c := range map[string]struct {
		env   []string
		wants map[string][]string
	}{
		"amp": {[]string{"AMP_API_KEY=sgamp_user_none", "AMP_URL=http://127.0.0.1:1"}, map[string][]string{
			"connect to the Amp server":       {"--model", "smart", "--supervised"},
			"Cannot reach Amp servers":        {"--resume", "`amp threads continue T-3f0c9a52-7d41-4b8e-9c66-1e2f5a7b8c90`"},
			"No previously used thread found": {"--continue"},
		}},
		"gemini": {nil, map[string][]string{
			"set an Auth method":         {"--model", "gemini-2.5-pro"},
			"No previous sessions found": {"--resume", "3f0c9a52-7d41-4b8e-9c66-1e2f5a7b8c90"},
		}},
		"codex": {
			nil,
			map[string][]string{"no rollout found": {"--model", "m", "--resume", "3f0c9a52-7d41-4b8e-9c66-1e2f5a7b8c90"}},
		},
		"opencode": {nil, map[string][]string{"Session not found": {"--model", "a/m", "--resume", "ses_3f0c9a527d414b8e"}}},
		"pi": {nil, map[string][]string{
			"No API key found": {"--model", "gpt-5"},
			"No session found": {"--resume", "3f0c9a52-7d41-4b8e-9c66-1e2f5a7b8c90"},
		}},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			command := filepath.Join(cache, "signalbox-test-clis", "node_modules", ".bin", engine)
			if exec.CommandContext(t.Context(), command, "--version").Run() != nil {
				var err error
				if command, err = exec.LookPath(engine); err != nil {
					t.Skipf("%s is not installed; scripts/test-tools installs Amp, Codex and Gemini CLI where there is Node 20",
						engine)
				}
			}
			dir := t.TempDir()
			configure(t, dir, "runs: {"+engine+": {command: "+command+"}}\n")
			up(t, dir)
			for want, args := range c.wants {
				cmd := exec.CommandContext(t.Context(), binary,
					append(append([]string{"run", engine, "--json", "--data", dir, "--cwd", t.TempDir()}, args...), "--",
						"--say hi")...)
				cmd.Env = append(append(cleanEnv(), "HOME="+t.TempDir(), "NO_PROXY=*"), c.env...)
				out, _ := cmd.CombinedOutput()
				if cmd.ProcessState.ExitCode() != 1 || strings.Count(string(out), `"type":"completed"`) != 1 ||
					!strings.Contains(string(out), want) {
					t.Errorf("%s: %s", want, out)
				}
			}
		})
	}
}
