package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

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
