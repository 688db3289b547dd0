package task_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/protocol/protocoltest"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

func requirePlan(o *task.Options) { o.Policy.RequirePlan = true }

// idle is a node that dies before it sends what was approved.
type idle struct{ *task.Tasks }

func (idle) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// eachPlanning runs fn with a node on every database on which a person approves every plan.
func eachPlanning(t *testing.T, fn func(t *testing.T, n *node)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) { fn(t, start(t, address, requirePlan)) })
}

// eachIdle is eachPlanning with nodes that send nothing that was approved. again starts another
// node on the same database, which does.
func eachIdle(t *testing.T, fn func(t *testing.T, n *node, again func() *node)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) {
		n := startAs(t, address, func(s *task.Tasks) service { return idle{s} }, requirePlan)
		fn(t, n, func() *node {
			n.Stop()
			next := &node{
				Node: protocoltest.New(t, address, protocoltest.On{Protocol: task.Protocol()}), operator: n.operator,
				parties: n.parties,
			}
			o := task.Options{Policy: amp.Defaults()}
			requirePlan(&o)
			next.tasks = task.New(next.Core, o)
			next.Start(next.tasks)
			return next
		})
	})
}

// TestReadingTakesOneConnection: a call that held one while it waited for a second would wait for ever once as many such
// calls were under way as there are connections, and with it all that is written.
func TestReadingTakesOneConnection(t *testing.T) {
	eachIdle(t, func(t *testing.T, n *node, again func() *node) {
		n.Apply("rules: [{name: small, on: [task], when: 'event.priority == \"low\"', then: allow}]")
		n.want("dispatched", amp.InMessage, dispatch(taskT, 1, "risk_level", "low"))
		g := n.keep(dispatch("T-2026-045", 1))
		n = again() // which knows nothing of what was written, and has to prove it
		n.DB.Read.SetMaxOpenConns(1)
		ctx := testbed.Context(t)
		box, err := n.tasks.Wait(ctx, n.parties[amp.Executor], "", 0, 100, 0)
		if err != nil || len(box.Messages) != 1 {
			t.Errorf("%+v %v", box, err)
		}
		if _, err := n.Gates.Get(ctx, g.ID); err != nil {
			t.Error(err)
		}
	})
}

// keep sends a dispatch that a person has to approve, and returns its gate.
func (n *node) keep(raw []byte) gate.Gate {
	n.T.Helper()
	return n.keepFrom(n.parties[amp.Coordinator], raw)
}

func (n *node) keepFrom(p task.Party, raw []byte) gate.Gate {
	n.T.Helper()
	wrong := n.refuseFrom(p, amp.PlanNotApproved, amp.InMessage, raw)
	if wrong.Gate == "" || !strings.Contains(wrong.Errors[0].Detail, wrong.Gate) {
		n.T.Fatalf("the answer does not name the gate: %+v", wrong)
	}
	g, err := n.Gates.Get(n.T.Context(), wrong.Gate)
	if err != nil {
		n.T.Fatal(err)
	}
	return g
}

// heard are the decisions about plans in an agent's inbox, with their ids.
func (n *node) heard(p task.Party) (list []amp.Decision, ids []string) {
	n.T.Helper()
	for _, m := range n.inbox(p) {
		var d struct {
			MsgID   string       `json:"msg_id"`
			Type    amp.Type     `json:"type"`
			Payload amp.Decision `json:"payload"`
		}
		if err := json.Unmarshal(m.Message, &d); err != nil {
			n.T.Fatal(err)
		}
		if d.Type == amp.TypeDecision {
			list, ids = append(list, d.Payload), append(ids, d.MsgID)
		}
	}
	return list, ids
}

func (n *node) inbox(p task.Party) []task.Waiting {
	n.T.Helper()
	box, err := n.tasks.Wait(n.T.Context(), p, "", 0, 100, 0)
	if err != nil {
		n.T.Fatal(err)
	}
	return box.Messages
}

// hears waits for the next decision that a coordinator hears, and acknowledges it.
func (n *node) hears(p task.Party) amp.Decision {
	n.T.Helper()
	var list []amp.Decision
	var ids []string
	testbed.Until(n.T, "a decision", func() bool {
		list, ids = n.heard(p)
		return len(list) > 0
	})
	if len(list) != 1 {
		n.T.Fatalf("%d decisions: %+v", len(list), list)
	}
	if _, wrong := n.take(p, amp.InAck, ack(amp.TaskOf(ids[0]), ids[0], amp.Coordinator)); wrong != nil {
		n.T.Fatalf("the decision cannot be acknowledged: %+v", wrong.Errors)
	}
	if list, _ := n.heard(p); len(list) != 0 {
		n.T.Errorf("it is still there: %+v", list)
	}
	return list[0]
}

// sent are the ids of the dispatches that have gone out.
func (n *node) sent() (ids []string) {
	n.T.Helper()
	for _, e := range n.Entries("task.dispatched") {
		var b struct {
			Record json.RawMessage `json:"record"`
		}
		if err := json.Unmarshal(e.Body, &b); err != nil {
			n.T.Fatal(err)
		}
		ids = append(ids, idOf(b.Record))
	}
	return ids
}

// wantProved checks that a replay and a rebuild lead to what is.
func (n *node) wantProved() {
	n.T.Helper()
	p := amp.Defaults()
	p.RequirePlan = true
	if _, err := task.Replay(p, n.Entries()); err != nil {
		n.T.Error(err)
	}
	n.WantClean()
}

func TestAPlanThatIsApprovedGoesOutByItself(t *testing.T) {
	eachPlanning(t, func(t *testing.T, n *node) {
		d := dispatch(taskT, 2, "forbidden_actions", []string{"Push to main"}, "tech_constraints", object{"go": "1.26"},
			"risk_level", "high")
		d = bytes.Replace(d, []byte(`"type":`), []byte(`"type" : `), 1) // bytes of its sender's own
		g := n.keep(d)
		shown := g.Summary + g.ProposedAction + fmt.Sprint(g.Facts)
		for _, part := range []string{
			"Rework the timer", "/srv/repos/app", "feature/timer", taskT + "-S1", taskT + "-S2", "All tests pass", "No leak",
			"Push to main", `"go":"1.26"`, "high", idOf(d),
		} {
			if !strings.Contains(shown, part) {
				t.Errorf("the gate does not show %q: %s", part, shown)
			}
		}
		if len(g.Artifacts) != 1 || amp.ContentHash(g.Artifacts[0]) != amp.ContentHash(d) ||
			g.ActionDigest != amp.ContentHash(d) || g.Risk != "high" {
			t.Errorf("%+v", g)
		}
		again := n.want("planning", amp.InMessage, d)
		if again.Status != "duplicate" || again.Plan == nil ||
			*again.Plan != (task.PlanAnswer{Gate: g.ID, State: "waiting"}) {
			t.Errorf("%+v", again)
		}
		n.only()
		if len(n.inbox(n.parties[amp.Executor])) != 0 {
			t.Fatal("the executor has it before it is approved")
		}
		n.refuse(amp.RefUnresolved, amp.InAck, ack(taskT, idOf(d), amp.Executor))

		n.vote(g.ID, gate.Ballot{Approve: true, Note: "Mind the tests."})
		testbed.Until(t, "the dispatch", func() bool { return n.status(taskT) == "dispatched" })
		if got := n.inbox(n.parties[amp.Executor]); len(got) != 1 || !bytes.Equal(got[0].Message, d) {
			t.Errorf("the executor has %+v", got)
		}
		if got := n.hears(n.parties[amp.Coordinator]); got.Decision != "approved" || !got.Sent || got.Dispatch != idOf(d) ||
			got.Note != "Mind the tests." || got.Gate != g.ID {
			t.Errorf("the coordinator hears %+v", got)
		}
		if again := n.want("dispatched", amp.InMessage, d); again.Status != "duplicate" || again.Plan.State != "sent" {
			t.Errorf("%+v", again)
		}
		n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		if len(n.sent()) != 1 || len(n.Pending()) != 0 {
			t.Errorf("%v went out, and %v waits", n.sent(), n.Pending())
		}
		n.wantProved()
	})
}

// TestNothingGoesOutButWhatWasApproved is about the moment after the approval of A and before it
// goes out, in which an attacker has most to win.
func TestNothingGoesOutButWhatWasApproved(t *testing.T) {
	eachIdle(t, func(t *testing.T, n *node, again func() *node) {
		other := n.addAgent("coordinator-two", amp.Coordinator)
		a := dispatch(taskT, 1, "forbidden_actions", []string{"Push to main"})
		n.vote(n.keep(a).ID, gate.Ballot{Approve: true})
		payload := func(pairs ...any) []byte {
			var o object
			if err := json.Unmarshal(a, &o); err != nil {
				t.Fatal(err)
			}
			return with(a, "payload", set(o["payload"].(object), pairs))
		}
		next := 0
		renamed := func(raw []byte) []byte {
			next++
			return with(raw, "msg_id", fmt.Sprintf("task_dispatch-%s-%013d", taskT, 1_872_116_327_000+next))
		}
		opened := 0
		for name, b := range map[string][]byte{
			"the description": payload("description", "Remove the timer"),
			"the repository":  payload("repo", "/srv/repos/other"),
			"the branch":      payload("branch", "feature/other"),
			"a criterion":     payload("acceptance_criteria", []string{"It compiles"}),
			"the limits":      payload("forbidden_actions", nil),
			"the constraints": payload("tech_constraints", object{"sudo": "allowed"}),
			"the risk":        payload("risk_level", "low"),
			"an attempt":      payload("x_attempt", 2),
			"the deadline":    with(a, "ack_timeout_sec", 3600),
		} {
			n.refuse(amp.MsgIDConflict, amp.InMessage, b)
			if g := n.keep(renamed(b)); g.ActionDigest == amp.ContentHash(a) {
				t.Errorf("%s has the digest of another plan", name)
			}
			opened++
			if len(n.Pending()) != opened {
				t.Errorf("%s: %d gates wait", name, len(n.Pending()))
			}
		}
		// One more than a person is asked about in one task.
		n.refuse(amp.WrongState, amp.InMessage, renamed(a))
		n.refuseFrom(other, amp.MsgIDConflict, amp.InMessage, a)
		if got := n.want("planning", amp.InMessage, a); got.Status != "duplicate" || got.Plan.State != "approved" {
			t.Errorf("%+v", got)
		}
		if ids := n.sent(); len(ids) != 0 {
			t.Fatalf("%v went out", ids)
		}

		n = again() // the node was ended between the approval and the dispatch
		testbed.Until(t, "the dispatch", func() bool { return n.status(taskT) == "dispatched" })
		if ids := n.sent(); len(ids) != 1 || ids[0] != idOf(a) {
			t.Errorf("%v went out", ids)
		}
		if list, _ := n.heard(other); len(list) != 0 {
			t.Errorf("another coordinator hears %+v", list)
		}
		n.hears(n.parties[amp.Coordinator])
		// A second use, by another name: the work is under way.
		n.refuse(amp.WrongState, amp.InMessage, renamed(a))
		n.wantProved()
	})
}

func TestOneNodeSendsWhatWasApproved(t *testing.T) {
	eachIdle(t, func(t *testing.T, n *node, again func() *node) {
		for i := range 5 {
			n.vote(n.keep(dispatch(fmt.Sprintf("T-2026-10%d", i), 1)).ID, gate.Ballot{Approve: true})
		}
		n = again()
		o := task.Options{Policy: amp.Defaults()}
		requirePlan(&o)
		// A second sender of the same process is as good as another node: both look at the rows.
		second := task.New(n.Core, o)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- second.Run(ctx) }()
		testbed.Until(t, "the dispatches", func() bool { return len(n.sent()) == 5 })
		n.vote(n.keep(dispatch("T-2026-105", 1)).ID, gate.Ballot{Approve: true})
		testbed.Until(t, "one more", func() bool { return len(n.sent()) == 6 })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if list, _ := n.heard(n.parties[amp.Coordinator]); len(list) != 6 {
			t.Errorf("%d decisions are heard", len(list))
		}
		n.wantProved()
	})
}

func TestAnApprovedPlanCoversItsRework(t *testing.T) {
	eachPlanning(t, func(t *testing.T, n *node) {
		d, r := dispatch(taskT, 1), result(taskT, 1)
		n.vote(n.keep(d).ID, gate.Ballot{Approve: true})
		testbed.Until(t, "the dispatch", func() bool { return n.status(taskT) == "dispatched" })
		n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.want("reported", amp.InMessage, r)
		opened := 0
		for name, raw := range map[string][]byte{
			"more work":     dispatch(taskT, 2),
			"other limits":  dispatch(taskT, 1, "tech_constraints", object{"sudo": "allowed"}),
			"a higher risk": dispatch(taskT, 1, "risk_level", "high"),
		} {
			n.keep(raw)
			opened++
			if len(n.Pending()) != opened {
				t.Errorf("nobody is asked about %s", name)
			}
		}
		n.want("dispatched", amp.InMessage, dispatch(taskT, 1, "description", "Fix what fails"))
		// Whoever takes the role over asks again.
		n.want("dispatched", amp.InInstruction, instruct(taskT, "reassign", "target", "coordinator"))
		n.want("reported", amp.InMessage, result(taskT, 1))
		n.keepFrom(n.addAgent("coordinator-two", amp.Coordinator), dispatch(taskT, 1))
		// The end of the task answers all of them, and their coordinators hear it.
		n.want("terminated", amp.InInstruction, instruct(taskT, "terminate", "note", "Enough."))
		if len(n.Pending()) != 0 {
			t.Errorf("%d gates are left", len(n.Pending()))
		}
		list, ids := n.heard(n.parties[amp.Coordinator])
		if len(list) != 4 || list[1].Decision != "rejected" || !strings.Contains(list[1].Note, "Enough.") {
			t.Errorf("%+v", list)
		}
		n.want("terminated", amp.InAck, ack(taskT, ids[3], amp.Coordinator))
		n.wantProved()
	})
}

func TestAPlanThatIsNotApprovedIsHeardOfWithTheNote(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.Apply("rules: [{name: plans, on: [task], when: 'true', then: gate, gate: {expires: 30m}}]")
		a, b := dispatch(taskT, 1), dispatch(taskT, 1)
		n.vote(n.keep(a).ID, gate.Ballot{Note: "Not before the release."})
		if got := n.hears(n.parties[amp.Coordinator]); got.Decision != "rejected" || got.Sent ||
			got.Note != "Not before the release." || got.Dispatch != idOf(a) {
			t.Errorf("%+v", got)
		}
		if again := n.want("planning", amp.InMessage, a); again.Status != "duplicate" || again.Plan.State != "rejected" {
			t.Errorf("%+v", again)
		}
		g := n.keep(b)
		n.Move(31 * time.Minute)
		if got := n.hears(n.parties[amp.Coordinator]); got.Decision != "rejected" || got.Sent || got.Dispatch != idOf(b) ||
			!strings.Contains(got.Note, "Nobody decided in time") {
			t.Errorf("%+v", got)
		}
		if _, err := n.Gates.Vote(t.Context(), n.operator, g.ID, gate.Ballot{Approve: true}); !fault.Is(err,
			fault.AlreadyResolved) {
			t.Error(err)
		}
		if ids := n.sent(); len(ids) != 0 {
			t.Errorf("%v went out", ids)
		}
		n.WantClean()
	})
}

func TestTheCoordinatorHearsWhyAnApprovedPlanCannotGoOut(t *testing.T) {
	eachIdle(t, func(t *testing.T, n *node, again func() *node) {
		admin := roster.Identity{Role: roster.Admin}
		n.Apply(`rules:
- {name: soon, on: [task], when: 'event.task == "T-2026-105"', then: gate, gate: {window: 10m}}
- {name: ask, on: [task], when: 'true', then: gate}
`)
		cases := []struct {
			name string
			code amp.Code
			by   string // the coordinator, "" for the usual one
			do   func(id string, p task.Party)
		}{
			{"terminated", amp.WrongState, "", func(id string, _ task.Party) {
				n.want("terminated", amp.InInstruction, instruct(id, "terminate"))
			}},
			{"suspended", amp.Suspended, "", func(id string, _ task.Party) {
				n.want("suspended", amp.InMessage, escalation(id, amp.Executor, "critical"))
			}},
			{"the agent is suspended", amp.AuthPolicy, "c-suspended", func(_ string, p task.Party) {
				if _, err := n.Roster.Suspend(t.Context(), admin, "default", p.Identity.Name, "x", time.Time{}); err != nil {
					t.Fatal(err)
				}
			}},
			{"the agent has another role", amp.AuthRole, "c-executor", func(_ string, p task.Party) {
				labels := map[string]string{"role": "executor"}
				if _, err := n.Roster.ChangeAgent(t.Context(), admin, "default", p.Identity.Name,
					roster.AgentChange{Labels: &labels}); err != nil {
					t.Fatal(err)
				}
			}},
			{"another holds the role", amp.AuthRole, "c-late", func(id string, _ task.Party) {
				n.want("planning", amp.InHeartbeat, heartbeat(id, amp.Coordinator))
			}},
			{"the approval is too old", amp.PlanNotApproved, "", func(string, task.Party) {}},
			{"the policy forbids it", amp.AuthPolicy, "", func(string, task.Party) {}},
		}
		parties := make([]task.Party, len(cases))
		for i, c := range cases {
			parties[i] = n.parties[amp.Coordinator]
			if c.by != "" {
				parties[i] = n.addAgent(c.by, amp.Coordinator)
			}
			id := fmt.Sprintf("T-2026-10%d", i)
			n.vote(n.keepFrom(parties[i], dispatch(id, 1)).ID, gate.Ballot{Approve: true, Note: id})
			c.do(id, parties[i])
		}
		n.Apply(`rules:
- {name: never, on: [task], when: 'event.task == "T-2026-106"', then: block, reason: Not this one.}
- {name: ask, on: [task], when: 'true', then: gate}
`)
		n.Move(time.Hour)
		late := n.Now
		n = again()
		n.Move(late().Sub(n.Now()))
		for i, c := range cases {
			id := fmt.Sprintf("T-2026-10%d", i)
			var got amp.Decision
			testbed.Until(t, "what is heard when "+c.name, func() bool {
				list, _ := n.heard(parties[i])
				for _, d := range list {
					if d.Note == id {
						got = d
					}
				}
				return got.Note != ""
			})
			if got.Decision != "approved" || got.Sent || len(got.Problems) != 1 || got.Problems[0].Code != c.code {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
		if ids := n.sent(); len(ids) != 0 {
			t.Errorf("%v went out", ids)
		}
		n.wantProved()
	})
}

// TestADispatchThatIsNotWhatWasApprovedStays is about somebody who can write to the database.
func TestADispatchThatIsNotWhatWasApprovedStays(t *testing.T) {
	eachIdle(t, func(t *testing.T, n *node, again func() *node) {
		ids := []string{"T-2026-101", "T-2026-102", "T-2026-103"}
		var kept []int64
		for _, id := range ids {
			d := dispatch(id, 1)
			n.vote(n.keep(d).ID, gate.Ballot{Approve: true})
			kept = append(kept, n.Newest("task.kept").Seq)
		}
		ledgertest.Tamper(t, n.DB, kept[0], func(record, _, body []byte) ([]byte, []byte) {
			return record, bytes.Replace(body, []byte(`"Rework the timer"`), []byte(`"Remove the timer"`), 1)
		})
		if err := n.DB.Bookkeep(t.Context(), "ledger_tree", func(tx *store.Tx) error {
			tx.Exec("UPDATE task_plan SET seq = $1 WHERE seq = $2", kept[2], kept[1])
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		n = again()
		testbed.Until(t, "what was not changed", func() bool { return n.status(ids[2]) == "dispatched" })
		if sent := n.sent(); len(sent) != 1 || amp.TaskOf(sent[0]) != ids[2] {
			t.Errorf("%v went out", sent)
		}
		var list []amp.Decision
		testbed.Until(t, "both decisions", func() bool {
			list, _ = n.heard(n.parties[amp.Coordinator])
			return len(list) == 2
		})
		for _, d := range list {
			if d.Sent != (amp.TaskOf(d.Dispatch) == ids[2]) || !d.Sent && d.Problems[0].Code != amp.MsgIDConflict {
				t.Errorf("%+v", d)
			}
		}
	})
}

func TestARuleSaysHowAPlanIsDecided(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.Apply("rules: [{name: two, on: [task], when: 'true', then: gate, reason: Two of you., " +
			"gate: {quorum: 2, risk: high, expires: 2h, on_expiry: approve, approvers: [kim, lee]}}]")
		lee, mona := n.Operator("lee"), n.Operator("mona")
		g := n.keep(dispatch(taskT, 1))
		if g.Quorum != 2 || g.Risk != "high" || g.Rule != "two" || g.Reason != "Two of you." || g.ExpiresAt == nil ||
			g.OnExpiry != gate.Approved || fmt.Sprint(g.Approvers) != "[kim lee]" {
			t.Errorf("%+v", g)
		}
		// An instruction over the API counts for no more than a vote.
		if _, _, err := n.tasks.Take(t.Context(), n.parties[amp.Admin], amp.InInstruction,
			instruct(taskT, "approve_plan")); !fault.Is(err, fault.Conflict) {
			t.Errorf("one operator has approved it alone: %v", err)
		}
		stranger := n.parties[amp.Admin]
		stranger.Identity = mona
		for _, action := range []string{"approve_plan", "reject_plan"} {
			if _, _, err := n.tasks.Take(t.Context(), stranger, amp.InInstruction, instruct(taskT, action)); !fault.Is(err,
				fault.Forbidden) {
				t.Errorf("%s by one whom the rule does not ask: %v", action, err)
			}
		}
		if _, err := n.Gates.Vote(t.Context(), lee, g.ID,
			gate.Ballot{Approve: true, Modified: []byte(`{"action":"resume"}`)}); err != nil {
			t.Error(err) // it decides nothing yet
		}
		if _, err := n.Gates.Vote(t.Context(), n.operator, g.ID,
			gate.Ballot{Approve: true, Modified: []byte(`{"action":"resume"}`)}); !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("a plan is approved with changes: %v", err)
		}
		if n.status(taskT) != "planning" || len(n.sent()) != 0 {
			t.Errorf("the task is %s", n.status(taskT))
		}
		n.want("planning", amp.InInstruction, instruct(taskT, "approve_plan", "note", "And me."))
		if got := n.hears(n.parties[amp.Coordinator]); !got.Sent || got.Note != "And me." {
			t.Errorf("%+v", got)
		}
		n.WantClean()
	})
}

func TestApprovePlanNeedsAPlan(t *testing.T) {
	eachPlanning(t, func(t *testing.T, n *node) {
		n.refuse(amp.RefUnresolved, amp.InInstruction, instruct(taskT, "approve_plan"))
		a, b := dispatch(taskT, 1), dispatch(taskT, 1, "description", "Another")
		n.keep(a)
		n.keep(b)
		n.refuse(amp.WrongState, amp.InInstruction, instruct(taskT, "approve_plan"))
		n.refuse(amp.WrongState, amp.InInstruction, instruct(taskT, "approve_plan", "x_plan", "task_dispatch-"+taskT+"-1"))
		n.want("planning", amp.InInstruction, instruct(taskT, "reject_plan", "x_plan", idOf(b), "note", "The other one."))
		if got := n.hears(n.parties[amp.Coordinator]); got.Decision != "rejected" || got.Dispatch != idOf(b) ||
			got.Note != "The other one." {
			t.Errorf("%+v", got)
		}
		n.want("planning", amp.InInstruction, instruct(taskT, "approve_plan"))
		if got := n.hears(n.parties[amp.Coordinator]); !got.Sent || got.Dispatch != idOf(a) {
			t.Errorf("%+v", got)
		}
		n.refuse(amp.WrongState, amp.InInstruction, instruct(taskT, "approve_plan"))
		n.refuse(amp.TooLarge, amp.InMessage, dispatch("T-2026-045", 1, "description", strings.Repeat("x", amp.MaxPlan)))
		n.wantProved()
	})
}

// TestAReplayKnowsTheRulesOfVersion01: an approval covered a risk then, and could come first.
func TestAReplayKnowsTheRulesOfVersion01(t *testing.T) {
	p := amp.Defaults()
	p.RequirePlan = true
	e := amp.NewEngine(p)
	do := func(w amp.World, kind amp.Kind, raw []byte) *amp.Refusal {
		in, refusal := p.Read(kind, raw)
		if refusal == nil {
			_, refusal = e.Do(in, w)
		}
		return refusal
	}
	approve := instruct(taskT, "approve_plan")
	if do(amp.World{}, amp.InInstruction, approve) == nil {
		t.Error("a plan is approved that does not exist")
	}
	if refusal := do(amp.World{ByRisk: true}, amp.InInstruction, approve); refusal != nil {
		t.Error(refusal)
	}
	if refusal := do(amp.World{ByRisk: true, Agent: "a"}, amp.InMessage, dispatch(taskT, 1)); refusal != nil {
		t.Error(refusal)
	}
	if s := e.Tasks[taskT]; s.Status() != "dispatched" || !s.PlanApproved || s.PlanRisk != "high" {
		t.Errorf("%+v", s)
	}
}
