package task_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// scoped are rules in which tools need scopes.
const scoped = "tools: {send: [mail.send], pay: [money.pay]}\n" +
	"rules: [{name: plans, on: [task], when: 'event.priority == \"high\"', then: gate}]"

// decide is the rule that decides about a tool of an agent that shows a token.
func (n *node) decide(who roster.Identity, tool, token string) outcome {
	n.T.Helper()
	d := n.Book.Decide(n.T.Context(), who, policy.Event{
		Point: policy.OnAction, Protocol: "ahp", Tool: tool, Session: "s", Claim: policy.Claim{Token: token},
	})
	return outcome{d.Rule, string(d.Action), d.Record.Delegation}
}

// outcome is what becomes of a call.
type outcome struct {
	rule, action string
	under        policy.Delegation
}

func (n *node) must(err error) {
	n.T.Helper()
	if err != nil {
		n.T.Fatal(err)
	}
}

// open are the handoffs of a task that are open.
func (n *node) open(taskID string) []handoff.Handoff {
	n.T.Helper()
	all, _, err := n.Handoffs.List(n.T.Context(), handoff.Filter{Work: taskID}, wire.Paging{Limit: 100})
	n.must(err)
	return all
}

// wantNoToken checks that no entry holds the token of a handoff.
func (n *node) wantNoToken() {
	n.T.Helper()
	for after := int64(0); ; {
		entries, err := n.Ledger.Entries(n.T.Context(), ledger.Query{After: after, Limit: 1000})
		n.must(err)
		if len(entries) == 0 {
			return
		}
		for i := range entries {
			if after = entries[i].Seq; behalf.HasToken(entries[i].Body) {
				n.T.Errorf("entry %d (%s) holds a token: %s", after, entries[i].Kind, entries[i].Body)
			}
		}
	}
}

// handed sends an ack of the executor, and is what it was handed.
func (n *node) handed(p task.Party, taskID string, d []byte) *handoff.Handed {
	n.T.Helper()
	a := n.wantFrom(p, "executing", amp.InAck, ack(taskID, idOf(d), amp.Executor))
	if a.Handoff == nil {
		n.T.Fatal("the executor was handed nothing")
	}
	return a.Handoff
}

func TestADispatchHandsWorkOn(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.Apply(scoped)
		executor, other := n.parties[amp.Executor], n.addAgent("second", amp.Executor)
		d := with(dispatch(taskT, 1), "x_scopes", []string{"mail.send"})
		if a := n.want("dispatched", amp.InMessage, d); a.Handoff != nil {
			t.Error("the coordinator gets the executor's token")
		}
		if len(n.open(taskT)) != 0 {
			t.Error("work is handed to nobody")
		}
		given := n.handed(executor, taskT, d)
		if got := n.open(taskT); len(got) != 1 || got[0].ID != given.ID || got[0].From != "coordinator" ||
			got[0].To != "executor" || got[0].Protocol != "task" || got[0].EndsAt.Sub(n.Now()) < 30*24*time.Hour {
			t.Errorf("%+v", got)
		}
		for _, c := range []struct {
			who               roster.Identity
			tool, token, rule string
		}{
			{executor.Identity, "send", given.Token, "default"},
			{executor.Identity, "pay", given.Token, "scopes"},
			{other.Identity, "send", given.Token, policy.HandoffRule},
			{executor.Identity, "send", given.Token[:len(given.Token)-1] + "x", policy.HandoffRule},
		} {
			if got := n.decide(c.who, c.tool, c.token); got.rule != c.rule {
				t.Errorf("%s of %s: %+v, want %s", c.tool, c.who.Name, got, c.rule)
			}
		}
		if got := n.decide(executor.Identity, "send", given.Token).under; got.Work != taskT || got.From != "coordinator" ||
			got.Depth != 1 {
			t.Errorf("%+v", got)
		}
		// The token stands beside the dispatch, for its holder only.
		box, err := n.tasks.Wait(t.Context(), executor, "", 1, 100, 0)
		n.must(err)
		if len(box.Messages) != 1 || box.Messages[0].Handoff == nil || *box.Messages[0].Handoff != *given ||
			strings.Contains(string(box.Messages[0].Message), given.Token) {
			t.Errorf("%+v", box)
		}
		admin, err := n.tasks.Wait(t.Context(), n.parties[amp.Admin], amp.Executor, 1, 100, 0)
		n.must(err)
		if len(admin.Messages) != 1 || admin.Messages[0].Handoff != nil {
			t.Errorf("the admin reads %+v", admin)
		}
		r := result(taskT, 1)
		n.refuse(amp.AuthPolicy, amp.InMessage, with(r, "x_delegation", "hof_00000000000000000000000000_forged"))
		header := executor
		header.Claim.Token = "hof_00000000000000000000000000_forged"
		n.refuseFrom(header, amp.AuthPolicy, amp.InMessage, r)
		n.wantFrom(executor, "reported", amp.InMessage, r)
		n.want("terminated", amp.InInstruction, instruct(taskT, "terminate", "note", "Enough."))
		if left := n.open(taskT); len(left) != 0 {
			t.Errorf("left after the task: %+v", left)
		}
		n.Handoffs.Forget()
		if got := n.decide(executor.Identity, "send", given.Token); got.rule != policy.HandoffRule {
			t.Errorf("after the task: %+v", got)
		}
		n.wantNoToken()
		n.WantClean()
	})
}

func TestAnotherExecutorIsHandedTheWorkAnew(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.Apply(scoped)
		second := n.addAgent("second", amp.Executor)
		d := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		first := n.handed(n.parties[amp.Executor], taskT, d)
		n.want("dispatched", amp.InInstruction, instruct(taskT, "reassign", "target", "executor"))
		if left := n.open(taskT); len(left) != 0 {
			t.Errorf("the first executor has lost the task, and %+v", left)
		}
		next := n.handed(second, taskT, d)
		if next.ID == first.ID {
			t.Fatal("the second executor got the handoff of the first")
		}
		if got := n.decide(second.Identity, "send", next.Token); got.rule != "default" || !got.under.Verified {
			t.Errorf("%+v", got)
		}
		if got := n.decide(n.parties[amp.Executor].Identity, "send", first.Token); got.rule != policy.HandoffRule {
			t.Errorf("%+v", got)
		}
		n.wantNoToken()
	})
}

func TestADispatchCannotHandOnMoreThanItsCoordinatorHas(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.Apply(scoped)
		boss := n.Agent("boss")
		coordinator := n.parties[amp.Coordinator]
		mine, err := n.Handoffs.Open(t.Context(), handoff.By{Who: boss}, handoff.Opening{
			To: coordinator.Identity.Name, Scopes: []string{"mail.*"},
		})
		n.must(err)
		token := n.Handoffs.Token(mine.ID)
		wide := with(dispatch(taskT, 1), "x_scopes", []string{"money.pay"}, "x_delegation", token)
		if got := n.refuse(amp.AuthPolicy, amp.InMessage, wide); got.Errors[0].Pointer != "/x_scopes" {
			t.Errorf("%+v", got.Errors)
		}
		// One that a person would have to approve is refused as well, and no gate opens.
		high := with(dispatch(taskT, 1, "risk_level", "high"), "x_scopes", []string{"money.pay"}, "x_delegation", token)
		n.refuse(amp.AuthPolicy, amp.InMessage, high)
		if waiting := n.Pending(); len(waiting) != 0 {
			t.Errorf("%+v", waiting)
		}
		n.refuse(amp.AuthPolicy, amp.InMessage, with(dispatch(taskT, 1), "x_delegation", token+"0"))

		// A plan that waits goes out under the handoff that its coordinator showed.
		plan := with(dispatch(taskT, 1, "risk_level", "high"), "x_delegation", token)
		n.refuse(amp.PlanNotApproved, amp.InMessage, plan)
		n.vote(n.only().ID, gate.Ballot{Approve: true})
		testbed.Until(t, "the plan", func() bool { return n.status(taskT) == "dispatched" })
		given := n.handed(n.parties[amp.Executor], taskT, plan)
		got := n.decide(n.parties[amp.Executor].Identity, "pay", given.Token)
		if got.rule != "scopes" || got.under.Depth != 2 || got.under.Root != "boss" {
			t.Errorf("%+v", got)
		}
		// It ends with the one above it, and then the executor's word counts no more.
		_, err = n.Handoffs.End(context.Background(), boss, mine.ID, "enough")
		n.must(err)
		if got := n.decide(n.parties[amp.Executor].Identity, "send", given.Token); got.rule != policy.HandoffRule {
			t.Errorf("%+v", got)
		}
		n.refuse(amp.AuthPolicy, amp.InMessage, result(taskT, 1))
		n.want("suspended", amp.InMessage, escalation(taskT, amp.Executor, "warning"))
		n.wantNoToken()
		n.WantClean()
	})
}
