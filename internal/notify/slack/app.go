package slack

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

// Name is the kind of channel, and of the contacts of those who press.
const Name = "slack"

// Options are what an app is made of. Buttons work with AppToken or SigningSecret.
type Options struct {
	Token         wire.Secret // xoxb-…
	AppToken      wire.Secret // xapp-…, for Socket Mode
	SigningSecret wire.Secret // for presses over HTTP
	Channel       string      // C024BE91L
	ButtonsOnHigh bool
	API           string // "" for Slack's own
	HTTP          *http.Client
	Log           *slog.Logger
}

// App is a channel that our Slack app posts to.
type App struct {
	Options
	api *api
	// answering are presses that are still being handled. Listen waits for them, so that no vote is
	// cut off by a stop.
	answering sync.WaitGroup
}

// NewApp makes the channel.
func NewApp(o Options) *App {
	return &App{Options: o, api: &api{cmp.Or(o.API, slackAPI), o.HTTP}}
}

// Name is the kind of channel.
func (a *App) Name() string { return Name }

// Target names Slack's channel.
func (a *App) Target() string { return Name + ":" + a.Channel }

// Person is the app's conversation with one member.
func (a *App) Person(member string) notify.Channel {
	o := a.Options
	o.Channel = member
	return &App{Options: o, api: a.api}
}

// Buttons are there when a press can reach us. Whoever can press in Slack may have left
// a telephone on a table, so a gate of high risk asks for more than that.
func (a *App) Buttons(g gate.Gate) bool {
	return (a.AppToken.Reveal() != "" || a.SigningSecret.Reveal() != "") && (g.Risk != "high" || a.ButtonsOnHigh)
}

// Room is that of a message.
func (a *App) Room() notify.Room { return room() }

// Send posts a message, in a thread for a reminder, or changes the one that told of the
// opening.
func (a *App) Send(ctx context.Context, m notify.Message) deliver.Result {
	blocks, text := render(m)
	encoded, err := wire.Marshal(blocks)
	if err != nil {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "encode", Text: "The message cannot be written as JSON."}
	}
	form := url.Values{"text": {text}, "blocks": {string(encoded)}, "unfurl_links": {"false"}, "unfurl_media": {"false"}}
	channel, stamp, _ := strings.Cut(m.Earlier, " ")
	// The outcome replaces the message with the buttons.
	if m.Event == notify.Resolved && stamp != "" {
		form.Set("channel", channel)
		form.Set("ts", stamp)
		_, err := a.api.form(ctx, a.Token, "chat.update", form)
		if !messageGone(err) {
			return result(err, m.Earlier)
		}
		form.Del("ts")
	}
	// A reminder goes into the thread of the opening, and into the channel.
	if m.Event == notify.Escalated && stamp != "" && channel == a.Channel {
		form.Set("thread_ts", stamp)
		form.Set("reply_broadcast", "true")
	}
	form.Set("channel", a.Channel)
	posted, err := a.api.form(ctx, a.Token, "chat.postMessage", form)
	return result(err, posted.Channel+" "+posted.TS)
}

// messageGone reports whether the message that was to be changed no longer can be. Then the
// outcome is posted as a new message.
func messageGone(err error) bool {
	word, ok := errors.AsType[refusal](err)
	return ok && (word == "message_not_found" || word == "cant_update_message" || word == "edit_window_closed")
}

// hopeless are Slack's words for what is wrong with a message and stays wrong.
var hopeless = map[string]bool{
	"invalid_blocks": true, "invalid_blocks_format": true, "invalid_arguments": true, "invalid_arg_name": true,
	"msg_too_long": true,
	"no_text":      true, "msg_blocks_too_long": true, "too_many_attachments": true, "invalid_array_arg": true,
	"invalid_charset": true, "invalid_form_data": true,
}

// result classifies what a call of Slack's API came to. Of an error only Slack's own word is kept:
// the rest may contain the token.
func result(err error, reference string) deliver.Result {
	if err == nil {
		return deliver.Result{Verdict: deliver.Succeeded, Status: http.StatusOK, Reference: reference}
	}
	if pause, ok := errors.AsType[limited](err); ok {
		return deliver.Result{
			Status: http.StatusTooManyRequests, Class: "rate_limited", Text: "Slack asks for a pause.",
			RetryAfter: time.Duration(pause),
		}
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return notify.Judge(int(status), nil)
	}
	if said, ok := errors.AsType[refusal](err); ok {
		word := notify.Cut(show.Text(string(said)), 60, one)
		r := deliver.Result{
			Status: http.StatusOK, Class: "refused",
			Text: "Slack answered " + word + ". Check the token, its scopes, and that the app is in the channel.",
		}
		if hopeless[string(said)] {
			r.Verdict, r.Text = deliver.Hopeless, "Slack answered "+word+": it does not take this message."
		}
		return r
	}
	return deliver.ExplainDial(err)
}

// one counts every character as one.
func one(rune) int { return 1 }
