package mcp

import (
	"context"
	"crypto/rand"
	"time"

	"signalbox/internal/fault"
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
	// boardRows is how many tasks one call lists.
	boardRows = 50
)

// Fields that several tools take.
var (
	taskField = text("the task, such as T-2026-044; amp_tasks lists them")
	noteField = text("what the others should know, such as how far you are")
	// generationField tells two processes of one agent apart.
	generationField = number(1, "as amp_next said it: your answer is refused if the work has become somebody else's since")
	waitField       = seconds(55, "how long to wait if there is nothing yet, in seconds; 55 when absent, 0 not to wait")
)

// readTools are the tools by which an agent finds out what it has to do. An agent sees those of its role. The
// descriptions are prompts: they tell a model when to call a tool, and what a refusal or "pending" asks of it.
func (s *server) readTools() []tool {
	return []tool{
		{
			name: "amp_tasks", about: "List the tasks of your workspace, those that changed last first, with what each " +
				"waits for.",
			roles: amp.AgentRoles, reads: true,
			fields: object{
				"status": text("only tasks of this status, such as executing, reviewing, suspended or completed"),
				"cursor": text("the next of the call before, for the tasks after those"),
			},
			output: object{
				"tasks": list("the tasks", object{"type": "object"}), "next": text("the cursor of the next page, empty for none"),
				"counts": object{"type": "object", "description": "how many tasks there are of each status"},
			},
			do: s.board,
		},
		{
			name: "amp_wait", about: "Wait until it is your turn: until a message waits for you, or while you hold a task in " +
				"which you have to act. Says which messages and tasks, without their contents. pending means that nothing came: call " +
				"it again. Then take the work with amp_next.",
			roles: amp.AgentRoles, reads: true, waits: true, fields: object{"wait_seconds": waitField},
			output: object{
				"your_turn": object{"type": "boolean"}, "messages": list("", object{"type": "object"}),
				"tasks": list("", object{"type": "object"}), "pending": object{"type": "boolean"},
			},
			do: func(ctx context.Context, args object) (outcome, error) {
				return s.waiting(ctx, args, longestWait, func(me task.Party, wait time.Duration) (any, error) {
					return s.Tasks.AwaitTurn(ctx, me, inboxRows, wait)
				})
			},
		},
		{
			name: "amp_next", about: "Take the next work: acknowledges the oldest message that waits for you, which claims " +
				"its task, and returns the message. Of several agents of your role one gets it. pending means that nothing came: " +
				"call it again.",
			roles: amp.AgentRoles, waits: true, fields: object{"wait_seconds": waitField},
			output: object{
				"taken": object{"type": "object"}, "pending": object{"type": "boolean"}, "do": text("what to do next"),
			},
			do: s.next,
		},
		{
			name: "amp_inbox", about: "The messages that wait for you and are not acknowledged, whole. Reading is not " +
				"acknowledging: use amp_ack, or amp_next, which does both. pending means that none came, so call it again.",
			roles: amp.AgentRoles, reads: true, waits: true,
			fields: object{
				"wait_seconds": seconds(55, "how long to wait if there is none, in seconds; 0, not at all, when absent"),
				"after":        number(0, "everything after this entry, acknowledged or not: the next of the call before"),
			},
			do: s.inbox,
		},
		{
			name: "amp_context",
			about: "A task as it stands: what it waits for, every message about it (dispatches, results, requests, verdicts, " +
				"escalations and instructions), and the diff of the work as git has it.",
			roles: amp.AgentRoles, reads: true, fields: object{"task_id": taskField}, required: []string{"task_id"},
			do: s.context,
		},
	}
}

// party is the agent as a party of tasks.
func (s *server) party(ctx context.Context) (task.Party, error) {
	return task.Speaker(ctx, s.who, "", task.OverMCP)
}

// waiting answers with what ask finds while it waits, for as long as the arguments say.
func (s *server) waiting(ctx context.Context, args object, absent time.Duration,
	ask func(me task.Party, wait time.Duration) (any, error),
) (outcome, error) {
	me, err := s.party(ctx)
	if err != nil {
		return outcome{}, err
	}
	wait, err := waitOf(args, absent, longestWait)
	if err != nil {
		return outcome{}, err
	}
	return answer(ask(me, wait))
}

// board lists tasks. Only what the server itself says of a task is in it; the rest is in amp_context.
func (s *server) board(ctx context.Context, args object) (outcome, error) {
	me, err := s.party(ctx)
	if err != nil {
		return outcome{}, err
	}
	asked, err := textsOf(args, "status", "cursor")
	if err != nil {
		return outcome{}, err
	}
	page, err := s.Tasks.List(ctx, me, task.Filter{Status: asked[0]}, asked[1], boardRows)
	if err != nil {
		return outcome{}, err
	}
	out := struct {
		Tasks  []shownTask      `json:"tasks"`
		Counts map[string]int64 `json:"counts"`
		Next   string           `json:"next"`
	}{[]shownTask{}, page.Counts, page.Next}
	for i := range page.Tasks {
		out.Tasks = append(out.Tasks, showTask(&page.Tasks[i]))
	}
	return answer(out, nil)
}

// shownTask is what the server says of a task, without what agents wrote.
type shownTask struct {
	TaskID    string    `json:"task_id"`
	Status    string    `json:"task_status"`
	Risk      string    `json:"risk_level,omitempty"`
	Waits     string    `json:"waits_for"`
	UpdatedAt time.Time `json:"updated_at"`
}

func showTask(r *amp.Record) shownTask {
	return shownTask{r.TaskID, r.Status, r.Risk, r.Waits, r.UpdatedAt}
}

// context is a task with its messages and its diff.
func (s *server) context(ctx context.Context, args object) (outcome, error) {
	me, err := s.party(ctx)
	if err != nil {
		return outcome{}, err
	}
	taskID, err := textOf(args, "task_id")
	if err != nil {
		return outcome{}, err
	}
	r, err := s.Tasks.Show(ctx, me, taskID, true)
	if fault.Is(err, fault.NotFound) {
		err = noTask(taskID)
	}
	if err != nil {
		return outcome{}, err
	}
	diff, err := s.Tasks.Diff(ctx, me, taskID)
	return answer(struct {
		shownTask

		Role      amp.Role `json:"your_role"`
		Untrusted foreign  `json:"untrusted"`
	}{showTask(&r), me.Role, foreign{Warning: notYours, Task: &r, Diff: &diff}}, err)
}

// noTask is the error about a task that there is not.
func noTask(taskID string) error {
	return fault.New(fault.NotFound,
		"There is no task %.40q. An id looks like T-2026-044; amp_tasks lists those that there are.", taskID).About("task_id")
}

// shownInbox is what waits for an agent.
type shownInbox struct {
	Messages []shownMessage `json:"messages"`
	Next     int64          `json:"next"`
	Pending  bool           `json:"pending"`
}

// inbox waits for messages to the agent's role. It acknowledges nothing.
func (s *server) inbox(ctx context.Context, args object) (outcome, error) {
	after, err := numberOf(args, "after", 0)
	if err != nil {
		return outcome{}, err
	}
	return s.waiting(ctx, args, 0, func(me task.Party, wait time.Duration) (any, error) {
		box, err := s.Tasks.Wait(ctx, me, me.Role, after, inboxRows, wait)
		out := shownInbox{Messages: []shownMessage{}, Next: box.Next, Pending: box.Pending}
		for _, m := range box.Messages {
			one, err := showMessage(m)
			if err != nil {
				return out, err
			}
			out.Messages = append(out.Messages, one)
		}
		return out, err
	})
}

// thenDo is what a message asks of who has taken it.
var thenDo = map[amp.Type]string{
	amp.TypeDispatch: "As executor: do the work on the branch and nowhere else, call amp_heartbeat at least every 30 " +
		"minutes, and report with amp_result. As coordinator: plan it, and give it on with amp_dispatch.",
	amp.TypeRequest: "Read the task and its diff with amp_context, check each criterion, and decide with amp_verdict.",
	amp.TypeResult:  "Read it. If it is complete ask for a review with amp_review_request, else send amp_dispatch again.",
	amp.TypeVerdict: "If it is rejected send amp_dispatch again with what has to change; if it is approved nothing is left " +
		"to do.",
}

// taken is a message that was claimed, and what became of the task by that.
type taken struct {
	shownMessage

	Status     string `json:"task_status"`
	Generation int64  `json:"generation,omitempty"`
}

// next claims the oldest message that nobody else claims first: another agent, which a refusal says, or another process
// of this one, whose ack makes ours a duplicate. The name of the claim is new for each call, since two processes of one
// agent may call at the same time.
func (s *server) next(ctx context.Context, args object) (outcome, error) {
	var refused *task.ErrorRecord
	claim, err := wire.EncodeData(object{"x_claim": rand.Text()})
	if err != nil {
		return outcome{}, err
	}
	out, err := s.waiting(ctx, args, longestWait, func(me task.Party, wait time.Duration) (any, error) {
		box, err := s.Tasks.Wait(ctx, me, me.Role, 0, inboxRows, wait)
		if err != nil {
			return nil, err
		}
		for _, m := range box.Messages {
			one, err := showMessage(m)
			if err != nil {
				return nil, err
			}
			var got task.Answer
			got, refused, err = s.Tasks.Send(ctx, me, task.Document{Kind: amp.InAck, About: one.MsgID, Raw: claim})
			if err != nil {
				return nil, err
			}
			if refused == nil && got.Status != task.Duplicate {
				if got.Handoff != nil {
					one.Handoff = got.Handoff
				}
				return object{
					"taken": taken{one, got.TaskStatus, got.Generation}, "pending": false, "do": thenDo[one.Type],
				}, nil
			}
		}
		return object{"pending": true, "do": "Nothing waits for you. Call amp_next again."}, nil
	})
	if err == nil && refused != nil {
		return refuse(tool{}, refused)
	}
	return out, err
}

// send sends a document and says what became of it. body, if not nil, becomes the document. A
// refusal is an answer too, marked so that the model takes it for a failure.
func (s *server) send(ctx context.Context, t tool, d task.Document, body object) (outcome, error) {
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
	return refuse(t, wrong)
}
