package slack

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/notify"
	"signalbox/internal/wire"
)

const (
	// pingEvery finds out that a connection is dead, which nothing else would tell.
	pingEvery = 30 * time.Second
	pingTime  = 10 * time.Second

	firstPause   = time.Second
	longestPause = 30 * time.Second
	// settled is how long a connection lasts that was a good one. After such a one the next
	// is opened at once.
	settled = time.Minute
)

// envelope is what arrives over a socket.
type envelope struct {
	Type       string   `json:"type"`
	EnvelopeID string   `json:"envelope_id"`
	Payload    wire.Raw `json:"payload"`
}

// keepConnected holds a Socket Mode connection and connects again when it ends, which happens
// every few hours by Slack's design. The pause between tries grows. It returns when ctx ends or
// when Slack refuses the token.
func (a *App) keepConnected(ctx context.Context, n *notify.Notifier) error {
	for pause := firstPause; ctx.Err() == nil; {
		began := time.Now()
		met, err := a.connectOnce(ctx, n)
		if _, refused := errors.AsType[refusal](err); refused {
			return err
		}
		// A good connection ended, which is normal: connect again at once.
		if met && time.Since(began) >= settled {
			pause = firstPause
			continue
		}
		wait := pause
		if asked, ok := errors.AsType[limited](err); ok {
			wait = max(wait, time.Duration(asked))
		}
		if ctx.Err() == nil {
			a.Log.Warn("not connected to Slack; will retry", "in", wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
	return ctx.Err()
}

// connectOnce is one connection until it ends. met says that Slack said hello.
func (a *App) connectOnce(ctx context.Context, n *notify.Notifier) (met bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened, err := a.api.form(ctx, a.AppToken, "apps.connections.open", nil)
	if err != nil {
		return false, err
	}
	dialling, done := context.WithTimeout(ctx, pingEvery)
	defer done()
	// The client of the API cuts answers off; a socket is an answer that goes on.
	c, _, err := websocket.Dial(dialling, opened.URL, //nolint:bodyclose // the connection is the body
		&websocket.DialOptions{HTTPClient: &http.Client{}})
	if err != nil {
		return false, err
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(maxPress)
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		defer cancel()
		a.ping(ctx, c)
	}()
	defer func() { cancel(); <-pinging }()
	for {
		_, text, err := c.Read(ctx)
		if err != nil {
			return met, err
		}
		var e envelope
		if wire.UnmarshalForeign(text, &e) != nil {
			continue
		}
		switch e.Type {
		case "hello":
			met = true
			a.Log.Info("connected to Slack")
		case "disconnect":
			return met, nil
		default:
			a.handleEnvelope(ctx, c, e, n)
		}
	}
}

// ping returns when the other side no longer answers, and so ends a connection that is dead
// without anybody having closed it.
func (a *App) ping(ctx context.Context, c *websocket.Conn) {
	for {
		select {
		case <-time.After(pingEvery):
		case <-ctx.Done():
			return
		}
		waiting, done := context.WithTimeout(ctx, pingTime)
		err := c.Ping(waiting)
		done()
		if err != nil {
			return
		}
	}
}

// handleEnvelope acknowledges what arrived, then handles presses. The ack comes first: Slack
// repeats what is not acknowledged within three seconds, and a vote may take longer.
func (a *App) handleEnvelope(ctx context.Context, c *websocket.Conn, e envelope, n *notify.Notifier) {
	if e.EnvelopeID != "" {
		ack, _ := wire.Marshal(map[string]string{"envelope_id": e.EnvelopeID}) // always can be
		_ = c.Write(ctx, websocket.MessageText, ack)
	}
	var pressed interaction
	if e.Type == "interactive" && wire.UnmarshalForeign(e.Payload, &pressed) == nil {
		a.handleInteraction(ctx, pressed, n)
	}
}
