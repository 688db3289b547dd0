package task

import (
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

// hookOf reads the webhook of the role that the address names.
func (s *Tasks) hookOf(r *http.Request) (workspace string, shown ShownWebhook, err error) {
	shown.Role = Role(r.PathValue("role"))
	if shown.Role != Admin && !slices.Contains(AgentRoles, shown.Role) {
		return "", shown, fault.New(fault.NotFound, "There is no role %.40q. The roles are admin, coordinator, executor and reviewer.", shown.Role)
	}
	if workspace, err = roster.QueryWorkspace(r); err != nil {
		return "", shown, err
	}
	err = s.core.DB.QueryRow(r.Context(), "SELECT url, generation FROM task_hook WHERE workspace = $1 AND role = $2", []any{workspace, string(shown.Role)}, &shown.URL, &shown.Generation)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	shown.Secret = s.core.Outbox.SecretFor(workspace, receiverOf(shown.Role), shown.Generation).Reveal()
	return workspace, shown, err
}

func (s *Tasks) getHook(w http.ResponseWriter, r *http.Request) error {
	_, shown, err := s.hookOf(r)
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
	workspace, shown, err := s.hookOf(r)
	if err != nil {
		return err
	}
	if in.URL != "" {
		if err := s.core.Outbox.CheckTarget(r.Context(), in.URL); err != nil {
			return fault.From(err).About("url")
		}
	}
	shown.URL = in.URL
	if in.RotateSecret {
		shown.Generation++
		shown.Secret = s.core.Outbox.SecretFor(workspace, receiverOf(shown.Role), shown.Generation).Reveal()
	}
	err = s.core.Ledger.Write(r.Context(), func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: workspace, Kind: kindHooked, Actor: roster.From(r.Context()).Actor(), Subject: string(shown.Role), Body: hooked{shown.Webhook, shown.Role}})
		return nil
	})
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, shown)
}

const maxSetting = 16 << 10
