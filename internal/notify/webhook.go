package notify

import (
	"context"
	"net/http"

	"signalbox/internal/alarm"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/wire"
)

const webhookName = "webhook"

// Webhook announces gates to a program, in JSON and signed. Calls go through the outbox's guard,
// so a private address must be on webhooks.allow.
type Webhook struct {
	target string
	url    wire.Secret
	outbox *deliver.Outbox
}

// NewWebhook makes the channel for an address. host is the part of it that may be shown; paths of
// webhooks often hold a secret.
func NewWebhook(outbox *deliver.Outbox, address wire.Secret, host string) *Webhook {
	return &Webhook{target: webhookName + ":" + host, url: address, outbox: outbox}
}

// WebhookBody is the body of a call.
type WebhookBody struct {
	Event string     `json:"event"`
	Gate  *gate.Gate `json:"gate,omitempty"` // as in GET /ops/gates/{id}, at the time of the event
	// Alarm is as in GET /ops/alarms.
	Alarm *alarm.Alarm `json:"alarm,omitempty"`
}

// receiver names whose secret signs the calls.
const receiver = "notify"

// Secret is the secret with which calls are signed.
func (w *Webhook) Secret() wire.Secret { return w.outbox.SecretFor("", receiver, 0) }

// Name is the kind of channel.
func (w *Webhook) Name() string { return webhookName }

// Target names it without its address.
func (w *Webhook) Target() string { return w.target }

// Buttons are for people.
func (w *Webhook) Buttons(gate.Gate) bool { return false }

// Room is none: a program gets the gate itself.
func (w *Webhook) Room() Room { return Room{Size: func(rune) int { return 1 }} }

// Send makes one call. Retries carry the same id and the same body, so that a receiver can tell.
func (w *Webhook) Send(ctx context.Context, m Message) deliver.Result {
	told := WebhookBody{Event: m.Event, Alarm: m.Alarm}
	if m.Event != Tested && m.Alarm == nil {
		told.Gate = &m.Then
	}
	body, err := wire.Marshal(told)
	if err != nil {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "internal", Text: "The gate cannot be written as JSON."}
	}
	return w.outbox.Post(ctx, deliver.Attempt{
		ID: m.ID, Target: w.url.Reveal(), Method: http.MethodPost, Payload: body, Receiver: receiver, Number: m.Number,
		At: m.At,
	})
}
