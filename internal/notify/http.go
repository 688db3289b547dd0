package notify

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

// The bodies of the operators' API.
type (
	// ChannelList is all channels.
	ChannelList struct {
		Channels []ChannelInfo `json:"channels"`
	}
	// ChannelInfo is a channel as operators see it.
	ChannelInfo struct {
		Channel string `json:"channel"`
		Target  string `json:"target"`
		Buttons bool   `json:"buttons"` // a gate of medium risk can be decided there
	}
	// TestRequest says which channel to try.
	TestRequest struct {
		Channel string `json:"channel"`
	}
	// TestAnswer says what happened.
	TestAnswer struct {
		Results []TestResult `json:"results"`
	}
	// TestResult is what happened in one channel.
	TestResult struct {
		Channel   string `json:"channel"`
		Target    string `json:"target"`
		Delivered bool   `json:"delivered"`
		Class     string `json:"class,omitempty"`
		Text      string `json:"text,omitempty"`
	}
	// SecretAnswer is the secret by which the webhook's receiver knows us.
	SecretAnswer struct {
		Secret string `json:"secret"`
	}
)

const maxBody = 1 << 16

// Routes are the operators' calls, and those by which channels are called.
func (n *Notifier) Routes() []wire.Route {
	routes := []wire.Route{
		{
			Method: "GET", Path: "/ops/notify", Summary: "List the channels that are told of gates", Auth: wire.Viewer,
			Answer: ChannelList{}, Handle: wire.Answer(http.StatusOK, n.getChannels),
		},
		{
			Method: "POST", Path: "/ops/notify/test", Summary: "Send a test message to a channel and say what happened",
			Auth: wire.Admin, Request: TestRequest{}, Answer: TestAnswer{},
			Handle: wire.Take(http.StatusOK, maxBody, n.postTest),
		},
		{
			Method: "GET", Path: "/ops/notify/secret", Summary: "Show the secret with which calls to notify.webhook are signed",
			Auth: wire.Admin, Answer: SecretAnswer{}, Handle: wire.Answer(http.StatusOK, n.getSecret),
		},
	}
	for _, c := range n.Channels {
		if called, ok := c.(Called); ok {
			routes = append(routes, called.Routes(n)...)
		}
	}
	return routes
}

// unconfined refuses callers who are confined to a workspace: channels serve the whole server.
func unconfined(ctx context.Context) error { return wire.Unconfined(ctx, "Channels are those of") }

// List lists the channels.
func (n *Notifier) List(ctx context.Context) (ChannelList, error) {
	list := ChannelList{Channels: []ChannelInfo{}}
	if err := unconfined(ctx); err != nil {
		return list, err
	}
	for _, c := range n.Channels {
		list.Channels = append(list.Channels, ChannelInfo{c.Name(), c.Target(), c.Buttons(gate.Gate{Risk: "medium"})})
	}
	return list, nil
}

// WebhookSecret is the secret that signs calls to notify.webhook.
func (n *Notifier) WebhookSecret(ctx context.Context) (wire.Secret, error) {
	if err := unconfined(ctx); err != nil {
		return wire.Secret{}, err
	}
	for _, c := range n.Channels {
		if hook, ok := c.(*Webhook); ok {
			return hook.Secret(), nil
		}
	}
	return wire.Secret{}, n.noChannel(webhookName)
}

// getChannels, getSecret and postTest translate between HTTP and the methods of the same purpose.
func (n *Notifier) getChannels(r *http.Request) (ChannelList, error) { return n.List(r.Context()) }

func (n *Notifier) getSecret(r *http.Request) (SecretAnswer, error) {
	secret, err := n.WebhookSecret(r.Context())
	return SecretAnswer{secret.Reveal()}, err
}

func (n *Notifier) postTest(r *http.Request, in TestRequest) (TestAnswer, error) {
	results, err := n.Test(r.Context(), roster.From(r.Context()), in.Channel)
	return TestAnswer{results}, err
}

// testTime is how long a test of a channel may take. An operator waits for it.
const testTime = 15 * time.Second

// Test sends a test message to every channel of the name, and records what happened. It goes past
// the outbox, so that the answer is the channel's own.
func (n *Notifier) Test(ctx context.Context, by roster.Identity, name string) ([]TestResult, error) {
	if err := unconfined(ctx); err != nil {
		return nil, err
	}
	var results []TestResult
	for _, c := range n.Channels {
		if c.Name() == name {
			results = append(results, n.sendTest(ctx, c))
		}
	}
	if len(results) == 0 {
		return nil, n.noChannel(name)
	}
	err := n.ledger.Write(ctx, func(tx *ledger.Tx) error {
		for _, r := range results {
			tx.Append(ledger.Event{
				Kind: kindTested, Actor: by.Actor(), Subject: r.Target,
				Body: tested{r.Delivered, r.Class, r.Text},
			})
		}
		return nil
	})
	return results, err
}

// sendTest sends a test message to one channel.
func (n *Notifier) sendTest(ctx context.Context, c Channel) TestResult {
	ctx, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	m := Message{ID: id.New("delivery"), Number: 1, At: time.Now(), Event: Tested, Link: n.base}
	m.write(c.Room())
	got := c.Send(ctx, m)
	r := TestResult{Channel: c.Name(), Target: c.Target(), Delivered: got.Verdict == deliver.Succeeded}
	if !r.Delivered {
		r.Class, r.Text = got.Class, show.Text(got.Text)
	}
	return r
}

// noChannel is the error for a channel that is not configured; it names those that are.
func (n *Notifier) noChannel(name string) error {
	var known []string
	for _, c := range n.Channels {
		if !slices.Contains(known, c.Name()) {
			known = append(known, c.Name())
		}
	}
	there := "None is configured; see the settings that begin with notify."
	if len(known) > 0 {
		there = "Configured are: " + strings.Join(known, ", ") + "."
	}
	return fault.New(fault.NotFound, "There is no channel %.40q here. %s", name, there).About("channel")
}
