package policy_test

import (
	"strings"
	"testing"

	"signalbox/internal/policy"
)

const scoped = `
version: 1
tools:
  send_email: [email.send]
  "mcp__mail__*": [email.read]
  mcp__mail__purge: [email.admin, email.send]
  "browser*": [web]
rules:
  - {name: others, on: [action], when: 'event.user != "" && !user.verified', then: gate}
  - {name: alice, on: [action], when: 'user.name == "alice" && user.limits.actions > 10', then: block}
  - {name: reads-more, on: [action], when: '"email.read" in user.scopes', then: allow}
`

func TestATableSaysWhichScopesAToolNeeds(t *testing.T) {
	p := parse(t, scoped)
	for _, c := range []struct {
		name   string
		tool   string
		scopes []string // nil is everything
		rule   string
		says   string
	}{
		{"a tool that needs none", "read_file", []string{}, "default", ""},
		{"what is needed is there", "send_email", []string{"email.send"}, "default", ""},
		{"a star", "send_email", []string{"email.*"}, "default", ""},
		{"everything", "send_email", nil, "default", ""},
		{"nothing", "send_email", []string{}, "scopes", "needs the scope email.send, which desk does not have"},
		{"another scope", "send_email", []string{"email.read"}, "scopes", "email.send"},
		{"by a pattern", "mcp__mail__list", []string{"email.send"}, "scopes", "email.read"},
		{"a name comes before a pattern", "mcp__mail__purge", []string{"email.read", "email.send"}, "scopes", "email.admin"},
		{"other letters", "Send_Email", []string{}, "scopes", "email.send"},
		{"spaces around it", " send_email\n", []string{}, "scopes", "email.send"},
		{"a star and a slash", "browser/navigate", []string{}, "scopes", "web"},
		{"all of several", "mcp__mail__purge", []string{"email.admin", "email.send"}, "default", ""},
	} {
		v := p.Decide(t.Context(), policy.Input{
			Event: &policy.Event{Point: policy.OnAction, Tool: c.tool}, Agent: policy.Agent{Name: "desk"}, Scopes: c.scopes,
		})
		if v.Rule != c.rule || !strings.Contains(v.Reason, c.says) || (v.Action == policy.Block) != (c.rule == "scopes") {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestRulesSeeOnWhoseBehalfAnAgentActs(t *testing.T) {
	p := parse(t, scoped)
	for _, c := range []struct {
		name    string
		claimed string
		user    policy.User
		rule    string
	}{
		{"nobody", "", policy.User{}, "default"},
		{"a user who is only claimed", "bob", policy.User{Name: "carol"}, "others"},
		{"a user who is proved", "bob", policy.User{Name: "bob", Verified: true}, "default"},
		{"a limit", "", policy.User{Name: "alice", Verified: true, Limits: map[string]int64{"actions": 11}}, "alice"},
		{"a limit that is not there", "", policy.User{Name: "alice", Verified: true}, "default"},
		{"a scope", "", policy.User{Name: "eve", Verified: true, Scopes: []string{"email.read"}}, "reads-more"},
	} {
		v := p.Decide(t.Context(), policy.Input{
			Event: &policy.Event{Point: policy.OnAction, Tool: "x", User: c.claimed}, User: c.user,
		})
		if v.Rule != c.rule || v.Failed {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestAWrongTableOfToolsIsRefused(t *testing.T) {
	for _, c := range []struct{ source, says string }{
		{"version: 1\ntools: [a]\n", "tools"},
		{"version: 1\ntools: {send: email.send}\n", "list"},
		{"version: 1\ntools: {send: [Email Send]}\n", "A scope is lower-case words"},
		{"version: 1\ntools: {'se[nd': [email.send]}\n", "not the name of a tool"},
	} {
		_, err := policy.Parse([]byte(c.source))
		if err == nil || !strings.Contains(policy.Problems(err)[0].Message+policy.Problems(err)[0].Hint, c.says) {
			t.Errorf("%q: %v", c.source, err)
		}
	}
}
