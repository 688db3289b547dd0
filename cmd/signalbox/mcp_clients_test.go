package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// everyTool are the tools of each role, by which clients are judged: a client that drops one says nothing.
var everyTool = func() map[string][]string {
	all := []string{"ask_operator", "mail_ack", "mail_inbox", "mail_send", "request_approval"}
	party := append([]string{
		"amp_ack", "amp_context", "amp_escalate", "amp_heartbeat", "amp_inbox", "amp_next", "amp_tasks", "amp_wait",
	}, all...)
	return map[string][]string{
		"none": all, "coordinator": append([]string{"amp_dispatch", "amp_review_request"}, party...),
		"executor": append([]string{"amp_result"}, party...), "reviewer": append([]string{"amp_verdict"}, party...),
	}
}()

// wantTools compares the tools of a role that a client has with those that there are.
func wantTools(t *testing.T, who, role string, got []string) {
	t.Helper()
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(slices.Values(everyTool[role]))) {
		t.Errorf("%s has as %s the tools %v", who, role, got)
	}
}

// mcpAgent is a Claude Code with the tools of a role, and its model, which is the test.
type mcpAgent struct {
	*model
	role string
}

// startMCPAgent starts it, over HTTP or with `signalbox mcp`.
func startMCPAgent(t *testing.T, p *process, program, role, key string, overHTTP bool) *mcpAgent {
	t.Helper()
	server := map[string]any{
		"command": binary, "args": []string{"mcp", "--server", p.url}, "env": map[string]string{"SIGNALBOX_TOKEN": key},
	}
	if overHTTP {
		server = map[string]any{
			"type": "http", "url": p.url + "/mcp", "headers": map[string]string{"Authorization": "Bearer " + key},
		}
	}
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"signalbox": server}})
	if err != nil {
		t.Fatal(err)
	}
	a := &mcpAgent{startModel(t, anthropic), role}
	cmd := exec.CommandContext(t.Context(), npmProgram(t, program), "--strict-mcp-config", "--mcp-config",
		writeFile(t, string(config)), "--dangerously-skip-permissions", "-p", "Do your part.")
	cmd.Dir = t.TempDir()
	cmd.Env = append(cleanEnv(), "HOME="+t.TempDir(), "ANTHROPIC_BASE_URL="+a.url, "ANTHROPIC_API_KEY=sk-ant-none",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "IS_SANDBOX=1", "NO_PROXY=*", "ENABLE_TOOL_SEARCH=false",
		// It would begin without the tools of a server that takes long, as on a busy machine.
		"MCP_CONNECTION_NONBLOCKING=0", "MCP_CONNECT_TIMEOUT_MS=60000", "MCP_TIMEOUT=60000")
	runLogged(t, cmd)
	return a
}

// meet waits until it asks its model, and finds all tools of the role in that.
func (a *mcpAgent) meet() *mcpAgent {
	t := a.t
	t.Helper()
	a.hear()
	var asked struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(*a.request.Load(), &asked); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range asked.Tools {
		if name, ours := strings.CutPrefix(tool.Name, "mcp__signalbox__"); ours {
			names = append(names, name)
		}
	}
	wantTools(t, "Claude Code", a.role, names)
	return a
}

// use has the model call a tool, and returns what it is told, in which all wanted texts must be.
func (a *mcpAgent) use(tool string, input map[string]any, want ...string) string {
	a.t.Helper()
	text := a.say(turn{tool: "mcp__signalbox__" + tool, input: input})
	var all []json.RawMessage // what Claude Code itself says may follow
	var said struct{ Content []struct{ Content any } }
	err := json.Unmarshal([]byte(text), &all)
	if err == nil && len(all) > 0 {
		err = json.Unmarshal(all[0], &said)
	}
	if err != nil || len(said.Content) == 0 {
		a.t.Fatalf("%s: %s %v", tool, text, err)
	}
	answer, _ := json.Marshal(said.Content[0].Content)
	if plain, ok := said.Content[0].Content.(string); ok {
		answer = []byte(plain)
	}
	for _, w := range want {
		if !strings.Contains(strings.ReplaceAll(string(answer), `\"`, `"`), w) {
			a.t.Fatalf("%s of the %s does not say %s: %s", tool, a.role, w, answer)
		}
	}
	return string(answer)
}

// TestTheStoryOfTasksThroughMCP plays docs/tasks.md: three models in three roles, each in a Claude Code of its own, and
// a person who decides at the terminal. The repository is real, and the server looks into it.
func TestTheStoryOfTasksThroughMCP(t *testing.T) {
	t.Parallel()
	dir, repo := t.TempDir(), t.TempDir()
	testbed.Git(t, repo, "init", "-q", "-b", "trunk")
	change := func(text, message string) {
		testbed.Write(t, filepath.Join(repo, "shipping.py"), text)
		testbed.Git(t, repo, "add", ".")
		testbed.Git(t, repo, "commit", "-q", "-m", message)
	}
	change("def free(total):\n    return False\n", "Nothing ships free")
	configure(t, dir, "tasks: {repo_roots: ["+repo+"]}\n")
	p := up(t, dir)
	keys := p.team(t)
	ada := startMCPAgent(t, p, "claude", "coordinator", keys["coordinator"], true)
	kay := startMCPAgent(t, p, "signalbox-test-newest-locked/claude", "executor", keys["executor"], false)
	rex := startMCPAgent(t, p, "claude", "reviewer", keys["reviewer"], false)
	for _, a := range []*mcpAgent{ada, kay, rex} {
		a.meet()
	}

	plan := map[string]any{
		"description": "Orders of more than 1,000 EUR ship free", "repo": repo, "branch": "feature/free-shipping",
		"subtasks":            []any{map[string]any{"description": "Add the rule to shipping.py", "estimated_lines": 2}},
		"acceptance_criteria": []string{"All tests pass", "An order of exactly 1,000 EUR still pays"}, "risk_level": "medium",
	}
	ada.use("amp_dispatch", plan, "AMP_E_PLAN_NOT_APPROVED", "waits_for_approval", "do not send it again")
	mustRun(t, dir, "gates", "approve", p.pending(t), "--note", "Go ahead.")
	ada.use("amp_next", nil, `"plan_decision"`, "Go ahead.")

	var got struct {
		Taken struct {
			TaskID string `json:"task_id"`
		}
	}
	if err := json.Unmarshal([]byte(kay.use("amp_next", nil, `"task_status":"executing"`)), &got); err != nil {
		t.Fatal(err)
	}
	task := got.Taken.TaskID
	about := func(more map[string]any) map[string]any {
		all := map[string]any{"task_id": task}
		for name, value := range more {
			all[name] = value
		}
		return all
	}
	testbed.Git(t, repo, "checkout", "-q", "-b", "feature/free-shipping")
	change("def free(total):\n    return total >= 1000\n", "Large orders ship free")
	kay.use("amp_heartbeat", about(map[string]any{"note": "The rule is in"}), "accepted")
	result := func() map[string]any {
		return about(map[string]any{
			"completion_status": "complete", "commit_hash": testbed.Git(t, repo, "rev-parse", "HEAD"),
			"diff_summary": map[string]any{"files_changed": []string{"shipping.py"}, "lines_added": 1, "lines_removed": 1},
			"self_assessment": map[string]any{
				"criteria_met": []string{"yes", "unverified"},
				"notes":        []string{"214 tests pass", "No test covers exactly 1,000 EUR"},
			},
		})
	}
	kay.use("amp_result", result(), "reported")

	ada.use("amp_wait", nil, `"your_turn":true`, "task_result-"+task)
	ada.use("amp_next", nil, "amp_review_request", "No test covers exactly 1,000 EUR")
	ada.use("amp_review_request", about(map[string]any{"notes": "Look at the boundary."}), "review_requested")
	rex.use("amp_next", nil, "Look at the boundary.", `"task_status":"reviewing"`)
	rex.use("amp_context", about(nil), "return total >= 1000", `"untrusted"`)
	judged := func(second, evidence string) []any {
		return []any{
			map[string]any{"passed": "yes", "evidence": "CI run 812"}, map[string]any{"passed": second, "evidence": evidence},
		}
	}
	rex.use("amp_verdict", about(map[string]any{
		"decision": "rejected", "confidence": 0.95, "criteria_results": judged("no", "shipping.py:2 has >= where > is meant"),
		"issues": []any{map[string]any{
			"severity": "major", "file": "shipping.py", "line": 2, "description": "1,000 EUR ships free",
		}},
	}), "verdict_reported")

	ada.use("amp_next", nil, "1,000 EUR ships free", `"rework"`)
	ada.use("amp_dispatch", func() map[string]any {
		again := about(plan)
		again["description"] = "Orders of more than 1,000 EUR ship free; exactly 1,000 EUR does not"
		return again
	}(), "accepted")
	kay.use("amp_next", nil, "exactly 1,000 EUR does not")
	kay.use("amp_escalate", about(map[string]any{
		"description": "The terms say: from 1,000 EUR. Who is right?", "escalation_type": "conflict",
	}), "suspended")
	mustRun(t, dir, "gates", "approve", p.pending(t), "--note", "The plan is right.")
	kay.use("amp_context", about(nil), "The plan is right.")
	kay.says <- turn{
		tool: "mcp__signalbox__ask_operator", input: about(map[string]any{"question": "May I add a test?"}),
	}
	mustRun(t, dir, "gates", "approve", p.pending(t), "--note", "Please do.")
	if said := kay.hear(); !strings.Contains(said, "approved") || !strings.Contains(said, "Please do.") {
		t.Fatalf("a question to a person: %s", said)
	}
	change("def free(total):\n    return total > 1000\n", "Exactly 1,000 EUR pays")
	kay.use("amp_result", result(), "reported")

	ada.use("amp_next", nil, "amp_review_request")
	ada.use("amp_review_request", about(nil), "review_requested")
	rex.use("amp_next", nil, `"reviewing"`)
	rex.use("amp_context", about(nil), "return total > 1000")
	rex.use("amp_verdict", about(map[string]any{
		"decision": "approved", "confidence": 0.97, "criteria_results": judged("yes", "test_boundary"),
	}), "verdict_reported")
	ada.use("amp_next", nil, `"task_status":"completed"`)
	ada.use("amp_tasks", nil, task, "completed")
	for _, a := range []*mcpAgent{ada, kay, rex} {
		a.says <- turn{text: "It is done."}
	}
}

// TestClaudeCodeOffersEveryTool looks at what both versions of Claude Code ask their model, for who is not in the
// story.
func TestClaudeCodeOffersEveryTool(t *testing.T) {
	t.Parallel()
	p, keys := taskTeam(t)
	keys["none"] = p.agent(t, "none-one", "")
	for program, roles := range map[string][]string{
		"claude": {"executor", "none"}, "signalbox-test-newest-locked/claude": {"coordinator", "reviewer", "none"},
	} {
		for i, role := range roles {
			testbed.Parallel(t, program+" "+role, func(t *testing.T) {
				startMCPAgent(t, p, program, role, keys[role], i%2 == 0).meet().says <- turn{text: "It is done."}
			})
		}
	}
}

// step is one call of a tool by a role.
type step struct {
	Role string         `json:"role"`
	Tool string         `json:"tool"`
	Args map[string]any `json:"args,omitempty"`
}

// everyStep uses every tool once at least, with the arguments that a tool must have. $msg is the message that was
// listed last.
var everyStep = func() []step {
	type object = map[string]any
	about := func(more object) object {
		all := object{"task_id": "T-2026-044"}
		for name, value := range more {
			all[name] = value
		}
		return all
	}
	c, e, r := "coordinator", "executor", "reviewer"
	return []step{
		{c, "amp_dispatch", about(object{
			"description": "Rework the timer", "repo": "/srv/repos/app", "branch": "feature/timer", "risk_level": "medium",
			"subtasks":            []object{{"description": "Do it", "estimated_lines": 10}},
			"acceptance_criteria": []string{"All tests pass"},
		})},
		{e, "amp_wait", nil},
		{e, "amp_inbox", nil},
		{e, "amp_next", nil},
		{e, "amp_heartbeat", about(nil)},
		{e, "amp_result", about(object{
			"completion_status": "complete",
			"diff_summary":      object{"files_changed": []string{"a.go"}, "lines_added": 1, "lines_removed": 0},
			"self_assessment":   object{"criteria_met": []any{true}},
		})},
		{c, "amp_tasks", nil},
		{c, "amp_next", nil},
		{c, "amp_review_request", about(nil)},
		{r, "amp_context", about(nil)},
		{r, "amp_next", nil},
		{r, "amp_escalate", about(object{"description": "Odd", "severity": "info"})},
		{r, "amp_verdict", about(object{
			"decision": "approved", "confidence": 0.95, "criteria_results": []object{{"passed": true, "evidence": "CI"}},
		})},
		{c, "amp_wait", nil},
		{c, "amp_ack", object{"msg_id": "$msg"}},
		{"none", "mail_send", object{"to": "reviewer-one", "subject": "Hello", "message": "How are you?"}},
		{r, "mail_inbox", nil},
		{r, "mail_ack", object{"ids": []string{"$msg"}}},
		{"none", "ask_operator", object{"question": "May I go home?", "wait_seconds": 0}},
		{"none", "request_approval", object{
			"run_id": "r", "request_id": "1", "summary": "It is done", "proposed_action": "Send it", "wait_seconds": 0,
		}},
	}
}()

// TestEverySDKUsesEveryTool plays the same steps with the official SDKs.
func TestEverySDKUsesEveryTool(t *testing.T) {
	t.Parallel()
	modules := testbed.Cache(t, "signalbox-test-mcp-locked")
	python := testbed.Cache(t, "signalbox-test-mcp-python-locked", "bin", "python3")
	const scoped = "signalbox-test-mcp-locked/node_modules/@modelcontextprotocol/"
	for name, c := range map[string]struct {
		installed string
		command   []string
		major     int
	}{
		"Python 2":     {"signalbox-test-mcp-python-locked/bin/python3", []string{python, "testdata/mcp/client.py"}, 0},
		"TypeScript 1": {scoped + "sdk", []string{"node", "testdata/mcp/client.mjs"}, 1},
		"TypeScript 2": {scoped + "client", []string{"node", "testdata/mcp/client.mjs"}, 2},
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			testbed.Installed(t, c.installed)
			dir := t.TempDir()
			configure(t, dir, "tasks: {plan_approval: false}\n")
			p := up(t, dir)
			keys := p.team(t)
			keys["none"] = p.agent(t, "none-one", "")
			plan, err := json.Marshal(map[string]any{
				"url": p.url, "binary": binary, "keys": keys, "steps": everyStep, "modules": modules, "major": c.major,
			})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), c.command[0], c.command[1:]...)
			cmd.Env, cmd.Stdin = append(cleanEnv(), "NO_PROXY=*"), bytes.NewReader(plan)
			var wrong bytes.Buffer
			cmd.Stderr = &wrong
			out, err := cmd.Output()
			var said struct {
				Offered map[string][]string
				Results []struct {
					Tool, Text         string
					Failed, Structured bool
				}
			}
			if err == nil {
				err = json.Unmarshal(out, &said)
			}
			if err != nil {
				t.Fatalf("%v %s %s", err, out, wrong.String())
			}
			for role, tools := range said.Offered {
				wantTools(t, name, role, tools)
			}
			if len(said.Offered) != 4 || len(said.Results) != len(everyStep) {
				t.Errorf("%d roles and %d steps", len(said.Offered), len(said.Results))
			}
			for _, r := range said.Results {
				if r.Failed || !r.Structured {
					t.Errorf("%s: %s", r.Tool, r.Text)
				}
			}
		})
	}
}

// TestTheInspectorFindsNothing: the strict check of MCP's Inspector knows what providers of models refuse.
func TestTheInspectorFindsNothing(t *testing.T) {
	t.Parallel()
	inspector := npmProgram(t, "signalbox-test-mcp-locked/mcp-inspector")
	p, keys := taskTeam(t)
	keys["none"] = p.agent(t, "none-one", "")
	for role, key := range keys {
		testbed.Parallel(t, role, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), inspector, "--cli", p.url+"/mcp", "--transport", "http", "--header",
				"Authorization: Bearer "+key, "--method", "tools/list", "--strict")
			cmd.Env = append(cleanEnv(), "HOME="+t.TempDir(), "NO_PROXY=*")
			var wrong bytes.Buffer
			cmd.Stderr = &wrong
			out, err := cmd.Output()
			var listed struct{ Tools []struct{ Name string } }
			if err == nil {
				err = json.Unmarshal(out, &listed)
			}
			if err != nil || strings.Contains(wrong.String(), "Issue:") {
				t.Fatalf("%v %s", err, wrong.String())
			}
			var names []string
			for _, tool := range listed.Tools {
				names = append(names, tool.Name)
			}
			wantTools(t, "the Inspector", role, names)
		})
	}
}
