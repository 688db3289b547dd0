package task

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Webhook is where the messages to a role are posted, beside its inbox. One role of a workspace
// has at most one. A new secret raises Generation, from which the secret follows.
type Webhook struct {
	URL        string `json:"url"` // "" for none
	Generation int    `json:"generation"`
}

// ShownWebhook is a webhook with the secret that verifies its calls. Only operators see it.
type ShownWebhook struct {
	Webhook
	Role   amp.Role `json:"role"`
	Secret string   `json:"secret"`
}

// NewWebhook registers a webhook; an empty address removes it.
type NewWebhook struct {
	URL          string `json:"url"`
	RotateSecret bool   `json:"rotate_secret,omitempty"`
}

// hooked is the body of task.hooked.
type hooked struct {
	Webhook
	Role amp.Role `json:"role"`
}

// receiverOf names whose secret signs what is sent to a role.
func receiverOf(role amp.Role) string { return "task:" + string(role) }

// Delivered is the body that is posted to a webhook: the message byte for byte, and what its
// receiver should know before working on it.
type Delivered struct {
	Message    wire.Raw `json:"message"`
	TaskStatus string   `json:"task_status"`
	Generation int64    `json:"generation,omitempty"`
}

// queueWebhooks queues the messages of a step for the webhooks of their receivers, in the same
// transaction: a message that is stored is also on its way. Most workspaces have no webhooks, and
// pay nothing.
func (w *work) queueWebhooks(next *amp.Task, out amp.Outcome) error {
	if len(w.hooks) == 0 {
		return nil
	}
	// The server's escalations go to the admin's webhook.
	messages := slices.Clone(out.Raised)
	for _, m := range out.Decisions {
		messages = append(messages, m.Message)
	}
	if w.in.Message != nil {
		messages = append(messages, w.in.Message)
	}
	for _, m := range messages {
		hook := w.hooks[m.To]
		if hook.URL == "" {
			continue
		}
		payload, err := wire.Marshal(Delivered{m.Raw, next.Status(), next.Seats[m.To].Generation})
		if err != nil {
			return err
		}
		_, err = deliver.Queue(w.tx,
			deliver.Delivery{
				Workspace: w.party.Workspace, Target: hook.URL, Payload: payload, Receiver: receiverOf(m.To),
				Generation: hook.Generation, Trace: w.trace(),
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// Webhook is the webhook of a role in a workspace that the caller may see. A role without one has
// an empty URL and still a secret, so that a receiver can be configured first.
func (s *Tasks) Webhook(ctx context.Context, workspace string, role amp.Role) (ShownWebhook, error) {
	_, shown, err := s.hookOf(ctx, workspace, role)
	return shown, err
}

// hookOf reads the webhook of a role and checks both names. workspace is the one that the caller
// means, after the default.
func (s *Tasks) hookOf(ctx context.Context, named string, role amp.Role) (workspace string, shown ShownWebhook,
	err error,
) {
	shown.Role = role
	if role != amp.Admin && !slices.Contains(amp.AgentRoles, role) {
		return "", shown,
			fault.New(fault.NotFound, "There is no role %.40q. The roles are admin, coordinator, executor and reviewer.", role)
	}
	if workspace, err = roster.WorkspaceOf(ctx, named); err != nil {
		return "", shown, err
	}
	err = s.core.DB.QueryRow(ctx, "SELECT url, generation FROM task_hook WHERE workspace = $1 AND role = $2",
		[]any{workspace, string(role)}, &shown.URL, &shown.Generation)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	shown.Secret = s.core.Outbox.SecretFor(workspace, receiverOf(role), shown.Generation).Reveal()
	return workspace, shown, err
}

// SetWebhook registers an address for the messages to a role, or removes it. The outbox refuses
// private addresses that are not on its allow list.
func (s *Tasks) SetWebhook(ctx context.Context, by roster.Identity, workspace string, role amp.Role,
	in NewWebhook,
) (ShownWebhook, error) {
	workspace, shown, err := s.hookOf(ctx, workspace, role)
	if err != nil {
		return shown, err
	}
	next, err := s.core.Outbox.Register(ctx, deliver.Registration(shown.Webhook), in.URL, in.RotateSecret)
	if err != nil {
		return shown, err
	}
	shown.Webhook = Webhook(next)
	shown.Secret = s.core.Outbox.SecretFor(workspace, receiverOf(role), shown.Generation).Reveal()
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: workspace, Kind: kindHooked, Actor: by.Actor(), Subject: string(role),
			Body: hooked{shown.Webhook, role},
		})
		return nil
	})
	return shown, err
}

// maxSetting is the largest body of a setting, in bytes.
const maxSetting = 16 << 10
