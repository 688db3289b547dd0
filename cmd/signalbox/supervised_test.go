package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	runprocess "signalbox/internal/run/process"
	"signalbox/internal/run/runtest"
	"signalbox/internal/testbed"
)

// supervised is a server with the policy of hooks, and CLIs that ask before they deploy.
func supervised(t testing.TB, cli runtest.CLI) *process {
	t.Helper()
	cli.Ask = "deploy it"
	if cli.Stdout == nil {
		cli.Stdout = []byte(runInit + fmt.Sprintf(runTool, "a") + runResult)
	}
	cli.Refused = []byte(`{"type":"result","is_error":true,"error":"told not to","result":"told not to"}` + "\n")
	command := cli.Write(t)
	dir := t.TempDir()
	config := fmt.Sprintf("runs: {folders: [%s], amp: {command: %s}, claude: {command: %s}}\n", os.TempDir(), command,
		command)
	configure(t, dir, config)
	p := up(t, dir)
	mustRun(t, dir, "policy", "apply", writeFile(t, hookPolicy))
	return p
}

// TestASupervisedRunDoesWhatAPersonDecides: its call waits in the inbox, and what is said
// there is what happens. Without a server nothing happens.
func TestASupervisedRunDoesWhatAPersonDecides(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	p := supervised(t, runtest.CLI{Log: log})
	for _, engine := range []string{"amp", "claude"} {
		for decision, want := range map[string]struct {
			code int
			text string
		}{"approve": {0, `"answer":"done"`}, "reject": {1, "told not to"}} {
			done := make(chan struct{})
			var code int
			var out string
			go func() {
				defer close(done)
				code, out = run(t, p.dir, "run", engine, "--supervised", "--json", "--cwd", t.TempDir(), "--", "go")
			}()
			id := p.pending(t)
			if shown := mustRun(t, p.dir, "gates", "show", id); !strings.Contains(shown, "deploy it") {
				t.Errorf("the person does not see what is asked: %s", shown)
			}
			p.wantRun(t, id)
			waitAsShells(t, "SIGNALBOX_DATA="+p.dir)
			if status, text, err := p.call(http.MethodPost, "/ops/gates/"+id+"/"+decision, `{"note":"I looked."}`); err != nil ||
				status != http.StatusOK {
				t.Fatal(status, text, err)
			}
			<-done
			if code != want.code || !strings.Contains(out, want.text) {
				t.Errorf("%s, %s: %d %s", engine, decision, code, out)
			}
		}
	}
	if text := testbed.ReadAny(log); strings.Count(text, "I looked.") != 2 {
		t.Errorf("the agents are not told why: %s", text)
	}
}

// wantRun checks that a gate leads to the run that asks, by the command that it names.
func (p *process) wantRun(t *testing.T, gateID string) {
	t.Helper()
	var runs struct{ Runs []struct{ ID string } }
	p.get("/runs?status=running", &runs)
	var g struct{ Origin struct{ Run string } }
	p.get("/ops/gates/"+gateID, &g)
	if len(runs.Runs) != 1 || g.Origin.Run != runs.Runs[0].ID {
		t.Fatalf("the gate is of the run %q, and there are %v", g.Origin.Run, runs)
	}
	if shown := mustRun(t, p.dir, "gates", "show", gateID); !strings.Contains(shown, "signalbox runs show "+g.Origin.Run) {
		t.Errorf("the terminal does not name the run: %s", shown)
	}
	mustRun(t, p.dir, "runs", "show", g.Origin.Run)
}

// waitAsShells waits until hooks wait as shells, and not as processes of ours.
func waitAsShells(t testing.TB, env string) {
	t.Helper()
	ours := func(folder string) bool { path, _ := os.Readlink(filepath.Join(folder, "exe")); return path == binary }
	testbed.Until(t, "hooks to wait as shells", func() bool {
		all := hooks(env)
		return len(all) > 0 && !slices.ContainsFunc(all, ours)
	})
}

// TestASupervisedRunOfAServerElsewhereAsksAsAnAgent, and does not begin without its key.
func TestASupervisedRunOfAServerElsewhereAsksAsAnAgent(t *testing.T) {
	t.Parallel()
	p := supervised(t, runtest.CLI{})
	var added struct{ Keys map[string]string }
	if err := json.Unmarshal([]byte(mustRun(t, p.dir, "agents", "add", "laptop", "--json")), &added); err != nil {
		t.Fatal(err)
	}
	start := func(env ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, "run", "amp", "--supervised", "--json", "--config",
			filepath.Join(p.dir, "signalbox.yaml"), "--server", p.url, "--cwd", t.TempDir(), "--", "go")
		cmd.Env = append(append(cleanEnv(), "SIGNALBOX_TOKEN="+p.operator()), env...)
		return cmd
	}
	if out, err := start().CombinedOutput(); err == nil || !strings.Contains(string(out), "SIGNALBOX_KEY") {
		t.Errorf("%v %s", err, out)
	}
	done, cmd := make(chan string, 1), start("SIGNALBOX_KEY="+added.Keys["signal"])
	go func() {
		out, _ := cmd.CombinedOutput()
		done <- string(out)
	}()
	id := p.pending(t)
	if shown := mustRun(t, p.dir, "gates", "show", id); !strings.Contains(shown, "/laptop") {
		t.Errorf("%s", shown)
	}
	mustRun(t, p.dir, "gates", "approve", id)
	if out := <-done; !strings.Contains(out, `"answer":"done"`) {
		t.Errorf("%s", out)
	}
}

func TestASupervisedRunWhoseServerIsGoneDoesNothing(t *testing.T) {
	t.Parallel()
	log, hold := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "go")
	p := supervised(t, runtest.CLI{Log: log, Hold: hold})
	ctx, stop := context.WithCancel(t.Context())
	cmds := map[string]*exec.Cmd{}
	for _, engine := range []string{"amp", "claude"} {
		cmds[engine] = exec.CommandContext(ctx, binary, "run", engine, "--supervised", "--json", "--data", p.dir, "--cwd",
			t.TempDir(), "--", "go")
		cmds[engine].Env = cleanEnv()
		if err := cmds[engine].Start(); err != nil {
			t.Fatal(err)
		}
	}
	says := func(what string) {
		t.Helper()
		testbed.Until(t, what, func() bool {
			return strings.Count(testbed.ReadAny(log), what) == len(cmds)
		})
	}
	says("begin ")
	p.kill()
	testbed.Write(t, hold, "")
	says("refused=true")
	stop() // they would wait for the server, to record the end
	for _, cmd := range cmds {
		_ = cmd.Wait()
	}
}

// BenchmarkSupervisedRuns has 50 of them at once, which write a line every 100 ms. It looks
// at how long it takes from a line to somebody who follows the run over HTTP, at what that
// takes of the processor, and at the memory of everything but the CLIs: while they work, and
// while each waits for a person.
func BenchmarkSupervisedRuns(b *testing.B) {
	const many, lines = 50, 200
	for b.Loop() {
		hold := filepath.Join(b.TempDir(), "go")
		p := supervised(b, runtest.CLI{
			Pause: 100 * time.Millisecond, Hold: hold,
			Stdout: []byte(strings.Replace(runInit, runSession, "T-"+runtest.Now, 1) +
				strings.Repeat(fmt.Sprintf(runTool, runtest.Now), lines) + runResult),
		})
		before := p.memory()
		cpu := p.cpu()
		var took []time.Duration
		var begun int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range many {
			id := p.launch(os.TempDir(), true)
			wg.Go(func() {
				p.follow(id, 0, func(e event) bool {
					mu.Lock()
					defer mu.Unlock()
					if at, err := strconv.ParseInt(e.Event.Action.ID, 10, 64); err == nil && begun == many {
						took = append(took, time.Since(time.UnixMicro(at)))
					} else if e.N == 1 {
						begun++ // until all have, the machine is busy with that
					}
					return e.N == lines+1
				})
			})
		}
		wg.Wait()
		testbed.ReportLatency(b, took)
		b.ReportMetric(float64((p.cpu()-cpu).Microseconds())/many/lines, "cpu-µs/line")
		b.ReportMetric(p.others()+p.memory()-before, "MB")
		testbed.Write(b, hold, "")
		var page struct{ Gates []struct{ ID string } }
		testbed.Until(b, "all to ask", func() bool {
			p.get("/ops/gates?status=pending", &page)
			return len(page.Gates) >= many
		})
		waitAsShells(b, "") // a hook that waits takes less than one that begins
		b.ReportMetric(p.others()+p.memory()-before, "MB-waiting")
		for _, g := range page.Gates {
			if status, text, err := p.call(http.MethodPost, "/ops/gates/"+g.ID+"/reject", `{"note":"No."}`); err != nil ||
				status != http.StatusOK {
				b.Fatal(status, text, err)
			}
		}
		testbed.Until(b, "all to end", func() bool { return p.others() == 0 })
		p.stop()
	}
}

// others is what everything but the server and the CLIs takes, in MB: the processes that
// watch, and the hooks. What processes share is counted once.
func (p *process) others() (mb float64) {
	for _, folder := range append(p.beside("supervise"), hooks("")...) {
		if _, after, ok := strings.Cut(testbed.ReadAny(filepath.Join(folder, "smaps_rollup")), "Pss:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(after)[0], 64)
			mb += kb / 1000
		}
	}
	return mb
}

// cpu is how much of the processor the server and the processes that watch runs have used.
func (p *process) cpu() (used time.Duration) {
	for _, folder := range append(p.beside("supervise"), fmt.Sprintf("/proc/%d", p.cmd.Process.Pid)) {
		stat := testbed.ReadAny(filepath.Join(folder, "stat"))
		if fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]); len(fields) > 12 {
			user, _ := strconv.Atoi(fields[11])
			system, _ := strconv.Atoi(fields[12])
			used += time.Duration(user+system) * 10 * time.Millisecond // a tick of the kernel
		}
	}
	return used
}

// hooks are what runs with a text in their environment have started, as folders of /proc, but
// for the CLIs themselves: hooks, and the shells in which CLIs start them.
func hooks(text string) (folders []string) {
	cli, _ := os.Executable()
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range all {
		path, err := os.Readlink(filepath.Join(folder, "exe"))
		env := testbed.ReadAny(filepath.Join(folder, "environ"))
		if err == nil && path != cli && strings.Contains(env, runprocess.RunVariable+"=") && strings.Contains(env, text) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// beside are the processes, as folders of /proc, of our program with the server's data
// folder and a word in their arguments, but for the server itself.
func (p *process) beside(word string) (folders []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range all {
		path, err := os.Readlink(filepath.Join(folder, "exe"))
		args := testbed.ReadAny(filepath.Join(folder, "cmdline"))
		if err == nil && path == binary && strings.Contains(args, p.dir) && strings.Contains(args, word) &&
			filepath.Base(folder) != strconv.Itoa(p.cmd.Process.Pid) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// TestRunsOfAServerShareTheProcessThatWatchesThem, which ends with the last of them.
func TestRunsOfAServerShareTheProcessThatWatchesThem(t *testing.T) {
	t.Parallel()
	hold := filepath.Join(t.TempDir(), "go")
	data, folder := configured(t,
		runtest.CLI{Stdout: []byte(strings.Replace(runInit, runSession, "T-"+runtest.Now, 1) + runResult), Hold: hold})
	p := up(t, data)
	var ids []string
	for range 4 {
		ids = append(ids, p.launch(folder, false))
	}
	for _, id := range ids {
		p.follow(id, 0, func(event) bool { return true })
	}
	watching := func(want int) {
		t.Helper()
		testbed.Until(t, fmt.Sprintf("%d processes that watch", want), func() bool {
			return len(p.beside("supervise")) == want
		})
	}
	watching(1)
	mustRun(t, p.dir, "run", "cancel", ids[0])
	var last event
	p.follow(ids[0], 0, func(e event) bool { last = e; return false })
	if last.Event.Type != "completed" || *last.Event.OK {
		t.Errorf("%+v", last)
	}
	testbed.Write(t, hold, "")
	for _, id := range ids[1:] {
		p.follow(id, 0, func(e event) bool { last = e; return false })
		if last.Event.Type != "completed" || !*last.Event.OK || last.Event.Answer != "done" {
			t.Errorf("%+v", last)
		}
	}
	watching(0)
	if id := p.launch(folder, false); id != "" { // and the next one is watched by a new process
		p.follow(id, 0, func(e event) bool { last = e; return false })
		if last.Event.Type != "completed" || !*last.Event.OK {
			t.Errorf("%+v", last)
		}
	}
}

// TestAKilledSupervisorTakesItsAgentsWithItAndTheNextRunHasAnother, in spite of the socket
// that is left behind.
func TestAKilledSupervisorTakesItsAgentsWithItAndTheNextRunHasAnother(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	data, folder := configured(t,
		runtest.CLI{
			Stdout: []byte(strings.Replace(runInit, runSession, "T-"+runtest.Now, 1)), Linger: time.Minute, Stubborn: true,
			Log: log,
		})
	p := up(t, data)
	begin := func() string {
		id := p.launch(folder, false)
		p.follow(id, 0, func(event) bool { return true })
		return id
	}
	begin()
	begin()
	for _, folder := range p.beside("supervise") {
		pid, _ := strconv.Atoi(filepath.Base(folder))
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	gone(t, log)
	mustRun(t, data, "run", "cancel", begin())
}

// runDid is the result of the tool call in runTool.
const runDid = `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"%s","content":"x",` +
	`"is_error":%t}]}}` + "\n"

// TestASupervisedRunThatActsUnaskedIsStopped: its stream shows a result that no hook was asked about. One CLI
// says that all went well, and the other would go on.
func TestASupervisedRunThatActsUnaskedIsStopped(t *testing.T) {
	t.Parallel()
	did := fmt.Sprintf(runTool+runDid, "a", "a", false)
	for name, cli := range map[string]runtest.CLI{
		"says that all is well": {Stdout: []byte(runInit + did + runResult)},
		"goes on":               {Stdout: []byte(runInit + did + runResult), Hold: filepath.Join(t.TempDir(), "never")},
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			p := supervised(t, cli)
			for _, engine := range []string{"amp", "claude"} {
				code, out := run(t, p.dir, "run", engine, "--supervised", "--json", "--cwd", t.TempDir(), "--", "go")
				if code != 3 || !strings.Contains(out, `"error":"the agent acted without a decision: Bash (`) ||
					!strings.Contains(out, `"outcome":"stopped","cause":"policy"`) ||
					strings.Contains(out, `"ok":true,"answer"`) {
					t.Errorf("%s: %d %s", engine, code, out)
				}
			}
			if alarms := mustRun(t, p.dir, "alarms", "ls"); !strings.Contains(alarms, "nobody was asked about") {
				t.Errorf("%s", alarms)
			}
		})
	}
}

// TestARealClaudeCodeIsNotStoppedForWhatItAsks, nor for what fails before it begins.
func TestARealClaudeCodeIsNotStoppedForWhatItAsks(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"signalbox-test-tools-locked/claude", "signalbox-test-newest-locked/claude"} {
		testbed.Parallel(t, program, func(t *testing.T) {
			p, start := realClaude(t, program)
			work, m, done := t.TempDir(), startModel(t, anthropic), make(chan string, 1)
			page := filepath.Join(work, "page")
			testbed.Write(t, page, "text\n")
			cmd := start(m.url, work, "--supervised", "--", "try them")
			go func() {
				out, _ := cmd.CombinedOutput()
				done <- string(out)
			}()
			m.hear()
			shell := func(command string) turn {
				return turn{tool: "Bash", input: map[string]any{"command": command, "description": "Does it"}}
			}
			for _, call := range []turn{
				{tool: "Read", input: map[string]any{"file_path": page}},
				{tool: "Edit", input: map[string]any{"file_path": page, "old_string": "text", "new_string": "words"}},
				shell("ls"), shell("exit 3"), shell("echo forbidden"),
				{tool: "Bash", input: map[string]any{"description": "It lacks its command"}},
				{tool: "NoSuchTool", input: map[string]any{}},
				{tool: "Read", input: map[string]any{"file_path": filepath.Join(work, "none")}},
				{tool: "TodoWrite", input: map[string]any{"todos": []any{
					map[string]any{"content": "a", "status": "pending", "activeForm": "a"},
				}}},
				{tool: "Write", input: map[string]any{"file_path": filepath.Join(work, "new"), "content": "new"}},
			} {
				m.say(call)
			}
			m.says <- turn{text: "All of them."}
			if out := <-done; !strings.Contains(out, `"answer":"All of them."`) || strings.Contains(out, "without a decision") {
				t.Errorf("%s", out)
			}
			if alarms := mustRun(t, p.dir, "alarms", "ls"); strings.Contains(alarms, "asked about") {
				t.Errorf("%s", alarms)
			}
		})
	}
}
