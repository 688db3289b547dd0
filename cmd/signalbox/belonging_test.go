package main

import (
	"encoding/json"
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

// TestASubagentOfClaudeCodeIsUnderAHandoff has the real Claude Code start a subagent. Its calls are known by the ids that
// the hook reports: they are deep, although nothing in them says so, and those of the session itself are not.
func TestASubagentOfClaudeCodeIsUnderAHandoff(t *testing.T) {
	t.Parallel()
	for which, cli := range stopCLIs {
		if cli.name != "claude-code" {
			continue
		}
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			s := newStopped(t)
			mustRun(t, s.dir, "policy", "apply", writeFile(t, `version: 1
rules:
  - {name: unverified, on: [action], when: delegation.unverified, then: block, reason: "Nobody knows who handed this on."}
  - {name: deep, on: [action], when: 'delegation.depth > 0 && event.command.contains("deep")', then: block,`+
				` reason: "Not for subagents."}
`))
			m := s.startCLI(t, which, nil, nil)
			bash := func(command string) string { return m.say(realCLIs["claude-code"].call(action{command: command})) }
			bash("touch session-deep")
			m.say(turn{tool: "Task", input: map[string]any{
				"description": "Look around", "prompt": "Look around.", "subagent_type": "general-purpose", "run_in_background": false,
			}})
			told := bash("touch sub-deep")
			if s.has("sub-deep") || !strings.Contains(told, "Not for subagents.") {
				t.Errorf("a subagent did what only the session may: %s", told)
			}
			bash("touch sub-shallow")
			m.say(turn{text: "I have looked around."})
			bash("touch session-deep-again")
			for _, name := range []string{"session-deep", "sub-shallow", "session-deep-again"} {
				if !s.has(name) {
					t.Errorf("%s was not made", name)
				}
			}
			s.end()
			var page struct {
				Handoffs []struct {
					Session, Subagent, Reason string
					Ended                     *string `json:"ended_at"`
				}
			}
			p := mustRun(t, s.dir, "handoffs", "ls", "--all", "--json")
			if err := json.Unmarshal([]byte(p), &page); err != nil || len(page.Handoffs) != 1 {
				t.Fatalf("%v: %s", err, p)
			}
			if h := page.Handoffs[0]; !strings.Contains(h.Session, "/") || h.Subagent != "general-purpose" || h.Ended == nil {
				t.Errorf("%+v", h)
			}
		})
	}
}

// TestAHookSaysForWhomItsEnvironmentIs: what the environment of a CLI claims is looked at for every call. A token that is
// forged, of another agent or over is denied, and so is a user that the handoff is not for.
func TestAHookSaysForWhomItsEnvironmentIs(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	mustRun(t, p.dir, "policy", "apply", writeFile(t, `version: 1
rules:
  - {name: claimed, on: [action], when: 'event.user != "" && !user.verified', then: block, reason: "Not for them."}
`))
	ask := func(env ...string) string {
		t.Helper()
		return hook(t, []byte(`{"session_id":"s","hook_event_name":"PreToolUse","cwd":"/","tool_name":"Read",`+
			`"tool_input":{"file_path":"/etc/hostname"},"tool_use_id":"toolu_1"}`), env, "claude-code", "--data", p.dir).out
	}
	if out := ask(); strings.Contains(out, "deny") { // it makes the agent "local", too
		t.Fatal(out)
	}
	var keys [2]string
	for i, name := range []string{"lead", "other"} {
		var added struct{ Keys map[string]string }
		if err := json.Unmarshal([]byte(mustRun(t, p.dir, "agents", "add", name, "--json")), &added); err != nil {
			t.Fatal(err)
		}
		keys[i] = added.Keys["signal"]
	}
	give := func(to string) (given struct {
		Token   string
		Handoff struct{ ID string }
	},
	) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/handoffs",
			strings.NewReader(`{"to":"`+to+`","tools":["Read"]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+keys[0])
		req.Header.Set("Content-Type", "application/json")
		res, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if err := json.NewDecoder(res.Body).Decode(&given); err != nil || given.Token == "" {
			t.Fatalf("%d %v", res.StatusCode, err)
		}
		return given
	}
	own, foreign, over := give("local"), give("other"), give("local")
	mustRun(t, p.dir, "handoffs", "end", over.Handoff.ID, "--reason", "enough")
	for _, c := range []struct{ what, token, user, says string }{
		{"its own", own.Token, "", ""},
		{"a forged one", own.Token[:len(own.Token)-1] + "x", "", "not the token of a handoff"},
		{"another agent's", foreign.Token, "", "given to another agent"},
		{"one that is over", over.Token, "", "is over"},
		{"another user", own.Token, "bob", "is for nobody"},
		{"a user alone", "", "bob", "Not for them."},
	} {
		var env []string
		if c.token != "" {
			env = append(env, "SIGNALBOX_DELEGATION="+c.token)
		}
		if c.user != "" {
			env = append(env, "SIGNALBOX_USER="+c.user)
		}
		if out := ask(env...); strings.Contains(out, `"deny"`) != (c.says != "") || !strings.Contains(out, c.says) {
			t.Errorf("%s: %s", c.what, out)
		}
	}
}
