package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	folders := []string{"signalbox-test-tools", "signalbox-test-clis", "signalbox-test-more"}
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
// session is said in one completed.
func TestRealCLIsTakeOurFlags(t *testing.T) {
	t.Parallel()
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
			command, dir := npmProgram(t, engine), t.TempDir()
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

// meteredModel stands in for a provider that counts: each of its calls takes more than the one before, and it says
// so. It calls a tool so often in each turn, and then ends it.
type meteredModel struct {
	url   string
	steps int
	shell turn // how its CLI is told to run a command; that of Claude Code, or Codex, unless it is said
	hours bool // its CLI has asked for caches that are kept for an hour

	mu    sync.Mutex
	calls []map[string]int // what each call took, by the names of the API
	keys  map[string]bool  // with which it was called
	seen  []string         // secrets that were in the list of processes
}

// startMetered starts a provider for the time of the test.
func startMetered(t *testing.T, steps int) *meteredModel {
	t.Helper()
	m := &meteredModel{steps: steps, keys: map[string]bool{}, hours: true}
	server := httptest.NewServer(m)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	m.url = server.URL
	return m
}

func (m *meteredModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	of, ok := anthropic, false
	for _, of = range []api{anthropic, responses, gemini} {
		if ok = strings.HasSuffix(r.URL.Path, of.path); ok {
			break
		}
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	var in struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Input    []struct{ Role, Type string }
		Contents []struct {
			Role  string
			Parts []struct{ FunctionResponse json.RawMessage }
		}
	}
	if json.Unmarshal(body, &in) != nil {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	steps := 0 // since somebody asked for something
	for _, one := range in.Messages {
		steps++
		if one.Role == "user" && !strings.Contains(string(one.Content), `"tool_result"`) {
			steps = 0
		}
	}
	steps /= 2 // a call and its result
	for i, one := range in.Input {
		if one.Type == "function_call" {
			steps++
		} else if one.Role == "user" && i > 0 && in.Input[i-1].Role == "assistant" {
			steps = 0
		}
	}
	for _, one := range in.Contents {
		if one.Role == "user" && len(one.Parts) > 0 && one.Parts[0].FunctionResponse != nil {
			steps++
		} else if one.Role == "user" {
			steps = 0
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[r.Header.Get("Authorization")+r.Header.Get("X-Api-Key")] = true
	m.seen = append(m.seen, secretsInArguments()...)
	i := len(m.calls) + 1
	say := turn{text: "It is done."}
	var usage map[string]int
	if len(m.calls) > 60 { // a run that nobody stops fails its test, and ends
		steps = m.steps
	}
	shell := m.shell
	switch of.path {
	case responses.path, gemini.path: // of which those from a cache are a part
		usage = map[string]int{"input_tokens": 1000 + i, "cached": 600 + i, "output_tokens": 50 + i}
		if shell.tool == "" {
			shell = turn{tool: "exec_command", input: map[string]any{"cmd": "true"}}
		}
	default:
		usage = map[string]int{
			"input_tokens": 100 + i, "output_tokens": 20 + i, "cache_read_input_tokens": 1000 + i,
			"cache_creation_input_tokens": 300 + i,
		}
		if m.hours {
			usage["hour"] = 200 + i
		}
		if shell.tool == "" {
			shell = turn{tool: "Bash", input: map[string]any{"command": "true", "description": "Nothing"}}
		}
	}
	if steps < m.steps {
		say = shell
	}
	m.calls = append(m.calls, usage)
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range of.events(int64(i), say) {
		writeEvent(w, withUsage(e, usage))
	}
}

// withUsage puts what a call took in place of what the events of all stand-ins say.
func withUsage(e map[string]any, usage map[string]int) map[string]any {
	whole := map[string]any{"input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]}
	if cached, ok := usage["cached"]; ok {
		whole["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
		whole["input_tokens_details"] = map[string]any{"cached_tokens": cached}
		whole["output_tokens_details"] = map[string]any{"reasoning_tokens": 10}
	} else {
		whole["cache_read_input_tokens"] = usage["cache_read_input_tokens"]
		whole["cache_creation_input_tokens"] = usage["cache_creation_input_tokens"]
		whole["cache_creation"] = map[string]any{
			"ephemeral_1h_input_tokens": usage["hour"], "ephemeral_5m_input_tokens": usage["cache_creation_input_tokens"] - usage["hour"],
		}
	}
	switch e["type"] {
	case nil: // of Gemini, which thinks a little
		const thought = 10
		e["usageMetadata"] = map[string]any{
			"promptTokenCount": usage["input_tokens"], "cachedContentTokenCount": usage["cached"],
			"candidatesTokenCount": usage["output_tokens"] - thought, "thoughtsTokenCount": thought,
			"totalTokenCount": usage["input_tokens"] + usage["output_tokens"],
		}
	case "response.completed":
		e["response"].(map[string]any)["usage"] = whole
	case "message_delta":
		e["usage"] = whole
	case "message_start": // a model has not counted yet what it is about to write
		begun := map[string]any{}
		for name, n := range whole {
			begun[name] = n
		}
		begun["output_tokens"] = 1
		e["message"].(map[string]any)["usage"] = begun
	}
	return e
}

// secretsInArguments are arguments of metered CLIs with a key in them, which everybody on the machine could see.
func secretsInArguments() (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		text, _ := os.ReadFile(name)
		for _, secret := range []string{"sk-metered", "rs-amp-"} {
			if strings.Contains(string(text), "model_providers.") && strings.Contains(string(text), secret) {
				found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
			}
		}
	}
	return found
}

// took is what the calls from one on took: tokens, and dollars by the prices of input, output, tokens from a cache,
// and written to one for minutes and for an hour, for a million.
func (m *meteredModel) took(from int, prices [5]float64) (tokens int64, usd float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls[from:] {
		kinds := [5]int{
			c["input_tokens"] - c["cached"], c["output_tokens"], c["cached"] + c["cache_read_input_tokens"],
			c["cache_creation_input_tokens"] - c["hour"], c["hour"],
		}
		for i, n := range kinds {
			tokens += int64(n)
			usd += float64(n) * prices[i] / 1e6
		}
	}
	return tokens, usd
}

// shownRun is a run as GET /runs shows it.
type shownRun struct {
	ID, Status, Stop, Metered, Resume string
	Tokens, Calls                     int64
	CostUSD                           float64 `json:"cost_usd"`
	Said                              *struct {
		Tokens int64
		USD    float64
	}
}

// newestRun is the newest run, once it has ended and so many of its tokens are counted.
func (p *process) newestRun(t *testing.T, tokens int64) (r shownRun) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("a run with %d tokens", tokens), func() bool {
		var page struct{ Runs []shownRun }
		p.get("/runs?limit=1", &page)
		r = page.Runs[0]
		return r.Status != "running" && r.Tokens >= tokens
	})
	return r
}

// TestTheRealCodexStopsWithinOneCallOfItsBudget: its model would go on for ever, and codex says only at the end of
// the turn what it has used.
func TestTheRealCodexStopsWithinOneCallOfItsBudget(t *testing.T) {
	t.Parallel()
	command, dir := npmProgram(t, "codex"), t.TempDir()
	m := startMetered(t, math.MaxInt)
	configure(t, dir, "runs: {codex: {command: "+command+", dangerously_allow_all: true}}\n"+
		"proxy: {openai: {upstream: "+m.url+"}}\n")
	p := up(t, dir)
	start := func(env string, args ...string) (int, string) {
		cmd := exec.CommandContext(t.Context(), binary, append(append([]string{
			"run", "codex", "--data", dir, "--cwd", t.TempDir(),
			"--model", "gpt-5.4",
		}, args...), "--", "go on")...)
		cmd.Env = append(cleanEnv(), "HOME="+t.TempDir(), "NO_PROXY=*", "OPENAI_API_KEY="+env)
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	// Without a key of an API, nobody could count.
	if code, out := start("", "--budget-tokens", "1000"); code != 1 || !strings.Contains(out, "There is none: set OPENAI_API_KEY") {
		t.Errorf("without a key: %d %s", code, out)
	}
	var none struct{ Runs []shownRun }
	p.get("/runs", &none)
	if len(none.Runs) != 0 || len(m.calls) != 0 {
		t.Fatalf("a run that was refused is recorded, or has called its model %d times", len(m.calls))
	}
	gpt := [5]float64{2.5, 15, 0.25, 0, 0}
	before := 0
	for _, c := range []struct {
		what, key string
		args      []string
		calls     int
	}{
		{"tokens, with a key of its own", "sk-metered-own", []string{"--budget-tokens", "2000"}, 2},
		{"dollars, with the key of the vault", "", []string{"--budget-usd", "0.002"}, 2},
	} {
		if c.key == "" {
			key := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(key, []byte("sk-metered-vault\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			in, err := os.Open(key)
			if err != nil {
				t.Fatal(err)
			}
			set := exec.CommandContext(t.Context(), binary, "proxy", "key", "set", "openai", "--data", dir)
			set.Stdin, set.Env = in, cleanEnv()
			if out, err := set.CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
		}
		code, out := start(c.key, c.args...)
		tokens, usd := m.took(before, gpt)
		r := p.newestRun(t, tokens)
		if code != 3 || len(m.calls)-before != c.calls || !strings.Contains(r.Stop, "and its budget is") {
			t.Errorf("%s: exit %d after %d calls, %+v\n%s", c.what, code, len(m.calls)-before, r, out)
		}
		if r.Metered != "proxy" || r.Tokens != tokens || math.Abs(r.CostUSD-usd) > usd/100 || r.Calls != int64(c.calls) {
			t.Errorf("%s: %+v, want %d tokens, $%f", c.what, r, tokens, usd)
		}
		before = len(m.calls)
	}
	for key := range m.keys {
		if key != "Bearer sk-metered-own" && key != "Bearer sk-metered-vault" {
			t.Errorf("the provider was called with %q", key)
		}
	}
	if len(m.seen) > 0 {
		t.Errorf("a key is in the list of processes: %s", m.seen[0])
	}
}

// TestTheRealClaudeCodeIsCountedOnceOverThreeResumes, though its newest version reports the sum of the session each
// time.
func TestTheRealClaudeCodeIsCountedOnceOverThreeResumes(t *testing.T) {
	t.Parallel()
	p, start := realClaude(t, "signalbox-test-newest/claude")
	m, work, session := startMetered(t, 1), t.TempDir(), ""
	sonnet := [5]float64{3, 15, 0.3, 3.75, 6}
	for i := range 4 {
		before := len(m.calls)
		args := []string{"--model", "claude-sonnet-4-5"}
		if session != "" {
			args = append(args, "--resume", session)
		}
		cmd := start(m.url, work, append(args, "--", "go on")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		tokens, usd := m.took(before, sonnet)
		r := p.newestRun(t, 1)
		if r.Tokens != tokens || math.Abs(r.CostUSD-usd) > usd/100 || tokens == 0 {
			t.Errorf("run %d: %+v; by hand %d tokens, $%f", i, r, tokens, usd)
		}
		session = r.Resume
	}
}

// TestRealCLIsAreCountedAsTheirProvidersCount, over three resumes of a session: not one token more or less, and the
// dollars of a table by hand. Claude Code, whose versions differ, has a test of its own.
func TestRealCLIsAreCountedAsTheirProvidersCount(t *testing.T) {
	t.Parallel()
	sonnet := [5]float64{3, 15, 0.3, 3.75, 6}
	bash := turn{tool: "bash", input: map[string]any{"command": "true", "description": "Nothing"}}
	for engine, c := range map[string]struct {
		model  string
		prices [5]float64
		shell  turn
		allow  bool // it may run commands only if it may do everything
		env    func(url string) []string
		file   string // of its home, and what stands in it
		text   func(url string) string
	}{
		"codex": {
			model: "gpt-5.4", prices: [5]float64{2.5, 15, 0.25, 0, 0}, allow: true,
			env:  func(string) []string { return []string{"OPENAI_API_KEY=sk-metered"} },
			file: ".codex/config.toml", text: func(url string) string {
				return "model_provider = \"stand-in\"\n[model_providers.stand-in]\nname = \"Stand-in\"\nbase_url = \"" + url +
					"/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n"
			},
		},
		"gemini": {
			model: "gemini-2.5-flash", prices: [5]float64{0.3, 2.5, 0.03, 0, 0}, allow: true,
			shell: turn{tool: "run_shell_command", input: map[string]any{"command": "true"}},
			env: func(url string) []string {
				return []string{"GOOGLE_GEMINI_BASE_URL=" + url, "GEMINI_API_KEY=none", "GEMINI_CLI_NO_RELAUNCH=true"}
			},
			file: ".gemini/settings.json", text: func(string) string {
				return `{"security": {"auth": {"selectedType": "gemini-api-key"}}}`
			},
		},
		"opencode": {
			model: "anthropic/claude-sonnet-4-5", prices: sonnet, shell: bash,
			env:  func(string) []string { return []string{"OPENCODE_DISABLE_MODELS_FETCH=true"} },
			file: ".config/opencode/opencode.json", text: func(url string) string {
				return `{"autoupdate": false, "provider": {"anthropic": {"options": {"baseURL": "` + url + `/v1", "apiKey": "none"}}}}`
			},
		},
		"pi": {
			model: "claude-sonnet-4-5", prices: sonnet, shell: bash,
			env:  func(string) []string { return []string{"ANTHROPIC_API_KEY=none", "PI_OFFLINE=1"} },
			file: ".pi/agent/models.json", text: func(url string) string {
				return `{"providers": {"anthropic": {"baseUrl": "` + url + `"}}}`
			},
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			command, dir, home, work, session := npmProgram(t, engine), t.TempDir(), t.TempDir(), t.TempDir(), ""
			m := startMetered(t, 1)
			m.shell, m.hours = c.shell, false
			if c.text != nil {
				file := filepath.Join(home, c.file)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(c.text(m.url)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			configure(t, dir, fmt.Sprintf("runs: {%s: {command: %s, dangerously_allow_all: %v}}\n", engine, command, c.allow))
			p := up(t, dir)
			for i := range 4 {
				before, args := len(m.calls), []string{"run", engine, "--data", dir, "--cwd", work, "--model", c.model}
				if session != "" {
					args = append(args, "--resume", session)
				}
				cmd := exec.CommandContext(t.Context(), binary, append(args, "--", "go on")...)
				cmd.Env = append(append(cleanEnv(), "HOME="+home, "NO_PROXY=*"), c.env(m.url)...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v %s", err, out)
				}
				tokens, usd := m.took(before, c.prices)
				r := p.newestRun(t, 1)
				if calls := len(m.calls) - before; r.Tokens != tokens || math.Abs(r.CostUSD-usd) > usd/100 || calls != 2 {
					t.Errorf("run %d: %d calls, %+v; by hand %d tokens, $%f", i, calls, r, tokens, usd)
				}
				session = r.Resume
			}
		})
	}
}

// TestTheRealClaudeCodeStopsWithinOneCallOfItsBudget: by itself at the dollars, by us at the tokens. What it cost until then
// stays counted.
func TestTheRealClaudeCodeStopsWithinOneCallOfItsBudget(t *testing.T) {
	t.Parallel()
	p, start := realClaude(t, "signalbox-test-newest/claude")
	m, sonnet := startMetered(t, math.MaxInt), [5]float64{3, 15, 0.3, 3.75, 6}
	for _, budget := range [][]string{{"--budget-usd", "0.004"}, {"--budget-tokens", "2000"}} {
		before := len(m.calls)
		cmd := start(m.url, t.TempDir(), append(budget, "--model", "claude-sonnet-4-5", "--", "go on")...)
		out, _ := cmd.CombinedOutput()
		m.mu.Lock()
		calls := len(m.calls) - before
		m.mu.Unlock()
		// The second call exceeds the budget; one more may be under way.
		tokens, usd := m.took(before, sonnet)
		r := p.newestRun(t, 1)
		if calls < 2 || calls > 3 || cmd.ProcessState.ExitCode() == 0 || r.Tokens > tokens || r.Tokens < tokens*3/5 ||
			r.CostUSD > usd+1e-9 || r.CostUSD < usd*3/5 || r.Calls < 2 {
			t.Errorf("%v: %d calls, %+v; by hand %d tokens, $%f\n%s", budget, calls, r, tokens, usd, out)
		}
	}
}

// TestTheRealClaudeCodeBehindTheProxyIsCountedOnce: its calls are counted by the proxy, and what it says is shown
// beside.
func TestTheRealClaudeCodeBehindTheProxyIsCountedOnce(t *testing.T) {
	t.Parallel()
	command, dir, m := npmProgram(t, "signalbox-test-newest/claude"), t.TempDir(), startMetered(t, 1)
	configure(t, dir, "runs: {claude: {command: "+command+"}}\nproxy: {anthropic: {upstream: "+m.url+"}}\n")
	p := up(t, dir)
	var added struct{ Keys struct{ Signal string } }
	if err := json.Unmarshal([]byte(mustRun(t, dir, "agents", "add", "coder", "--json")), &added); err != nil || added.Keys.Signal == "" {
		t.Fatal(err, added)
	}
	cmd := exec.CommandContext(t.Context(), binary, "run", "claude", "--data", dir, "--cwd", t.TempDir(), "--model",
		"claude-sonnet-4-5", "--budget-usd", "1", "--", "go on")
	cmd.Env = append(cleanEnv(), "HOME="+t.TempDir(), "NO_PROXY=*", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"ANTHROPIC_BASE_URL="+p.url+"/v1/proxy/a/"+added.Keys.Signal, "ANTHROPIC_API_KEY=sk-metered-own")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	tokens, usd := m.took(0, [5]float64{3, 15, 0.3, 3.75, 6})
	r := p.newestRun(t, tokens)
	// The proxy of this branch may not know yet how long a cache is kept; the CLI does.
	if r.Metered != "proxy" || r.Tokens != tokens || r.Calls != int64(len(m.calls)) || r.Said == nil || r.Said.Tokens != tokens ||
		math.Abs(r.Said.USD-usd) > usd/100 {
		t.Errorf("%+v, %+v; by hand %d tokens, $%f", r, r.Said, tokens, usd)
	}
}
