package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	runs "signalbox/internal/run"
	"signalbox/internal/testbed"
)

const belongingPolicy = `
version: 1
rules:
  - {name: deploys, on: [action], when: 'event.command.contains("deploy")', then: gate}
  - {name: ask-people, on: [signal], when: 'event.summary == "ask"', then: gate}
  - {name: held, on: [message], when: 'event.subject == "held"', then: gate}
`

// belonging is a run of a stand-in for Claude Code that uses every protocol, each as another agent, and then waits for a
// file.
type belonging struct {
	*process
	t       *testing.T
	run, on string // the id of the run, and the file that it waits for
	ended   chan error
	mallory string // the key of an agent that has nothing to do with the run
}

// script calls what a process of a run can call: a hook that asks about a step, which a person has to decide, a model
// through the proxy, mail, a task and a registration.
const belongingScript = `cat >/dev/null
echo '{"type":"system","subtype":"init","session_id":"8a1f0c2e-5f9d-4f0a-9b59-1f9a3c0d7e11","cwd":"/","model":"m","tools":[]}'
set -e
exec 3>&1 >"$TOLD" 2>&1
signalbox hook claude-code --data "$SIGNALBOX_DATA" <"$STEP"
printf '%s\n' "$ANTHROPIC_CUSTOM_HEADERS" >"$TOLD.headers"
curl -sS --fail-with-body -H @"$TOLD.headers" -H 'Content-Type: application/json' "$ANTHROPIC_BASE_URL/v1/messages" \
  -d '{"model":"claude-sonnet-4-6","max_tokens":7,"messages":[{"role":"user","content":"5"}]}'
signalbox mail send anna Hello Hi
signalbox mail send anna held Hi
signalbox task --key "$COORDINATOR" dispatch T-2026-044 "$PAYLOAD" || test $? = 3
touch "$TOLD.done"
while ! test -e "$ON"; do sleep 0.05; done
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"8a1f0c2e-5f9d-4f0a-9b59-1f9a3c0d7e11"}' >&3
`

// newBelonging starts the run, and waits until it has called everything.
func newBelonging(t *testing.T) *belonging {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	script, told := filepath.Join(root, "claude"), filepath.Join(root, "told")
	testbed.Script(t, script, belongingScript)
	if err := os.Link(binary, filepath.Join(root, "signalbox")); err != nil {
		t.Fatal(err)
	}
	configure(t, dir, "proxy:\n  anthropic:\n    key: sk-x\n    upstream: "+mixtureProvider(t)+
		"\nharness: {timeout: 1s}\nruns:\n  claude: {command: "+script+"}\n")
	b := &belonging{process: up(t, dir), t: t, on: filepath.Join(root, "on"), ended: make(chan error, 1)}
	mustRun(t, dir, "policy", "apply", writeFile(t, belongingPolicy))
	keys, model := b.team(t), b.agent(t, "model-one", "")
	b.mallory = b.agent(t, "mallory", "")
	for _, name := range []string{"anna", "writer"} {
		b.cli(root, "mail", "register", name)
	}
	cmd := b.command(root, "run", "claude", "--mode", "full", "--", "Ship it")
	cmd.Env = append(cmd.Env, "ANTHROPIC_BASE_URL="+b.url+"/v1/proxy/a/"+model, "STEP="+writeFile(t,
		string(sample(t, "claude-pre.json", "deploy now"))), "TOLD="+told, "ON="+b.on, "COORDINATOR="+keys["coordinator"],
		"PAYLOAD="+writeFile(t, dispatchPayload), "IS_SANDBOX=1", "CLAUDE_AGENT_NAME=writer")
	shown := &testbed.Buffer{}
	cmd.Stdout, cmd.Stderr = shown, shown
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- cmd.Wait() }()
	t.Cleanup(func() { testbed.Write(t, b.on, "") })
	testbed.Until(t, "what the run calls", func() bool {
		_, err := os.Stat(told + ".done")
		return err == nil
	}, shown, b.log, text(func() string { return testbed.ReadAny(told) }))
	var page runs.Page
	b.get("/runs", &page)
	b.run = page.Runs[0].ID
	return b
}

// text is what a test that waits in vain logs.
type text func() string

func (t text) String() string { return t() }

func (b *belonging) command(root string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), binary, args...)
	cmd.Env = append(cleanEnv(), "SIGNALBOX_DATA="+b.dir, "HOME="+root, "PATH="+root+":"+os.Getenv("PATH"))
	return cmd
}

func (b *belonging) cli(root string, args ...string) {
	b.t.Helper()
	if out, err := b.command(root, args...).CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %v %s", args, err, out)
	}
}

// pendingOf are the protocols of the gates that wait, and what each gate says of its run.
func (b *belonging) pendingOf() (found []string) {
	var page struct{ Gates []struct{ ID string } }
	b.get("/ops/gates?status=pending", &page)
	for _, one := range page.Gates {
		var g gate.Gate
		b.get("/ops/gates/"+one.ID, &g)
		found = append(found, fmt.Sprintf("%s %s %s", g.Origin.Protocol, g.Origin.Run, g.Prompt))
	}
	slices.Sort(found)
	return found
}

// kinds are the kinds of entries that a trace of the run has to have.
var belongingKinds = []string{
	"run.opened", "run.started", "step.held", "gate.opened", "proxy.called", "message.routed", "task.kept",
}

// TestWhatARunCallsInEveryProtocolIsInItsTrace, over the protocols themselves, and people find it by the command.
func TestWhatARunCallsInEveryProtocolIsInItsTrace(t *testing.T) {
	t.Parallel()
	b := newBelonging(t)
	gates := []string{"ahp", "mail", "task"}
	for i, name := range gates {
		gates[i] = name + " " + b.run + " Ship it"
	}
	if got := b.pendingOf(); !slices.Equal(got, gates) {
		t.Errorf("the gates that wait: %q", got)
	}
	var r runs.Run
	b.get("/runs/"+b.run, &r)
	outlast := 0
	for _, a := range r.Awaited {
		if a.Outlasts {
			outlast++
		}
	}
	if len(r.Awaited) != 3 || outlast != 2 {
		t.Errorf("awaited: %+v", r.Awaited)
	}
	var page ledger.EntryPage
	testbed.Until(t, "the trace", func() bool {
		b.get("/runs/"+b.run+"/trace?limit=1000", &page)
		return !slices.ContainsFunc(belongingKinds, func(kind string) bool {
			return !slices.ContainsFunc(page.Entries, func(e ledger.EntryView) bool { return e.Kind == kind })
		})
	}, text(func() string { return fmt.Sprint(page) }))
	told := mustRun(t, b.dir, "runs", "show", b.run, "--trace")
	for _, e := range page.Entries {
		if !strings.Contains(told, fmt.Sprintf("%6d  %s", e.Seq, "20")) || !strings.Contains(told, e.Kind) {
			t.Errorf("the command does not show entry %d, %s:\n%s", e.Seq, e.Kind, told)
		}
	}
	// With the run ends what it waits for, and nothing else.
	testbed.Write(t, b.on, "")
	if err := testbed.Receive(t, "the end of the run", b.ended); err != nil {
		t.Error(err)
	}
	if got := b.pendingOf(); !slices.Equal(got, gates[1:]) {
		t.Errorf("the gates that wait after the run: %q", got)
	}
}

// TestNobodyAttachesWhatTheyDoToTheRunOfAnother: who names a run, and has no token of it, is not in it.
func TestNobodyAttachesWhatTheyDoToTheRunOfAnother(t *testing.T) {
	t.Parallel()
	b := newBelonging(t)
	as := func(path, body string, header ...string) (int, string) {
		all := map[string]string{"Authorization": "Bearer " + b.mallory, "Content-Type": "application/json"}
		for i := 0; i < len(header); i += 2 {
			all[header[i]] = header[i+1]
		}
		status, answer, _ := testbed.Call(t, web, http.MethodPost, b.url+path, body, all)
		return status, answer
	}
	model := `{"model":"claude-sonnet-4-6","max_tokens":7,"messages":[{"role":"user","content":"5"}]}`
	ask := `{"amp_version":"1.0","agent_id":"mallory","run_id":"` + b.run + `","project_id":"p","status":"completed",` +
		`"summary":"ask","proposed_action":"Go","model":"m","input_tokens":1,"output_tokens":1,"cost_usd":0,"gate_required":true,"started_at":"2026-03-06T22:10:38Z",` +
		`"completed_at":"2026-03-06T22:10:46Z"}`
	if status, _ := as("/v1/proxy/a/"+b.mallory+"/v1/messages", model, "X-Amp-Run", b.run); status != 200 {
		t.Errorf("a call of a model that names the run: %d", status)
	}
	if status, _ := as("/amp/signal", ask); status/100 != 2 {
		t.Errorf("a signal that names the run: %d", status)
	}
	forged := "hof_" + strings.Repeat("0", 26) + "_" + strings.Repeat("a", 40)
	again := strings.Replace(ask, b.run, "another", 1) // a repetition decides nothing
	for path, body := range map[string]string{"/v1/proxy/a/" + b.mallory + "/v1/messages": model, "/amp/signal": again} {
		if _, answer := as(path, body, "X-Amp-Within", forged); !strings.Contains(answer, "not the token of a handoff") {
			t.Errorf("%s with a forged token: %s", path, answer)
		}
	}
	var all ledger.EntryPage
	testbed.Until(t, "the entries of mallory", func() bool {
		b.get("/ops/ledger?limit=1000", &all)
		return slices.ContainsFunc(all.Entries, func(e ledger.EntryView) bool {
			return e.Kind == "proxy.called" && strings.Contains(string(e.Body), `"run":"`+b.run) && e.Actor == "agent:mallory"
		})
	})
	b.get("/runs/"+b.run+"/trace?limit=1000", &all)
	for _, e := range all.Entries {
		if strings.Contains(e.Actor, "mallory") {
			t.Errorf("entry %d, %s of %s, is in the trace", e.Seq, e.Kind, e.Actor)
		}
	}
	var r runs.Run
	b.get("/runs/"+b.run, &r)
	for _, a := range r.Awaited {
		if a.Agent == "mallory" {
			t.Errorf("the run says that it waits for %+v", a)
		}
	}
}
