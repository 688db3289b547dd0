package mcp

import (
	"cmp"
	"context"

	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// inOrder is how results and verdicts answer the criteria of the dispatch.
const inOrder = "one for each acceptance criterion of the dispatch, in its order"

// sendTools are the tools by which an agent says something in a task. They ask for what only the agent knows: ids,
// times, references, counts and the state of the task are filled in.
func (s *server) sendTools() []tool {
	c, e, r := []amp.Role{amp.Coordinator}, []amp.Role{amp.Executor}, []amp.Role{amp.Reviewer}
	return []tool{
		{
			name: "amp_ack",
			about: "Acknowledge a message when you begin with it, which claims its work, or refuse it. amp_next does this for " +
				"the oldest message.",
			roles: amp.AgentRoles,
			fields: object{
				"msg_id":      text("the message, as amp_wait or amp_inbox names it"),
				"refuse_code": text("to refuse it: a code such as AMP_E_BRANCH_PROTECTED"),
				"detail":      text("why you refuse it"),
			},
			required: []string{"msg_id"}, do: s.ack,
		},
		{
			name: "amp_heartbeat", about: "Say that you still work on a task. At least every 30 minutes while it is your turn.",
			roles: amp.AgentRoles, fields: object{"task_id": taskField, "note": noteField}, required: []string{"task_id"},
			do: func(ctx context.Context, args object) (outcome, error) {
				return s.send(ctx, tool{}, task.Document{Kind: amp.InHeartbeat}, args)
			},
		},
		{
			name: "amp_escalate", about: "Tell the admin, a person, what cannot be solved without them. Never fail in silence.",
			roles: amp.AgentRoles,
			fields: object{
				"task_id": taskField, "description": text("what is wrong, and what you need to know or to have"),
				"severity": oneOf("critical stops everybody on the task, warning stops you, info stops nobody; warning when absent",
					"critical", "warning", "info"),
				"escalation_type": oneOf("what it is about; unknown when absent",
					"conflict", "permission_denied", "ci_failure", "branch_violation", "unknown"),
			},
			required: []string{"task_id", "description"}, do: s.escalate,
		},
		s.message(amp.TypeDispatch, tool{
			name: "amp_dispatch", about: "Give work to the executor: a new task, or again after a result or a reject. " +
				"AMP_E_PLAN_NOT_APPROVED means that it is kept until a person approves it, and then goes out by itself: do not " +
				"send it again, a plan_decision comes to amp_inbox.",
			roles: c, fields: dispatchFields,
			required: []string{"description", "repo", "branch", "subtasks", "acceptance_criteria", "risk_level"},
		}),
		s.message(amp.TypeResult, tool{
			name: "amp_result", about: "Report the result of a subtask. What you cannot verify is unverified, not yes.",
			roles: e, fields: resultFields,
			required: []string{"task_id", "completion_status", "diff_summary", "self_assessment"},
		}),
		{
			name: "amp_review_request", about: "Ask the reviewer to judge a complete result.", roles: c,
			fields: object{
				"task_id": taskField, "notes": text("what the reviewer should look at"),
				"subtask_id": text("the subtask, such as T-2026-044-S1; the one that waits when absent"),
				"diff_url":   text("where the diff is: an http(s) address or an absolute path; the repository when absent"),
				"review_scope": oneOf("incremental looks only at what changed since the last verdict; full when absent",
					"full", "incremental"),
			},
			required: []string{"task_id"}, do: s.reviewRequest,
		},
		s.message(amp.TypeVerdict, tool{
			name: "amp_verdict", about: "Decide the open review, criterion by criterion. rejected needs at least one critical " +
				"or major issue, approved_with_fix the fixes that you have committed.",
			roles: r, fields: verdictFields,
			required: []string{"task_id", "decision", "criteria_results", "confidence"},
		}),
	}
}

// The arguments of the tools that send a payload: the payload's fields, without what amp.Fill adds.
var (
	dispatchFields = object{
		"task_id":     text("the task, such as T-2026-044; a new one when absent"),
		"description": text("what is to be done, and why"),
		"repo":        text("the absolute path of the git repository, such as /srv/repos/shop"),
		"branch":      text("the branch to work on, such as feature/timer-v2; never main or master"),
		"subtasks": list("the parts of the work, one after another", group("a part of the work", object{
			"description":     text("what is to be done"),
			"estimated_lines": number(0, "how many lines will change, about"),
			"subtask_id":      text("such as T-2026-044-S1; numbered when absent. Name it when you dispatch a part again"),
		}, "description", "estimated_lines")),
		"acceptance_criteria": list("what must hold for the work to be done; nothing else counts",
			text("one criterion that can be checked")),
		"risk_level":        oneOf("how much harm a mistake does", "low", "medium", "high"),
		"forbidden_actions": list("what the executor must not do", text("such as: change the database schema")),
		"tech_constraints": object{
			"type": "object", "additionalProperties": true,
			"description": "what the executor has to keep to, by names of your own, such as {\"python\": \"3.12\"}",
		},
	}
	resultFields = object{
		"task_id": taskField, "generation": generationField,
		"subtask_id":        text("the subtask, such as T-2026-044-S1; the one that you work on when absent"),
		"completion_status": oneOf("partial and failed need blockers", "complete", "partial", "failed"),
		"diff_summary": group("what changed, as git diff --numstat counts it", object{
			"files_changed": list("the files", text("a path in the repository")),
			"lines_added":   number(0, "lines added"), "lines_removed": number(0, "lines removed"),
		}, "files_changed", "lines_added", "lines_removed"),
		"self_assessment": group("how you judge your own work", object{
			"criteria_met": list(inOrder, yesOrNo("yes if you have verified that it holds, unverified if you could not")),
			"notes":        list(inOrder, text("how you verified it, or why you could not")),
		}, "criteria_met"),
		"commit_hash": text("the commit with the work, as git rev-parse HEAD prints it"),
		"blockers":    list("what keeps the work from being complete", text("one thing")),
		"work_log": list("what you did", group("one step", object{
			"action": text("such as edit, test or commit"), "detail": text("what exactly"),
			"file":      text("the file, if it was about one"),
			"timestamp": text("when, such as 2026-03-06T10:02:00Z; now when absent"),
		}, "action")),
	}
	verdictFields = object{
		"task_id": taskField, "generation": generationField,
		"decision": oneOf("approved_with_fix if you have committed small corrections yourself",
			"approved", "approved_with_fix", "rejected"),
		"criteria_results": list(inOrder, group("your answer to one criterion", object{
			"passed":    yesOrNo("whether it holds; unverified if nobody could verify it"),
			"evidence":  text("how you know, such as a test, a line or a CI run"),
			"criterion": text("the criterion in the words of the dispatch; taken from there when absent"),
		}, "passed", "evidence")),
		"confidence": object{
			"type": "number", "minimum": 0, "maximum": 1,
			"description": "how sure you are, from 0 to 1; below 0.8 a person decides",
		},
		"issues": list("what is wrong with the work", group("one thing", object{
			"severity":    oneOf("critical and major are reasons to reject", "critical", "major", "minor"),
			"description": text("what is wrong"), "file": text("the file"), "line": number(0, "the line, 0 for the whole file"),
			"suggested_fix": text("how to mend it"),
		}, "severity", "description")),
		"direct_fixes": list("what you have corrected yourself, for approved_with_fix", group("one correction", object{
			"file":        text("the file"),
			"change_type": oneOf("what it was", "typo", "lint", "whitespace", "import_order"),
			"diff_lines":  number(1, "how many lines you changed, fewer than 5"),
		}, "file", "change_type", "diff_lines")),
		"architecture_notes": text("what should be thought about later"),
	}
)

// ack acknowledges a message, or refuses it if there is a refuse_code.
func (s *server) ack(ctx context.Context, args object) (outcome, error) {
	given, err := textsOf(args, "msg_id", "refuse_code", "detail")
	if err != nil {
		return outcome{}, err
	}
	body := object{}
	if code := given[1]; code != "" {
		wrong := object{"code": code}
		if given[2] != "" {
			wrong["detail"] = given[2]
		}
		body["status"], body["error"] = amp.Refused, wrong
	}
	return s.send(ctx, tool{}, task.Document{Kind: amp.InAck, About: given[0]}, body)
}

// message is a tool that sends a message whose payload the arguments are. The envelope is made here, because models get
// ids and timestamps wrong.
func (s *server) message(kind amp.Type, t tool) tool {
	t.document = true
	t.do = func(ctx context.Context, args object) (outcome, error) {
		taskID, about, err := s.about(ctx, args, kind == amp.TypeDispatch)
		if err != nil {
			return outcome{}, err
		}
		generation, err := numberOf(args, "generation", 0)
		if err != nil {
			return outcome{}, err
		}
		// The rest of the arguments is the payload.
		delete(args, "task_id")
		delete(args, "generation")
		sayInJSON(args)
		amp.Fill(kind, taskID, args, about, s.Now())
		payload, err := wire.EncodeData(args)
		if err != nil {
			return outcome{}, err
		}
		return s.compose(ctx, t, kind, taskID, payload, generation)
	}
	return t
}

// sayInJSON replaces the words of yesOrNo in a payload.
func sayInJSON(payload object) {
	if own, ok := payload["self_assessment"].(object); ok {
		met, _ := own["criteria_met"].([]any)
		for i := range met {
			met[i] = inJSON(met[i])
		}
	}
	judged, _ := payload["criteria_results"].([]any)
	for _, one := range judged {
		if one, ok := one.(object); ok {
			if passed, given := one["passed"]; given {
				one["passed"] = inJSON(passed)
			}
		}
	}
}

// about is the task that a call is about, as it stands. A call that begins a task need not name one, or names one that
// is not there yet, which is the zero Record.
func (s *server) about(ctx context.Context, args object, begins bool) (taskID string, r amp.Record, err error) {
	me, err := s.party(ctx)
	if err != nil {
		return "", r, err
	}
	taskID, err = textOf(args, "task_id")
	if err == nil && taskID == "" && begins {
		taskID, err = s.Tasks.NextID(ctx, me)
		return taskID, r, err
	}
	if err == nil {
		r, err = s.Tasks.Show(ctx, me, taskID, false)
	}
	switch {
	case fault.Is(err, fault.NotFound) && begins:
		err = nil
	case fault.Is(err, fault.NotFound):
		err = noTask(taskID)
	}
	return taskID, r, err
}

// compose puts a payload into its envelope and sends it.
func (s *server) compose(ctx context.Context, t tool, kind amp.Type, taskID string, payload []byte, generation int64,
) (outcome, error) {
	raw, err := amp.Compose(kind, s.role, taskID, payload, generation, s.Now())
	if err != nil {
		return outcome{}, err
	}
	return s.send(ctx, t, task.Document{Kind: amp.InMessage, Raw: raw}, nil)
}

// reviewRequest asks for a review; references and counts come from the task.
func (s *server) reviewRequest(ctx context.Context, args object) (outcome, error) {
	taskID, about, err := s.about(ctx, args, false)
	if err != nil {
		return outcome{}, err
	}
	given, err := textsOf(args, "subtask_id", "review_scope", "diff_url", "notes")
	if err != nil {
		return outcome{}, err
	}
	payload, err := amp.RequestOf(about, amp.Review{Subtask: given[0], Scope: given[1], Diff: given[2], Notes: given[3]})
	if err != nil {
		return outcome{}, fault.Wrap(err, fault.Conflict, "There is nothing to review: %s. Look at amp_context, or wait for "+
			"the result with amp_wait.", err)
	}
	return s.compose(ctx, tool{}, amp.TypeRequest, taskID, payload, 0)
}

// escalate tells the admin. What the task is like is filled in.
func (s *server) escalate(ctx context.Context, args object) (outcome, error) {
	taskID, about, err := s.about(ctx, args, true) // also of a task that there is not yet
	if err != nil {
		return outcome{}, err
	}
	given, err := textsOf(args, "escalation_type", "severity", "description")
	if err != nil {
		return outcome{}, err
	}
	payload, err := amp.EscalationOf(s.role, cmp.Or(given[0], "unknown"), cmp.Or(given[1], "warning"), given[2], about)
	if err != nil {
		return outcome{}, err
	}
	return s.compose(ctx, tool{}, amp.TypeEscalation, taskID, payload, 0)
}
