package notify

import (
	"context"
	"net/http"

	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/wire"
)

const webhookName = "webhook"

// Webhook tells a program, in JSON and signed. Its address goes through the outbox's
// guard, so a private one must be on the allow list.
type Webhook struct {
	target string
	url    wire.Secret
	outbox *deliver.Outbox
}

// NewWebhook makes the channel for an address. host is what may be told of it.
func NewWebhook(outbox *deliver.Outbox, address wire.Secret, host string) *Webhook {
	return &Webhook{target: webhookName + ":" + host, url: address, outbox: outbox}
}

// Told is the body of a call.
type Told struct {
	Event string     `json:"event"`
	Gate  *gate.Gate `json:"gate,omitempty"` // as in GET /ops/gates/{id}, at the time of the event
}

// receiver is whose secret signs.
const receiver = "notify"

// Secret is the secret with which calls are signed.
func (w *Webhook) Secret() wire.Secret { return w.outbox.SecretFor("", receiver, 0) }

// Name is the kind of channel.
func (w *Webhook) Name() string { return webhookName }

// Target names it without its address.
func (w *Webhook) Target() string { return w.target }

// Buttons are for people.
func (w *Webhook) Buttons(gate.Gate) bool { return false }

// Send makes one call.
func (w *Webhook) Send(ctx context.Context, m Message) deliver.Result {
	told := Told{Event: m.Event}
	if m.Event != Tested {
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
