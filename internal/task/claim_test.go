package task_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/roster"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// inboxOf is how many messages wait for a party.
func (n *node) inboxOf(p task.Party) int {
	n.T.Helper()
	box, err := n.tasks.Wait(n.T.Context(), p, p.Role, 0, 100, 0)
	if err != nil {
		n.T.Fatal(err)
	}
	return len(box.Messages)
}

func TestAnAckIsAClaim(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		first, second := n.parties[amp.Executor], n.addAgent("executor-two", amp.Executor)
		d := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		mine := with(ack(taskT, idOf(d), amp.Executor), "x_claim", "one")
		if a := n.wantFrom(first, "executing", amp.InAck, mine); a.Claim != "one" || a.Status != "accepted" {
			t.Errorf("%+v", a)
		}
		// An answer that was lost is heard again, and another process of the agent hears that it has not got it.
		for claim, ack := range map[string][]byte{
			"the same": mine, "another": with(ack(taskT, idOf(d), amp.Executor), "x_claim", "two"),
		} {
			if a := n.wantFrom(first, "executing", amp.InAck, ack); a.Claim != "one" || a.Status != "duplicate" {
				t.Errorf("%s: %+v", claim, a)
			}
		}
		// The other agent is told that it has nothing, and not "duplicate".
		n.refuseFrom(second, amp.AuthRole, amp.InAck, ack(taskT, idOf(d), amp.Executor))
		if n.inboxOf(second) != 0 {
			t.Error("work that is claimed is offered to another")
		}
		n.WantClean()
	})
}

func TestALateResultIsRefusedAndTheWorkCanBeClaimed(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		first, second := n.parties[amp.Executor], n.addAgent("executor-two", amp.Executor)
		d := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		n.wantFrom(first, "executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.Move(31 * time.Minute)
		testbed.Until(t, "the lease to end", func() bool { return n.status(taskT) == "suspended" })
		// The result of the silent one is not taken, although nobody else has the work yet.
		n.refuseFrom(first, amp.AuthRole, amp.InMessage, result(taskT, 1))
		if n.inboxOf(first) != 1 || n.inboxOf(second) != 1 {
			t.Error("work that nobody does is not offered again")
		}
		if a := n.wantFrom(second, "executing", amp.InAck, ack(taskT, idOf(d), amp.Executor)); a.Generation != 2 {
			t.Errorf("%+v", a)
		}
		n.refuseFrom(first, amp.AuthRole, amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.refuseFrom(first, amp.AuthRole, amp.InMessage, result(taskT, 1))
		n.wantFrom(second, "reported", amp.InMessage, result(taskT, 1))
		n.WantClean()
	})
}

func TestReassignGivesTheWorkToASuccessor(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		first, second := n.parties[amp.Executor], n.addAgent("executor-two", amp.Executor)
		third := n.addAgent("executor-three", amp.Executor)
		d := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		n.wantFrom(first, "executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		reassign := func(pairs ...any) []byte {
			return instruct(taskT, "reassign", append([]any{"target", "executor"}, pairs...)...)
		}
		n.refuse(amp.RefUnresolved, amp.InInstruction, reassign("x_agent", "nobody"))
		n.refuse(amp.RefMismatch, amp.InInstruction, reassign("x_agent", "reviewer"))
		n.want("dispatched", amp.InInstruction, reassign("x_agent", "executor-two"))
		// Neither the former holder nor a third one gets it, whoever is first.
		n.refuseFrom(first, amp.AuthRole, amp.InMessage, result(taskT, 1))
		n.refuseFrom(first, amp.AuthRole, amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.refuseFrom(third, amp.AuthRole, amp.InAck, ack(taskT, idOf(d), amp.Executor))
		if n.inboxOf(first) != 0 || n.inboxOf(third) != 0 || n.inboxOf(second) != 1 {
			t.Error("the work is offered to others than the successor")
		}
		n.wantFrom(second, "executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		// Without a name it goes to anybody but the one who had it.
		n.want("dispatched", amp.InInstruction, reassign())
		n.refuseFrom(second, amp.AuthRole, amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.wantFrom(third, "executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.wantFrom(third, "reported", amp.InMessage, result(taskT, 1))
		n.WantClean()
	})
}

func TestNobodyReviewsTheirOwnWork(t *testing.T) {
	eachNode(t, func(_ *testing.T, n *node) {
		executor, reviewer := n.parties[amp.Executor], n.parties[amp.Reviewer]
		d, r := dispatch(taskT, 1), result(taskT, 1)
		n.want("dispatched", amp.InMessage, d)
		n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
		n.want("reported", amp.InMessage, r)
		q := request(taskT, idOf(d), idOf(r), 0)
		n.want("review_requested", amp.InMessage, q)
		// An operator has given the executor another label since.
		relabelled := executor
		relabelled.Role = amp.Reviewer
		n.refuseFrom(relabelled, amp.AuthRole, amp.InAck, ack(taskT, idOf(q), amp.Reviewer))
		n.refuseFrom(relabelled, amp.AuthRole, amp.InMessage, verdict(taskT, "approved", 0.9))
		n.refuse(amp.AuthRole, amp.InInstruction, instruct(taskT, "reassign", "target", "reviewer", "x_agent", executorAsReviewer(n)))
		n.want("reviewing", amp.InAck, ack(taskT, idOf(q), amp.Reviewer))
		n.want("verdict_reported", amp.InMessage, verdict(taskT, "rejected", 0.9))
		// Nor does the reviewer execute what it has sent back.
		again := dispatch(taskT, 1)
		n.want("dispatched", amp.InMessage, again)
		n.want("dispatched", amp.InInstruction, instruct(taskT, "reassign", "target", "executor"))
		relabelled = reviewer
		relabelled.Role = amp.Executor
		n.refuseFrom(relabelled, amp.AuthRole, amp.InAck, ack(taskT, idOf(again), amp.Executor))
		n.WantClean()
	})
}

// executorAsReviewer labels the executor as a reviewer, and is its name.
func executorAsReviewer(n *node) string {
	n.T.Helper()
	who := n.parties[amp.Executor].Identity
	labels := map[string]string{"role": "reviewer"}
	_, err := n.Roster.ChangeAgent(n.T.Context(), n.operator, "default", who.Name, roster.AgentChange{Labels: &labels})
	if err != nil {
		n.T.Fatal(err)
	}
	return who.Name
}

func TestTwentyWorkersDoAHundredDispatchesOnce(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		const tasks, agents, processes = 100, 5, 4
		var workers []task.Party
		for i := range agents {
			who := n.addAgent(fmt.Sprint("worker-", i), amp.Executor)
			for range processes {
				workers = append(workers, who)
			}
		}
		for i := range tasks {
			n.want("dispatched", amp.InMessage, dispatch(fmt.Sprintf("T-2026-%03d", 100+i), 1))
		}
		var executions [tasks]atomic.Int64
		var done atomic.Int64
		var all sync.WaitGroup
		for i, p := range workers {
			all.Go(func() {
				for round := 0; done.Load() < tasks; round++ {
					box, err := n.tasks.Wait(t.Context(), p, amp.Executor, 0, 20, 0)
					if err != nil {
						t.Error(err)
						return
					}
					for _, m := range box.Messages {
						id := amp.TaskOf(idOf(m.Message))
						claim := fmt.Sprint(i, " ", round, " ", id)
						a, wrong, err := n.tasks.Take(t.Context(), p, amp.InAck, with(ack(id, idOf(m.Message), amp.Executor), "x_claim", claim))
						if err != nil || wrong != nil || a.Claim != claim {
							continue // another has it
						}
						var number int
						_, _ = fmt.Sscanf(id, "T-2026-%d", &number)
						executions[number-100].Add(1)
						if _, wrong, err := n.tasks.Take(t.Context(), p, amp.InMessage, result(id, 1)); err != nil || wrong != nil {
							t.Errorf("%v %+v", err, wrong)
						}
						done.Add(1)
					}
				}
			})
		}
		all.Wait()
		for i := range executions {
			if got := executions[i].Load(); got != 1 {
				t.Errorf("dispatch %d was executed %d times", i, got)
			}
		}
		n.WantClean()
	})
}
