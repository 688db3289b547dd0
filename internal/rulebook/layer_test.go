package rulebook_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// layered is a node with a workspace beside the default one, and a user in each.
type layeredNode struct {
	*node
	alice, eve roster.User // of default and of other
}

func startLayered(t *testing.T, address, dir string) layeredNode {
	t.Helper()
	n := layeredNode{node: start(t, address, dir)}
	n.Must(n.roster.AddWorkspace(t.Context(), roster.Identity{}, "other"))
	for name, u := range map[string]*roster.User{"alice": &n.alice, "eve": &n.eve} {
		workspace := map[string]string{"alice": "default", "eve": "other"}[name]
		added, _, err := n.roster.AddUser(t.Context(), roster.Identity{}, roster.NewUser{Name: name, Workspace: workspace})
		n.Must(err)
		*u = added
	}
	return n
}

// applyTo applies rules to a layer.
func (n *node) applyTo(l rulebook.Layer, source string) rulebook.Version {
	n.T.Helper()
	v, _, err := n.book.ApplyLayer(n.T.Context(), roster.Identity{}, l, []byte("version: 1\n"+source), 0)
	n.Must(err)
	return v
}

// agentOf is an agent of a user.
func agentOf(name string, u roster.User) roster.Identity {
	who := agent(name)
	who.Kind, who.Workspace, who.Owner = roster.HolderAgent, u.Workspace, u.ID
	return who
}

const (
	allowBash = "rules: [{name: bash-is-fine, on: [action], when: 'event.tool == \"bash\"', then: allow}]\n"
	blockBash = "rules: [{name: no-bash, on: [action], when: 'event.tool == \"bash\"', then: block, reason: no}]\n"
)

func TestLayersDecideInTheirOrderOnEveryNode(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		n := startLayered(t, address, dir)
		n.apply("  []\n")
		ws, user := rulebook.Layer{Workspace: "default"}, rulebook.Layer{Workspace: "default", User: n.alice.ID}
		bash := policy.Event{Point: policy.OnAction, Tool: "bash"}
		want := func(n *node, who roster.Identity, then policy.Action, layer string, versions ...int64) {
			t.Helper()
			d := n.act(who, bash)
			r := d.Record
			if d.Action != then || r.Layer != layer || r.Policy != versions[0] || r.UserPolicy != versions[1] ||
				r.WorkspacePolicy != versions[2] {
				t.Errorf("%s: %s by %s of %q, versions %d %d %d; want %s of %q, %v", who.Name, d.Action, d.Rule, r.Layer,
					r.Policy, r.UserPolicy, r.WorkspacePolicy, then, layer, versions)
			}
		}
		alice, bob, eve := agentOf("a", n.alice), agent("b"), agentOf("e", n.eve)
		n.applyTo(ws, blockBash)
		want(n.node, alice, policy.Block, "workspace", 1, 0, 1)
		want(n.node, bob, policy.Block, "workspace", 1, 0, 1)
		want(n.node, eve, policy.Allow, "", 1, 0, 0)
		n.applyTo(user, allowBash)
		want(n.node, alice, policy.Allow, "user", 1, 1, 1)
		want(n.node, bob, policy.Block, "workspace", 1, 0, 1)
		n.apply(noBash)
		want(n.node, alice, policy.Block, "", 2, 1, 1)
		n.apply("  []\n")
		// The same on another node. WantClean compares the tables with what the entries make of them.
		second := start(t, address, t.TempDir())
		n.Must(second.book.Bootstrap(t.Context()))
		testbed.Until(t, "the layers", func() bool { return second.book.InForceOf(user) == 1 })
		want(second, alice, policy.Allow, "user", 3, 1, 1)
		want(second, bob, policy.Block, "workspace", 3, 0, 1)
		list, err := second.book.Versions(t.Context(), user, 0, 10)
		if err != nil || len(list) != 1 || list[0].Number != 1 ||
			list[0].SHA256 != policy.Hash([]byte("version: 1\n"+allowBash)) {
			t.Errorf("versions of the user's layer: %+v %v", list, err)
		}
		all, err := second.book.Layers(t.Context())
		if err != nil || len(all) != 3 || all[0].Layer != (rulebook.Layer{}) || all[1].Layer != ws || all[2].Name != "alice" {
			t.Errorf("layers: %+v %v", all, err)
		}
		// An empty policy takes a layer out of the way.
		n.applyTo(ws, "")
		want(n.node, bob, policy.Allow, "", 3, 0, 2)
		n.WantClean()
	})
}

func TestDecisionsOfLayersAreReplayedAsTheyWere(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := startLayered(t, address, t.TempDir())
		ws, user := rulebook.Layer{Workspace: "default"}, rulebook.Layer{Workspace: "default", User: n.alice.ID}
		bash := policy.Event{Point: policy.OnAction, Tool: "bash"}
		n.apply("  []\n")
		all := []roster.Identity{agentOf("a", n.alice), agent("b"), agentOf("e", n.eve)}
		limit := "rules: [{name: limit, on: [action], " +
			"when: 'recent.actions(\"1h\") >= 3 || recent.by_rule(\"limit\", \"1h\") > 0', then: block, reason: enough}]\n"
		acts := func() {
			for range 2 {
				for _, who := range all {
					if _, err := n.settle(who, bash); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		acts()
		n.applyTo(ws, limit)
		acts()
		n.applyTo(user, allowBash)
		acts()
		n.applyTo(ws, blockBash)
		n.apply("  - {name: other, on: [action], when: 'event.tool == \"x\"', then: block}\n")
		acts()
		replay := func(l rulebook.Layer, source string) rulebook.Report {
			t.Helper()
			p, err := policy.Parse([]byte("version: 1\n" + source))
			n.Must(err)
			report, err := n.book.ReplayLayer(t.Context(), l, p, time.Time{}, func(int64, int64) {})
			n.Must(err)
			return report
		}
		if r := replay(rulebook.Layer{}, ""); r.Decisions != 24 || r.Changed != 0 || r.OtherRule != 0 {
			t.Errorf("the server's layer as it was: %+v", r)
		}
		if r := replay(rulebook.Layer{}, blockBash); r.Changed == 0 || r.Decisions != 24 {
			t.Errorf("a server that blocks: %+v", r)
		}
		// Only what the layer is about is tried. The user's rule stays above the workspace's.
		if r := replay(ws, blockBash); r.Decisions != 16 || r.Changed == 0 {
			t.Errorf("the workspace's layer: %+v", r)
		} else {
			for _, c := range r.Changes {
				if c.Examples[0].Workspace != "default" || c.Would.Layer != "workspace" {
					t.Errorf("%+v", c)
				}
			}
		}
		if r := replay(user, ""); r.Decisions != 8 || r.Changed != 4 {
			t.Errorf("without the user's layer: %+v", r)
		}
		// Each decision is explained with the versions that decided.
		entries, err := n.Ledger.Entries(t.Context(), ledger.Query{Kinds: []string{"action.decided"}})
		n.Must(err)
		for _, e := range entries {
			x, err := n.book.Explain(t.Context(), e.Seq)
			if err != nil || x.Then != x.Was.Then || x.Rule != x.Was.Rule || x.Layer != x.Was.Layer {
				t.Errorf("entry %d: %+v %v", e.Seq, x, err)
			}
		}
	})
}

func TestALimitInALayerIsExact(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := startLayered(t, address, t.TempDir())
		n.apply("  []\n")
		limit := "rules: [{name: limit, on: [action], when: 'recent.allowed(\"1h\") >= 60', then: block, reason: enough}]\n"
		n.applyTo(rulebook.Layer{Workspace: "default"}, limit)
		alice := agentOf("alices", n.alice)
		n.applyTo(rulebook.Layer{Workspace: "default", User: n.alice.ID}, strings.Replace(limit, "60", "20", 1))
		for _, c := range []struct {
			who  roster.Identity
			want int
		}{{agent("x"), 60}, {alice, 20}, {agentOf("e", n.eve), 100}} {
			if got := burst(t, []*node{n.node}, 100, func(int) roster.Identity { return c.who }); got != c.want {
				t.Errorf("%s: %d of 100 were allowed, want %d", c.who.Name, got, c.want)
			}
		}
	})
}

func TestRulesOfALayerDoNotCountForThoseOfTheServer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := startLayered(t, address, t.TempDir())
		// Whoever was asked once may go on: a workspace must not be able to name a rule so.
		n.apply("  - {name: known, on: [action], when: 'recent.by_rule(\"asked\", \"1h\") > 0', then: allow}\n" +
			"defaults: {action: gate}\n")
		n.applyTo(rulebook.Layer{Workspace: "default"}, "rules: [{name: asked, on: [action], then: block, reason: x}]\n")
		for range 3 {
			if d, err := n.settle(agent("x"), policy.Event{}); err != nil || d.Rule != "asked" || d.Record.Layer != "workspace" {
				t.Errorf("%+v %v", d, err)
			}
		}
	})
}

func TestALayerThatCannotBeReadBlocksItsOwn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := startLayered(t, address, t.TempDir())
		n.apply("  []\n")
		n.Must(n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{
				Workspace: "default", Kind: "policy.layered", Actor: "system", Subject: "policy-1",
				Trace: "layer:default:" + n.alice.ID, Body: []byte("version: 99\n"),
			})
			return nil
		}))
		user := rulebook.Layer{Workspace: "default", User: n.alice.ID}
		testbed.Until(t, "the broken layer", func() bool { return n.book.InForceOf(user) == 1 })
		e := policy.Event{Point: policy.OnAction, Tool: "x"}
		if d := n.act(agentOf("a", n.alice), e); d.Action != policy.Block || !d.Failed || d.Layer != "user" {
			t.Errorf("%+v", d)
		}
		if _, readable := n.book.Stack(agentOf("a", n.alice), roster.Behalf{User: &n.alice}); readable {
			t.Error("a layer that cannot be read is readable")
		}
		for _, who := range []roster.Identity{agent("b"), agentOf("e", n.eve)} {
			if d := n.act(who, e); d.Action != policy.Allow {
				t.Errorf("%s: %+v", who.Name, d)
			}
		}
		n.applyTo(user, "")
		if d := n.act(agentOf("a", n.alice), e); d.Action != policy.Allow || d.Record.UserPolicy != 2 {
			t.Errorf("after another was applied: %+v", d)
		}
	})
}

func TestARowDoesNotTakeALayerAway(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := startLayered(t, address, t.TempDir())
		n.apply("  []\n")
		ws := rulebook.Layer{Workspace: "default"}
		n.applyTo(ws, blockBash)
		tx, err := n.DB.Begin(t.Context(), "ledger_tree")
		n.Must(err)
		tx.Exec("DELETE FROM policy_layer")
		_, err = tx.Commit(false)
		n.Must(err)
		second := start(t, address, t.TempDir())
		n.Must(second.book.Bootstrap(t.Context()))
		testbed.Until(t, "the layer", func() bool { return second.book.InForceOf(ws) == 1 })
		bash := policy.Event{Point: policy.OnAction, Tool: "bash"}
		if d := second.book.Decide(t.Context(), agent("x"), bash); d.Layer != "workspace" {
			t.Errorf("%+v", d)
		}
	})
}

// TestWhoMayEditALayer is the attacker's: an admin of one workspace tries the layers of the server and of another.
func TestWhoMayEditALayer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := startLayered(t, address, t.TempDir())
		n.apply("  []\n")
		n.applyTo(rulebook.Layer{Workspace: "other", User: n.eve.ID}, blockBash)
		confined := wire.WithScope(t.Context(), "default")
		source := []byte("version: 1\n" + allowBash)
		head, err := n.Ledger.Head(t.Context())
		n.Must(err)
		for _, c := range []struct {
			name string
			of   rulebook.Layer
			want fault.Code
		}{
			{"the server's", rulebook.Layer{}, fault.Forbidden},
			{"that of another workspace", rulebook.Layer{Workspace: "other"}, fault.NotFound},
			{"that of its user", rulebook.Layer{Workspace: "other", User: n.eve.ID}, fault.NotFound},
		} {
			_, err1 := n.book.Put(confined, roster.Identity{}, c.of, source, 0)
			_, _, err2 := n.book.Version(confined, c.of, 1)
			_, err3 := n.book.ListVersions(confined, c.of, "", 10)
			_, err4 := n.book.Check(confined, c.of, source)
			_, err5 := n.book.Try(confined, c.of, source, time.Time{})
			for i, err := range []error{err1, err2, err3, err4, err5} {
				if !fault.Is(err, c.want) {
					t.Errorf("%s, call %d: %v, want %s", c.name, i+1, err, c.want)
				}
			}
		}
		for _, c := range []struct {
			ctx             context.Context
			workspace, user string
			want            fault.Code
		}{
			{confined, "other", "", fault.NotFound},
			{confined, "other", "eve", fault.NotFound},
			{confined, "", "eve", fault.NotFound},
			{confined, "", n.eve.ID, fault.NotFound},
			{t.Context(), "mars", "", fault.NotFound},
			{t.Context(), "default", "nobody", fault.NotFound},
		} {
			if l, err := n.book.Layer(c.ctx, c.workspace, c.user); !fault.Is(err, c.want) {
				t.Errorf("%q %q: %+v %v", c.workspace, c.user, l, err)
			}
		}
		if now, err := n.Ledger.Head(t.Context()); err != nil || now != head {
			t.Errorf("something was written: %d entries, %v", now-head, err)
		}
		if all, err := n.book.Layers(confined); err != nil || len(all) != 0 {
			t.Errorf("layers: %+v %v", all, err)
		}
		own, err := n.book.Layer(confined, "", "")
		write := []byte("version: 1\nrules: [{name: w, on: [action], then: modify, set: {arguments: {command: rm -rf /}}}]\n")
		if _, _, err := n.book.ApplyLayer(confined, roster.Identity{}, own, write, 0); !fault.Is(err, fault.InvalidPolicy) {
			t.Errorf("a rule that writes what runs: %v", err)
		}
		alone := []byte("version: 1\nrules: [{name: a, on: [action], when: 'agent.name == \"x\" && event.tool == \"Read\"', " +
			"then: allow, on_unreachable: allow}]\n")
		if _, _, err := n.book.ApplyLayer(confined, roster.Identity{}, own, alone, 0); !fault.Is(err, fault.InvalidPolicy) {
			t.Errorf("a rule for the time without the server: %v", err)
		}
		if err != nil || own != (rulebook.Layer{Workspace: "default"}) {
			t.Errorf("%+v %v", own, err)
		}
		if done, err := n.book.Put(confined, roster.Identity{}, own, source, 0); err != nil || !done.InForce {
			t.Errorf("its own: %+v %v", done, err)
		}
	})
}

func TestTheLayersOfAWorkspaceReadFewCounters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := startLayered(t, address, t.TempDir())
		n.apply("  []\n")
		var rules strings.Builder
		for i := range 60 {
			rules.WriteString("recent.actions(\"" + (time.Duration(i+1) * time.Minute).String() + "\") > 1000 || ")
		}
		many := "rules: [{name: many, on: [action], when: '" + rules.String() + "false', then: block, reason: x}]\n"
		n.applyTo(rulebook.Layer{Workspace: "default"}, many)
		others := strings.ReplaceAll(many, "actions", "prompts")
		_, _, err := n.book.ApplyLayer(t.Context(), roster.Identity{}, rulebook.Layer{Workspace: "default", User: n.alice.ID},
			[]byte("version: 1\n"+others), 0)
		if !fault.Is(err, fault.InvalidPolicy) || !strings.Contains(err.Error(), "120 counters") {
			t.Errorf("%v", err)
		}
		n.applyTo(rulebook.Layer{Workspace: "other"}, others)
	})
}
