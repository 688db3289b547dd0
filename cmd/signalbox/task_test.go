package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/conform"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// interrupted is a server that ends between every two steps of a case, and begins again.
type interrupted struct {
	*conform.TaskServer
	t   *testing.T
	dir string
	p   *process
	end func(*process)
}

func (i *interrupted) MoveTo(ctx context.Context, seconds int64) error {
	i.end(i.p)
	i.p = up(i.t, i.dir)
	i.URL = i.p.url
	return i.TaskServer.MoveTo(ctx, seconds)
}

func TestScenariosOfTasksGoOnWhateverEndsTheServerBetweenTheirSteps(t *testing.T) {
	for name, end := range map[string]func(*process){
		"stopped": func(p *process) {
			if code := p.stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		},
		"killed": (*process).kill,
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			dir := t.TempDir()
			testbed.Write(t, dir+"/signalbox.yaml", "clock: {movable: true}\n")
			p := up(t, dir)
			host := &interrupted{TaskServer: &conform.TaskServer{URL: p.url, Token: p.token()}, t: t, dir: dir, p: p, end: end}
			if err := host.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			report, err := conform.RunTasks(t.Context(), onlyScenarios{amp.Vectors()}, host)
			if err != nil || report.Passed != 15 {
				t.Errorf("%d passed: %v", report.Passed, err)
			}
			for _, c := range report.Cases {
				if c.Outcome != "passed" {
					t.Errorf("%s: %s", c.Name, c.Problem)
				}
			}
			if out := mustRun(t, dir, "ledger", "rebuild", "--check"); !strings.Contains(out, " 0 differences") {
				t.Errorf("rebuild --check: %s", out)
			}
		})
	}
}

// onlyScenarios are vectors without the single documents.
type onlyScenarios struct{ fs.FS }

func (o onlyScenarios) Glob(pattern string) ([]string, error) {
	if !strings.HasPrefix(pattern, "scenarios/") {
		return nil, nil
	}
	return fs.Glob(o.FS, pattern)
}

// taskTeam is a server with an agent for each role, and the keys of the agents.
func taskTeam(t *testing.T) (p *process, keys map[string]string) {
	t.Helper()
	p = up(t, t.TempDir())
	return p, p.team(t)
}

// team adds an agent for each role, and returns their keys.
func (p *process) team(t *testing.T) map[string]string {
	t.Helper()
	keys := map[string]string{}
	for _, role := range []string{"coordinator", "executor", "reviewer"} {
		keys[role] = p.agent(t, role+"-one", `"role":"`+role+`"`)
	}
	return keys
}

// agent adds an agent with labels, and returns its key.
func (p *process) agent(t *testing.T, name, labels string) string {
	t.Helper()
	status, answer, err := p.call("POST", "/ops/agents", `{"name":"`+name+`","labels":{`+labels+`}}`)
	var made struct{ Keys map[string]string }
	if err == nil {
		err = json.Unmarshal([]byte(answer), &made)
	}
	if err != nil || status != 201 {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	return made.Keys["signal"]
}

const dispatchPayload = `{"description":"Rework the timer","repo":"/srv/repos/app","branch":"feature/timer",` +
	`"risk_level":"medium",
"subtasks":[{"subtask_id":"T-2026-044-S1","description":"Do it","estimated_lines":10}],` +
	`"acceptance_criteria":["All tests pass"]}`

const resultPayload = `{"subtask_id":"T-2026-044-S1","completion_status":"complete",` +
	`"diff_summary":{"files_changed":["a.go"],"lines_added":1,"lines_removed":0},
"self_assessment":{"criteria_met":[true],"notes":["ran"]},"work_log":[]}`

const verdictPayload = `{"decision":"approved","confidence":0.95,"criteria_results":[{"criterion":"All tests pass",` +
	`"passed":true,"evidence":"CI"}]}`

// dispatchedTask is a team whose executor has a task to do.
func dispatchedTask(t *testing.T) (p *process, keys map[string]string) {
	t.Helper()
	p, keys = taskTeam(t)
	if code, out := run(t, p.dir, "task", "instruct", "T-2026-044", "approve_plan"); code == 0 {
		t.Fatalf("a plan is approved that does not exist: %s", out)
	}
	if code, out := run(t, p.dir, "task", "--key", keys["coordinator"], "dispatch", "T-2026-044",
		writeFile(t, dispatchPayload)); code != 3 {
		t.Fatalf("%d %s", code, out)
	}
	mustRun(t, p.dir, "task", "instruct", "T-2026-044", "approve_plan")
	mustRun(t, p.dir, "task", "--key", keys["executor"], "inbox", "--wait", "50s")
	return p, keys
}

// hears has an agent acknowledge the one message in its inbox, and returns it.
func hears(t *testing.T, p *process, key string) string {
	t.Helper()
	var box struct {
		Messages []struct{ Message json.RawMessage }
	}
	out := mustRun(t, p.dir, "task", "--key", key, "inbox", "--wait", "50s", "--json")
	if err := json.Unmarshal([]byte(out), &box); err != nil || len(box.Messages) != 1 {
		t.Fatalf("%s %v", out, err)
	}
	var head struct {
		MsgID string `json:"msg_id"`
	}
	if err := json.Unmarshal(box.Messages[0].Message, &head); err != nil {
		t.Fatal(err)
	}
	mustRun(t, p.dir, "task", "--key", key, "ack", head.MsgID)
	return string(box.Messages[0].Message)
}

func writeFile(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "payload.json")
	testbed.Write(t, name, text)
	return name
}

// TestATaskFromATerminal goes through a task with commands, with a worker as executor.
func TestATaskFromATerminal(t *testing.T) {
	t.Parallel()
	p, keys := taskTeam(t)
	as := func(role string, args ...string) string {
		t.Helper()
		return mustRun(t, p.dir, append([]string{"task", "--key", keys[role]}, args...)...)
	}
	if code, out := run(t, p.dir, "task", "--key", keys["coordinator"], "dispatch", "T-2026-044",
		writeFile(t, dispatchPayload)); code != 3 || !strings.Contains(out, "AMP_E_PLAN_NOT_APPROVED") {
		t.Errorf("a plan that nobody has approved: %d %s", code, out)
	}
	mustRun(t, p.dir, "gates", "approve", p.pending(t), "--note", "Go ahead.")
	if heard := hears(t, p, keys["coordinator"]); !strings.Contains(heard, `"note":"Go ahead."`) ||
		!strings.Contains(heard, `"dispatched":true`) {
		t.Errorf("the coordinator hears %s", heard)
	}
	if out := mustRun(t, p.dir, "task", "ls"); !strings.Contains(out, "T-2026-044  dispatched  medium") {
		t.Errorf("ls: %s", out)
	}
	worker := `cat >/dev/null; case "$SIGNALBOX_DELEGATION" in hof_*) ;; *) exit 9;; esac; "` + binary + `" task result "$SIGNALBOX_TASK" ` + writeFile(t, resultPayload)
	as("executor", "work", "executor", "--once", "--", "sh", "-c", worker)
	if out := mustRun(t, p.dir, "task", "show", "T-2026-044"); !strings.Contains(out, "status      reported (active)") {
		t.Errorf("show: %s", out)
	}
	if code, out := run(t, p.dir, "task", "--key", keys["reviewer"], "verdict", "T-2026-044",
		writeFile(t, verdictPayload)); code != 1 || !strings.Contains(out, "AMP_E_STATE") {
		t.Errorf("a verdict without a request: %d %s", code, out)
	}
	as("coordinator", "review", "T-2026-044", "--diff", "https://git.example.com/compare")
	as("reviewer", "escalate", "T-2026-044", "What is a leak?", "--severity", "critical", "--type", "conflict")
	if code, out := run(t, p.dir, "task", "--key", keys["reviewer"], "verdict", "T-2026-044",
		writeFile(t, verdictPayload)); code != 1 || !strings.Contains(out, "AMP_E_SUSPENDED") {
		t.Errorf("a verdict while the task is suspended: %d %s", code, out)
	}
	mustRun(t, p.dir, "task", "resume", "T-2026-044", "--note", "Any")
	as("reviewer", "verdict", "T-2026-044", writeFile(t, verdictPayload))
	var box struct {
		Messages []struct {
			Message struct {
				MsgID string `json:"msg_id"`
			}
		}
	}
	if err := json.Unmarshal([]byte(as("coordinator", "inbox", "--json")), &box); err != nil || len(box.Messages) != 1 {
		t.Fatalf("%+v %v", box, err)
	}
	if out := as("coordinator", "ack", box.Messages[0].Message.MsgID); !strings.Contains(out, "is completed.") {
		t.Errorf("ack: %s", out)
	}
	if out := mustRun(t, p.dir, "task", "errors"); !strings.Contains(out, "AMP_E_SUSPENDED") {
		t.Errorf("errors: %s", out)
	}
	if code, out := run(t, p.dir, "task", "validate", writeFile(t, `{"msg_id":1}`)); code != 1 ||
		!strings.Contains(out, `AMP_E_TYPE at "/msg_id"`) {
		t.Errorf("validate: %d %s", code, out)
	}
	if out := mustRun(t, p.dir, "conform", "task", "../../internal/task/amp/vectors"); !strings.Contains(out,
		"138 passed, 0 failed") {
		t.Errorf("conform: %s", out)
	}
	if out := mustRun(t, p.dir, "conform", "task", p.url); !strings.Contains(out, "skipped 15 cases") ||
		!strings.Contains(out, ", 0 failed") {
		t.Errorf("conform: %s", out)
	}
	if out := mustRun(t, p.dir, "task", "show", "T-2026-044"); !strings.Contains(out, "git         not read") ||
		strings.Count(out, "unverified: the repository is not below tasks.repo_roots") != 2 {
		t.Errorf("show: %s", out)
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	mustRun(t, p.dir, "task", "export", "T-2026-044", "--out", bundle)
	if out := mustRun(t, p.dir, "task", "verify", bundle); !strings.Contains(out, "T-2026-044 is completed") {
		t.Errorf("verify: %s", out)
	}
}

// TestAWorkerWhoseCommandDiesEscalates; one whose command lives sends heartbeats, and ends
// it when the task is stopped.
func TestAWorkerWhoseCommandDiesEscalates(t *testing.T) {
	t.Parallel()
	p, keys := dispatchedTask(t)
	mustRun(t, p.dir, "task", "--key", keys["executor"], "work", "executor", "--once", "--", "sh", "-c",
		"echo no disk >&2; exit 3")
	var shown struct {
		Status string `json:"task_status"`
		Holds  []struct{ Scope string }
	}
	look := func() string {
		p.get("/amp/tasks/T-2026-044", &shown)
		return shown.Status
	}
	if look() != "suspended" || shown.Holds[0].Scope != "party:executor" {
		t.Errorf("%+v", shown)
	}
	if out := mustRun(t, p.dir, "gates", "ls", "--json"); !strings.Contains(out, "exit status 3. no disk") {
		t.Errorf("gates: %s", out)
	}
	mustRun(t, p.dir, "task", "resume", "T-2026-044")
	mustRun(t, p.dir, "task", "instruct", "T-2026-044", "reassign", "--target", "executor", "--agent",
		"executor-one")

	ended := make(chan string, 1)
	go func() {
		_, out := run(t, p.dir, "task", "--key", keys["executor"], "work", "executor", "--once", "--look", "20ms",
			"--heartbeat", "30ms", "--", "sleep", "600")
		ended <- out
	}()
	testbed.Until(t, "the worker to begin", func() bool { return look() == "executing" })
	var heard struct{ Entries []struct{ Actor string } }
	testbed.Until(t, "heartbeats while the command lives", func() bool {
		p.get("/ops/ledger?kind=task.heard", &heard)
		return len(heard.Entries) >= 3
	})
	if heard.Entries[0].Actor != "agent:executor-one" {
		t.Errorf("%+v", heard)
	}
	mustRun(t, p.dir, "task", "--key", keys["reviewer"], "escalate", "T-2026-044", "Stop!", "--severity", "critical")
	if out := testbed.Receive(t, "the command's end", ended); !strings.Contains(out,
		"stopped, the task is held (suspended)") {
		t.Errorf("%s", out)
	}
}

// TestAWorkerWhoseCommandDoesNotAnswerEscalates, and keeps what it wrote.
func TestAWorkerWhoseCommandDoesNotAnswerEscalates(t *testing.T) {
	t.Parallel()
	p, keys := dispatchedTask(t)
	kept := t.TempDir()
	out := mustRun(t, p.dir, "task", "--key", keys["executor"], "work", "executor", "--once", "--output", kept,
		"--", "sh", "-c", "cat >/dev/null; echo I have done nothing; echo at all >&2")
	if !strings.Contains(out, "ended without an answer") {
		t.Error(out)
	}
	var shown struct {
		Status string `json:"task_status"`
	}
	p.get("/amp/tasks/T-2026-044", &shown)
	if shown.Status != "suspended" {
		t.Errorf("%+v", shown)
	}
	if out := mustRun(t, p.dir, "gates", "ls", "--json"); !strings.Contains(out, "has not answered. at all") {
		t.Errorf("gates: %s", out)
	}
	files, _ := filepath.Glob(filepath.Join(kept, "T-2026-044", "*.log"))
	if len(files) != 1 {
		t.Fatal(files)
	}
	// The two streams of a command have no order between them.
	lines := strings.SplitAfter(string(testbed.Read(t, files[0])), "\n")
	slices.Sort(lines)
	if diff := cmp.Diff([]string{"", "I have done nothing\n", "at all\n"}, lines); diff != "" {
		t.Error(diff)
	}
}

// TestAnEscalationThatHoldsNothingIsNoAnswer: a command says that it goes on, ends with exit code 0, and leaves a program
// behind that keeps its output open.
func TestAnEscalationThatHoldsNothingIsNoAnswer(t *testing.T) {
	t.Parallel()
	p, keys := dispatchedTask(t)
	out := mustRun(t, p.dir, "task", "--key", keys["executor"], "work", "executor", "--once", "--", "sh", "-c",
		`cat >/dev/null; "`+binary+`" task escalate "$SIGNALBOX_TASK" "All is well" --severity info; sleep 30 & exit 0`)
	if !strings.Contains(out, "ended without an answer") {
		t.Error(out)
	}
	if out := mustRun(t, p.dir, "task", "show", "T-2026-044"); !strings.Contains(out, "suspended") {
		t.Error(out)
	}
}

// TestAWorkerThatLostItsLeaseIsInNobodysWay: the task was given away, to another process of the same agent, and its
// command answers all the same.
func TestAWorkerThatLostItsLeaseIsInNobodysWay(t *testing.T) {
	t.Parallel()
	p, keys := dispatchedTask(t)
	as := func(args ...string) string {
		return mustRun(t, p.dir, append([]string{"task", "--key", keys["executor"]}, args...)...)
	}
	var shown struct {
		Status   string `json:"task_status"`
		Dispatch string `json:"governing_dispatch"`
	}
	status := func() string {
		p.get("/amp/tasks/T-2026-044", &shown)
		return shown.Status
	}
	dir, ended := t.TempDir(), make(chan string, 1)
	result := writeFile(t, resultPayload)
	go func() {
		_, out := run(t, p.dir, "task", "--key", keys["executor"], "work", "executor", "--once", "--look", "1h", "--", "sh", "-c",
			`cat >/dev/null; while [ ! -e `+dir+`/go ]; do sleep 0.1; done; exec "`+binary+`" task result "$SIGNALBOX_TASK" `+result)
		ended <- out
	}()
	testbed.Until(t, "the worker to begin", func() bool { return status() == "executing" })
	mustRun(t, p.dir, "task", "instruct", "T-2026-044", "reassign", "--target", "executor", "--agent", "executor-one")
	as("ack", shown.Dispatch)
	testbed.Write(t, filepath.Join(dir, "go"), "")
	if out := testbed.Receive(t, "the worker's end", ended); !strings.Contains(out, "not this worker's any more") {
		t.Error(out)
	}
	if got := status(); got != "executing" {
		t.Errorf("the task is %s: the late worker has stopped the one that has it, or its result was taken", got)
	}
	if out := mustRun(t, p.dir, "task", "errors"); !strings.Contains(out, "The lease of generation 1 on this task is over") {
		t.Errorf("errors: %s", out)
	}
	as("result", "T-2026-044", result)
}

// TestToolsOnStandardInputAndOutput speaks MCP with the real binary.
func TestToolsOnStandardInputAndOutput(t *testing.T) {
	t.Parallel()
	p, keys := dispatchedTask(t)
	cmd := exec.CommandContext(t.Context(), binary, "mcp")
	cmd.Env = append(cleanEnv(), "SIGNALBOX_DATA="+p.dir, "SIGNALBOX_TOKEN="+keys["executor"])
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	out, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "amp_inbox", Arguments: json.RawMessage(`{}`)})
	if err != nil || out.IsError ||
		!strings.Contains(out.Content[0].(*mcp.TextContent).Text, "task_dispatch-T-2026-044-") {
		t.Errorf("%+v %v", out, err)
	}
	const stranger = "rs-amp-00000000000000000000000000000000"
	if code, out := run(t, p.dir, "mcp", "--key", stranger); code == 0 ||
		!strings.Contains(out, "This key is not known here") {
		t.Errorf("with a key of nobody: %d %s", code, out)
	}
	if code, out := run(t, p.dir, "mcp", "--key", keys["executor"], "--server", "http://127.0.0.1:1"); code == 0 ||
		!strings.Contains(out, "cannot be reached") {
		t.Errorf("with a server that is away: %d %s", code, out)
	}
	// A client hears it in the protocol: what the command writes elsewhere it does not show.
	away := exec.CommandContext(t.Context(), binary, "mcp", "--key", stranger, "--server", "http://127.0.0.1:1")
	away.Env = cleanEnv()
	if _, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.CommandTransport{Command: away}, nil); err == nil ||
		!strings.Contains(err.Error(), "Signalbox at http://127.0.0.1:1 cannot be reached") {
		t.Errorf("a client of a server that is away hears %v", err)
	}
	if code, out := run(t, p.dir, "mcp"); code != 2 || !strings.Contains(out, "SIGNALBOX_TOKEN") {
		t.Errorf("without a key: %d %s", code, out)
	}
}
