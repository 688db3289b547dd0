package slack

import (
	"context"
	"net/http"

	"github.com/slack-go/slack"

	"github.com/signalbox/signalbox/internal/deliver"
	"github.com/signalbox/signalbox/internal/gate"
	"github.com/signalbox/signalbox/internal/notify"
	"github.com/signalbox/signalbox/internal/wire"
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

// Send posts a message. What was posted through a webhook cannot be changed, so an
// outcome is a message of its own.
func (h *Hook) Send(ctx context.Context, m notify.Message) deliver.Result {
	blocks, text := render(m)
	off := false
	err := slack.PostWebhookCustomHTTPContext(ctx, h.url.Reveal(), h.http, &slack.WebhookMessage{
		Text: text, Blocks: &slack.Blocks{BlockSet: blocks}, UnfurlLinks: &off, UnfurlMedia: &off,
	})
	return result(err, "")
}
