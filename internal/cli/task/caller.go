package task

import (
	"context"
	"os"
	"strconv"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/run/process"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Caller makes the HTTP calls of AMP/1.0 tasks: as the agent whose key it has, or without a key as
// the operator that other commands are. demo uses it as well.
type Caller struct {
	*command.App
	// Key is the agent's key, "" to speak as an operator. Workspace is for operators only.
	Key, Workspace string
}

// Call makes one call. The workspace is added for operators; the server refuses it from agents
// unless it is their own.
func (t *Caller) Call(ctx context.Context, r api.Request, answer any) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	r.Path = api.InWorkspace(r.Path, t.Workspace)
	return c.Call(ctx, r, answer)
}

// client is the client with the agent's key, or the operator's. What is called in a process of a run, or of a worker,
// belongs to it.
func (t *Caller) client() (c *api.Client, err error) {
	// --key refuses an empty key, so nobody speaks as the operator by accident.
	if t.Key == "" {
		c, err = t.Client()
	} else {
		c = &api.Client{Token: t.Key}
		c.Base, err = t.Address()
	}
	if err == nil {
		c.Within = process.Handed(c.Base)
	}
	return c, err
}

// taskPath is where the API has a task.
func taskPath(id string) string { return api.Path("/amp/tasks/{}", id) }

// Find reads a task, with its messages if they are wanted.
func (t *Caller) Find(ctx context.Context, id string, messages bool) (r amp.Record, err error) {
	path := taskPath(id)
	if messages {
		path += "?messages=true"
	}
	err = t.Call(ctx, api.Get(path), &r)
	return r, err
}

// Inbox reads the messages that wait for a role. Reading is not acknowledging.
func (t *Caller) Inbox(ctx context.Context, query api.Query) (box task.Inbox, err error) {
	err = t.Call(ctx, api.Find("/amp/messages", query), &box)
	return box, err
}

// Role is the role that the key plays. The inbox knows it for agents and operators alike, which
// /amp/me does not.
func (t *Caller) Role(ctx context.Context) (amp.Role, error) {
	box, err := t.Inbox(ctx, api.Query{"limit": 1})
	return box.To, err
}

// Send puts a payload into its envelope and sends it. The payload is only checked for being a JSON
// object: the server explains what is wrong with its fields better than we could.
func (t *Caller) Send(
	ctx context.Context, kind amp.Type, taskID string, payload []byte,
) (answer task.Answer, err error) {
	role, err := t.Role(ctx)
	if err != nil {
		return answer, err
	}
	// A payload that is no object would be put into the envelope as it is, and confuse the server's
	// pointers.
	if _, err := wire.Members(payload); err != nil {
		return answer, command.Usage("The payload is not JSON of a message. %s", fault.From(err).Message)
	}
	raw, err := amp.Compose(kind, role, taskID, payload, t.lease(taskID), time.Now())
	if err != nil {
		return answer, err
	}
	err = t.Call(ctx, api.Post("/amp/messages", wire.Raw(raw)), &answer)
	return answer, err
}

// What a worker tells its command of the message: the task, the message, and the generation of the worker's lease.
const (
	taskVariable       = "SIGNALBOX_TASK"
	messageVariable    = "SIGNALBOX_MESSAGE"
	generationVariable = "SIGNALBOX_GENERATION"
	serverVariable     = "SIGNALBOX_SERVER"
	tokenVariable      = "SIGNALBOX_TOKEN"
)

// lease is the generation under which the command of a worker sends messages about its task, 0 outside of one. With it
// the answer of a worker that was given up is refused, although another process of the same agent has the task by now.
func (t *Caller) lease(taskID string) int64 {
	if os.Getenv(taskVariable) != taskID || t.Key != "" && t.Key != os.Getenv(tokenVariable) {
		return 0
	}
	generation, _ := strconv.ParseInt(os.Getenv(generationVariable), 10, 64) // 0 if there is none
	return generation
}

// Escalation is what somebody cannot solve without the admin.
type Escalation struct {
	Role                        amp.Role
	Type, Severity, Description string
}

// Escalate escalates, about a task or about an id that no task has: a worker may have to escalate
// before its task exists.
func (t *Caller) Escalate(ctx context.Context, taskID string, e Escalation) (answer task.Answer, err error) {
	r, err := t.Find(ctx, taskID, false)
	// A task that does not exist has the zero Record.
	if err != nil && !fault.Is(err, fault.NotFound) {
		return answer, err
	}
	payload, err := amp.EscalationOf(e.Role, e.Type, e.Severity, e.Description, r)
	if err != nil {
		return answer, err
	}
	return t.Send(ctx, amp.TypeEscalation, taskID, payload)
}

// Ack acknowledges a message. An empty body accepts it; one with status and error refuses it.
func (t *Caller) Ack(ctx context.Context, messageID string, body map[string]any) (answer task.Answer, err error) {
	err = t.Call(ctx, api.Post(api.Path("/amp/messages/{}/ack", messageID), body), &answer)
	return answer, err
}

// Heartbeat says that work on a task goes on. With a generation that is not 0 the call fails once
// the lease of that generation is over, which tells a worker to stop.
func (t *Caller) Heartbeat(ctx context.Context, taskID, note string, generation int64) (answer task.Answer, err error) {
	body := map[string]any{"task_id": taskID}
	if note != "" {
		body["note"] = note
	}
	if generation > 0 {
		body["x_generation"] = generation
	}
	err = t.Call(ctx, api.Post("/amp/heartbeats", body), &answer)
	return answer, err
}

// Instruct instructs as the admin.
func (t *Caller) Instruct(ctx context.Context, taskID string, body map[string]any) (answer task.Answer, err error) {
	err = t.Call(ctx, api.Post(taskPath(taskID)+"/instructions", body), &answer)
	return answer, err
}
