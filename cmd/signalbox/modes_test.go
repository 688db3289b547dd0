package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"signalbox/internal/run/engine"
	"signalbox/internal/run/runtest"
	"signalbox/internal/testbed"
)

// moded is a real CLI whose model the test speaks for, and the calls of its tools.
type moded struct {
	program, model string
	shell          func(command string) turn
	write          func(path string) turn
	env            func(url string) []string
	file           string // of its home, and what stands in it
	text           func(url string) string
	sandboxed      bool // its commands are confined, and run in every mode
}

func withInput(tool, name string, more ...string) func(string) turn {
	return func(value string) turn {
		input := map[string]any{name: value}
		for i := 0; i < len(more); i += 2 {
			input[more[i]] = more[i+1]
		}
		return turn{tool: tool, input: input}
	}
}

// modedCLIs are all engines but amp, which needs an account.
var modedCLIs = map[string]moded{
	"claude": {
		program: "signalbox-test-newest-locked/claude", model: "claude-sonnet-4-5",
		shell: withInput("Bash", "command", "description", "Does it"), write: withInput("Write", "file_path", "content", "words\n"),
		env: func(url string) []string {
			return []string{"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=sk-ant-none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
		},
	},
	"codex": {
		program: "codex", model: "gpt-5.4", sandboxed: true,
		shell: withInput("exec_command", "cmd"),
		write: func(path string) turn {
			return turn{tool: "exec_command", input: map[string]any{"cmd": "echo words >'" + path + "'"}}
		},
		env:  func(string) []string { return []string{"OPENAI_API_KEY=sk-none"} },
		file: ".codex/config.toml", text: func(url string) string {
			return "model_provider = \"stand-in\"\n[model_providers.stand-in]\nname = \"Stand-in\"\nbase_url = \"" + url +
				"/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n"
		},
	},
	"gemini": {
		program: "gemini", model: "gemini-2.5-flash",
		shell: withInput("run_shell_command", "command"), write: withInput("write_file", "file_path", "content", "words\n"),
		env: func(url string) []string {
			return []string{"GOOGLE_GEMINI_BASE_URL=" + url, "GEMINI_API_KEY=none", "GEMINI_CLI_NO_RELAUNCH=true"}
		},
		file: ".gemini/settings.json", text: func(string) string {
			return `{"security": {"auth": {"selectedType": "gemini-api-key"}}}`
		},
	},
	"opencode": {
		program: "opencode", model: "anthropic/claude-sonnet-4-5",
		shell: withInput("bash", "command", "description", "Does it"), write: withInput("write", "filePath", "content", "words\n"),
		env:  func(string) []string { return []string{"OPENCODE_DISABLE_MODELS_FETCH=true"} },
		file: ".config/opencode/opencode.json", text: func(url string) string {
			return `{"autoupdate": false, "permission": {"bash": "allow", "edit": "allow"}, "provider": {"anthropic": {"options": ` +
				`{"baseURL": "` + url + `/v1", "apiKey": "none"}}}}`
		},
	},
	"pi": {
		program: "pi", model: "claude-sonnet-4-5",
		shell: withInput("bash", "command"), write: withInput("write", "path", "content", "words\n"),
		env:  func(string) []string { return []string{"ANTHROPIC_API_KEY=none", "PI_OFFLINE=1"} },
		file: ".pi/agent/models.json", text: func(url string) string {
			return `{"providers": {"anthropic": {"baseUrl": "` + url + `"}}}`
		},
	},
}

// modedConfig is a configuration with the CLI. On a busy machine some of them take long to start.
func modedConfig(name, program string) string {
	return fmt.Sprintf("runs: {start_timeout: 10m, %s: {command: %s}}\n", name, program)
}

// at is the CLI with a home of its own, and how a run of it is started.
func (c moded) at(t *testing.T, name, dir string) (m *meteredModel, start func(work string, args ...string) *exec.Cmd) {
	t.Helper()
	home := t.TempDir()
	temporary, err := os.MkdirTemp("", "tmp-") //nolint:usetesting // short: the names of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temporary) })
	m = startMetered(t, 1)
	m.hours = false
	if c.text != nil {
		file := filepath.Join(home, c.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		testbed.Write(t, file, c.text(m.url))
	}
	return m, func(work string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(testbed.Context(t), binary,
			append([]string{"run", name, "--data", dir, "--cwd", work, "--model", c.model}, args...)...)
		// Homes are not in the folder of temporary files: there codex has no sandbox with each bubblewrap.
		cmd.Env = append(append(cleanEnv(), "HOME="+home, "TMPDIR="+temporary, "NO_PROXY=*"), c.env(m.url)...)
		return cmd
	}
}

// TestAModeMeansTheSameForEveryRealCLI: what it allows is done, what it does not allow is not, whatever settings of the
// person say, and the run says and records which mode it has.
func TestAModeMeansTheSameForEveryRealCLI(t *testing.T) {
	t.Parallel()
	for name, c := range modedCLIs {
		testbed.Parallel(t, name, func(t *testing.T) {
			dir := t.TempDir()
			configure(t, dir, modedConfig(name, npmProgram(t, c.program)))
			p := up(t, dir)
			m, start := c.at(t, name, dir)
			for _, attempt := range []struct {
				mode, what string
				done       bool
			}{
				{"read", "write", false},
				{"read", "shell", false},
				{"", "write", true},
				{"edit", "outside", false},
				{"edit", "linked", false},
				{"edit", "shell", false},
				{"full", "shell", true},
			} {
				work, outside := t.TempDir(), t.TempDir()
				if err := os.Symlink(outside, filepath.Join(work, "link")); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(work, "page")
				switch attempt.what {
				case "outside":
					file = filepath.Join(outside, "page")
				case "linked":
					file = filepath.Join(work, "link", "page")
				}
				say := c.write(file)
				if attempt.what == "shell" {
					if c.sandboxed { // what it may not do is to leave the folder
						file = filepath.Join(outside, "page")
					}
					say = c.shell("touch '" + file + "'")
				}
				m.mu.Lock()
				m.shell = say
				m.mu.Unlock()
				args := []string{"--", "go on"}
				if attempt.mode != "" {
					args = append([]string{"--mode", attempt.mode}, args...)
				}
				cmd := start(work, args...)
				if name == "claude" && attempt.mode == "full" {
					cmd.Env = append(cmd.Env, "IS_SANDBOX=1") // this may be root
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v: %v\n%s", attempt, err, out)
				}
				if _, err := os.Stat(file); (err == nil) != attempt.done {
					t.Errorf("%+v: done is %v\n%s\n%s", attempt, err == nil, out, m.last)
				}
				want := engine.Mode(attempt.mode)
				if attempt.mode == "" {
					want = engine.Edit
				}
				if said := fmt.Sprintf("%s · mode %s: %s", name, want, want.Meaning()); !strings.Contains(string(out), said) {
					t.Errorf("%+v: it does not say %q\n%s", attempt, said, out)
				}
				var runs struct{ Runs []struct{ Mode string } }
				p.get("/runs?limit=1", &runs)
				if len(runs.Runs) != 1 || runs.Runs[0].Mode != string(want) {
					t.Errorf("%+v: recorded is %+v", attempt, runs)
				}
			}
		})
	}
}

// TestSupervisedRealCLIsAskSignalbox before each tool call: what a rule or a person refuses is not done, what a person
// approves is, and without the server nothing is. What the folder brings along is not run.
func TestSupervisedRealCLIsAskSignalbox(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"codex", "gemini", "opencode", "pi"} {
		testbed.Parallel(t, name, func(t *testing.T) {
			c, dir := modedCLIs[name], t.TempDir()
			configure(t, dir, modedConfig(name, npmProgram(t, c.program)))
			p := up(t, dir)
			m, start := c.at(t, name, dir)
			mustRun(t, dir, "policy", "apply", writeFile(t, hookPolicy))
			c.asks(t, name, p, m, start)
		})
	}
}

// asks tries what a supervised CLI may do under hookPolicy.
func (c moded) asks(t *testing.T, name string, p *process, m *meteredModel,
	start func(work string, args ...string) *exec.Cmd, more ...string,
) {
	t.Helper()
	args := append([]string{"--mode", "supervised"}, append(more, "--", "go on")...)
	for _, attempt := range []struct {
		file, decision string
		done           bool
	}{
		{"plain", "", true},
		{"forbidden", "", false},
		{"deployed", "approve", true},
		{"deployed", "reject", false},
		{"dead", "kill", false},
	} {
		work := t.TempDir()
		bringAlong(t, work)
		if name == "opencode" { // it runs plugins whatever it is told
			refused(t, start(work, args...), "own.js would be run unasked")
			if err := os.RemoveAll(filepath.Join(work, ".opencode")); err != nil {
				t.Fatal(err)
			}
		}
		m.mu.Lock()
		m.shell = c.shell("touch '" + filepath.Join(work, attempt.file) + "'")
		m.mu.Unlock()
		cmd := start(work, args...)
		out := &testbed.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		if attempt.decision == "kill" {
			// The first call of the model comes after the start; the server is gone when the tool is called.
			m.before = p.kill
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if attempt.decision == "approve" || attempt.decision == "reject" {
			decide := exec.CommandContext(t.Context(), binary, "gates", attempt.decision, p.pending(t), "--data", p.dir)
			if attempt.decision == "reject" {
				decide.Args = append(decide.Args, "--reason", "I looked.")
			}
			decide.Env, decide.SysProcAttr = cleanEnv(), p.cmd.SysProcAttr // the server looks at who decides
			if out, err := decide.CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
		}
		err := cmd.Wait()
		if _, missing := os.Stat(filepath.Join(work, attempt.file)); (missing == nil) != attempt.done {
			t.Errorf("%+v: done is %v (%v)\n%s", attempt, missing == nil, err, out)
		}
		if attempt.done && err != nil {
			t.Errorf("%+v: %v\n%s", attempt, err, out)
		}
		if _, err := os.Stat(filepath.Join(work, "owned")); err == nil {
			t.Errorf("%+v: what the folder brings along was run", attempt)
		}
	}
}

// TestSupervisedGeminiOfAPersonAsksSignalbox: it believes the settings of root, and asks for other users all the same, who
// keep their login, settings and sessions.
func TestSupervisedGeminiOfAPersonAsksSignalbox(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		testbed.Missing(t, "this test becomes another user, which takes root")
	}
	c := modedCLIs["gemini"]
	installed, err := filepath.EvalSymlinks(npmProgram(t, c.program))
	if err != nil {
		t.Fatal(err)
	}
	// The program is in the home of root, where nobody else can read it.
	folder := filepath.Join(t.TempDir(), "node_modules", "gemini-cli")
	if err := os.CopyFS(folder, os.DirFS(filepath.Dir(filepath.Dir(installed)))); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, filepath.Base(filepath.Dir(installed)), filepath.Base(installed))
	passable(t, filepath.Dir(program))
	passable(t, filepath.Dir(binary))
	c.text = func(string) string {
		return "{ // mine\n" + `"security": {"auth": {"selectedType": "gemini-api-key"}}}`
	}
	c.env = func(url string) []string {
		return []string{"GOOGLE_GEMINI_BASE_URL=" + url, "GEMINI_CLI_NO_RELAUNCH=true"}
	}
	user := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: personUser, Gid: personUser}}
	for name, more := range map[string][]string{"alone": nil, "in a sandbox": {"--sandbox", "--allow-host"}} {
		testbed.Parallel(t, name, func(t *testing.T) {
			dir := t.TempDir()
			configure(t, dir, modedConfig("gemini", program))
			give(t, dir, personUser)
			p := upAs(t, dir, user, nil)
			m, start := c.at(t, "gemini", dir)
			if more != nil {
				takesSandbox(t)
				more = append(more, strings.TrimPrefix(m.url, "http://"))
			}
			person := func(work string, args ...string) *exec.Cmd {
				cmd := start(work, args...)
				give(t, work, personUser)
				set := map[string]string{} // of two values the last counts; the first is that of whoever runs the test
				for _, one := range cmd.Env {
					name, value, _ := strings.Cut(one, "=")
					set[name] = value
				}
				testbed.Write(t, filepath.Join(set["HOME"], ".gemini", ".env"), "GEMINI_API_KEY=none\n") // the login
				give(t, set["HOME"], personUser)
				give(t, set["TMPDIR"], personUser)
				cmd.SysProcAttr = user
				return cmd
			}
			mustRun(t, dir, "policy", "apply", writeFile(t, hookPolicy))
			work := t.TempDir()
			var sessions []string
			for _, resume := range [][]string{nil, {"--resume"}} {
				m.mu.Lock()
				m.shell = c.shell("echo x >>rounds")
				m.mu.Unlock()
				if resume != nil {
					resume = append(resume, sessions[0])
				}
				args := append(append(append([]string{"--mode", "supervised"}, more...), resume...), "--", "go on")
				if out, err := person(work, args...).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				var runs struct{ Runs []struct{ Resume string } }
				p.get("/runs?limit=1", &runs)
				sessions = append(sessions, runs.Runs[0].Resume)
			}
			if sessions[0] != sessions[1] || string(testbed.Read(t, filepath.Join(work, "rounds"))) != "x\nx\n" {
				t.Errorf("its sessions are %q", sessions)
			}
			c.asks(t, "gemini", p, m, person, more...)
		})
	}
}

// give gives a folder with all that is in it to a user, who can reach it then.
func give(t *testing.T, folder string, user int) {
	t.Helper()
	if within, err := filepath.Rel(os.TempDir(), folder); err != nil || within == "." || !filepath.IsLocal(within) {
		t.Fatalf("%s is not a folder of this test", folder)
	}
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, user, user)
	})
	if err != nil {
		t.Fatal(err)
	}
	passable(t, filepath.Dir(folder))
}

// refused checks that a run is refused before it starts, and why.
func refused(t *testing.T, cmd *exec.Cmd, why string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), why) {
		t.Errorf("it is not refused because %s: %d %v\n%s", why, code, err, out)
	}
}

// bringAlong makes a folder bring hooks and plugins along that nobody has reviewed.
func bringAlong(t *testing.T, work string) {
	t.Helper()
	owned := "touch '" + filepath.Join(work, "owned") + "'"
	plugin := "import { execSync } from 'node:child_process';\nexecSync(\"" + owned + "\");\n"
	for file, text := range map[string]string{
		".codex/hooks.json": fmt.Sprintf(`{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":%q}]}]}}`, owned),
		".codex/config.toml": fmt.Sprintf("[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = %q\n",
			owned),
		".opencode/plugin/own.js": plugin + "export const Own = async () => ({});\n",
		".pi/extensions/own.js":   plugin + "export default function () {}\n",
		".gemini/settings.json": fmt.Sprintf(`{"hooksConfig":{"enabled":false},"hooks":{"SessionStart":[{"hooks":[`+
			`{"type":"command","command":%q}]}]},"mcpServers":{"own":{"command":"sh","args":["-c",%[1]q]}}}`, owned),
	} {
		file = filepath.Join(work, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		testbed.Write(t, file, text)
	}
}

// TestARunIsRefusedBeforeItStartsIfItsCLICannotBeHeldToItsMode, and nothing is recorded.
func TestARunIsRefusedBeforeItStartsIfItsCLICannotBeHeldToItsMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := up(t, dir)
	for _, c := range []struct {
		engine, mode string
		env          []string
		code         int
		says         string
	}{
		{"claude", "whatever", nil, 2, "read, edit, full or supervised"},
		{"opencode", "read", []string{"OPENCODE_CONFIG_CONTENT={}"}, 1, "OPENCODE_CONFIG_CONTENT has a configuration already"},
		{"gemini", "supervised", []string{"GEMINI_CLI_SYSTEM_SETTINGS_PATH=/x"}, 1, "settings for gemini of its own"},
	} {
		cmd := exec.CommandContext(t.Context(), binary, "run", c.engine, "--data", dir, "--mode", c.mode, "--", "go")
		cmd.Env = append(cleanEnv(), c.env...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%+v: %d %s", c, cmd.ProcessState.ExitCode(), out)
		}
	}
	if os.Geteuid() == 0 {
		cmd := exec.CommandContext(t.Context(), binary, "run", "claude", "--data", dir, "--mode", "full", "--", "go")
		cmd.Env = append(cleanEnv(), "IS_SANDBOX=")
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "does not let root do everything") {
			t.Errorf("%d %s", cmd.ProcessState.ExitCode(), out)
		}
	}
	var runs struct{ Runs []any }
	p.get("/runs", &runs)
	if len(runs.Runs) != 0 {
		t.Errorf("%d runs were recorded", len(runs.Runs))
	}
}

// TestARunThatExceedsItsModeIsStopped: some CLIs ignore the rules that they are given. What nobody has named holds nobody.
func TestARunThatExceedsItsModeIsStopped(t *testing.T) {
	t.Parallel()
	lines := strings.ReplaceAll(runInit, runSession, "T-mode") + fmt.Sprintf(runTool+runDid, "a", "a", false)
	data, folder := configured(t, runtest.CLI{Stdout: []byte(lines + runResult), Hold: filepath.Join(t.TempDir(), "never")})
	p := up(t, data)
	for _, mode := range []string{"read", "edit"} {
		code, out := run(t, data, "run", "amp", "--mode", mode, "--cwd", folder, "--", "go")
		if code != 3 || !strings.Contains(out, "stopped (policy) · amp") || !strings.Contains(out, engine.Exceeded+": ") {
			t.Errorf("%s: %d %s", mode, code, out)
		}
		// One that the server starts, by a request that names it.
		status, answer, err := p.call("POST", "/runs", fmt.Sprintf(
			`{"engine":"amp","prompt":"go","dir":%q,"budget":{"tokens":100000},"mode":%q}`, folder, mode))
		var opened, ended struct{ ID, Status, Cause string }
		if err == nil {
			err = json.Unmarshal([]byte(answer), &opened)
		}
		if err != nil || status != http.StatusCreated {
			t.Fatal(status, answer, err)
		}
		testbed.Until(t, "the end of the run", func() bool {
			p.get("/runs/"+opened.ID, &ended)
			return ended.Status != "running"
		}, p.log)
		if ended.Status != "stopped" || ended.Cause != "policy" {
			t.Errorf("%s, started by the server: %+v", mode, ended)
		}
	}
	done, folder := configured(t, runtest.CLI{Stdout: []byte(lines + runResult)})
	up(t, done)
	for _, args := range [][]string{nil, {"--mode", "full"}} {
		if code, out := run(t, done, append(append([]string{"run", "amp", "--cwd", folder}, args...), "--", "go")...); code != 0 {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
}
