package slack

import (
	"context"
	"net/http"

	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/wire"
)

// HookName is the kind of channel of an incoming webhook.
const HookName = "slack-webhook"

// Hook is an incoming webhook of Slack. Its address is a secret.
type Hook struct {
	url  wire.Secret
	http *http.Client
}

// NewHook makes the channel.
func NewHook(url wire.Secret, client *http.Client) *Hook { return &Hook{url, client} }

// Name is the kind of channel.
func (h *Hook) Name() string { return HookName }

// Target says all that may be said of it.
func (h *Hook) Target() string { return HookName }

// Buttons need an app: Slack would have nobody to tell of a press.
func (h *Hook) Buttons(gate.Gate) bool { return false }

// Room is that of a message.
func (h *Hook) Room() notify.Room { return room() }

// Send posts a message. What was posted through a webhook cannot be changed, so an
// outcome is a message of its own.
func (h *Hook) Send(ctx context.Context, m notify.Message) deliver.Result {
	blocks, text := render(m)
	body, err := wire.Marshal(map[string]any{"text": text, "blocks": blocks, "unfurl_links": false, "unfurl_media": false})
	if err != nil {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "encode", Text: "The message cannot be written as JSON."}
	}
	res, err := post(ctx, h.http, h.url.Reveal(), "application/json", wire.Secret{}, body)
	if err == nil {
		_ = res.Body.Close()
	}
	return result(err, "")
}
