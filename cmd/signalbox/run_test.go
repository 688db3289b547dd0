package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/run/engine"
	runprocess "signalbox/internal/run/process"
	"signalbox/internal/run/record"
	"signalbox/internal/run/runtest"
	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// runSession is another one in each process: whoever else tests on this machine would wait for a session of the same name.
var (
	runSession = "T-" + strings.ToLower(rand.Text()[:8])
	runInit    = `{"type":"system","subtype":"init","session_id":"` + runSession + `"}` + "\n"
)

const (
	runTool = `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"%s","name":"Bash",` +
		`"input":{"command":"ls"}}]}}` + "\n"
	runResult = `{"type":"result","result":"done"}` + "\n"
)

// event is a recorded event as a reader gets it.
type event struct {
	N     int64
	Event struct {
		Type, Answer, Error string
		OK                  *bool
		Action              struct{ ID string }
	}
}

// configured is a data folder whose amp is the fake, and which may start runs in a folder.
func configured(t *testing.T, cli runtest.CLI) (data, folder string) {
	t.Helper()
	data, folder = t.TempDir(), t.TempDir()
	text := fmt.Sprintf("runs:\n  folders: [%s]\n  amp: {command: %s}\n", folder, cli.Write(t))
	configure(t, data, text)
	return data, folder
}

// launch has the server start a run.
func (p *process) launch(folder string, supervised bool) (id string) {
	p.t.Helper()
	body := fmt.Sprintf(`{"engine":"amp","prompt":"go","dir":%q,"budget":{"tokens":100000},"supervised":%t}`, folder,
		supervised)
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/runs", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+p.operator())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var r struct{ ID, Message string }
	if err := json.NewDecoder(res.Body).Decode(&r); err != nil || r.ID == "" {
		p.t.Fatalf("%v %s %s", err, res.Status, r.Message)
	}
	return r.ID
}

func (p *process) operator() string {
	text := testbed.Read(p.t, filepath.Join(p.dir, "operator.token"))
	return strings.TrimSpace(string(text))
}

// follow reads events until fn has enough or the stream ends.
func (p *process) follow(id string, after int64, fn func(event) (enough bool)) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(testbed.Context(p.t), http.MethodGet,
		fmt.Sprintf("%s/runs/%s/events?after=%d", p.url, id, after), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.operator())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			p.t.Fatalf("%v: %s", err, lines.Text())
		}
		if fn(e) {
			return
		}
	}
}

// TestARunGoesOnWhenTheServerIsKilled: the agent works while there is no server, and a
// reader that comes back with the last number it knows misses nothing.
func TestARunGoesOnWhenTheServerIsKilled(t *testing.T) {
	hold := filepath.Join(t.TempDir(), "go")
	ready := filepath.Join(t.TempDir(), "ready")
	data, folder := configured(t,
		runtest.CLI{
			Stdout: []byte(runInit + fmt.Sprintf(runTool, "a") + fmt.Sprintf(runTool, "b") + runResult), Hold: hold,
			Ready: ready,
		})
	p := up(t, data)
	id := p.launch(folder, false)
	seen := []int64{}
	p.follow(id, 0, func(e event) bool { seen = append(seen, e.N); return len(seen) == 2 })
	viewer := exec.CommandContext(t.Context(), binary, "run", "show", id, "--follow", "--json", "--data", data)
	viewer.Env = cleanEnv()
	shown, said := &testbed.Buffer{}, &testbed.Buffer{}
	viewer.Stdout, viewer.Stderr = shown, said
	if err := viewer.Start(); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "two lines of the viewer", func() bool { return strings.Count(shown.String(), "\n") >= 2 })
	p.kill()
	testbed.Write(t, hold, "") // it ends while nobody is there to hear it
	testbed.Until(t, "the run to go on without the server", func() bool { _, err := os.Stat(ready); return err == nil })
	p = up(t, data)
	var last event
	p.follow(id, seen[len(seen)-1], func(e event) bool { seen = append(seen, e.N); last = e; return false })
	for i, n := range seen {
		if n != int64(i)+1 {
			t.Fatalf("events %v", seen)
		}
	}
	if err := viewer.Wait(); err != nil || strings.Count(shown.String(), "\n") != 4 ||
		!strings.Contains(shown.String(), `"n":4`) {
		t.Errorf("the viewer: %v: %s\n%s", err, said, shown)
	}
	if len(seen) != 4 || last.Event.Type != "completed" || !*last.Event.OK || last.Event.Answer != "done" {
		t.Errorf("%v, %+v", seen, last)
	}
}

// TestARunOfTheServerHasTheConfigurationOfTheServer, also if that is named by a relative path, and another one than
// that of a run before.
func TestARunOfTheServerHasTheConfigurationOfTheServer(t *testing.T) {
	t.Parallel()
	data, folder := configured(t, runtest.CLI{Stdout: []byte(runInit + strings.Replace(runResult, "done", "the folder's", 1))})
	for _, name := range []string{"one", "two"} {
		cli := runtest.CLI{Stdout: []byte(runInit + strings.Replace(runResult, "done", name, 1))}
		text := fmt.Sprintf("runs:\n  folders: [%s]\n  amp: {command: %s}\n", folder, cli.Write(t))
		here, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		file, err := filepath.Rel(here, writeFile(t, text))
		if err != nil {
			t.Fatal(err)
		}
		p := up(t, data, "--config", file)
		answer := ""
		p.follow(p.launch(folder, false), 0, func(e event) bool { answer += e.Event.Answer; return false })
		if answer != name {
			t.Errorf("the run of %s answered %q", name, answer)
		}
		p.kill()
	}
}

// TestCancellingARunOfTheServerEndsItsProcess from another process.
func TestCancellingARunOfTheServerEndsItsProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	data, folder := configured(t, runtest.CLI{Stdout: []byte(runInit), Linger: time.Minute, Log: log})
	p := up(t, data)
	id := p.launch(folder, false)
	p.follow(id, 0, func(event) bool { return true })
	if out, err := exec.CommandContext(t.Context(), binary, "run", "cancel", id, "--data", data, "--reason",
		"enough").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	var last event
	p.follow(id, 0, func(e event) bool { last = e; return false })
	if last.Event.Type != "completed" || *last.Event.OK || !strings.HasPrefix(last.Event.Error, "enough\n") {
		t.Errorf("%+v", last)
	}
	gone(t, log)
}

// beginRun starts a run in the terminal, whose events come on its output.
func beginRun(t *testing.T, data, folder string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "run", "amp", "--json", "--data", data, "--cwd", folder, "--", "go")
	cmd.Env = cleanEnv()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// TestCtrlCEndsARunCleanly in the terminal: one completed, no process, exit code 130.
func TestCtrlCEndsARunCleanly(t *testing.T) {
	data, folder := configured(t, runtest.CLI{Stdout: []byte(runInit + fmt.Sprintf(runTool, "a")), Linger: time.Minute})
	cmd, out := beginRun(t, data, folder)
	lines, completed := 0, 0
	for in := bufio.NewScanner(out); in.Scan(); {
		lines++
		if lines == 2 {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(in.Text(), `"type":"completed"`) {
			completed++
			if !strings.Contains(in.Text(), "the run was cancelled") || !strings.Contains(in.Text(), `"outcome":"cancelled"`) {
				t.Error(in.Text())
			}
		}
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 || completed != 1 {
		t.Errorf("exit code %d, %d completed", cmd.ProcessState.ExitCode(), completed)
	}
}

// TestEachOutcomeIsSeenEverywhere: the exit code, the last event, the command's list and record, and the two pages.
func TestEachOutcomeIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	dir, folder := t.TempDir(), t.TempDir()
	used := strings.Replace(fmt.Sprintf(runTool, "a"), `"message":{`, `"message":{"usage":{"input_tokens":1200},`, 1)
	failing := fmt.Sprintf(runTool, "a") + `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a",` +
		`"content":"ls: no such folder","is_error":true}]}}` + "\n"
	clis := map[string]runtest.CLI{
		"completed": {Stdout: []byte(runInit + failing + `{"type":"assistant",` + "\n" + runResult)},
		"failed":    {Stdout: []byte(runInit), Exit: 1, Stderr: []string{"out of luck"}},
		"cancelled": {Stdout: []byte(runInit), Linger: time.Minute},
		"budget":    {Stdout: []byte(runInit + used), Linger: time.Minute},
		"time":      {Stdout: []byte(runInit + fmt.Sprintf(runTool, "a")), Linger: time.Hour},
	}
	p := up(t, dir)
	b := p.signIn(t)
	for _, c := range []struct {
		what, status, cause string
		code                int
		says                []string
	}{
		{"completed", "completed", "", 0, []string{
			"✗ $ ls · ls: no such folder", `warning: amp wrote a line that is not JSON, which was left out: {"type":"assistant",`,
		}},
		{"failed", "failed", "", 1, []string{"failed · amp", "out of luck"}},
		{"cancelled", "cancelled", "person", 130, []string{"cancelled · amp", "not this branch"}},
		{"budget", "stopped", "budget", 3, []string{"stopped (budget) · amp", "its budget is 1000"}},
		{"time", "stopped", "time", 3, []string{
			"stopped (time) · amp", "▸ warning: amp has been silent for ", "amp was silent for 3s, which is as long as it may be",
			"It was last at this command, ", " ago: ls",
		}},
	} {
		session := strings.ReplaceAll(string(clis[c.what].Stdout), runSession, "T-"+c.what)
		cli := clis[c.what]
		cli.Stdout = []byte(session)
		idle := "30m"
		if c.what == "time" {
			idle = "3s"
		}
		config := writeFile(t, fmt.Sprintf("runs: {amp: {command: %s, idle_timeout: %s}}\n", cli.Write(t), idle))
		ended := make(chan struct{})
		var code int
		var out string
		go func() {
			defer close(ended)
			code, out = run(t, dir, "runs", "amp", "--config", config, "--cwd", folder, "--budget-tokens", "1000", "--", "go")
		}()
		if c.what == "cancelled" {
			var id string
			testbed.Until(t, "the session of the run", func() bool {
				var runs struct {
					Runs []struct{ ID, Resume, Status string }
				}
				p.get("/runs?status=running", &runs)
				for _, r := range runs.Runs {
					if r.Resume == "T-cancelled" {
						id = r.ID
					}
				}
				return id != ""
			})
			mustRun(t, dir, "runs", "cancel", id, "--reason", "not this branch")
		}
		<-ended
		var runs struct {
			Runs []struct{ ID, Status, Cause string }
		}
		p.get("/runs?limit=1", &runs)
		newest := runs.Runs[0]
		if code != c.code || newest.Status != c.status || newest.Cause != c.cause {
			t.Errorf("%s: exit code %d, %+v\n%s", c.what, code, newest, out)
		}
		shown := mustRun(t, dir, "runs", "show", newest.ID)
		for _, text := range c.says {
			if !strings.Contains(out, text) {
				t.Errorf("%s: the terminal lacks %q: %s", c.what, text, out)
			}
			if event, _, _ := strings.Cut(text, " · amp"); !strings.Contains(shown, event) {
				t.Errorf("%s: the record lacks %q: %s", c.what, event, shown)
			}
		}
		if list := mustRun(t, dir, "runs", "ls", "--status", c.status); !strings.Contains(list, newest.ID) {
			t.Errorf("%s: it is not listed as %s: %s", c.what, c.status, list)
		}
		status, by := `<span class="status status-`+c.status+`">`+c.status+`</span>`, ""
		if c.status == "stopped" {
			by = map[string]string{"budget": "by its budget", "time": "by a limit of time"}[c.cause]
		}
		_, list := b.open(p.url + address.Runs.At())
		_, row, _ := strings.Cut(list, `<tr data-key="`+newest.ID)
		row, _, _ = strings.Cut(row, "</tr>")
		_, page := b.open(p.url + address.Run.At(newest.ID))
		for name, text := range map[string]string{"the list of runs": row, "the page of the run": page} {
			if !strings.Contains(text, status) || !strings.Contains(text, by) {
				t.Errorf("%s: %s does not say %s %s: %s", c.what, name, c.status, by, text)
			}
		}
		if said := map[string]string{"failed": "It failed", "cancelled": "It was cancelled", "stopped": "It was stopped by "}[c.status]; !strings.Contains(page, said) {
			t.Errorf("%s: the page does not say %q: %s", c.what, said, page)
		}
	}
}

// TestARunOnATerminal shows what it is doing and how far it is, then the answer and how to
// go on.
func TestARunOnATerminal(t *testing.T) {
	t.Parallel()
	hold := filepath.Join(t.TempDir(), "go")
	used := strings.Replace(fmt.Sprintf(runTool, "a"), `"message":{`,
		`"message":{"usage":{"input_tokens":1200,"output_tokens":34},`, 1)
	data, folder := configured(t,
		runtest.CLI{
			Stdout: []byte(runInit + used + `{"type":"result","result":"All green.","total_cost_usd":0.015}` + "\n"),
			Hold:   hold,
		})
	term := openTerminal(t, 100, 30, "run", "amp", "--no-record", "--data", data, "--cwd", folder, "--", "go")
	ticking := regexp.MustCompile(`working · amp · [1-9]\d*s · 1 step · 1,234 tokens`) // the time goes on by itself
	term.shows("a time that goes on", func(screen string) bool {
		return ticking.MatchString(screen) && strings.Contains(screen, "▸ $ ls")
	})
	testbed.Write(t, hold, "")
	term.sees("completed · amp · ", "1 step · 1,234 tokens · $0.0150", "All green.", "`amp threads continue "+runSession+"`")
	term.ends()
}

// TestAKilledSupervisorTakesTheAgentWithIt: nobody would watch it any more.
func TestAKilledSupervisorTakesTheAgentWithIt(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	data, folder := configured(t, runtest.CLI{Stdout: []byte(runInit), Linger: time.Minute, Stubborn: true, Log: log})
	cmd, out := beginRun(t, data, folder)
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("it did not start")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone(t, log)
}

// gone waits until the agents that wrote the log are.
func gone(t *testing.T, log string) {
	t.Helper()
	text := testbed.Read(t, log)
	for line := range strings.Lines(string(text)) {
		var pid int
		if _, err := fmt.Sscanf(line, "begin %d", &pid); err != nil {
			t.Fatal(err)
		}
		testbed.Until(t, "the agent's end", func() bool {
			// One that has died and that nobody has waited for yet is a zombie.
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
}

// canary stands in every secret of the server, and in nothing else.
const canary = "canary"

// secretSettings are all secrets of a server as its environment has them, with what they need beside them.
func secretSettings(t *testing.T) (env []string) {
	t.Helper()
	nowhere := "http://127.0.0.1:1/" + canary
	values := map[string]string{
		"db": storetest.Postgres(t) + "&application_name=" + canary, "notify.ntfy.url": nowhere, "notify.webhook": nowhere,
		"export.http":          nowhere,
		"notify.slack.webhook": nowhere, "notify.email.smtp": "smtp://user:" + canary + "@127.0.0.1:1",
		"mail.mesh.secrets": "", "notify.slack.token": "xoxb-" + canary, "notify.slack.app_token": "xapp-" + canary,
		"notify.telegram.token": "4711:" + canary,
	}
	for _, s := range server.Settings {
		if !s.Secret {
			continue
		}
		value, special := values[s.Key]
		if !special {
			value = canary
		}
		env = append(env, s.Env()+"="+value)
	}
	return append(env, "SIGNALBOX_NOTIFY_TELEGRAM_API=http://127.0.0.1:1", "SIGNALBOX_NOTIFY_SLACK_API=http://127.0.0.1:1",
		"SIGNALBOX_NOTIFY_TELEGRAM_CHAT=-1001", "SIGNALBOX_NOTIFY_SLACK_CHANNEL=C024BE91L",
		"SIGNALBOX_NOTIFY_EMAIL_FROM=a@example.com", "SIGNALBOX_NOTIFY_EMAIL_TO=b@example.com",
		"SIGNALBOX_TOKEN="+canary, "SIGNALBOX_KEY="+canary, "PGPASSWORD="+canary, "AWS_SECRET_ACCESS_KEY="+canary,
		"SOMETHING_OF_THE_SERVICE="+canary)
}

// TestALaunchedAgentHasNothingOfTheServersEnvironment but what is on its engine's list, and neither have its
// hooks, whatever the server was started with.
func TestALaunchedAgentHasNothingOfTheServersEnvironment(t *testing.T) {
	t.Parallel()
	folder, dir, hold := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "go")
	stream := []byte(strings.Replace(runInit, runSession, "T-"+runtest.Now, 1) + fmt.Sprintf(runTool, "a") + runResult)
	plain, asks := runtest.CLI{Stdout: stream, Hold: hold}, runtest.CLI{Stdout: stream, Ask: "deploy it"}
	var config strings.Builder
	fmt.Fprintf(&config, "runs:\n  daily_tokens: 100000000\n  folders: [%s]\n", folder)
	for _, name := range engine.Names() {
		cli := plain
		if name == "amp" || name == "claude" { // as which the fake can ask
			cli = asks
		}
		fmt.Fprintf(&config, "  %s: {command: %s, env: [WANTED_*]}\n", name, cli.Write(t))
	}
	configure(t, dir, config.String())
	env := append(secretSettings(t), "WANTED_BY_THE_OPERATOR=yes", "LC_ALL=C.UTF-8")
	for _, own := range []string{"AMP", "ANTHROPIC", "CODEX", "GEMINI", "OPENAI"} {
		env = append(env, own+"_API_KEY=own-"+strings.ToLower(own))
	}
	p := upIn(t, dir, env)
	mustRun(t, dir, "policy", "apply", writeFile(t, hookPolicy))
	own := map[string]string{
		"amp": "own-amp", "claude": "own-anthropic", "gemini": "own-gemini",
		"opencode": "own-anthropic", "pi": "own-openai",
		"codex": record.TokenVariable + "=", // it calls its models through the proxy, and does not have the key
	}
	for _, name := range engine.Names() {
		e, err := engine.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		supervised, budget := name == "amp" || name == "claude", `{"tokens":100000}`
		if e.Late() != "" && e.Meter() == nil { // it cannot be held to one
			budget = "{}"
		}
		begin := func() string {
			status, answer, err := p.call(http.MethodPost, "/runs", fmt.Sprintf(
				`{"engine":%q,"prompt":"go","dir":%q,"budget":%s,"supervised":%t}`, name, folder, budget, supervised))
			if err != nil || status >= 300 {
				t.Fatalf("%s: %d %s %v", name, status, answer, err)
			}
			_, after, _ := strings.Cut(answer, `"id":"`)
			id, _, _ := strings.Cut(after, `"`)
			return id
		}
		id, least := begin(), 1
		if supervised { // the CLI, and its hook, which waits for a person
			least = 2
		}
		var all []string
		testbed.Until(t, "the processes of "+name, func() bool {
			var run struct{ Status string }
			p.get("/runs/"+id, &run)
			if run.Status != "running" {
				id = begin() // on a busy machine a hook may refuse before the server has answered, and the run is over
			}
			all = environments(id)
			return len(all) >= least
		}, p.log)
		for _, env := range all {
			for line := range strings.SplitSeq(env, "\x00") {
				variable, value, _ := strings.Cut(line, "=")
				if strings.Contains(value, canary) || strings.HasPrefix(variable, "SIGNALBOX_") &&
					variable != runprocess.RunVariable && variable != runprocess.DelegationVariable &&
					variable != runprocess.DelegationServer &&
					(name != "codex" || variable != record.TokenVariable) &&
					variable != "SIGNALBOX_TEST_CLI" {
					t.Errorf("%s has %s", name, line)
				}
			}
			if name == "codex" && strings.Contains(env, "own-openai") {
				t.Errorf("codex has the key of the provider: %q", env)
			}
			if !strings.Contains(env, "WANTED_BY_THE_OPERATOR=yes") || !strings.Contains(env, own[name]) ||
				!strings.Contains(env, "PATH=") || !strings.Contains(env, runprocess.DelegationVariable+"=hof_") || !strings.Contains(env, "LC_ALL=") {
				t.Errorf("%s lacks what it needs: %q", name, env)
			}
		}
		mustRun(t, dir, "runs", "cancel", id)
		testbed.Until(t, "the end of "+name, func() bool { return len(environments(id)) == 0 })
	}
}

// environments are those of the processes of a run.
func environments(id string) (all []string) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		env := testbed.ReadAny(filepath.Join(folder, "environ"))
		if slices.Contains(strings.Split(env, "\x00"), runprocess.RunVariable+"="+id) {
			all = append(all, env)
		}
	}
	return all
}
