package task

import (
	"context"
	"net/url"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Caller makes the calls of AMP/1.0 tasks: as the agent whose key it has, or without one as the
// operator that other commands are.
type Caller struct {
	*command.App
	Key, Workspace string
}

// Call calls the server.
func (t *Caller) Call(ctx context.Context, r api.Request, answer any) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	r.Path = api.InWorkspace(r.Path, t.Workspace)
	return c.Call(ctx, r, answer)
}

func (t *Caller) client() (*api.Client, error) {
	if t.Key == "" {
		return t.Client()
	}
	base, err := t.Address()
	return &api.Client{Base: base, Token: t.Key}, err
}

// taskPath is where the API has a task.
func taskPath(id string) string { return "/amp/tasks/" + url.PathEscape(id) }

// Find reads a task, with its messages if they are wanted.
func (t *Caller) Find(ctx context.Context, id string, messages bool) (r amp.Record, err error) {
	path := taskPath(id)
	if messages {
		path += "?messages=true"
	}
	err = t.Call(ctx, api.Get(path), &r)
	return r, err
}

// Inbox reads messages that wait for a role; reading is not acknowledging.
func (t *Caller) Inbox(ctx context.Context, query url.Values) (box task.Inbox, err error) {
	err = t.Call(ctx, api.Get("/amp/messages?"+query.Encode()), &box)
	return box, err
}

// Role is the role that the key plays.
func (t *Caller) Role(ctx context.Context) (amp.Role, error) {
	box, err := t.Inbox(ctx, url.Values{"limit": {"1"}})
	return box.To, err
}

// Send puts a payload into its envelope and sends it.
func (t *Caller) Send(
	ctx context.Context, kind amp.Type, taskID string, payload []byte,
) (answer task.Answer, err error) {
	role, err := t.Role(ctx)
	if err != nil {
		return answer, err
	}
	if _, err := wire.Members(payload); err != nil {
		return answer, command.Usage("The payload is not JSON of a message. %s", fault.From(err).Message)
	}
	raw, err := amp.Compose(kind, role, taskID, payload, 0, time.Now())
	if err != nil {
		return answer, err
	}
	err = t.Call(ctx, api.Post("/amp/messages", wire.Raw(raw)), &answer)
	return answer, err
}

// Escalation is what its sender cannot solve without the admin.
type Escalation struct {
	Role                        amp.Role
	Type, Severity, Description string
}

// Escalate escalates, about a task or about an id that no task has.
func (t *Caller) Escalate(ctx context.Context, taskID string, e Escalation) (answer task.Answer, err error) {
	r, err := t.Find(ctx, taskID, false)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return answer, err
	}
	payload, err := amp.EscalationOf(e.Role, e.Type, e.Severity, e.Description, r)
	if err != nil {
		return answer, err
	}
	return t.Send(ctx, amp.TypeEscalation, taskID, payload)
}

// Ack acknowledges a message; the body is empty, or refuses it.
func (t *Caller) Ack(ctx context.Context, messageID string, body map[string]any) (answer task.Answer, err error) {
	err = t.Call(ctx, api.Post("/amp/messages/"+url.PathEscape(messageID)+"/ack", body), &answer)
	return answer, err
}

// Heartbeat says that work on a task goes on, that of a generation if it is not 0.
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
