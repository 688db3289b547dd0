package mcp

import (
	"context"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/signal"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

const (
	// longestWait is how long a tool waits at the longest. MCP clients give up on a call after a
	// minute.
	longestWait = 55 * time.Second
	// inboxRows is how many messages one call returns: more would fill a model's context.
	inboxRows = 20
)

// Fields that several tools take.
var (
	taskField = object{
		"type": "string", "pattern": "^T-[0-9]{4}-[0-9]{3,6}$",
		"description": "the task, such as T-2026-044",
	}
	noteField = object{"type": "string", "description": "what the others should know"}
	genField  = object{"type": "integer", "description": "the generation of your lease on the task, as amp_ack told you"}
)

// taskTools are the tools for tasks. An agent sees those of its role. The descriptions are
// prompts: they tell a model when to call a tool, and what a refusal or "pending" asks of it.
func (s *server) taskTools() []tool {
	c, e, r := amp.Coordinator, amp.Executor, amp.Reviewer
	return []tool{
		{
			name: "amp_inbox", about: "The messages that wait for you and are not acknowledged. Waits up to 55 seconds for " +
				"one; pending means that none came, so call it again. Reading is not acknowledging.",
			roles: amp.AgentRoles, reads: true,
			fields: object{
				"wait_seconds": object{"type": "integer", "minimum": 0, "maximum": 55},
				"after": object{
					"type": "integer", "minimum": 0,
					"description": "everything after this entry, acknowledged or not",
				},
			},
			do: s.inbox,
		},
		{
			name: "amp_context",
			about: "A task as it stands with every message about it: dispatches, results, " +
				"requests, verdicts, escalations and instructions.",
			roles: amp.AgentRoles, reads: true, fields: object{"task_id": taskField}, required: []string{"task_id"},
			do: func(ctx context.Context, args object) (outcome, error) {
				me, err := s.party(ctx)
				if err != nil {
					return outcome{}, err
				}
				taskID, err := textOf(args, "task_id")
				if err != nil {
					return outcome{}, err
				}
				return answer(s.Tasks.Show(ctx, me, taskID, true))
			},
		},
		{
			name:  "amp_ack",
			about: "Acknowledge a message when you begin with it, or refuse it with a code such as AMP_E_BRANCH_PROTECTED.",
			roles: amp.AgentRoles,
			fields: object{
				"msg_id": object{"type": "string"}, "refuse_code": object{"type": "string"},
				"detail": object{"type": "string"},
			},
			required: []string{"msg_id"},
			do:       s.ack,
		},
		{
			name: "amp_heartbeat", about: "Say that you still work on a task. At least every 30 minutes while it is your turn.",
			roles: amp.AgentRoles, fields: object{"task_id": taskField, "note": noteField, "x_generation": genField},
			required: []string{"task_id"},
			do: func(ctx context.Context, args object) (outcome, error) {
				return s.send(ctx, task.Document{Kind: amp.InHeartbeat}, args)
			},
		},
		s.message("amp_dispatch", "Give work to the executor: a new task, or again after a result or a reject. "+
			"AMP_E_PLAN_NOT_APPROVED means that it is kept until a person approves it, and then goes out by itself: do not "+
			"send it again, a plan_decision comes to amp_inbox.", amp.TypeDispatch, c),
		s.message("amp_result", "Report the result of a subtask. What you cannot verify is null, not true.", amp.TypeResult,
			e),
		s.message("amp_review_request", "Ask the reviewer to judge a complete result.", amp.TypeRequest, c),
		s.message("amp_verdict", "Decide the open review, criterion by criterion.", amp.TypeVerdict, r),
		s.message("amp_escalate", "Tell the admin, a person, what cannot be solved without them. Never fail in silence.",
			amp.TypeEscalation, amp.AgentRoles...),
	}
}

// party is the agent as a party of tasks.
func (s *server) party(ctx context.Context) (task.Party, error) {
	return task.Speaker(ctx, s.who, "", task.OverMCP)
}

// inbox waits for messages to the agent's role. It acknowledges nothing.
func (s *server) inbox(ctx context.Context, args object) (outcome, error) {
	me, err := s.party(ctx)
	if err != nil {
		return outcome{}, err
	}
	wait, err := waitOf(args, longestWait)
	if err != nil {
		return outcome{}, err
	}
	after, err := numberOf(args, "after")
	if err != nil {
		return outcome{}, err
	}
	return answer(s.Tasks.Wait(ctx, me, s.role, after, inboxRows, wait))
}

// ack acknowledges a message, or refuses it if there is a refuse_code.
func (s *server) ack(ctx context.Context, args object) (outcome, error) {
	about, err := textOf(args, "msg_id")
	if err != nil {
		return outcome{}, err
	}
	code, err := textOf(args, "refuse_code")
	if err != nil {
		return outcome{}, err
	}
	body := object{}
	if code != "" {
		wrong := object{"code": code}
		if detail, ok := args["detail"]; ok {
			wrong["detail"] = detail
		}
		body["status"], body["error"] = amp.Refused, wrong
	}
	return s.send(ctx, task.Document{Kind: amp.InAck, About: about}, body)
}

// message is a tool that sends one of the five messages. The model gives the fields of the
// payload; the envelope is made here, because models get ids and timestamps wrong.
func (s *server) message(name, about string, kind amp.Type, roles ...amp.Role) tool {
	return tool{
		name: name, about: about, roles: roles, payload: string(kind), fields: object{"task_id": taskField},
		required: []string{"task_id"},
		do: func(ctx context.Context, args object) (outcome, error) {
			taskID, err := textOf(args, "task_id")
			if err != nil {
				return outcome{}, err
			}
			// The rest of the arguments is the payload.
			delete(args, "task_id")
			payload, err := wire.EncodeData(args)
			if err != nil {
				return outcome{}, err
			}
			raw, err := amp.Compose(kind, s.role, taskID, payload, 0, s.Now())
			if err != nil {
				return outcome{}, err
			}
			return s.send(ctx, task.Document{Kind: amp.InMessage, Raw: raw}, nil)
		},
	}
}

// send sends a document and says what became of it. body, if not nil, becomes the document. A
// refusal is an answer too, marked so that the model takes it for a failure.
func (s *server) send(ctx context.Context, d task.Document, body object) (outcome, error) {
	me, err := s.party(ctx)
	if err != nil {
		return outcome{}, err
	}
	if body != nil {
		if d.Raw, err = wire.EncodeData(body); err != nil {
			return outcome{}, err
		}
	}
	taken, wrong, err := s.Tasks.Send(ctx, me, d)
	if err != nil || wrong == nil {
		return answer(taken, err)
	}
	out, err := answer(wrong, nil)
	out.refused = true
	return out, err
}

// approvalTools are for every agent, whatever its role.
func (s *server) approvalTools() []tool {
	return []tool{{
		name: "request_approval",
		about: "Ask a person to approve an action before you take it, and wait up to 55 seconds. If it is still pending, " +
			"call it again with the same run_id and request_id.",
		fields: object{
			"run_id":     object{"type": "string", "minLength": 1, "description": "what you are working on"},
			"request_id": object{"type": "string", "minLength": 1, "description": "this request among those of the run"},
			"summary":    object{"type": "string", "minLength": 1}, "proposed_action": object{"type": "string", "minLength": 1},
		},
		required: []string{"run_id", "request_id", "summary", "proposed_action"},
		do:       s.approval,
	}}
}

// approval asks a person, and waits for them. It is a gate_request signal; run_id and request_id
// identify it, so calling again with the same ones waits on and asks nobody twice.
func (s *server) approval(ctx context.Context, args object) (outcome, error) {
	// A model cannot ask in another agent's name.
	args["amp_version"], args["type"], args["agent_id"] = "2.0", string(signal.GateRequest), s.who.Name
	text, err := wire.EncodeData(args)
	if err != nil {
		return outcome{}, err
	}
	// A request that was decided before is answered at once.
	got, err := s.Signals.Receive(ctx, s.who, signal.GateRequest, text)
	if err != nil || got.Status != gate.Pending {
		return answer(got.Answer, err)
	}
	// Still pending after that is an answer, too: the model calls again.
	return answer(s.Signals.Await(ctx, s.who, *got.GateID, longestWait))
}
