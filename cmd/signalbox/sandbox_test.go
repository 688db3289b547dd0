package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/run/sandbox"
	"signalbox/internal/testbed"
)

// takesSandbox ends a test where there is no sandbox.
func takesSandbox(t *testing.T) {
	t.Helper()
	if err := sandbox.Check(t.Context()); err != nil {
		testbed.Missing(t, "this machine has no sandbox: %v", err)
	}
}

// boxed is a repository with a server whose data are in it, and a person's home.
type boxed struct {
	p                *process
	work, home, data string
	env              []string
}

// newBoxed starts the server with an engine.
func newBoxed(t *testing.T, config string) *boxed {
	t.Helper()
	takesSandbox(t)
	root := t.TempDir()
	b := &boxed{work: filepath.Join(root, "work"), home: filepath.Join(root, "home")}
	b.data = filepath.Join(b.work, "signalbox-data")
	for _, dir := range []string{b.data, filepath.Join(b.home, ".ssh"), filepath.Join(b.home, ".config", "amp", "plugins")} {
		testbed.Folder(t, dir)
	}
	testbed.Git(t, b.work, "init", "-q")
	testbed.Write(t, filepath.Join(b.work, "page"), "words\n")
	testbed.Git(t, b.work, "add", "page")
	testbed.Git(t, b.work, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "a page")
	configure(t, b.data, config)
	b.p = up(t, b.data)
	b.env = append(cleanEnv(), "HOME="+b.home)
	return b
}

// run runs an engine there.
func (b *boxed) run(t *testing.T, name string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(testbed.Context(t), binary, append([]string{"run", name, "--data", b.data, "--cwd", b.work}, args...)...)
	cmd.Env = b.env
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// TestAnAgentInTheSandboxFailsToLeaveIt tries more than fifty ways to the data folder, the home folder, other hosts, and to
// what a person runs later. What it may, it can.
func TestAnAgentInTheSandboxFailsToLeaveIt(t *testing.T) {
	t.Parallel()
	python := testbed.Program(t, "/usr/bin/python3")
	programs := t.TempDir()
	program := testbed.Script(t, filepath.Join(programs, "amp"), "exec '"+python+"' agent.py\n")
	b := newBoxed(t, "runs: {amp: {command: "+program+"}}\n")
	const secret = "a-secret-of-the-person"
	beside := filepath.Join(filepath.Dir(b.work), "beside")
	named := filepath.Join(b.work, "named.yaml")
	testbed.Write(t, named, "runs: {start_timeout: 10m, idle_timeout: 10m, amp: {command: "+program+"}}\n")
	for path, text := range map[string]string{
		filepath.Join(b.home, "secret"): secret, filepath.Join(b.home, ".ssh", "id_ed25519"): secret, beside: secret,
		filepath.Join(b.home, ".bashrc"):          "# mine\n",
		b.home + "/.config/amp/settings.json":     `{"mine": true}`,
		b.home + "/.local/share/amp/secrets.json": `{"key": "before"}`,
	} {
		testbed.Folder(t, filepath.Dir(path))
		testbed.Write(t, path, text)
	}
	for link, to := range map[string]string{"link-to-home": b.home, "link-to-data": b.data} {
		if err := os.Symlink(to, filepath.Join(b.work, link)); err != nil {
			t.Fatal(err)
		}
	}
	testbed.Write(t, filepath.Join(b.work, "agent.py"), testbed.Read(t, "testdata/sandbox/agent.py"))
	sub := filepath.Join(b.work, "sub")
	testbed.Folder(t, sub)
	testbed.Git(t, sub, "init", "-q")
	testbed.Write(t, filepath.Join(b.work, ".gitmodules"), "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n")
	before := testbed.ReadAny(filepath.Join(b.work, ".git", "config")) + testbed.ReadAny(filepath.Join(sub, ".git", "config"))

	answering := func() (host string, port int) {
		at := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "answered") }))
		address, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(at, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		return "127.0.0.1", address.Port
	}
	_, listener := answering()
	_, allowed := answering()
	hear := func(c net.Conn) { _ = c.Close() }
	abstract, socket := "signalbox-test-"+filepath.Base(filepath.Dir(b.work)), filepath.Join(filepath.Dir(b.work), "s.sock")
	testbed.Serve(t, "unix", "@"+abstract, hear)
	testbed.Serve(t, "unix", socket, hear)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	told, err := json.Marshal(map[string]any{
		"data": b.data, "home": b.home, "beside": beside, "program": program, "secret": secret, "self": binary, "name": name,
		"listener": []any{"127.0.0.1", listener}, "allowed": []any{"127.0.0.1", allowed}, "abstract": abstract, "socket": socket,
		"pids": []int{os.Getpid(), b.p.cmd.Process.Pid}, "token": b.p.operator(),
	})
	if err != nil {
		t.Fatal(err)
	}
	testbed.Write(t, filepath.Join(b.work, "told.json"), told)
	b.env = append(b.env, "SSH_AUTH_SOCK="+socket, "DBUS_SESSION_BUS_ADDRESS=unix:path="+socket, "SIGNALBOX_TOKEN="+b.p.operator(),
		"AWS_SECRET_ACCESS_KEY="+secret, "GITHUB_TOKEN="+secret)
	out, err := b.run(t, "amp", "--sandbox", "--config", named, "--allow-host", fmt.Sprintf("127.0.0.1:%d", allowed), "--allow-host",
		fmt.Sprintf("%s:%d", name, listener), "--", "leave")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	var results struct {
		Attempts []struct {
			Name, How string
			Done      bool
		}
		May map[string]string
	}
	if err := json.Unmarshal(testbed.Read(t, filepath.Join(b.work, "results.json")), &results); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const least = 50
	if len(results.Attempts) < least {
		t.Errorf("%d attempts", len(results.Attempts))
	}
	for _, one := range results.Attempts {
		t.Run(strings.ReplaceAll(one.Name, "/", "_"), func(t *testing.T) {
			if one.Done || strings.Contains(one.How, secret) {
				t.Errorf("the agent got there: %s", one.How)
			}
			t.Log(one.How)
		})
	}
	for name, said := range results.May {
		if said == "" {
			t.Errorf("it cannot do what it may: %s\n%s", name, out)
		}
	}
	if after := testbed.ReadAny(filepath.Join(b.work, ".git", "config")) + testbed.ReadAny(filepath.Join(sub, ".git", "config")); after != before {
		t.Errorf("settings of git were changed: %s", after)
	}
	for path, want := range map[string]string{
		".bashrc": "# mine\n", ".config/amp/settings.json": `{"mine": true}`, ".config/amp/plugins/own.js": "",
		".local/share/amp/threads/T-1.json": "{}", ".local/share/amp/threads/T-2.json": "",
		".local/share/amp/secrets.json": `{"key": "renewed"}`,
	} {
		if got := testbed.ReadAny(filepath.Join(b.home, path)); got != want {
			t.Errorf("%s of the home is %q", path, got)
		}
	}
	if _, err := os.Lstat(b.home + "/.local/share/amp/threads/T-2.json"); err == nil {
		t.Error("a link out of the sessions is still there")
	}
	// It is said what was refused, and why.
	for _, text := range []string{"amp · in a sandbox · mode edit", "example.com:443", "is not among its hosts", "which is not on the internet"} {
		if !strings.Contains(out, text) {
			t.Errorf("the run does not say %q:\n%s", text, out)
		}
	}
	var runs struct {
		Runs []struct {
			ID      string
			Sandbox bool
			Hosts   []string
		}
	}
	b.p.get("/runs?limit=1", &runs)
	if len(runs.Runs) != 1 || !runs.Runs[0].Sandbox || len(runs.Runs[0].Hosts) != 2 {
		t.Fatalf("recorded is %+v", runs)
	}
	if shown := mustRun(t, b.data, "runs", "show", runs.Runs[0].ID); !strings.Contains(shown, "sandbox") || !strings.Contains(shown, "example.com:443") {
		t.Errorf("runs show: %s", shown)
	}
}

// TestRealCLIsWorkInTheSandbox: each does its work there, in its folder and nowhere else, and goes on with its session in
// another run, which is in the sandbox as well without being told.
func TestRealCLIsWorkInTheSandbox(t *testing.T) {
	t.Parallel()
	takesSandbox(t)
	for name, c := range modedCLIs {
		testbed.Parallel(t, name, func(t *testing.T) {
			dir, work, outside := t.TempDir(), t.TempDir(), t.TempDir()
			configure(t, dir, modedConfig(name, npmProgram(t, c.program)))
			p := up(t, dir)
			m, start := c.at(t, name, dir)
			testbed.Write(t, filepath.Join(outside, "secret"), "a secret")
			var session string
			for round, file := range []string{"first", "second"} {
				m.mu.Lock()
				m.shell = c.shell(fmt.Sprintf("cat '%s' >leak; touch '%s' '%s'; echo x >>rounds", filepath.Join(outside, "secret"),
					filepath.Join(work, file), filepath.Join(outside, file)))
				m.mu.Unlock()
				args := []string{"--mode", "full", "--allow-host", strings.TrimPrefix(m.url, "http://"), "--", "go on"}
				if round == 0 {
					args = append([]string{"--sandbox"}, args...)
				} else {
					args = append([]string{"--resume", session}, args...)
				}
				out, err := start(work, args...).CombinedOutput()
				if err != nil || !strings.Contains(string(out), name+" · in a sandbox · mode full") {
					t.Fatalf("%v\n%s", err, out)
				}
				_, done := os.Stat(filepath.Join(work, file))
				_, left := os.Stat(filepath.Join(outside, file))
				if done != nil || left == nil || testbed.ReadAny(filepath.Join(work, "leak")) != "" {
					t.Fatalf("done: %v, outside: %v\n%s", done, left, out)
				}
				var runs struct{ Runs []struct{ Resume string } }
				p.get("/runs?limit=1", &runs)
				if session != "" && session != runs.Runs[0].Resume {
					t.Errorf("it went on with %s, and not with %s", runs.Runs[0].Resume, session)
				}
				session = runs.Runs[0].Resume
				t.Logf("%s", out)
			}
		})
	}
}

// TestASupervisedRunInTheSandboxAsks: its hooks reach the supervisor from inside, and what a person decides there holds.
func TestASupervisedRunInTheSandboxAsks(t *testing.T) {
	t.Parallel()
	takesSandbox(t)
	for _, name := range []string{"claude", "codex", "gemini"} {
		testbed.Parallel(t, name, func(t *testing.T) {
			dir, c := t.TempDir(), modedCLIs[name]
			configure(t, dir, modedConfig(name, npmProgram(t, c.program))+"# "+name+"\n")
			mustConfigure := []string{"config", "set", "runs." + name + ".sandbox", "true"}
			mustRun(t, dir, mustConfigure...)
			p := up(t, dir)
			mustRun(t, dir, "policy", "apply", writeFile(t, hookPolicy))
			m, start := c.at(t, name, dir)
			for _, decision := range []string{"approve", "reject"} {
				work := t.TempDir()
				m.mu.Lock()
				m.shell = c.shell("touch '" + filepath.Join(work, "deployed") + "'")
				m.mu.Unlock()
				cmd := start(work, "--mode", "supervised", "--allow-host", strings.TrimPrefix(m.url, "http://"), "--", "go on")
				out := &testbed.Buffer{}
				cmd.Stdout, cmd.Stderr = out, out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				id := p.pending(t)
				if status, text, err := p.call(http.MethodPost, "/ops/gates/"+id+"/"+decision, `{"note":"I looked."}`); err != nil ||
					status != http.StatusOK {
					t.Fatal(status, text, err)
				}
				err := cmd.Wait()
				_, missing := os.Stat(filepath.Join(work, "deployed"))
				if done := missing == nil; done != (decision == "approve") || !strings.Contains(out.String(), "in a sandbox · mode supervised") {
					t.Errorf("%s: done is %v (%v)\n%s", decision, done, err, out)
				}
			}
		})
	}
}

// TestModesHoldInTheSandbox: in read the folder stays as it is, whatever the CLI thinks of it.
func TestModesHoldInTheSandbox(t *testing.T) {
	t.Parallel()
	takesSandbox(t)
	for _, name := range []string{"claude", "codex"} {
		testbed.Parallel(t, name, func(t *testing.T) {
			c, dir := modedCLIs[name], t.TempDir()
			configure(t, dir, modedConfig(name, npmProgram(t, c.program)))
			up(t, dir)
			m, start := c.at(t, name, dir)
			for mode, want := range map[string]bool{"read": false, "edit": true} {
				work := t.TempDir()
				m.mu.Lock()
				m.shell = c.write(filepath.Join(work, "page"))
				m.mu.Unlock()
				out, err := start(work, "--sandbox", "--mode", mode, "--allow-host", strings.TrimPrefix(m.url, "http://"), "--",
					"go on").CombinedOutput()
				if _, missing := os.Stat(filepath.Join(work, "page")); err != nil || (missing == nil) != want {
					t.Errorf("%s: done is %v (%v)\n%s", mode, missing == nil, err, out)
				}
			}
		})
	}
}

// TestARunOfTheServerIsSandboxed by its request, by the configuration, and as the run before it in its session was. The
// last word is the request's.
func TestARunOfTheServerIsSandboxed(t *testing.T) {
	t.Parallel()
	takesSandbox(t)
	folder, dir := t.TempDir(), t.TempDir()
	cli := func(name, session string) string {
		return testbed.Script(t, filepath.Join(t.TempDir(), name), "echo '"+session+"'\n"+
			"if [ -e '"+dir+"' ]; then echo outside; else echo boxed; fi >>seen\necho '{\"type\":\"result\",\"result\":\"done\"}'\n")
	}
	configure(t, dir, fmt.Sprintf("runs: {folders: [%s], budget_tokens: 100000, amp: {command: %s}, claude: {command: %s, sandbox: true}}\n",
		folder, cli("amp", strings.TrimSpace(runInit)), cli("claude", `{"type":"system","subtype":"init","session_id":"S-1"}`)))
	p := up(t, dir)
	for _, one := range []struct {
		request string
		want    bool
	}{
		{`"engine":"amp"`, false},
		{`"engine":"amp","sandbox":true`, true},
		{`"engine":"amp","resume":"` + runSession + `"`, true},
		{`"engine":"amp","resume":"` + runSession + `","sandbox":false`, false},
		{`"engine":"amp","resume":"` + runSession + `"`, false},
		{`"engine":"claude"`, true},
		{`"engine":"claude","sandbox":false`, false},
	} {
		var run struct {
			ID, Status string
			Sandbox    bool
		}
		status, answer, err := p.call(http.MethodPost, "/runs", `{"prompt":"go","dir":"`+folder+`",`+one.request+`}`)
		if err != nil || status != http.StatusCreated || json.Unmarshal([]byte(answer), &run) != nil {
			t.Fatalf("%s: %d %s %v", one.request, status, answer, err)
		}
		testbed.Until(t, "the end of the run", func() bool { p.get("/runs/"+run.ID, &run); return run.Status != "running" }, p.log)
		seen := testbed.ReadAny(filepath.Join(folder, "seen"))
		if err := os.Remove(filepath.Join(folder, "seen")); err != nil {
			t.Fatal(err)
		}
		if run.Status != "completed" && one.request[10] == 'a' || run.Sandbox != one.want || (seen == "boxed\n") != one.want {
			t.Errorf("%s: %+v, %q\n%s", one.request, run, seen, testbed.ReadAny(filepath.Join(dir, "runs", run.ID+".log")))
		}
	}
	if status, answer, _ := p.call(http.MethodPost, "/runs", `{"engine":"amp","prompt":"go","dir":"`+folder+`","sandbox":true,`+
		`"hosts":["https://example.com"]}`); status != http.StatusBadRequest || !strings.Contains(answer, "api.example.com") {
		t.Errorf("%d %s", status, answer)
	}
}

// TestASandboxThatCannotBeHadIsRefused before anything starts or is recorded.
func TestASandboxThatCannotBeHadIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	started := filepath.Join(t.TempDir(), "started")
	configure(t, dir, "runs: {amp: {command: "+testbed.Script(t, filepath.Join(t.TempDir(), "amp"), "touch '"+started+"'\n")+"}}\n")
	p := up(t, dir)
	cmd := exec.CommandContext(testbed.Context(t), binary, "run", "amp", "--data", dir, "--sandbox", "--", "go")
	cmd.Env = append(cleanEnv(), "PATH="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "apt install bubblewrap") {
		t.Errorf("%v %s", err, out)
	}
	var runs struct{ Runs []any }
	p.get("/runs", &runs)
	if len(runs.Runs) != 0 || testbed.ReadAny(started) != "" {
		t.Errorf("something has begun: %v", runs)
	}
}

// TestARunHasAWorktreeOfItsOwn, in a sandbox and without: the folder of the person stays as it is, what was changed is shown
// in the terminal and on the page, and a worktree in which nothing was changed goes away.
func TestARunHasAWorktreeOfItsOwn(t *testing.T) {
	t.Parallel()
	// commits says in which the agent commits a part of it.
	const commits = `git -c user.name=A -c user.email=a@example.com commit -qam 'the agent' || exit 1
`
	for name, args := range map[string][]string{"plain": {"--mode", "full"}, "sandbox": {"--mode", "full", "--sandbox"}} {
		testbed.Parallel(t, name, func(t *testing.T) {
			takesSandbox(t)
			does := filepath.Join(t.TempDir(), "does")
			b := newBoxed(t, "runs: {amp: {command: "+testbed.Script(t, does, "echo '"+strings.TrimSpace(runInit)+"'\ncat >/dev/null\n. ./does.sh\n"+
				"echo '"+strings.TrimSpace(runResult)+"'\n")+"}}\n")
			testbed.Write(t, filepath.Join(b.work, ".gitignore"), "signalbox-data\n")
			testbed.Write(t, filepath.Join(b.work, "does.sh"), "echo more >>page\n"+commits+"echo new >added\npwd >where; git status --short >>where\n"+
				"echo '[core] fsmonitor = x' >>\"$(git rev-parse --git-common-dir)/config\"\n"+
				"echo x >\"$(git rev-parse --git-common-dir)/hooks/post-checkout\"\ngit branch -f master HEAD^ && echo moved >moved\n")
			if name == "plain" { // which may do all that
				testbed.Write(t, filepath.Join(b.work, "does.sh"), "echo more >>page\n"+commits+"echo new >added\n")
			}
			testbed.Git(t, b.work, "add", ".gitignore", "does.sh")
			testbed.Git(t, b.work, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "what it does")
			testbed.Write(t, filepath.Join(b.work, "page"), "not committed\n")
			settings := testbed.ReadAny(filepath.Join(b.work, ".git", "config"))
			head := testbed.Git(t, b.work, "rev-parse", "HEAD")
			out, err := b.run(t, "amp", append(args, "--worktree", "--", "go")...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var runs struct {
				Runs []struct {
					ID       string
					Worktree bool
				}
			}
			b.p.get("/runs?limit=1", &runs)
			id := runs.Runs[0].ID
			branch, tree := "signalbox/"+id, filepath.Join(b.home, ".local", "state", "signalbox", "worktrees", id)
			for _, text := range []string{
				"Changes without a commit stay in", "+more", "+new", "2 files changed", "git merge " + branch, "git worktree remove --force " + tree,
			} {
				if name == "sandbox" && text == "2 files changed" {
					text = "3 files changed" // it says where it is
				}
				if !strings.Contains(out, text) {
					t.Errorf("it does not say %q:\n%s", text, out)
				}
			}
			if got := testbed.ReadAny(filepath.Join(b.work, "page")); got != "not committed\n" {
				t.Errorf("the person's file is %q", got)
			}
			if got := testbed.Git(t, b.work, "log", "--format=%s", "-1", branch); strings.TrimSpace(got) != "the agent" || !runs.Runs[0].Worktree {
				t.Errorf("the branch ends with %q: %+v", got, runs)
			}
			if now := testbed.Git(t, b.work, "rev-parse", "HEAD"); now != head {
				t.Errorf("the person's branch was moved")
			}
			_, hook := os.Stat(filepath.Join(b.work, ".git", "hooks", "post-checkout"))
			if got := testbed.ReadAny(filepath.Join(b.work, ".git", "config")); got != settings || hook == nil {
				t.Errorf("git has settings or hooks of the agent: %s", got)
			}
			if shown := mustRun(t, b.data, "runs", "show", "--json", id); !strings.Contains(shown, "+more") {
				t.Errorf("recorded is %s", shown)
			}
			testbed.Git(t, b.work, "fsck")
			testbed.Git(t, b.work, "worktree", "remove", "--force", tree)

			// Nothing is changed: nothing is left.
			testbed.Write(t, filepath.Join(b.work, "does.sh"), "true\n")
			testbed.Git(t, b.work, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "nothing", "does.sh")
			out, err = b.run(t, "amp", append(args, "--worktree", "--", "go")...)
			left, _ := os.ReadDir(filepath.Dir(tree))
			if err != nil || len(left) != 0 || !strings.Contains(out, "Nothing was changed in the worktree") ||
				strings.Contains(testbed.Git(t, b.work, "branch", "--list", "signalbox/*"), "\n ") {
				t.Errorf("%v, %v is left\n%s", err, left, out)
			}
		})
	}
}

// TestAWorktreeThatCannotBeMadeIsRefused before anything starts.
func TestAWorktreeThatCannotBeMadeIsRefused(t *testing.T) {
	t.Parallel()
	dir, plain, empty := t.TempDir(), t.TempDir(), t.TempDir()
	testbed.Git(t, empty, "init", "-q")
	configure(t, dir, fmt.Sprintf("runs: {budget_tokens: 1000, folders: [%s, %s]}\n", plain, empty))
	p := up(t, dir)
	for folder, says := range map[string]string{plain: "is in no git repository", empty: "has no commit yet"} {
		if code, out := run(t, dir, "run", "amp", "--cwd", folder, "--worktree", "--", "go"); code == 0 || !strings.Contains(out, says) {
			t.Errorf("%d %s", code, out)
		}
		status, answer, err := p.call(http.MethodPost, "/runs", `{"engine":"amp","prompt":"go","worktree":true,"dir":"`+folder+`"}`)
		if err != nil || status != http.StatusBadRequest || !strings.Contains(answer, says) {
			t.Errorf("%d %s %v", status, answer, err)
		}
	}
	if code, out := run(t, dir, "run", "amp", "--resume", "T-1", "--worktree", "--", "go"); code == 0 || !strings.Contains(out, "--cwd") {
		t.Errorf("%d %s", code, out)
	}
	var runs struct{ Runs []any }
	p.get("/runs", &runs)
	if len(runs.Runs) != 0 {
		t.Errorf("something has begun: %v", runs)
	}
}
