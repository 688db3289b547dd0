package main

import (
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"signalbox/internal/facts"
	"signalbox/internal/testbed"
)

// example is one of the tests of the ten rules on the page about policies.
type example struct {
	Name  string
	Event struct {
		Tool      string
		Arguments map[string]any
	}
	Expect verdict
}

// verdict is what comes of a call, and by which rule.
type verdict struct{ Then, Rule string }

// effects says what each example does where nothing stops it: a line that comes (+) or goes (-), see
// site.state. The shell that waits for what is typed does nothing.
var effects = map[string]string{
	"1 a private key is not read":                                "+told the-private-key",
	"1 nor an .env file, by a pattern":                           "+app/copied",
	"1 the example of one is":                                    "+told the-example",
	"1 and a page about keys":                                    "+told the-page",
	"2 a folder of another project is not deleted":               "-other/old/kept",
	"2 nor by a call that names the other project as its folder": "-other/old/kept",
	"2 nor the history of this one":                              "-app/.git/hooks/pre-commit",
	"2 what was built is":                                        "-app/build/out",
	"3 a file of another project is not written":                 "+other/notes",
	"3 nor what every shell runs when it starts":                 "+home/.bashrc",
	"3 a file of this one is":                                    "+app/notes",
	"4 what is encoded does not run":                             "+app/run",
	"4 nor what is downloaded, from whomever":                    "+GET packages.example.com/i",
	"4 nor a shell that waits for what is typed into it":         "",
	"4 it can be decoded":                                        "+app/decoded",
	"5 a host that is not on the list is not called":             "+GET paste.example.net/notes",
	"5 nor by a tool that is no shell":                           "+GET paste.example.net/page",
	"5 one on the list is":                                       "+GET packages.example.com/list",
	"6 history is not rewritten":                                 "+remote/refs/heads/topic",
	"6 main is not pushed to":                                    "+remote/refs/heads/main",
	"6 a branch is pushed by its name":                           "+remote/refs/heads/topic",
	"7 a package is not published":                               "+ran npm publish",
	"7 it is tested":                                             "+ran npm test",
	"8 a pipeline waits for a person":                            "+app/.github/workflows/release.yml",
	"8 so does a hook of git":                                    "+app/.git/hooks/pre-push",
	"8 a template for issues does not":                           "+app/.github/bug.md",
	"9 a password is not sent, also to a host on the list":       "+GET packages.example.com/names",
	"9 the same call without it goes on":                         "+GET packages.example.com/names",
	"10 nothing runs as another user":                            "+ran sudo touch",
	"10 it does as this one":                                     "+app/mine",
}

// tenRules are the policy on the page, and its examples. Each rule stops one of them, and lets
// one pass that is close to it.
func tenRules(t *testing.T) (policy string, examples []example) {
	t.Helper()
	var tests struct{ Tests []example }
	for _, b := range blocks(readPage(t, "docs/policy.md")) {
		switch b.info {
		case "yaml security.yaml":
			policy = b.text
		case "yaml security_test.yaml":
			if err := yaml.Unmarshal([]byte(b.text), &tests); err != nil {
				t.Fatal(err)
			}
		}
	}
	var rules struct{ Rules []struct{ Name string } }
	if err := yaml.Unmarshal([]byte(policy), &rules); err != nil || len(rules.Rules) != 10 {
		t.Fatalf("the page has %d rules: %v", len(rules.Rules), err)
	}
	for i, rule := range rules.Rules {
		about := func(expected func(verdict) bool) bool {
			return slices.ContainsFunc(tests.Tests, func(e example) bool {
				return strings.HasPrefix(e.Name, fmt.Sprintf("%d ", i+1)) && expected(e.Expect)
			})
		}
		if !about(func(v verdict) bool { return v.Rule == rule.Name }) ||
			!about(func(v verdict) bool { return v.Then == "allow" }) {
			t.Errorf("the page has no example of what %s stops, or none of what it lets pass", rule.Name)
		}
	}
	var names []string
	for _, e := range tests.Tests {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(effects)), names); diff != "" {
		t.Fatalf("examples whose effect is known (-), and those of the page (+):\n%s", diff)
	}
	return policy, tests.Tests
}

// action is what an example does, for an agent that has other tools.
type action struct {
	does                             facts.Does
	command, folder, path, text, url string
}

// action is the example in a site.
func (e example) action(s *site) action {
	f := facts.Of(facts.Call{Tool: e.Event.Tool, Arguments: e.Event.Arguments, CWD: "/srv/app"})
	here := func(text string) string { return strings.ReplaceAll(text, "/srv/", s.root+"/") }
	folder, _ := e.Event.Arguments["workdir"].(string)
	text, _ := e.Event.Arguments["content"].(string)
	path := here(f.Path)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(s.root, "home", rest)
	}
	return action{f.Does, here(f.Command), here(folder), path, text, f.URL}
}

// shell is the action as a text for a shell that cannot be told a folder.
func (a action) shell() string {
	if a.folder != "" {
		return "cd " + a.folder + " && " + a.command
	}
	return a.command
}

// site is where agents work in these tests: a project with a remote, another project beside it, a home,
// programs that note their calls, and a network of one server.
type site struct {
	t        *testing.T
	root     string
	mu       sync.Mutex
	requests []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, root: t.TempDir()}
	network := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, fmt.Sprintf("%s %s%s", r.Method, r.Host, r.URL.Path))
	}))
	t.Cleanup(network.Close)
	path := "PATH=" + s.root + "/bin:$PATH\n" // a login shell begins with the system's
	for name, text := range map[string]string{
		"app/.env":                   "TOKEN=the-env\n",
		"app/.env.example":           "TOKEN=the-example\n",
		"app/docs/keys.md":           "the-page\n",
		"app/build/out":              "#!/bin/sh\n",
		"other/old/kept":             "kept\n",
		"home/.ssh/id_ed25519":       "the-private-key\n",
		"home/.profile":              path,
		"home/.bashrc":               path,
		"home/.curlrc":               "connect-to = \"::" + network.Listener.Addr().String() + "\"\n",
		"home/.gitconfig":            "[user]\n\tname = Ines\n\temail = ines@example.com\n",
		"home/.gemini/settings.json": `{"security": {"auth": {"selectedType": "gemini-api-key"}}}`,
	} {
		testbed.Write(t, filepath.Join(s.root, name), text)
	}
	testbed.Script(t, filepath.Join(s.root, "bin", "npm"), "echo \"npm $*\" >>"+s.root+"/ran\n")
	testbed.Script(t, filepath.Join(s.root, "bin", "sudo"), "echo \"sudo $*\" >>"+s.root+"/ran\nexec \"$@\"\n")
	for _, command := range []string{
		"git init -q --bare -b main ../remote", "git init -q -b main .", "git remote add origin ../remote",
		"mkdir -p .git/hooks && touch .git/hooks/pre-commit", "git add docs", "git commit -q --no-verify -m First",
		"git push -q origin main", "git checkout -q -b topic", "git commit -q --no-verify --allow-empty -m Second",
	} {
		if out, err := s.sh(command); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	return s
}

// environment is that of a person who works here, and nothing of the one who runs the tests.
func (s *site) environment() []string {
	return []string{
		"HOME=" + filepath.Join(s.root, "home"), "PATH=" + filepath.Join(s.root, "bin") + ":" + os.Getenv("PATH"),
		"NO_PROXY=*", "TERM=dumb",
	}
}

// sh runs a command in the project.
func (s *site) sh(command string) (string, error) {
	cmd := exec.CommandContext(testbed.Context(s.t), "sh", "-c", command)
	cmd.Dir, cmd.Env = filepath.Join(s.root, "app"), s.environment()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// state is everything here that an example changes: files with their contents, the branches of
// the remote, the calls of programs, and requests.
func (s *site) state() map[string]bool {
	s.t.Helper()
	lines := map[string]bool{}
	for _, from := range []string{"app", "other", "home/.bashrc", "remote/refs"} {
		err := filepath.WalkDir(filepath.Join(s.root, from), func(path string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(s.root, path)
			if err != nil || d.IsDir() ||
				strings.HasPrefix(name, "app/.git/") && !strings.HasPrefix(name, "app/.git/hooks/") {
				return err
			}
			text, err := os.ReadFile(path)
			lines[fmt.Sprintf("%s: %s", name, text)] = true
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	for line := range strings.Lines(testbed.ReadAny(filepath.Join(s.root, "ran"))) {
		lines["ran "+line] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.requests {
		lines[fmt.Sprintf("%s (%d)", r, i)] = true
	}
	return lines
}

// changes are the lines that came and went since a state, and what a model was told of what is secret
// or to be read.
func (s *site) changes(before map[string]bool, told string) (all []string) {
	s.t.Helper()
	after := s.state()
	for line := range before {
		if !after[line] {
			all = append(all, "-"+line)
		}
	}
	for line := range after {
		if !before[line] {
			all = append(all, "+"+line)
		}
	}
	for _, text := range []string{"the-private-key", "the-env", "the-example", "the-page"} {
		if strings.Contains(told, text) {
			all = append(all, "+told "+text)
		}
	}
	return all
}

// happened reports whether the effect of an example is among changes.
func (e example) happened(changes []string) bool {
	return slices.ContainsFunc(changes, func(c string) bool { return strings.HasPrefix(c, effects[e.Name]) })
}

// realCLI is an agent CLI, and how it is told to do something without asking anybody but its hooks.
type realCLI struct {
	program string
	api     api
	args    func(s *site, m *model) []string
	env     func(m *model) []string
	call    func(a action) turn
}

// realCLIs are the CLIs by the names that `hook install` has for them.
var realCLIs = map[string]realCLI{
	"claude-code": {
		program: "claude", api: anthropic,
		args: func(*site, *model) []string { return []string{"--dangerously-skip-permissions", "-p", "Try them."} },
		env: func(m *model) []string {
			return []string{
				"ANTHROPIC_BASE_URL=" + m.url, "ANTHROPIC_API_KEY=sk-ant-none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
				"IS_SANDBOX=1", // root may not skip permissions otherwise
			}
		},
		call: func(a action) turn {
			switch a.does {
			case facts.Read:
				return turn{tool: "Read", input: map[string]any{"file_path": a.path}}
			case facts.Write:
				return turn{tool: "Write", input: map[string]any{"file_path": a.path, "content": a.text}}
			case facts.Fetch:
				return turn{tool: "WebFetch", input: map[string]any{"url": a.url, "prompt": "What is there?"}}
			}
			return turn{tool: "Bash", input: map[string]any{"command": a.shell(), "description": "An example"}}
		},
	},
	"codex": {
		program: "codex", api: responses,
		args: func(_ *site, m *model) []string {
			return []string{
				"exec", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "--model", "gpt-5.5",
				"-c", `model_provider="stand-in"`, "-c", `model_providers.stand-in={name="Stand-in", base_url="` + m.url +
					`/v1", env_key="STAND_IN_KEY", wire_api="responses"}`, "Try them.",
			}
		},
		env: func(*model) []string { return []string{"STAND_IN_KEY=none"} },
		call: func(a action) turn { // it reads and fetches with its shell
			switch a.does {
			case facts.Read:
				a.command = "cat " + a.path
			case facts.Write:
				return turn{
					tool: "apply_patch", input: "*** Begin Patch\n*** Add File: " + a.path + "\n+" + a.text + "\n*** End Patch\n",
				}
			case facts.Fetch:
				a.command = "curl -s " + a.url
			}
			input := map[string]any{"cmd": a.command}
			if a.folder != "" {
				input["workdir"] = a.folder
			}
			return turn{tool: "exec_command", input: input}
		},
	},
	"gemini": {
		program: "gemini", api: gemini,
		args: func(s *site, _ *model) []string {
			// It refuses other folders by itself, without these.
			return []string{"--yolo", "--include-directories", s.root, "--model", "gemini-2.5-flash", "--prompt", "Try them."}
		},
		env: func(m *model) []string {
			return []string{
				"GOOGLE_GEMINI_BASE_URL=" + m.url, "GEMINI_API_KEY=none", "GEMINI_CLI_TRUST_WORKSPACE=true",
				"GEMINI_CLI_NO_RELAUNCH=true",
			}
		},
		call: func(a action) turn {
			switch a.does {
			case facts.Read:
				return turn{tool: "read_file", input: map[string]any{"file_path": a.path}}
			case facts.Write:
				return turn{tool: "write_file", input: map[string]any{"file_path": a.path, "content": a.text}}
			case facts.Fetch:
				return turn{tool: "web_fetch", input: map[string]any{"prompt": "What is at " + a.url + " there?"}}
			}
			input := map[string]any{"command": a.command, "description": "An example"}
			if a.folder != "" {
				input["dir_path"] = a.folder
			}
			return turn{tool: "run_shell_command", input: input}
		},
	},
}

// TestTheTenRulesHoldForRealCLIs has each CLI try every example, in one session. What a rule stops
// does not happen, what is close to it does, and the ledger names the rule.
func TestTheTenRulesHoldForRealCLIs(t *testing.T) {
	t.Parallel()
	policy, examples := tenRules(t)
	var want []verdict
	for _, e := range examples {
		want = append(want, e.Expect)
	}
	for name, cli := range realCLIs {
		testbed.Parallel(t, name, func(t *testing.T) {
			program, dir := npmProgram(t, cli.program), t.TempDir()
			p := up(t, dir)
			mustRun(t, dir, "policy", "apply", writeFile(t, policy))
			s, m := newSite(t), startModel(t, cli.api)
			if out, err := s.sh(binary + " hook install " + name + " --data " + dir); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			cmd := exec.CommandContext(t.Context(), program, cli.args(s, m)...)
			cmd.Dir, cmd.Env = filepath.Join(s.root, "app"), append(s.environment(), cli.env(m)...)
			runLogged(t, cmd)
			m.hear()
			for _, e := range examples {
				e.try(s, m, cli.call)
				if e.Name == "8 a pipeline waits for a person" {
					mustRun(t, dir, "gates", "approve", p.pending(t), "--note", "I looked.")
					e.Expect.Then = "allow"
					e.try(s, m, cli.call)
				}
			}
			m.says <- turn{text: "It is done."}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, decisions(p)); diff != "" {
				t.Errorf("decisions of the page (-) and of the ledger (+):\n%s", diff)
			}
		})
	}
}

// try has a CLI do what an example does, and looks at what has come of it.
func (e example) try(s *site, m *model, call func(action) turn) {
	s.t.Helper()
	before := s.state()
	told := m.say(call(e.action(s)))
	changes := s.changes(before, told)
	if e.Expect.Then == "allow" && !e.happened(changes) {
		s.t.Errorf("%s: %q instead of %s; the model was told %s", e.Name, changes, effects[e.Name], told)
	}
	if e.Expect.Then != "allow" && len(changes) > 0 {
		s.t.Errorf("%s: %q; the model was told %s", e.Name, changes, told)
	}
}

// decisions are what was decided about calls, in the order of the ledger.
func decisions(p *process) (all []verdict) {
	p.t.Helper()
	var page struct {
		Entries []struct {
			Body struct {
				Type     string
				Decision verdict
			}
		}
	}
	p.get("/ops/ledger?kind=step.allowed,step.blocked,step.modified,step.deferred,step.held&limit=1000", &page)
	for _, e := range page.Entries {
		if e.Body.Type == "pre_action" {
			all = append(all, e.Body.Decision)
		}
	}
	return all
}

// TestWhatTheTenRulesStopWouldHappen: none of the commands that are stopped would do nothing anyway.
func TestWhatTheTenRulesStopWouldHappen(t *testing.T) {
	t.Parallel()
	_, examples := tenRules(t)
	for _, e := range examples {
		if e.Expect.Then == "allow" || effects[e.Name] == "" {
			continue
		}
		s := newSite(t)
		command, before := e.action(s).shell(), s.state()
		if command == "" {
			continue // of a tool that is no shell
		}
		if out, err := s.sh(command); err != nil || !e.happened(s.changes(before, out)) {
			t.Errorf("%s: %v %s", e.Name, err, out)
		}
	}
}
