package slack

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/notify"
	"signalbox/internal/wire"
)

const (
	// slackWaits is how long an answer may take; Slack shows an error after three seconds.
	slackWaits = 2 * time.Second
	// pressTime is how long a vote and its answer may take all together.
	pressTime = 20 * time.Second
	maxPress  = 1 << 20
	// maxAge is how old a signature may be.
	maxAge = 5 * time.Minute
)

// interaction is what Slack says of a press or of a submitted form, as far as it is read. Slack
// adds fields at will, so it is read leniently.
type interaction struct {
	Type      string   `json:"type"`
	TriggerID string   `json:"trigger_id"`
	User      slackID  `json:"user"`
	Channel   slackID  `json:"channel"`
	Actions   []action `json:"actions"`
	View      struct {
		CallbackID      string `json:"callback_id"`
		PrivateMetadata string `json:"private_metadata"`
		State           struct {
			Values map[string]map[string]struct {
				Value string `json:"value"`
			} `json:"values"`
		} `json:"state"`
	} `json:"view"`
}

type slackID struct {
	ID string `json:"id"`
}

type action struct {
	ActionID string `json:"action_id"`
	Value    string `json:"value"`
}

// Routes are what Slack calls, if the app has a signing secret.
func (a *App) Routes(n *notify.Notifier) []wire.Route {
	if a.SigningSecret.Reveal() == "" {
		return nil
	}
	return []wire.Route{{
		Method: "POST", Path: "/notify/slack", Summary: "What Slack calls when a button is pressed; signed by Slack",
		RequestMedia: "application/x-www-form-urlencoded", Media: "text/plain", Proof: []string{wire.Demanded},
		Handle: func(w http.ResponseWriter, r *http.Request) error { return a.serveInteraction(w, r, n) },
	}}
}

// serveInteraction takes a press over HTTP. Slack shows an error after three seconds, so the
// answer goes out after two, and the vote is finished behind it.
func (a *App) serveInteraction(w http.ResponseWriter, r *http.Request, n *notify.Notifier) error {
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
	var callback interaction
	if err := wire.UnmarshalForeign([]byte(form.Get("payload")), &callback); err != nil {
		return fault.New(fault.InvalidPayload,
			"The form's payload should be an interaction, as Slack sends it.").About("payload")
	}
	// The vote is done before the answer if it is quick; if not, it goes on.
	select {
	case <-a.handleInteraction(r.Context(), callback, n):
	case <-time.After(slackWaits):
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// verify checks Slack's signature over the body as it came, and that it is at most five minutes
// old, so that a recorded request cannot be replayed later.
func (a *App) verify(header http.Header, body []byte) error {
	stamp := header.Get("X-Slack-Request-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	age := time.Since(time.Unix(seconds, 0)).Abs()
	mac := hmac.New(sha256.New, []byte(a.SigningSecret.Reveal()))
	mac.Write([]byte("v0:" + stamp + ":"))
	mac.Write(body)
	want := "v0=" + hex.EncodeToString(mac.Sum(nil))
	if err != nil || age > maxAge || !hmac.Equal([]byte(want), []byte(header.Get("X-Slack-Signature"))) {
		return fault.New(fault.Unauthenticated,
			"This is not signed by Slack for this app, or was signed more than five minutes ago.")
	}
	return nil
}

// handleInteraction does what was pressed, and tells whoever pressed. It goes on when the caller
// is gone, since Slack does not repeat a press that it saw answered. Listen waits for it.
func (a *App) handleInteraction(ctx context.Context, callback interaction, n *notify.Notifier) (done chan struct{}) {
	done = make(chan struct{})
	a.answering.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pressTime)
		defer cancel()
		switch callback.Type {
		case "block_actions":
			for _, pressed := range callback.Actions {
				a.handlePress(ctx, &callback, pressed, n)
			}
		case "view_submission":
			a.handleReason(ctx, &callback, n)
		default: // not for us
		}
	})
	return done
}

// handlePress votes, or opens the form that a rejection needs first.
func (a *App) handlePress(ctx context.Context, callback *interaction, action action, n *notify.Notifier) {
	p := notify.Press{Channel: Name, Contact: callback.User.ID, Data: action.Value}
	say := ""
	switch action.ActionID {
	case approveID:
		say, _ = n.Press(ctx, p) // Slack has been answered already; the person is told to press again
	case rejectID:
		say = a.openReasonForm(ctx, callback, p, n)
	}
	a.sendPrivately(ctx, callback.Channel.ID, callback.User.ID, say)
}

// sendPrivately shows a text to one person in a channel. Nothing is sent for "".
func (a *App) sendPrivately(ctx context.Context, channel, user, text string) {
	if text == "" {
		return
	}
	if _, err := a.api.form(ctx, a.Token, "chat.postEphemeral",
		url.Values{"channel": {channel}, "user": {user}, "text": {escape(text)}}); err != nil {
		a.Log.Warn("cannot answer a button press in Slack", "class", result(err, "").Class)
	}
}

// Listen holds a Socket Mode connection if there is a token for one, until ctx ends, and then
// waits for the presses that are being handled.
func (a *App) Listen(ctx context.Context, n *notify.Notifier) error {
	defer a.answering.Wait()
	for ctx.Err() == nil && a.AppToken.Reveal() != "" {
		// It returns when Slack does not accept the token, which somebody may put right.
		err := a.keepConnected(ctx, n)
		if ctx.Err() != nil {
			break
		}
		a.Log.Warn("Slack refuses the connection; buttons do nothing until it accepts", "why", result(err, "").Text)
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return nil
}
