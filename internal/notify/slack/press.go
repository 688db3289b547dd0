package slack

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"

	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/notify"
	"github.com/signalbox/signalbox/internal/wire"
)

const (
	// slackWaits is how long an answer may take; Slack shows an error after three seconds.
	slackWaits = 2 * time.Second
	// pressTime is how long a vote and its answer may take all together.
	pressTime = 20 * time.Second
	maxPress  = 1 << 20
)

// Routes are what Slack calls.
func (a *App) Routes(n *notify.Notifier) []wire.Route {
	if a.SigningSecret.Reveal() == "" {
		return nil
	}
	return []wire.Route{{
		Method: "POST", Path: "/notify/slack", Summary: "What Slack calls when a button is pressed; signed by Slack",
		RequestMedia: "application/x-www-form-urlencoded", Media: "text/plain",
		Handle: func(w http.ResponseWriter, r *http.Request) error { return a.called(w, r, n) },
	}}
}

func (a *App) called(w http.ResponseWriter, r *http.Request, n *notify.Notifier) error {
	body, err := wire.Read(w, r, maxPress)
	if err != nil {
		return err
	}
	if err := a.verify(r.Header, body); err != nil {
		return err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return fault.New(fault.InvalidPayload, "The body should be a form, as Slack sends it.")
	}
	var callback slack.InteractionCallback
	if err := json.Unmarshal([]byte(form.Get("payload")), &callback); err != nil {
		return fault.New(fault.InvalidPayload, "The form's payload should be an interaction, as Slack sends it.").About("payload")
	}
	// The vote is done before the answer if it is quick; if not, it goes on.
	select {
	case <-a.answer(r.Context(), callback, n):
	case <-time.After(slackWaits):
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// verify checks Slack's signature over the body as it came, and that it is not older
// than five minutes.
func (a *App) verify(header http.Header, body []byte) error {
	verifier, err := slack.NewSecretsVerifier(header, a.SigningSecret.Reveal())
	if err == nil {
		_, _ = verifier.Write(body) // a hash takes everything
		err = verifier.Ensure()
	}
	if err != nil {
		return fault.New(fault.Unauthenticated, "This is not signed by Slack for this app, or was signed more than five minutes ago.")
	}
	return nil
}

// answer does what was pressed and says so to who pressed. It goes on when the caller
// has gone.
func (a *App) answer(ctx context.Context, callback slack.InteractionCallback, n *notify.Notifier) (done chan struct{}) {
	done = make(chan struct{})
	a.answering.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pressTime)
		defer cancel()
		switch callback.Type {
		case slack.InteractionTypeBlockActions:
			for _, action := range callback.ActionCallback.BlockActions {
				if action != nil {
					a.pressed(ctx, &callback, action, n)
				}
			}
		case slack.InteractionTypeViewSubmission:
			a.submitted(ctx, &callback, n)
		default: // not for us
		}
	})
	return done
}

// pressed votes, or asks for what a rejection takes first.
func (a *App) pressed(ctx context.Context, callback *slack.InteractionCallback, action *slack.BlockAction, n *notify.Notifier) {
	p := notify.Press{Channel: Name, Contact: callback.User.ID, Data: action.Value}
	say := ""
	switch action.ActionID {
	case approveID:
		say = n.Press(ctx, p)
	case rejectID:
		say = a.askWhy(ctx, callback, p, n)
	}
	a.say(ctx, callback.Channel.ID, callback.User.ID, say)
}

// say tells one person in a channel, if there is anything to tell.
func (a *App) say(ctx context.Context, channel, user, text string) {
	if text == "" {
		return
	}
	if _, err := a.client.PostEphemeralContext(ctx, channel, user, slack.MsgOptionText(escape(text), false)); err != nil {
		a.Log.Warn("cannot tell somebody in Slack what came of a press", "class", result(err, "").Class)
	}
}

// Listen holds a connection of Socket Mode if there is a token for one, until ctx ends,
// and waits for the presses that are being answered.
func (a *App) Listen(ctx context.Context, n *notify.Notifier) error {
	defer a.answering.Wait()
	for ctx.Err() == nil && a.AppToken.Reveal() != "" {
		// It returns when Slack does not accept the token, which somebody may put right.
		err := a.socket(ctx, n)
		if ctx.Err() != nil {
			break
		}
		a.Log.Warn("Slack does not let us connect; buttons will do nothing until it does", "why", result(err, "").Text)
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return nil
}

func (a *App) socket(ctx context.Context, n *notify.Notifier) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := socketmode.New(a.client, socketmode.OptionReadLimit(maxPress))
	ended := make(chan error, 1)
	go func() { ended <- client.RunContext(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case event := <-client.Events:
			a.heard(ctx, client, event, n)
		}
	}
}

func (a *App) heard(ctx context.Context, client *socketmode.Client, event socketmode.Event, n *notify.Notifier) {
	switch event.Type {
	case socketmode.EventTypeConnected:
		a.Log.Info("connected to Slack")
	case socketmode.EventTypeConnectionError:
		a.Log.Warn("cannot connect to Slack; will try again")
	case socketmode.EventTypeInteractive:
		// Slack wants to hear at once that it arrived.
		if event.Request != nil {
			_ = client.AckCtx(ctx, event.Request.EnvelopeID, nil) // not heard, Slack sends it again
		}
		if callback, ok := event.Data.(slack.InteractionCallback); ok {
			a.answer(ctx, callback, n)
		}
	default:
		if event.Request != nil && event.Request.EnvelopeID != "" {
			_ = client.AckCtx(ctx, event.Request.EnvelopeID, nil) // it is not for us either way
		}
	}
}
