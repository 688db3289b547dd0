package task_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// toVerdict takes a new task with one subtask as far as its verdict, which is sent.
func (n *node) toVerdict(id string, v []byte) {
	n.T.Helper()
	d, r := dispatch(id, 1), result(id, 1)
	n.want("dispatched", amp.InMessage, d)
	n.want("executing", amp.InAck, ack(id, idOf(d), amp.Executor))
	n.want("reported", amp.InMessage, r)
	n.want("review_requested", amp.InMessage, request(id, idOf(d), idOf(r), 0)) // an answer is an ack
	n.take(n.parties[amp.Reviewer], amp.InMessage, v)
}

func (n *node) vote(gateID string, b gate.Ballot) gate.Gate {
	n.T.Helper()
	g, err := n.Gates.Vote(context.Background(), n.operator, gateID, b)
	if err != nil {
		n.T.Fatal(err)
	}
	return g
}

// only is the one gate that waits.
func (n *node) only() gate.Gate {
	n.T.Helper()
	list := n.Pending()
	if len(list) != 1 {
		n.T.Fatalf("%d gates wait: %+v", len(list), list)
	}
	return list[0]
}

func TestADecisionAtAGateIsTheInstruction(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.Apply("rules: [{name: plans, on: [task], when: 'event.payload.risk_level == \"high\"', then: gate}]")
		yes, no := gate.Ballot{Approve: true}, gate.Ballot{Note: "No."}
		escalated := func(from amp.Role, severity, becomes string) func(id string) {
			return func(id string) {
				d := dispatch(id, 1)
				n.want("dispatched", amp.InMessage, d)
				n.want("executing", amp.InAck, ack(id, idOf(d), amp.Executor))
				n.want(becomes, amp.InMessage, escalation(id, from, severity))
			}
		}
		judged := func(id string) { n.toVerdict(id, verdict(id, "rejected", 0.5)) }
		planned := func(id string) {
			n.refuse(amp.PlanNotApproved, amp.InMessage, dispatch(id, 1, "risk_level", "high"))
		}
		for i, c := range []struct {
			name   string
			do     func(id string)
			ballot gate.Ballot
			status string
		}{
			{"a warning, approved", escalated(amp.Executor, "warning", "suspended"), yes, "executing"},
			{"a critical one, rejected", escalated(amp.Executor, "critical", "suspended"), no, "terminated"},
			{"an info, rejected", escalated(amp.Reviewer, "info", "executing"), no, "executing"},
			{
				"a critical one, rejected with another action", escalated(amp.Executor, "critical", "suspended"),
				gate.Ballot{Note: "No.", Modified: wire.Raw(`{"action":"resume"}`)},
				"executing",
			},
			{"a held verdict, upheld", judged, yes, "verdict_reported"},
			{"a held verdict, overridden", judged, no, "verdict_reported"},
			{"a plan, rejected", planned, no, "planning"},
		} {
			t.Run(c.name, func(t *testing.T) {
				id := "T-2026-10" + string(rune('0'+i))
				c.do(id)
				n.vote(n.only().ID, c.ballot)
				if got := n.status(id); got != c.status {
					t.Errorf("the task is %s, want %s", got, c.status)
				}
				if left := n.Pending(); len(left) != 0 {
					t.Errorf("gates are left: %+v", left)
				}
			})
		}
		counts := func(id string) int64 {
			s, err := n.tasks.Task(t.Context(), "default", id)
			if err != nil {
				t.Fatal(err)
			}
			return s.Count
		}
		if up, over := counts("T-2026-104"), counts("T-2026-105"); up != 1 || over != 0 {
			t.Errorf("an upheld reject counts %d times, an overridden one %d times", up, over)
		}
		n.refuse(amp.PlanNotApproved, amp.InMessage, dispatch("T-2026-106", 1, "risk_level", "high"))
		if len(n.Pending()) != 1 {
			t.Error("another plan after one that was rejected is not asked about")
		}
		n.WantClean()
	})
}

func TestAGateIsSettledWhenItsEscalationIsAnsweredElsewhere(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		d := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		n.Move(301 * time.Second)
		testbed.Until(t, "the deadline", func() bool { return n.status(taskT) == "suspended" })
		g := n.only()
		n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		got, err := n.Gates.Get(t.Context(), g.ID)
		if err != nil || got.Status != gate.Approved || got.Cause != gate.ByRule || !strings.Contains(got.Note, "late ack") {
			t.Errorf("%+v %v", got, err)
		}
		e := escalation(taskT, amp.Reviewer, "critical")
		n.want("suspended", amp.InMessage, e)
		n.refuse(amp.RefUnresolved, amp.InInstruction,
			instruct(taskT, "resume", "escalation_refs", []string{"escalation-" + taskT + "-1"}))
		n.want("executing", amp.InInstruction, instruct(taskT, "resume", "escalation_refs", []string{idOf(e)}))
		n.want("suspended", amp.InMessage, escalation(taskT, amp.Reviewer, "critical"))
		n.want("terminated", amp.InInstruction, instruct(taskT, "terminate"))
		if left := n.Pending(); len(left) != 0 {
			t.Errorf("gates are left: %+v", left)
		}
		n.refuse(amp.WrongState, amp.InMessage, result(taskT, 1))
		n.want("terminated", amp.InMessage, escalation(taskT, amp.Executor, "warning")) // never lost
		n.vote(n.only().ID, gate.Ballot{Approve: true})
		n.WantClean()
	})
}

func TestARoleIsThatOfTheKey(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.refuseFrom(n.parties[amp.Executor], amp.AuthRole, amp.InMessage, dispatch(taskT, 1))
		d := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		n.refuseFrom(n.parties[amp.Coordinator], amp.AuthRole, amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.refuse(amp.AuthRole, amp.InAck, ack(taskT, idOf(d), amp.Coordinator))
		n.refuseFrom(n.parties[amp.Coordinator], amp.AuthRole, amp.InInstruction, instruct(taskT, "terminate"))
		if _, err := task.RoleOf(roster.Identity{
			Kind:   roster.HolderAgent,
			Labels: map[string]string{"role": "admin"},
		}); err == nil {
			t.Error("an agent plays the admin")
		}
		if _, err := task.RoleOf(roster.Identity{Kind: roster.HolderOperator, Role: roster.Viewer}); err == nil {
			t.Error("a viewer plays the admin")
		}
		suspended := n.parties[amp.Executor]
		suspended.Identity.Suspended = true
		n.refuseFrom(suspended, amp.AuthPolicy, amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.wantFrom(suspended, "suspended", amp.InMessage, escalation(taskT, amp.Executor, "warning"))
	})
}

// TestATaskThatWasGivenAwayIsOutOfReach is about two executors: one that falls silent,
// and one that takes over.
func TestATaskThatWasGivenAwayIsOutOfReach(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		first, second := n.parties[amp.Executor], n.addAgent("executor-two", amp.Executor)
		inbox := func(p task.Party) int {
			box, err := n.tasks.Wait(t.Context(), p, amp.Executor, 0, 100, 0)
			if err != nil {
				t.Fatal(err)
			}
			return len(box.Messages)
		}
		d := dispatch(taskT, 2)
		n.want("dispatched", amp.InMessage, d)
		if inbox(first) != 1 || inbox(second) != 1 {
			t.Error("a task that nobody holds is not offered to both")
		}
		if a := n.wantFrom(first, "executing", amp.InAck, ack(taskT, idOf(d), amp.Executor)); a.Generation != 1 {
			t.Errorf("generation %d", a.Generation)
		}
		n.refuseFrom(second, amp.AuthRole, amp.InHeartbeat, heartbeat(taskT, amp.Executor))
		n.refuseFrom(second, amp.AuthRole, amp.InMessage, result(taskT, 1))

		n.want("dispatched", amp.InInstruction, instruct(taskT, "reassign", "target", "executor"))
		if inbox(second) != 1 {
			t.Error("a task that was taken away is not offered again")
		}
		if a := n.wantFrom(second, "executing", amp.InAck, ack(taskT, idOf(d), amp.Executor)); a.Generation != 2 {
			t.Errorf("generation %d", a.Generation)
		}
		n.refuseFrom(first, amp.AuthRole, amp.InMessage, result(taskT, 1))
		n.refuseFrom(first, amp.AuthRole, amp.InHeartbeat, heartbeat(taskT, amp.Executor))
		n.refuseFrom(second, amp.AuthRole, amp.InMessage, with(result(taskT, 1), "x_generation", 1))

		// The second falls silent; the first may have it back, with a new lease.
		n.Move(31 * time.Minute)
		testbed.Until(t, "the heartbeat", func() bool { return n.status(taskT) == "suspended" })
		n.refuseFrom(second, amp.AuthRole, amp.InHeartbeat, heartbeat(taskT, amp.Executor, "x_generation", 2))
		if a := n.wantFrom(first, "executing", amp.InHeartbeat, heartbeat(taskT, amp.Executor)); a.Generation != 3 {
			t.Errorf("generation %d", a.Generation)
		}
		n.refuseFrom(second, amp.AuthRole, amp.InMessage, result(taskT, 1))
		n.wantFrom(first, "reported", amp.InMessage, with(result(taskT, 1), "x_generation", 3))
		n.WantClean()
	})
}

func TestTheInboxHoldsWhatIsNotAcknowledged(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		executor := n.parties[amp.Executor]
		type got struct {
			box task.Inbox
			err error
		}
		came := make(chan got, 1)
		go func() {
			box, err := n.tasks.Wait(context.Background(), executor, amp.Executor, 0, 100, 20*time.Second)
			came <- got{box, err}
		}()
		d := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		g := <-came
		if g.err != nil || len(g.box.Messages) != 1 || !strings.Contains(string(g.box.Messages[0].Message), idOf(d)) {
			t.Fatalf("%+v %v", g.box, g.err)
		}
		read := func(after int64) task.Inbox {
			box, err := n.tasks.Wait(t.Context(), executor, amp.Executor, after, 100, 0)
			if err != nil {
				t.Fatal(err)
			}
			return box
		}
		if len(read(0).Messages) != 1 {
			t.Error("reading has acknowledged")
		}
		n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		if len(read(0).Messages) != 0 {
			t.Error("what was acknowledged still waits")
		}
		if len(read(g.box.Next-1).Messages) != 1 || len(read(g.box.Next).Messages) != 0 {
			t.Error("what came later is not what came after the entry")
		}
		if _, err := n.tasks.Wait(t.Context(), executor, amp.Coordinator, 0, 100, 0); err == nil {
			t.Error("the executor reads what is for the coordinator")
		}
		box, err := n.tasks.Wait(t.Context(), executor, amp.Executor, 0, 100, 30*time.Millisecond)
		if err != nil || !box.Pending {
			t.Errorf("%+v %v", box, err)
		}
	})
}

func TestEveryRefusalIsOnRecord(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.want("dispatched", amp.InMessage, dispatch(taskT, 1))
		coordinator := n.parties[amp.Coordinator]
		for raw, code := range map[string]amp.Code{
			"{": amp.BadJSON, `{"a":1,"a":2}`: amp.DuplicateKey, strings.Repeat(" ", amp.MaxDocument+1): amp.TooLarge,
			string(with(dispatch(taskT, 1), "protocol_version", "AMP/2.0")):                      amp.WrongVersion,
			string(with(dispatch(taskT, 1), "timestamp", "2026-13-01T00:00:00Z")):                amp.WrongFormat,
			string(result(taskT, 1, "commit_hash", "A3F8D21")):                                   amp.WrongFormat,
			string(dispatch(taskT, 1)):                                                           amp.WrongState,
			string(with(dispatch(taskT, 1), "context_ref", []string{"escalation-T-2026-044-1"})): amp.RefUnresolved,
			"\x00": amp.BadJSON, `{"msg_id":"a\u0000b","task_id":"T-2026-044"}`: amp.BadJSON,
			`{"\u0000":1,"\u0000":2}`: amp.BadJSON, `{"` + strings.Repeat("x", 5000) + `":1}`: amp.UnknownField,
		} {
			_, wrong := n.take(coordinator, amp.InMessage, []byte(raw))
			if wrong == nil || !(&amp.Refusal{Problems: wrong.Errors}).Has(code) {
				t.Errorf("%.80q: %+v, want %s", raw, wrong, code)
				continue
			}
			list, _, err := n.tasks.Errors(t.Context(), "default", "agent:coordinator", "", 1<<60, 1)
			if err != nil || len(list) != 1 || list[0].ErrorID != wrong.ErrorID || list[0].Errors[0].Code == "" {
				t.Errorf("%.80q: the log has %+v %v", raw, list, err)
			}
			if problems := amp.CheckRecord("error_log_entry", encode(list[0])); len(problems) > 0 {
				t.Errorf("the record is not in its form: %+v", problems)
			}
		}
		if list, _, err := n.tasks.Errors(t.Context(), "default", "agent:executor", "", 1<<60, 10); err != nil ||
			len(list) != 0 {
			t.Errorf("the executor's errors: %+v %v", list, err)
		}
		s, err := n.tasks.Task(t.Context(), "default", taskT)
		if err != nil {
			t.Fatal(err)
		}
		if problems := amp.CheckRecord("task_record", encode(s.Show("default"))); len(problems) > 0 {
			t.Errorf("the task is not in its form: %+v", problems)
		}
		// A moment of the sender's decides nothing.
		n.want("dispatched", amp.InHeartbeat, with(heartbeat(taskT, amp.Executor), "timestamp", "2999-01-01T00:00:00Z"))
		n.WantClean()
	})
}

func TestAnEscalationThatIsWrongStillReachesTheAdmin(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		bad := with(escalation(taskT, amp.Executor, "warning"), "to", "coordinator")
		wrong := n.refuse(amp.WrongRoute, amp.InMessage, bad)
		if wrong.Escalation == nil || n.status(taskT) != "suspended" {
			t.Fatalf("%+v, and the task is %s", wrong, n.status(taskT))
		}
		n.refuse(amp.WrongRoute, amp.InMessage, bad) // again: the admin has been told
		g := n.only()
		if !strings.Contains(g.Summary, "malformed escalation") {
			t.Errorf("%+v", g)
		}
		n.vote(g.ID, gate.Ballot{Approve: true})
		n.refuse(amp.WrongFormat, amp.InMessage, with(bad, "task_id", "44", "msg_id", "escalation-44-1"))
		if g := n.only(); !strings.Contains(g.Title, "Malformed") {
			t.Errorf("%+v", g)
		} else {
			n.vote(g.ID, gate.Ballot{Note: "No."})
		}
		// Nobody without a role can stop a task like this.
		stranger := n.parties[amp.Executor]
		stranger.Role = ""
		n.refuseFrom(stranger, amp.WrongRoute, amp.InMessage, bad)
		if len(n.Pending()) != 0 {
			t.Error("a stranger has stopped the task")
		}
		n.WantClean()
	})
}

func TestThePolicyDecidesAboutDispatches(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.Apply(`rules:
- {name: never, on: [task], when: 'event.payload.repo == "/srv/repos/secret"', then: block, reason: Not this one.}
- {name: later, on: [task], when: 'event.task == "T-2026-003"', then: defer, retry_after: 60s, reason: Too much.}
- {name: small, on: [task], when: 'event.priority == "low"', then: allow}
- {name: ask, on: [task], when: 'true', then: gate}
`)
		wrong := n.refuse(amp.AuthPolicy, amp.InMessage, dispatch("T-2026-001", 1, "repo", "/srv/repos/secret"))
		if wrong.Errors[0].Detail != "Not this one." {
			t.Errorf("%+v", wrong.Errors)
		}
		n.want("dispatched", amp.InMessage, dispatch("T-2026-002", 1, "risk_level", "low"))
		if _, _, err := n.tasks.Take(t.Context(), n.parties[amp.Coordinator], amp.InMessage,
			dispatch("T-2026-003", 1)); err == nil || !strings.Contains(err.Error(), "60 seconds") {
			t.Errorf("%v", err)
		}
		n.refuse(amp.PlanNotApproved, amp.InMessage, dispatch("T-2026-004", 1))
		p, err := policy.Parse([]byte("version: 1\nrules: [{name: no, on: [task], when: " +
			"'event.payload.risk_level == \"low\"', then: block}]"))
		if err != nil {
			t.Fatal(err)
		}
		report, err := n.Book.Replay(t.Context(), p, n.Now().Add(-time.Hour), func(int64, int64) {})
		if err != nil || report.Decisions == 0 || report.Broken != 0 {
			t.Errorf("%+v %v", report, err)
		}
		n.WantClean()
	})
}

// Of 100 dispatches at once as many go out as the rule says.
func TestALimitOfARuleIsExact(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.Apply(`rules:
- {name: sixty, on: [task], when: 'recent.tasks("1h") >= 60', then: block}
- {name: all, on: [task], when: 'true', then: allow}
`)
		var taken, refused atomic.Int64
		testbed.AtOnce(100, func(i int) {
			raw := dispatch(fmt.Sprintf("T-2026-%03d", i+1), 1)
			switch _, wrong, err := n.tasks.Take(t.Context(), n.parties[amp.Coordinator], amp.InMessage, raw); {
			case err != nil:
				t.Error(err)
			case wrong == nil:
				taken.Add(1)
			case wrong.Errors[0].Code == amp.AuthPolicy:
				refused.Add(1)
			default:
				t.Errorf("%+v", wrong.Errors)
			}
		})
		if taken.Load() != 60 || refused.Load() != 40 {
			t.Errorf("%d taken, %d refused", taken.Load(), refused.Load())
		}
		n.WantClean()
	})
}

func TestAMessageWithAnIdThatTheServerWouldUseIsInNobodysWay(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		d := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		// The ids of the next seconds are taken, so that the server has to look further.
		due := n.Now().Add(300 * time.Second).UnixMilli()
		for ms := due - 40; ms < due+40; ms++ {
			n.want("dispatched", amp.InMessage,
				with(escalation(taskT, amp.Reviewer, "info"), "msg_id", fmt.Sprintf("escalation-%s-%013d", taskT, ms)))
		}
		n.Move(300 * time.Second)
		testbed.Until(t, "the deadline", func() bool { return n.status(taskT) == "suspended" })
		n.WantClean()
	})
}

func TestAClockThatIsSetBackMovesNoTaskBack(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		d := dispatch(taskT, 1)
		n.Move(time.Hour)
		n.want("dispatched", amp.InMessage, d)
		n.Move(-2 * time.Hour)
		n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		if _, err := task.Replay(amp.Defaults(), n.Entries()); err != nil {
			t.Error(err)
		}
		n.Move(3 * time.Hour)
		testbed.Until(t, "the heartbeat", func() bool { return n.status(taskT) == "suspended" })
		n.WantClean()
	})
}
