package run_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/policy"
	"signalbox/internal/protocol/protocoltest"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// handing is a node whose runs hand work on.
type handing struct {
	*protocoltest.Node
	runs         *run.Runs
	local, other roster.Identity
	operator     roster.Identity
}

func eachHanding(t *testing.T, test func(t *testing.T, n *handing)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) {
		n := &handing{Node: protocoltest.New(t, address, protocoltest.On{Protocol: run.Protocol()})}
		n.runs = run.New(n.Core, run.Options{
			HooksOf: func(ctx context.Context, workspace, named string) (roster.Identity, error) {
				return n.Roster.ByID(ctx, workspace, named)
			},
		})
		n.Start(n.runs)
		n.local, n.other, n.operator = n.Agent("local"), n.Agent("other"), n.Operator("kim")
		n.Apply("tools: {send: [mail.send], pay: [money.pay]}")
		_, _, err := n.Roster.AddUser(t.Context(), roster.Identity{Role: roster.Admin},
			roster.NewUser{Name: "alice", Scopes: &[]string{"mail.send"}})
		n.must(err)
		test(t, n)
	})
}

func (n *handing) must(err error) {
	n.T.Helper()
	if err != nil {
		n.T.Fatal(err)
	}
}

func (n *handing) open(r run.Request) run.Run {
	n.T.Helper()
	r.Engine, r.Prompt, r.Recorded = "amp", "fix it", true
	opened, err := n.runs.Open(n.T.Context(), n.operator, r)
	n.must(err)
	return opened
}

// want checks which rule decides about a tool of an agent that shows a token.
func (n *handing) want(rule string, who roster.Identity, tool, token string) policy.Delegation {
	n.T.Helper()
	d := n.Book.Decide(n.T.Context(), who, policy.Event{
		Point: policy.OnAction, Tool: tool, Session: "s", Claim: policy.Claim{Token: token},
	})
	if d.Rule != rule {
		n.T.Errorf("%s of %s: %s by %s (%s), want %s", tool, who.Name, d.Action, d.Rule, d.Reason, rule)
	}
	return d.Record.Delegation
}

func TestARunHandsItsWorkOnToItsHooks(t *testing.T) {
	eachHanding(t, func(t *testing.T, n *handing) {
		if silent := n.open(run.Request{}); silent.Handoff != nil {
			t.Error("a run without hooks hands something on")
		}
		r := n.open(run.Request{Agent: "local", User: "alice"})
		if r.Handoff == nil {
			t.Fatal("nothing was handed on")
		}
		token := r.Handoff.Token
		if got := n.want("default", n.local, "send", token); got.Work != r.ID || got.From != "operator:kim" || got.Depth != 0 {
			t.Errorf("%+v", got)
		}
		n.want(policy.ScopesRule, n.local, "pay", token)
		n.want(policy.HandoffRule, n.other, "send", token)
		if got := n.want("default", n.local, "send", ""); !got.Unverified {
			t.Errorf("narrowing that is left out goes unnoticed: %+v", got)
		}
		// Readers do not get it, and a supervisor that asks does.
		shown, err := n.runs.Get(t.Context(), r.ID)
		n.must(err)
		if shown.Handoff != nil {
			t.Error("everybody who reads the run gets the token")
		}
		o, err := n.runs.Wait(t.Context(), r.ID, run.Pulse{Handoff: true}, 0)
		n.must(err)
		if o.Handoff == nil || *o.Handoff != *r.Handoff {
			t.Errorf("%+v", o)
		}
		// A run inside of a run is under it, and ends with it.
		inner := n.open(run.Request{Agent: "other", Delegation: token})
		if got := n.want("default", n.other, "send", inner.Handoff.Token); got.Depth != 1 || got.Root != "operator:kim" {
			t.Errorf("%+v", got)
		}
		n.want(policy.ScopesRule, n.other, "pay", inner.Handoff.Token)
		_, err = n.runs.Report(t.Context(), n.operator, r.ID, run.Report{From: 1, Events: entries(1, started, completed)})
		n.must(err)
		n.want(policy.HandoffRule, n.local, "send", token)
		n.want(policy.HandoffRule, n.other, "send", inner.Handoff.Token)
		left, _, err := n.Handoffs.List(t.Context(), handoff.Filter{Work: r.ID}, wire.Paging{Limit: 10})
		if err != nil || len(left) != 0 {
			t.Errorf("%+v %v", left, err)
		}
		for _, e := range n.Entries() {
			if behalf.HasToken(e.Body) {
				t.Errorf("entry %d (%s) holds a token", e.Seq, e.Kind)
			}
		}
		n.WantClean()
	})
}

// TestTheTraceOfARunHasWhatWasDoneUnderIt, and nothing that only says so.
func TestTheTraceOfARunHasWhatWasDoneUnderIt(t *testing.T) {
	eachHanding(t, func(t *testing.T, n *handing) {
		r, alone := n.open(run.Request{Agent: "local", User: "alice"}), n.open(run.Request{Agent: "local"})
		decide := func(token, claimed string) int64 {
			d := n.Book.Decide(t.Context(), n.local, policy.Event{
				Point: policy.OnAction, Tool: "send", Session: "s", Run: claimed, Claim: policy.Claim{Token: token},
			})
			var seq int64
			n.must(n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
				seq = tx.Append(d.Entry(n.local, "send", "session:s"))
				return nil
			}))
			return seq
		}
		under, other := decide(r.Handoff.Token, ""), decide(alone.Handoff.Token, "")
		claims := decide("", r.ID)
		gated := gatetest.Open(&ledgertest.Node{T: t, Ledger: n.Ledger}, "default", gate.Opening{
			Agent: n.local.ID, AgentName: "local", Requester: n.local.Actor(), Of: behalf.Of{Handoff: r.Handoff.ID},
			Origin: gate.Origin{Protocol: "harness", Run: r.ID},
		})
		_, err := n.runs.Report(t.Context(), n.operator, r.ID, run.Report{From: 1, Events: entries(1, started)})
		n.must(err)
		has := func() (seqs map[int64]bool, kinds string) {
			page, err := n.runs.Trace(t.Context(), r.ID, 0, 100)
			n.must(err)
			seqs = map[int64]bool{}
			for _, e := range page.Entries {
				if e.Kind == "gate.opened" && e.Subject != gated {
					t.Errorf("the gate %s is not of the run", e.Subject)
				}
				seqs[e.Seq], kinds = true, kinds+e.Kind+" "
			}
			return seqs, kinds
		}
		testbed.Until(t, "the index", func() bool {
			seqs, kinds := has()
			return seqs[under] && strings.Contains(kinds, "gate.opened")
		})
		seqs, kinds := has()
		if seqs[other] || seqs[claims] || !strings.HasPrefix(kinds, "run.opened ") || !strings.HasSuffix(kinds, "run.started ") {
			t.Errorf("%v %s", seqs, kinds)
		}
		if page, err := n.runs.Trace(t.Context(), r.ID, under-1, 1); err != nil || len(page.Entries) != 1 || page.Next != under {
			t.Errorf("%v %+v", err, page)
		}
		if _, err := n.runs.Trace(wire.WithScope(t.Context(), "elsewhere"), r.ID, 0, 10); !fault.Is(err, fault.NotFound) {
			t.Errorf("%v", err)
		}
	})
}

func TestARunUnderAForgedHandoffIsRefused(t *testing.T) {
	eachHanding(t, func(t *testing.T, n *handing) {
		r := n.open(run.Request{Agent: "local", User: "alice"})
		for name, bad := range map[string]run.Request{
			"a forged token": {Delegation: "hof_00000000000000000000000000_forged"},
			"another user":   {Delegation: r.Handoff.Token, User: "kim"},
			"no such agent":  {Agent: "nobody"},
		} {
			bad.Engine, bad.Prompt, bad.Recorded = "amp", "fix it", true
			before := len(n.Entries("run.opened"))
			_, err := n.runs.Open(t.Context(), n.operator, bad)
			if err == nil || len(n.Entries("run.opened")) != before {
				t.Errorf("%s: %v", name, err)
			}
			if bad.User == "" && bad.Agent == "" && !fault.Is(err, fault.Forbidden) {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil && strings.Contains(err.Error(), r.Handoff.Token) {
				t.Errorf("%s: the error repeats the token", name)
			}
		}
	})
}

// Under the handoff of a run a call is in the background, although nothing in it says so.
func TestWhatARunDoesIsInTheBackground(t *testing.T) {
	eachHanding(t, func(t *testing.T, n *handing) {
		token := n.open(run.Request{Agent: "local", User: "alice"}).Handoff.Token
		for claim, want := range map[string]policy.Tier{token: policy.Background, "": policy.Interactive} {
			d := n.Book.Decide(t.Context(), n.local, policy.Event{
				Point: policy.OnAction, Tool: "look", Session: "s", Tier: policy.Interactive, Claim: policy.Claim{Token: claim},
			})
			if d.Record.Tier != want || d.Record.Event.Tier != want {
				t.Errorf("with %q: %s", claim, d.Record.Tier)
			}
		}
	})
}

// What a process of a run does as another agent is found under the run, and gets nothing of its power. A token that is
// not of this server is refused, and one of a run that has ended counts for nothing.
func TestWhatAProcessOfARunDoesAsAnotherAgentIsInIt(t *testing.T) {
	eachHanding(t, func(t *testing.T, n *handing) {
		r := n.open(run.Request{Agent: "local", User: "alice"})
		decide := func(who roster.Identity, tool string, claim policy.Claim) (string, behalf.Of, int64) {
			d := n.Book.Decide(t.Context(), who, policy.Event{Point: policy.OnAction, Tool: tool, Session: "s", Claim: claim})
			var seq int64
			n.must(n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
				seq = tx.Append(d.Entry(who, tool, "session:s"))
				return nil
			}))
			return d.Rule, d.Record.Behalf(), seq
		}
		token := r.Handoff.Token
		rule, of, seq := decide(n.other, "pay", policy.Claim{Within: token})
		if rule != "default" || of != (behalf.Of{Within: r.Handoff.ID}) { // alice may not pay, and it is not for her
			t.Errorf("another agent: %s %+v", rule, of)
		}
		if asked := n.Core.AskedBy(t.Context(), of, n.other, ""); asked != r.ID {
			t.Errorf("its gate is of %q", asked)
		}
		if rule, of, _ := decide(n.local, "pay", policy.Claim{Within: token}); rule != policy.ScopesRule || of.Handoff != r.Handoff.ID {
			t.Errorf("the agent that has it: %s %+v", rule, of)
		}
		for name, forged := range map[string]string{
			"no token": "x", "a forged one": token[:len(token)-4] + "0000", "an id": r.Handoff.ID,
		} {
			if rule, of, _ := decide(n.other, "pay", policy.Claim{Within: forged}); rule != policy.HandoffRule || of.Within != "" {
				t.Errorf("%s: %s %+v", name, rule, of)
			}
		}
		for who, want := range map[*roster.Identity]string{&n.local: r.ID, &n.other: ""} {
			if got := n.Core.AskedBy(t.Context(), behalf.Of{}, *who, r.ID); got != want {
				t.Errorf("%s, which only names it, asks in %q", who.Name, got)
			}
		}
		testbed.Until(t, "the trace", func() bool {
			page, err := n.runs.Trace(t.Context(), r.ID, 0, 100)
			n.must(err)
			return slices.ContainsFunc(page.Entries, func(e ledger.EntryView) bool { return e.Seq == seq })
		})
		_, err := n.runs.Report(t.Context(), n.operator, r.ID, run.Report{From: 1, Events: entries(1, started, completed)})
		n.must(err)
		for _, who := range []roster.Identity{n.local, n.other} {
			if rule, of, _ := decide(who, "pay", policy.Claim{Within: token}); rule != "default" || of.Within+of.Handoff != "" {
				t.Errorf("%s after the end of the run: %s %+v", who.Name, rule, of)
			}
		}
	})
}

// A run inside of a run is in its trace, and a run that a task has started has the task.
func TestATraceHasTheRunsInsideAndTheTaskOfARun(t *testing.T) {
	eachHanding(t, func(t *testing.T, n *handing) {
		var given handoff.Handoff
		by := n.operator
		by.Workspace = "default"
		n.must(n.Ledger.Write(t.Context(), func(tx *ledger.Tx) (err error) {
			given, err = n.Handoffs.OpenIn(t.Context(), tx, handoff.By{Who: by}, handoff.Opening{
				To: n.local.ID, Work: "T-1", Protocol: "task",
			})
			tx.Append(ledger.Event{Workspace: "default", Kind: "thing.done", Actor: "x", Subject: "T-1", Trace: "task:default:T-1"})
			return err
		}))
		n.Handoffs.Forget()
		r := n.open(run.Request{Agent: "local", Delegation: n.Handoffs.Give(given.ID).Token})
		inner := n.open(run.Request{Agent: "other", Delegation: r.Handoff.Token})
		if r.Task != "T-1" || inner.Task != "T-1" {
			t.Errorf("%q %q", r.Task, inner.Task)
		}
		page, err := n.runs.Trace(t.Context(), r.ID, 0, 100)
		n.must(err)
		var got []string
		for _, e := range page.Entries {
			got = append(got, e.Kind+" "+e.Subject)
		}
		for _, want := range []string{"run.opened " + r.ID, "run.opened " + inner.ID, "thing.done T-1"} {
			if !slices.Contains(got, want) {
				t.Errorf("%q is missing: %q", want, got)
			}
		}
		if page, err := n.runs.Trace(t.Context(), inner.ID, 0, 100); err != nil ||
			slices.ContainsFunc(page.Entries, func(e ledger.EntryView) bool { return e.Subject == r.ID }) {
			t.Errorf("the run inside has the one around it: %v %+v", err, page)
		}
	})
}
