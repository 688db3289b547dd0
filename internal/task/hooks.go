package task

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"slices"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Webhook is where the messages to a role are sent, beside its inbox.
type Webhook struct {
	URL        string `json:"url"` // "" for none
	Generation int    `json:"generation"`
}

// ShownWebhook is a webhook with the secret that verifies it.
type ShownWebhook struct {
	Webhook
	Role   Role   `json:"role"`
	Secret string `json:"secret"`
}

// NewWebhook registers a webhook, or none with an empty address.
type NewWebhook struct {
	URL          string `json:"url"`
	RotateSecret bool   `json:"rotate_secret,omitempty"`
}

// hooked is the body of task.hooked.
type hooked struct {
	Webhook
	Role Role `json:"role"`
}

// receiverOf is whose secret signs what is sent to a role.
func receiverOf(role Role) string { return "task:" + string(role) }

// Delivered is what is posted to a webhook.
type Delivered struct {
	Message    wire.Raw `json:"message"`
	TaskStatus string   `json:"task_status"`
	Generation int64    `json:"generation,omitempty"`
}

// deliver queues the messages of a step for the webhooks of those they are to.
func (w *work) deliver(next *Task, out Outcome) error {
	if len(w.hooks) == 0 {
		return nil
	}
	messages := slices.Clone(out.Raised)
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
		_, err = deliver.Queue(w.tx, deliver.Delivery{Workspace: w.party.Workspace, Target: hook.URL, Payload: payload, Receiver: receiverOf(m.To), Generation: hook.Generation, Trace: w.trace()})
		if err != nil {
			return err
		}
	}
	return nil
}

// Webhook is the webhook of a role with its secret.
func (s *Tasks) Webhook(ctx context.Context, workspace string, role Role) (ShownWebhook, error) {
	h := hooked{Role: role}
	if role != Admin && !slices.Contains(AgentRoles, role) {
		return ShownWebhook{}, fault.New(fault.NotFound, "There is no role %.40q. The roles are admin, coordinator, executor and reviewer.", role)
	}
	err := s.core.DB.QueryRow(ctx, "SELECT url, generation FROM task_hook WHERE workspace = $1 AND role = $2", []any{workspace, string(role)}, &h.URL, &h.Generation)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return ShownWebhook{}, err
	}
	return s.showHook(workspace, h), nil
}

func (s *Tasks) showHook(workspace string, h hooked) ShownWebhook {
	return ShownWebhook{h.Webhook, h.Role, s.core.Outbox.SecretFor(workspace, receiverOf(h.Role), h.Generation).Reveal()}
}

// RegisterWebhook replaces the webhook of a role.
func (s *Tasks) RegisterWebhook(ctx context.Context, by roster.Identity, workspace string, role Role, in NewWebhook) (ShownWebhook, error) {
	before, err := s.Webhook(ctx, workspace, role)
	if err != nil {
		return before, err
	}
	r, err := s.core.Outbox.Register(ctx, deliver.Registration(before.Webhook), in.URL, in.RotateSecret)
	if err != nil {
		return before, err
	}
	h := hooked{Webhook(r), role}
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: workspace, Kind: kindHooked, Actor: by.Actor(), Subject: string(role), Body: h})
		return nil
	})
	return s.showHook(workspace, h), err
}

func (s *Tasks) getHook(w http.ResponseWriter, r *http.Request) error {
	workspace, err := roster.QueryWorkspace(r)
	if err != nil {
		return err
	}
	shown, err := s.Webhook(r.Context(), workspace, Role(r.PathValue("role")))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, shown)
}

func (s *Tasks) putHook(w http.ResponseWriter, r *http.Request) error {
	var in NewWebhook
	if err := wire.ReadJSON(w, r, maxSetting, &in); err != nil {
		return err
	}
	workspace, err := roster.QueryWorkspace(r)
	if err != nil {
		return err
	}
	shown, err := s.RegisterWebhook(r.Context(), roster.From(r.Context()), workspace, Role(r.PathValue("role")), in)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, shown)
}

const maxSetting = 16 << 10
