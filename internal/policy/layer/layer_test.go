package layer_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/policy"
	"signalbox/internal/policy/layer"
)

func parse(t interface {
	Helper()
	Fatal(...any)
}, source string,
) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte("version: 1\n" + source))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	allowBash = "rules: [{name: bash-is-fine, on: [action], when: 'event.tool == \"bash\"', then: allow}]\n"
	blockBash = "rules: [{name: no-bash, on: [action], when: 'event.tool == \"bash\"', then: block, reason: no}]\n"
	gateBash  = "rules: [{name: ask, on: [action], when: 'event.tool == \"bash\"', then: gate, reason: ask, gate: {" +
		"expires: 1s, on_expiry: approve, uses: 20, good_for: 1h, risk: low, quorum: 2}}]\n"
	otherRule = "rules: [{name: other, on: [action], when: 'event.tool == \"other\"', then: block, reason: no}]\n"
)

func TestTheOrderOfLayers(t *testing.T) {
	for _, c := range []struct {
		name                    string
		server, user, workspace string
		then                    policy.Action
		rule, layer             string
	}{
		{"no layer says anything", "", "", "", policy.Allow, "default", ""},
		{"the server blocks what the others allow", blockBash, allowBash, allowBash, policy.Block, "no-bash", ""},
		{"the server allows what the others block", allowBash, blockBash, blockBash, policy.Allow, "bash-is-fine", ""},
		{
			"the user's rule comes before the workspace's", otherRule, allowBash, blockBash, policy.Allow, "bash-is-fine", "user",
		},
		{"and blocks what the workspace allows", "", blockBash, allowBash, policy.Block, "no-bash", "user"},
		{"the workspace's rule comes last", "", otherRule, blockBash, policy.Block, "no-bash", "workspace"},
		{"a default of the workspace", "", "", "defaults: {action: block}\n", policy.Block, "default", "workspace"},
		{"a default of the user", "", "defaults: {action: gate}\n", "", policy.Gate, "default", "user"},
		{
			"the strictest default", "", "defaults: {action: gate}\n", "defaults: {action: block}\n", policy.Block, "default",
			"workspace",
		},
		{
			"a default that the narrower layer does not name", "defaults: {action: block}\n", "", "defaults: {signal: allow}\n",
			policy.Block, "default", "",
		},
		{
			"a default that would loosen the server's", "defaults: {action: block}\n", "", "defaults: {action: allow}\n",
			policy.Block, "default", "",
		},
		{
			"a rule that would loosen the server's default", "defaults: {action: block}\n", "", allowBash, policy.Block,
			"default", "",
		},
		{
			"a person cannot be asked where the server blocks", "defaults: {action: block}\n", gateBash, "", policy.Block,
			"default", "",
		},
		{
			"nor where it defers", "defaults: {action: defer}\n", gateBash, "", policy.Defer, "default", "",
		},
		{
			"a user's rule comes before the workspace's default", "", allowBash, "defaults: {action: block}\n", policy.Allow,
			"bash-is-fine", "user",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := layer.Stack{Server: parse(t, c.server), Narrower: []layer.Narrower{
				{Name: layer.User, Of: "usr_x", Policy: parse(t, c.user)},
				{Name: layer.Workspace, Of: layer.Workspace, Policy: parse(t, c.workspace)},
			}}
			in := policy.Input{Event: &policy.Event{Point: policy.OnAction, Tool: "bash"}}
			v := s.Decide(t.Context(), in)
			if v.Action != c.then || v.Rule != c.rule || v.Layer != c.layer {
				t.Errorf("%s by %q of %q, want %s by %q of %q", v.Action, v.Rule, v.Layer, c.then, c.rule, c.layer)
			}
			if x := s.Explain(t.Context(), in); x.Then != v.Action || x.Rule != v.Rule || x.Layer != v.Layer ||
				x.Reason != v.Reason {
				t.Errorf("explained as %+v", x)
			}
		})
	}
}

func TestAGateOfANarrowerLayerIsNoEasierThanTheServersDefault(t *testing.T) {
	s := layer.Stack{Server: parse(t, "defaults: {action: gate}\n"), Narrower: []layer.Narrower{
		{Name: layer.Workspace, Of: layer.Workspace, Policy: parse(t, gateBash)},
	}}
	v := s.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: policy.OnAction, Tool: "bash"}})
	g := v.Gate
	if v.Action != policy.Gate || v.Rule != "ask" || g.OnExpiry != policy.ExpiryReject || g.Uses != 1 ||
		g.Risk != "medium" || g.Quorum != 2 {
		t.Errorf("%+v %+v", v, g)
	}
	s.Narrower[0].Policy = parse(t, "rules: [{name: dry, on: [action], then: modify, redact: true}]\n")
	v = s.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: policy.OnAction, Tool: "bash"}})
	if v.Action != policy.Gate || v.Rule != "dry" || v.Gate == nil || !v.Changes.Any() {
		t.Errorf("a change is lost, or nobody is asked: %+v", v)
	}
}

func TestAToolNeedsTheScopesOfEveryLayer(t *testing.T) {
	s := layer.Stack{Server: parse(t, "tools: {bash: [a]}\n"+allowBash), Narrower: []layer.Narrower{
		{Name: layer.Workspace, Of: layer.Workspace, Policy: parse(t, "tools: {bash: [b]}\n")},
	}}
	for _, c := range []struct {
		scopes []string
		layer  string
		then   policy.Action
	}{
		{[]string{"a", "b"}, "", policy.Allow},
		{[]string{"b"}, "", policy.Block},
		{[]string{"a"}, "workspace", policy.Block},
		{nil, "", policy.Allow},
	} {
		in := policy.Input{Event: &policy.Event{Point: policy.OnAction, Tool: "bash"}, Scopes: c.scopes}
		v := s.Decide(t.Context(), in)
		if v.Action != c.then || v.Layer != c.layer || c.then == policy.Block && v.Rule != policy.ScopesRule {
			t.Errorf("with %v: %+v", c.scopes, v)
		}
		if x := s.Explain(t.Context(), in); x.Rule != v.Rule || x.Layer != v.Layer {
			t.Errorf("explained as %+v", x)
		}
	}
}

func TestRulesOfTheSameNameAreCountedApart(t *testing.T) {
	s := layer.Stack{
		Server: parse(t, "rules: [{name: known, on: [action], when: 'recent.by_rule(\"ask\", \"1h\") > 0', then: allow}]\n"+
			"defaults: {action: block}\n"),
		Narrower: []layer.Narrower{{Name: layer.Workspace, Of: layer.Workspace, Policy: parse(t,
			"rules: [{name: ask, on: [action], when: 'recent.by_rule(\"ask\", \"1h\") > 0', then: block, reason: again}]\n")}},
	}
	of := policy.Counts{"by_rule.workspace/ask": {"1h": 3}}
	v := s.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: policy.OnAction}, Counts: of})
	if v.Rule != "ask" || v.Layer != "workspace" {
		t.Errorf("%+v", v)
	}
	if c := s.Narrower[0].Counts(); len(c) != 1 || c[0].What != "by_rule.workspace/ask" {
		t.Errorf("%+v", c)
	}
}

func TestRulesOnTrialOfEveryLayerAreNamed(t *testing.T) {
	trial := "rules: [{name: trial, on: [action], then: block, mode: shadow}]\n"
	s := layer.Stack{Server: parse(t, trial), Narrower: []layer.Narrower{
		{Name: layer.User, Of: "usr_x", Policy: parse(t, trial)},
		{Name: layer.Workspace, Of: layer.Workspace, Policy: parse(t, trial)},
	}}
	v := s.Decide(t.Context(), policy.Input{Event: &policy.Event{Point: policy.OnAction}})
	if len(v.Shadow) != 3 || v.Shadow[0].Layer != "" || v.Shadow[1].Layer != "user" || v.Shadow[2].Layer != "workspace" {
		t.Errorf("%+v", v.Shadow)
	}
}

// TestNoLayerLoosensTheServer tries rules and defaults of all kinds: what comes out is never looser than what the
// server's layer alone says by its rules, or by its default.
func TestNoLayerLoosensTheServer(t *testing.T) {
	actions := []string{"allow", "modify", "gate", "defer", "block"}
	strict := map[policy.Action]int{"allow": 0, "modify": 1, "gate": 2, "defer": 3, "block": 4}
	rapid.Check(t, func(r *rapid.T) {
		one := func(name string) *policy.Policy {
			source := ""
			if d := rapid.SampledFrom([]string{"", "allow", "gate", "defer", "block"}).Draw(r, name+" default"); d != "" {
				source = "defaults: {action: " + d + "}\n"
			}
			if then := rapid.SampledFrom(append(actions, "")).Draw(r, name+" rule"); then != "" {
				source += "rules: [{name: " + name + ", on: [action], when: 'event.tool == \"bash\"', reason: x, then: " + then
				if then == "modify" {
					source += ", set: {arguments: {a: b}}"
				}
				source += "}]\n"
			}
			return parse(r, source)
		}
		s := layer.Stack{Server: one("server"), Narrower: []layer.Narrower{
			{Name: layer.User, Of: "usr_x", Policy: one("user")},
			{Name: layer.Workspace, Of: layer.Workspace, Policy: one("workspace")},
		}}
		in := policy.Input{Event: &policy.Event{
			Point: policy.OnAction, Tool: rapid.SampledFrom([]string{"bash", "x"}).Draw(r, "tool"),
		}}
		alone, v := s.Server.Decide(context.Background(), in), s.Decide(context.Background(), in)
		if strict[v.Action] < strict[alone.Action] {
			r.Errorf("the server says %s, and all together %s by %s of %q", alone.Action, v.Action, v.Rule, v.Layer)
		}
		if alone.Rule != policy.DefaultRule && (v.Rule != alone.Rule || v.Layer != "") {
			r.Errorf("the server's rule did not decide: %+v", v)
		}
		if (v.Action == policy.Gate) != (v.Gate != nil) || v.Reason == "" && v.Action != policy.Allow {
			r.Errorf("not a verdict: %+v", v)
		}
	})
}

func TestANarrowerLayerDoesNotWriteWhatRuns(t *testing.T) {
	server := parse(t, "rules: [{name: no-rm, on: [action], when: 'event.command.contains(\"rm\")', then: block}]\n")
	for _, rule := range []string{
		"then: modify, set: {arguments: {command: rm -rf /}}",
		"then: modify, set: {arguments: {command: rm -rf /}}, gate: {}",
		"then: modify, replace: [{in: arguments.command, pattern: ls, with: rm}]",
	} {
		p := parse(t, "rules: [{name: write, on: [action], "+rule+"}]\n")
		s := layer.Stack{Server: server, Narrower: []layer.Narrower{{Name: layer.Workspace, Of: "workspace", Policy: p}}}
		v := s.Decide(t.Context(), policy.Input{Event: &policy.Event{
			Point: policy.OnAction, Tool: "bash", Arguments: map[string]any{"command": "ls"},
		}})
		if v.Action != policy.Block || !v.Failed || v.Changes.Any() || len(p.Rewrites()) != 1 {
			t.Errorf("%s: %+v", rule, v)
		}
	}
}

// As scopes, the budgets of every layer hold: no rule of another layer lets pass what one of them stops.
func TestTheBudgetsOfEveryLayerHold(t *testing.T) {
	const (
		blocks = "budgets: [{name: day, per: workspace, each: day, usd: 1}]\n"
		asks   = "budgets: [{name: ask, per: workspace, each: day, usd: 1, then: gate, reason: over}]\n"
	)
	for _, c := range []struct {
		name                    string
		server, user, workspace string
		then                    policy.Action
		rule, layer             string
	}{
		{"the server's", blocks + allowBash, allowBash, allowBash, policy.Block, "day", ""},
		{"the workspace's, and the server allows", allowBash, "", blocks, policy.Block, "day", "workspace"},
		{"the workspace's, and the user allows", "", allowBash, blocks, policy.Block, "day", "workspace"},
		{"the user's, and the server allows", allowBash, blocks, allowBash, policy.Block, "day", "user"},
		{"the stricter of two", allowBash, asks, blocks, policy.Block, "day", "workspace"},
		{"one that asks, and the server allows", allowBash, "", asks, policy.Gate, "ask", "workspace"},
		{"one that asks, and the server blocks", blockBash, "", asks, policy.Block, "no-bash", ""},
		{"one that asks, and the user blocks", "", blockBash, asks, policy.Block, "no-bash", "user"},
		{"one that asks, and the server's default blocks", "defaults: {action: block}\n", "", asks, policy.Block, "default", ""},
	} {
		s := layer.Stack{Server: parse(t, c.server), Narrower: []layer.Narrower{
			{Name: layer.User, Of: "u", Policy: parse(t, c.user)}, {Name: layer.Workspace, Of: "w", Policy: parse(t, c.workspace)},
		}}
		in := policy.Input{
			Event:  &policy.Event{Point: policy.OnAction, Tool: "bash"},
			Counts: policy.Counts{"cost.workspace": {"day": 1.5}},
		}
		v := s.Decide(context.Background(), in)
		if v.Action != c.then || v.Rule != c.rule || v.Layer != c.layer {
			t.Errorf("%s: %+v", c.name, v)
		}
		x := s.Explain(context.Background(), in)
		named := false
		for _, r := range x.Rules {
			named = named || r.Name == c.rule && r.Layer == c.layer && r.Result == policy.TriedMatches
		}
		if x.Then != v.Action || x.Rule != v.Rule || x.Layer != v.Layer || !named && c.rule != "default" {
			t.Errorf("%s is explained as %+v", c.name, x)
		}
		in.Reserved = policy.Counts{"cost.workspace": {"day": 1}}
		if v := s.Decide(context.Background(), in); c.rule == "day" && v.Action != policy.Defer {
			t.Errorf("%s, reserved: %+v", c.name, v)
		}
	}
}
