package task_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/task"
	"signalbox/internal/task/amp"
)

// play draws what somebody might send next about a task as it stands: mostly what fits,
// now and then what does not.
func play(t *rapid.T, s *amp.Task, id string) (amp.Kind, []byte) {
	pick := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
	role := amp.AgentRoles[pick("role", 3)]
	if s == nil {
		s = &amp.Task{ID: id}
	}
	switch pick("what", 20) {
	case 0:
		return amp.InMessage, escalation(id, role, []string{"info", "warning", "critical"}[pick("severity", 3)])
	case 1:
		return amp.InHeartbeat, heartbeat(id, role)
	case 2:
		actions := []string{"approve_plan", "uphold_verdict", "suspend", "reject_plan"}
		return amp.InInstruction, instruct(id, actions[pick("action", len(actions))])
	case 3:
		return amp.InInstruction, instruct(id, "reassign", "target", role)
	case 4:
		return amp.InInstruction,
			instruct(id, "override_verdict", "new_decision", []string{"approved", "rejected"}[pick("new", 2)], "note",
				"I looked")
	case 5, 6, 7, 8:
		if len(s.Open) > 0 {
			refs := []string{s.Open[pick("open", len(s.Open))].ID}
			return amp.InInstruction,
				instruct(id, "resume", "escalation_refs", refs, "reset_reject_count", pick("reset", 2) == 0)
		}
	case 9, 10, 11, 12:
		if len(s.Awaiting) > 0 {
			a := s.Awaiting[pick("awaiting", len(s.Awaiting))]
			if pick("refuse", 6) == 0 {
				return amp.InAck, ack(id, a.MsgID, a.To, "status", "refused", "error", object{"code": "AMP_E_BRANCH_PROTECTED"})
			}
			return amp.InAck, ack(id, a.MsgID, a.To)
		}
	case 13:
		if pick("terminate", 30) == 0 {
			return amp.InInstruction, instruct(id, "terminate")
		}
	case 14, 15, 16:
		if len(s.Plans) > 0 {
			action := []string{"approve_plan", "approve_plan", "reject_plan"}[pick("decide", 3)]
			return amp.InInstruction, instruct(id, action, "x_plan", s.Plans[pick("plan", len(s.Plans))].MsgID)
		}
	}
	return amp.InMessage, playMessage(s, id, pick)
}

// playMessage is the message that moves some subtask on.
func playMessage(s *amp.Task, id string, pick func(string, int) int) []byte {
	if len(s.Subtasks) == 0 {
		return dispatch(id, 1+pick("subtasks", 3))
	}
	i := pick("subtask", len(s.Subtasks))
	sub := s.Subtasks[i]
	decision := []string{"rejected", "approved", "rejected", "approved_with_fix"}[pick("decision", 4)]
	switch sub.State {
	case amp.Executing, amp.Dispatched:
		if pick("partial", 5) == 0 {
			return result(id, i+1, "completion_status", "partial", "blockers", []string{"x"})
		}
		return result(id, i+1)
	case amp.Reported, amp.Triage:
		if !sub.Complete || pick("fix", 6) == 0 {
			return dispatch(id, i+1)
		}
		return request(id, sub.Dispatch, sub.Result, s.Count)
	case amp.ReviewRequested, amp.Reviewing:
		return verdict(id, decision, []float64{0.95, 0.95, 0.79}[pick("confidence", 3)])
	default:
		return with(dispatch(id, 1), "payload", object{
			"description": "Again", "repo": "/srv/repos/app", "branch": "feature/timer",
			"acceptance_criteria": []string{"All tests pass", "No leak"}, "risk_level": "medium",
			"subtasks": []object{{"subtask_id": sub.ID, "description": "Again", "estimated_lines": 1}},
		})
	}
}

// check is what holds between a task before and after a step that was taken.
func check(before, after *amp.Task, in amp.Input, out amp.Outcome) error {
	if before == nil {
		before = &amp.Task{}
	}
	open := 0
	for _, s := range after.Subtasks {
		if s.State == amp.ReviewRequested || s.State == amp.Reviewing {
			open++
		}
	}
	has := func(kind string) bool {
		return slices.ContainsFunc(before.Holds, func(h amp.Hold) bool { return h.Kind == kind })
	}
	approves := after.Streak == 0 && after.Count == before.Count
	switch {
	case open > 1:
		return fmt.Errorf("%d reviews are open", open)
	case in.Message != nil && in.Message.Escalation == nil && has(amp.HoldLocked):
		return fmt.Errorf("%s was taken while the task was locked", in.Message.MsgID)
	case in.Message != nil && in.Message.Escalation == nil &&
		(before.Phase == amp.Completed || before.Phase == amp.Terminated):
		return fmt.Errorf("%s was taken after the end", in.Message.MsgID)
	case after.Streak > after.Count || after.Count > after.Lifetime:
		return fmt.Errorf("streak %d, count %d, ever %d", after.Streak, after.Count, after.Lifetime)
	case after.Count < before.Count && in.Instruction == nil:
		return fmt.Errorf("the count fell from %d to %d without the admin", before.Count, after.Count)
	case after.Streak < before.Streak && in.Instruction == nil && !approves:
		return fmt.Errorf("the streak fell from %d to %d without the admin or an approval", before.Streak, after.Streak)
	case after.Lifetime < before.Lifetime || after.Lifetime > before.Lifetime+1:
		return fmt.Errorf("a verdict counted %d times", after.Lifetime-before.Lifetime)
	}
	if after.Phase == amp.Completed || after.Phase == amp.Terminated {
		if after.Due() != 0 || len(after.Holds) > 0 || len(after.Awaiting) > 0 {
			return fmt.Errorf("something goes on after the end: %+v", after)
		}
		return nil
	}
	// Whoever has to do something has a deadline, or a person has been asked.
	if after.Phase == amp.Active && after.Due() == 0 && len(after.Open) == 0 {
		return fmt.Errorf("nobody has to do anything: %+v", after)
	}
	// What was waited for is still waited for, or has ended in some way that is on record.
	for _, a := range before.Awaiting {
		waits := slices.ContainsFunc(after.Awaiting, func(b amp.Awaited) bool { return b.MsgID == a.MsgID })
		if !waits && !slices.Contains(out.Acked, a.MsgID) {
			return fmt.Errorf("nobody waits for the ack of %s any more", a.MsgID)
		}
	}
	return nil
}

func TestTheRulesHoldWhateverIsSent(t *testing.T) {
	policies := []amp.Policy{amp.Defaults(), amp.Defaults(), amp.Defaults()}
	policies[1].RequirePlan, policies[2].ConfirmHigh = true, true
	rapid.Check(t, func(t *rapid.T) {
		e := amp.NewEngine(policies[rapid.IntRange(0, 2).Draw(t, "policy")])
		now := int64(1_772_116_327_000_000)
		kept := map[string]amp.Input{} // dispatches that wait to be approved
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := e.Tasks[taskT]
			text := fmt.Sprintf("%+v", before)
			now += int64(rapid.IntRange(0, 40).Draw(t, "seconds")) * 1_000_000
			var in amp.Input
			w := amp.World{Now: now}
			if p := approvedPlan(before); p != "" {
				in, w.Release = kept[p], true
			} else if rapid.IntRange(0, 9).Draw(t, "late") == 0 && before != nil && before.Due() > 0 {
				now = max(now, before.Due())
				w.Now, in = now, amp.Input{Kind: amp.InTick, TaskID: taskT}
			} else {
				kind, raw := play(t, before, taskT)
				var refusal *amp.Refusal
				if in, refusal = e.Policy.Read(kind, raw); refusal != nil {
					t.Fatalf("the test sends what is wrong by itself: %v\n%s", refusal, raw)
				}
			}
			out, refusal := e.Do(in, w)
			if fmt.Sprintf("%+v", before) != text {
				t.Fatal("a step has changed the task that it was given")
			}
			if refusal != nil {
				if e.Tasks[taskT] != before {
					t.Fatalf("what was refused has changed the task: %v", refusal)
				}
				keepOrGiveUp(e, in, w, refusal, kept)
				continue
			}
			if err := checkApproved(before, in, e.Policy); err != nil {
				t.Fatal(err)
			}
			for _, m := range out.Raised {
				if _, refusal := amp.Check(m.Raw, e.Policy); refusal != nil {
					t.Fatalf("the server's own escalation would be refused: %v\n%s", refusal, m.Raw)
				}
			}
			if out.Duplicate || e.Tasks[taskT] == nil {
				continue
			}
			if err := check(before, e.Tasks[taskT], in, out); err != nil {
				t.Fatalf("after %s: %v", in.Raw, err)
			}
		}
	})
}

// keepOrGiveUp does what a server does when a dispatch is refused: it is kept if its plan has to be
// approved, and given up if that was approved.
func keepOrGiveUp(e *amp.Engine, in amp.Input, w amp.World, refusal *amp.Refusal, kept map[string]amp.Input) {
	if w.Release {
		unsent := &amp.Unsent{MsgID: in.Message.MsgID, Problems: refusal.Problems}
		e.Do(amp.Input{Kind: amp.InUnsent, TaskID: in.TaskID, Unsent: unsent}, amp.World{Now: w.Now})
		return
	}
	if id, lost, _ := amp.LostOf(in.Kind, in.Raw, refusal); lost.Plan != nil {
		kept[lost.Plan.MsgID] = in
		e.Do(amp.Input{Kind: amp.InRefusal, TaskID: id, Lost: &lost}, amp.World{Now: w.Now})
	}
}

// checkApproved is that a dispatch goes out only if it, or the plan that it belongs to, was approved.
func checkApproved(before *amp.Task, in amp.Input, p amp.Policy) error {
	if in.Message == nil || in.Message.Dispatch == nil || !p.RequirePlan {
		return nil
	}
	if before == nil {
		return fmt.Errorf("%s went out without an approval", in.Message.MsgID)
	}
	if plan := before.FindPlan(in.Message.MsgID); !before.PlanApproved && (plan == nil || !plan.Approved) {
		return fmt.Errorf("%s went out without an approval", in.Message.MsgID)
	}
	return nil
}

// TestReplayingTheLedgerGivesTheLiveState plays at random on a real database, and then
// takes what the ledger holds through the rules again.
func TestReplayingTheLedgerGivesTheLiveState(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		ids := []string{taskT, "T-2026-045", "T-2026-046"}
		run := func(t *rapid.T) {
			for range 25 {
				id := ids[rapid.IntRange(0, len(ids)-1).Draw(t, "task")]
				s, err := n.tasks.Task(context.Background(), "default", id)
				if err != nil {
					s = nil
				}
				kind, raw := play(t, s, id)
				if _, _, err := n.tasks.Take(context.Background(), n.parties[fromOf(raw)], kind, raw); err != nil {
					t.Fatal(err)
				}
			}
		}
		for seed := range 12 {
			rapid.Custom(func(t *rapid.T) int { run(t); return 0 }).Example(seed)
		}
		entries := n.Entries()
		engine, err := task.Replay(amp.Defaults(), entries)
		if err != nil {
			t.Fatal(err)
		}
		for id, replayed := range engine.Tasks {
			live, err := n.tasks.Task(t.Context(), "default", id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(encode(live)), string(encode(replayed))); diff != "" {
				t.Error(diff)
			}
		}
		if len(engine.Tasks) == 0 || len(entries) < 100 {
			t.Errorf("%d tasks in %d entries show nothing", len(engine.Tasks), len(entries))
		}
		n.WantClean()
	})
}

// approvedPlan is the dispatch that is about to go out, "" for none.
func approvedPlan(t *amp.Task) string {
	if t == nil {
		return ""
	}
	for _, p := range t.Plans {
		if p.Approved {
			return p.MsgID
		}
	}
	return ""
}
