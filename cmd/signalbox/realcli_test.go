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
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/testbed"
)

// npmProgram is a program that scripts/test-tools has installed, in any folder of the cache or in the one that
// is named before it; without it the test is skipped, but not where everything is to be tested.
func npmProgram(t *testing.T, name string) string {
	t.Helper()
	var (
		out []byte
		err error
	)
	folders := []string{"signalbox-test-tools-locked", "signalbox-test-clis-locked", "signalbox-test-more-locked"}
	if folder, program, named := strings.Cut(name, "/"); named {
		folders, name = []string{folder}, program
	}
	for _, folder := range folders {
		file := testbed.Cache(t, folder, "node_modules", ".bin", name)
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
	configure(t, dir, "runs: {start_timeout: 10m, claude: {command: "+command+"}}\n")
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
	for want, c := range map[string]struct {
		env  string
		args []string
	}{
		"Not logged in":         {"ANTHROPIC_API_KEY=", []string{"--budget-usd", "1", "--model", "sonnet"}},
		"No conversation found": {"X=", []string{"--resume", "3f0c9a52-7d41-4b8e-9c66-1e2f5a7b8c90"}},
		"API Error":             {"CLAUDE_CODE_MAX_RETRIES=0", nil},
	} {
		cmd := start("http://"+testbed.FreeAddress(t), t.TempDir(), append(c.args, "--no-record", "--", "--say hi")...)
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
		testbed.Parallel(t, engine, func(t *testing.T) {
			command, dir := npmProgram(t, engine), t.TempDir()
			configure(t, dir, "runs: {start_timeout: 10m, "+engine+": {command: "+command+"}}\n")
			up(t, dir)
			for want, args := range c.wants {
				cmd := exec.CommandContext(t.Context(), binary,
					append(append([]string{"run", engine, "--json", "--data", dir, "--cwd", t.TempDir()}, args...), "--",
						"--say hi")...)
				// Codex has no sandbox where its home is one of temporary files.
				cmd.Env = append(append(cleanEnv(), "HOME="+t.TempDir(), "TMPDIR="+t.TempDir(), "NO_PROXY=*"), c.env...)
				out, _ := cmd.CombinedOutput()
				if cmd.ProcessState.ExitCode() != 1 || strings.Count(string(out), `"type":"completed"`) != 1 ||
					!strings.Contains(string(out), want) {
					t.Errorf("%s: %s", want, out)
				}
			}
		})
	}
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
	configure(t, dir, "runs: {start_timeout: 10m, codex: {command: "+command+", dangerously_allow_all: true}}\n"+
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
			testbed.Write(t, key, "sk-metered-vault\n")
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
	p, start := realClaude(t, "signalbox-test-newest-locked/claude")
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
		env    func(url string) []string
		file   string // of its home, and what stands in it
		text   func(url string) string
	}{
		"codex": {
			model: "gpt-5.4", prices: [5]float64{2.5, 15, 0.25, 0, 0},
			env:  func(string) []string { return []string{"OPENAI_API_KEY=sk-metered"} },
			file: ".codex/config.toml", text: func(url string) string {
				return "model_provider = \"stand-in\"\n[model_providers.stand-in]\nname = \"Stand-in\"\nbase_url = \"" + url +
					"/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n"
			},
		},
		"gemini": {
			model: "gemini-2.5-flash", prices: [5]float64{0.3, 2.5, 0.03, 0, 0},
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
		testbed.Parallel(t, engine, func(t *testing.T) {
			command, dir, home, work, session := npmProgram(t, engine), t.TempDir(), t.TempDir(), t.TempDir(), ""
			m := startMetered(t, 1)
			m.shell, m.hours = c.shell, false
			if c.text != nil {
				testbed.Write(t, filepath.Join(home, c.file), c.text(m.url))
			}
			configure(t, dir, fmt.Sprintf("runs: {start_timeout: 10m, %s: {command: %s, permissions: full}}\n", engine, command))
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
	p, start := realClaude(t, "signalbox-test-newest-locked/claude")
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

// TestTheRealClaudeCodeBehindTheProxyIsCountedOnce, whether its address names the agent or the provider's key stands for
// it: its calls are counted by the proxy, and what it says is shown beside.
func TestTheRealClaudeCodeBehindTheProxyIsCountedOnce(t *testing.T) {
	t.Parallel()
	command, dir, m := npmProgram(t, "signalbox-test-newest-locked/claude"), t.TempDir(), startMetered(t, 1)
	configure(t, dir, "runs: {start_timeout: 10m, claude: {command: "+command+"}}\nproxy: {anthropic: {upstream: "+m.url+"}}\n")
	p := up(t, dir)
	var added struct{ Keys struct{ Signal string } }
	if err := json.Unmarshal([]byte(mustRun(t, dir, "agents", "add", "coder", "--json")), &added); err != nil || added.Keys.Signal == "" {
		t.Fatal(err, added)
	}
	mustRun(t, dir, "proxy", "agent", "coder", "--provider-key-file", writeFile(t, "sk-metered-registered"))
	for key, base := range map[string]string{
		"sk-metered-own": p.url + "/v1/proxy/a/" + added.Keys.Signal, "sk-metered-registered": p.url + "/v1/proxy",
	} {
		before := len(m.calls)
		cmd := exec.CommandContext(t.Context(), binary, "run", "claude", "--data", dir, "--cwd", t.TempDir(), "--model",
			"claude-sonnet-4-5", "--budget-usd", "1", "--", "go on")
		cmd.Env = append(cleanEnv(), "HOME="+t.TempDir(), "NO_PROXY=*", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
			"ANTHROPIC_BASE_URL="+base, "ANTHROPIC_API_KEY="+key)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", key, err, out)
		}
		tokens, usd := m.took(before, [5]float64{3, 15, 0.3, 3.75, 6})
		r := p.newestRun(t, tokens)
		if r.Metered != "proxy" || r.Tokens != tokens || r.Calls != int64(len(m.calls)-before) ||
			math.Abs(r.CostUSD-usd) > usd/100 || r.Said == nil || r.Said.Tokens != tokens || math.Abs(r.Said.USD-usd) > usd/100 {
			t.Errorf("%s: %+v, %+v; by hand %d tokens, $%f", key, r, r.Said, tokens, usd)
		}
	}
}

// TestTwentySessionsOfTheRealPiResumeToThemselves although they begin so close together that the beginnings of their ids
// are the same: the model of each resumed run is sent what its own session has said, and nothing of another. The ids are
// time-ordered, and their first eight digits change every 65 seconds. How fast they begin depends on the machine, so that
// some share them is asked for, and not that all begin within 10 seconds.
func TestTwentySessionsOfTheRealPiResumeToThemselves(t *testing.T) {
	t.Parallel()
	const sessions, atOnce = 20, 5
	said := regexp.MustCompile(`(first|again) number ([0-9]+)\.`)
	var mu sync.Mutex
	heard := map[string][]string{} // what a model was sent, by what it was asked last
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var all []string
		for _, m := range said.FindAllSubmatch(body, -1) {
			all = append(all, string(m[1])+" "+string(m[2]))
		}
		if len(all) == 0 {
			http.NotFound(w, r)
			return
		}
		mu.Lock()
		heard[all[len(all)-1]] = all
		n := int64(len(heard))
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range anthropic.events(n, turn{text: "Hello."}) {
			writeEvent(w, e)
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	c, dir, work := modedCLIs["pi"], t.TempDir(), t.TempDir()
	configure(t, dir, fmt.Sprintf("runs: {pi: {command: %s, permissions: read}}\n", npmProgram(t, c.program)))
	p := up(t, dir)
	model := c
	model.text = func(string) string { return c.text(server.URL) }
	_, start := model.at(t, "pi", dir)
	talk := func(args ...string) error {
		out, err := start(work, append([]string{"--json"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", args, err, out)
		}
		return nil
	}
	each := func(do func(i int) error) {
		t.Helper()
		var all errgroup.Group
		all.SetLimit(atOnce)
		for i := range sessions {
			all.Go(func() error { return do(i) })
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	each(func(i int) error { return talk("--", fmt.Sprintf("first number %d.", i)) })
	var page struct {
		Runs []struct {
			Prompt, Resume string
			Line           string `json:"resume_line"`
		}
	}
	p.get("/runs?limit=100", &page)
	tokens, begins := map[string]string{}, map[string]int{}
	lines := make([]string, sessions)
	for _, r := range page.Runs {
		var i int
		if _, err := fmt.Sscanf(r.Prompt, "first number %d.", &i); err != nil || tokens[r.Resume] != "" || len(r.Resume) < 9 {
			t.Fatalf("%v %+v", err, r)
		}
		tokens[r.Resume], lines[i] = r.Prompt, r.Line
		begins[r.Resume[:8]]++
	}
	shared := 0
	for _, n := range begins {
		shared = max(shared, n)
	}
	t.Logf("%d sessions, of which %d begin with the same eight digits", len(tokens), shared)
	if len(tokens) != sessions || shared < 2 {
		t.Fatalf("there is nothing to tell apart: %v", tokens)
	}
	each(func(i int) error { return talk("--resume", lines[i], "--", fmt.Sprintf("again number %d.", i)) })
	for i := range sessions {
		got, err := json.Marshal(heard[fmt.Sprintf("again %d", i)])
		if want := fmt.Sprintf(`["first %d","again %d"]`, i, i); err != nil || string(got) != want {
			t.Errorf("session %d was sent %s, want %s", i, got, want)
		}
	}
	p.get("/runs?limit=100", &page)
	for _, r := range page.Runs {
		if again, ok := strings.CutPrefix(r.Prompt, "again"); ok && tokens[r.Resume] != "first"+again {
			t.Errorf("%q went on with the session of %q", r.Prompt, tokens[r.Resume])
		}
	}
}
