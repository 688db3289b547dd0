package demo

import (
	"context"
	"fmt"
	"time"

	"signalbox/internal/cli/api"
	taskcli "signalbox/internal/cli/task"
	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// job is one task of the story. id is set by number; dispatch is the message that began
// the current attempt.
type job struct {
	about, branch, risk string
	criteria            []string
	id, dispatch        string
}

// tasks is the part of the lead. It leaves one task in each state that is worth seeing:
// done, in review after a rejected attempt, in progress, and escalated to a person.
func (d *story) tasks(ctx context.Context) error {
	jobs := []job{
		{
			about: "Round shipping costs to the cent on the receipt", branch: "fix/receipt-rounding", risk: "low",
			criteria: []string{"Receipts add up", "No price changes by more than a cent"},
		},
		{
			about: "Compare coupon days in the shop's time zone", branch: "fix/coupon-zone", risk: "medium",
			criteria: []string{
				"A coupon is good until midnight in the shop", "Tests in four time zones",
				"No query more for each checkout",
			},
		},
		{
			about: "Let customers change the delivery day until the parcel is packed", branch: "feature/delivery-day",
			risk:     "medium",
			criteria: []string{"The day can be changed until it is packed", "The warehouse sees it within a minute"},
		},
		{
			about: "Move the payment keys to the new vault", branch: "chore/payment-vault", risk: "high",
			criteria: []string{"No key is in the configuration", "A restart needs no person"},
		},
	}
	if err := d.number(ctx, jobs); err != nil {
		return err
	}
	for i := range jobs {
		j := &jobs[i]
		if err := d.dispatch(ctx, j); err != nil {
			return err
		}
		var err error
		// Job 2 gets no case: it stays dispatched, as work in progress.
		switch i {
		case 0:
			if err = d.review(ctx, j, "8c21f0e"); err == nil {
				err = d.verdict(ctx, j, "approved")
			}
		case 1:
			if err = d.review(ctx, j, "a3f8d21"); err == nil {
				err = d.verdict(ctx, j, "rejected")
			}
			if err == nil {
				err = d.again(ctx, j)
			}
		case 3:
			err = d.escalate(ctx, j)
		}
		if err != nil {
			return err
		}
	}
	d.report(lead, "has a task in review (%s) and one that waits for you (%s)", jobs[1].id, jobs[3].id)
	return nil
}

// number gives the jobs the next free ids of the year. The coordinator chooses ids, and the
// server refuses one that exists. The first demo starts at 41, so that low numbers stay free
// for the user's own first tasks.
func (d *story) number(ctx context.Context, jobs []job) error {
	var page task.Page
	t := &taskcli.Caller{App: d.App, Workspace: d.workspace}
	if err := t.Call(ctx, api.Get("/amp/tasks?limit=1000"), &page); err != nil {
		return err
	}
	year, last := time.Now().Year(), 40
	for _, r := range page.Tasks {
		// Users may have tasks with other forms of ids; those cannot collide.
		var y, n int
		if _, err := fmt.Sscanf(r.TaskID, "T-%d-%d", &y, &n); err == nil && y == year {
			last = max(last, n)
		}
	}
	for i := range jobs {
		jobs[i].id = fmt.Sprintf("T-%d-%03d", year, last+1+i)
	}
	return nil
}

// post sends a message of a task and, if to is set, acknowledges it as its receiver.
// Without the acknowledgement the task would be overdue after some minutes and raise a
// warning of its own.
func (d *story) post(ctx context.Context, from string, kind amp.Type, j *job, payload any, to string) (string, error) {
	text, err := wire.Marshal(payload)
	if err != nil {
		return "", err
	}
	answer, err := d.agents[from].task.Send(ctx, kind, j.id, text)
	if err != nil || to == "" {
		return answer.MsgID, err
	}
	_, err = d.agents[to].task.Ack(ctx, answer.MsgID, map[string]any{})
	return answer.MsgID, err
}

// dispatch gives the task to the engineer. Where the policy wants plans approved, the
// server answers plan_not_approved, keeps the message and opens a gate; the operator of the
// story approves, and the message goes out by itself.
func (d *story) dispatch(ctx context.Context, j *job) error {
	payload := map[string]any{
		"description": j.about, "repo": "/srv/repos/shop", "branch": j.branch, "risk_level": j.risk,
		"acceptance_criteria": j.criteria,
		"subtasks":            []map[string]any{{"subtask_id": j.id + "-S1", "description": j.about, "estimated_lines": 60}},
	}
	var err error
	j.dispatch, err = d.post(ctx, lead, amp.TypeDispatch, j, payload, engineer)
	if !fault.Is(err, fault.Code(amp.PlanNotApproved)) {
		return err
	}
	// Only an operator can approve a plan; the lead, an agent, must not.
	dana := &taskcli.Caller{App: d.App, Key: d.dana.Token, Workspace: d.workspace}
	instruction := map[string]any{"action": "approve_plan", "note": "Small enough. Go."}
	if _, err := dana.Instruct(ctx, j.id, instruction); err != nil {
		return err
	}
	if _, err = d.receive(ctx, lead, amp.TypeDecision, j); err == nil {
		j.dispatch, err = d.receive(ctx, engineer, amp.TypeDispatch, j)
	}
	return err
}

// receive waits for a message about the task in an agent's inbox, and acknowledges it.
func (d *story) receive(ctx context.Context, who string, kind amp.Type, j *job) (string, error) {
	for after := int64(0); ; {
		box, err := d.agents[who].task.Inbox(ctx, api.Query{"wait": "30s", "after": after})
		if err != nil {
			return "", err
		}
		if box.Pending {
			return "", fault.New(fault.Conflict, "No %s of %s has come to %s.", kind, j.id, who)
		}
		for _, m := range box.Messages {
			var head amp.Message
			if err := wire.UnmarshalPart(m.Message, &head); err != nil {
				return "", err
			}
			if head.TaskID == j.id && head.Type == kind {
				_, err := d.agents[who].task.Ack(ctx, head.MsgID, map[string]any{})
				return head.MsgID, err
			}
		}
		after = box.Next
	}
}

// review reports the result and asks for its review. The request is made from the task
// as the server has it, because it has to repeat the criteria and the commit exactly.
// One criterion stays open (null), which is allowed, and which reviewers have to look
// at.
func (d *story) review(ctx context.Context, j *job, commit string) error {
	met, notes := []any{}, []string{}
	for i, c := range j.criteria {
		met, notes = append(met, true), append(notes, fmt.Sprintf("%d tests, all new", len(c)/6))
		// The last criterion cannot be judged before the release.
		if i == len(j.criteria)-1 && i > 0 {
			met[i], notes[i] = nil, "to be seen in production"
		}
	}
	_, err := d.post(ctx, engineer, amp.TypeResult, j, map[string]any{
		"subtask_id": j.id + "-S1", "completion_status": "complete", "commit_hash": commit,
		"diff_summary": map[string]any{
			"files_changed": []string{"checkout/coupon.go", "checkout/coupon_test.go"},
			"lines_added":   68, "lines_removed": 24,
		},
		"self_assessment": map[string]any{"criteria_met": met, "notes": notes},
		"work_log": []map[string]any{{
			"timestamp": time.Now().UTC().Format(time.RFC3339), "action": "edit",
			"file": "checkout/coupon.go", "detail": "days are compared in the shop's zone",
		}},
	}, lead)
	if err != nil {
		return err
	}
	r, err := d.agents[lead].task.Find(ctx, j.id, false)
	if err != nil {
		return err
	}
	request, err := amp.RequestOf(r, amp.Review{
		Diff: "https://git.example.com/shop/shop/compare/main..." + j.branch, Notes: "Look at summer time first.",
	})
	if err != nil {
		return err
	}
	_, err = d.post(ctx, lead, amp.TypeRequest, j, wire.Raw(request), reviewer)
	return err
}

// verdict is the reviewer's decision, with a result for every criterion. A rejection has
// to name an issue.
func (d *story) verdict(ctx context.Context, j *job, decision string) error {
	criteria := []map[string]any{}
	for i, c := range j.criteria {
		criteria = append(criteria,
			map[string]any{
				"criterion": c, "passed": decision == "approved" || i != 1,
				"evidence": "read and run at the pinned commit",
			})
	}
	verdict := map[string]any{"decision": decision, "criteria_results": criteria, "confidence": 0.93}
	if decision == "rejected" {
		verdict["issues"] = []map[string]any{{
			"severity": "major", "file": "checkout/coupon_test.go", "line": 41,
			"description":   "Only UTC and Lisbon are tested; the bug was in zones east of UTC.",
			"suggested_fix": "Add Athens and Auckland.",
		}}
	}
	_, err := d.post(ctx, reviewer, amp.TypeVerdict, j, verdict, lead)
	return err
}

// again is the second attempt after a rejection. It stops where the reviewer is at work.
func (d *story) again(ctx context.Context, j *job) error {
	if err := d.dispatch(ctx, j); err != nil {
		return err
	}
	return d.review(ctx, j, "e07b9c4")
}

// escalate hands the task to a person, which opens a gate and stops the task until it is
// answered.
func (d *story) escalate(ctx context.Context, j *job) error {
	_, err := d.agents[engineer].task.Escalate(ctx, j.id, taskcli.Escalation{
		Role: amp.Executor, Type: "permission_denied", Severity: "warning",
		Description: "The vault answers 403 to the role that the task names. Either the role gets read access to " +
			"payment/*, or somebody else has to move the keys.",
	})
	return err
}
