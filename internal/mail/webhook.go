package mail

import (
	"context"
	"net/http"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/roster"
)

// webhookSender is the outbox's sender for webhooks of agents. A delivery holds the id of a
// message; the message is read when the call is made, and not sent if it has left the queue.
type webhookSender struct{ *Mail }

// webhookPauses are the pauses after the first and the second failed call (MSG-65). After the
// third the outbox gives up, and the message waits in the queue for a poll.
var webhookPauses = []time.Duration{30 * time.Second, 120 * time.Second}

// Send makes one call. The address and the secret are those of the agent's profile at this
// moment, not of the moment when the message was sent.
func (s webhookSender) Send(ctx context.Context, a deliver.Attempt) deliver.Result {
	id := string(a.Payload)
	p, who, err := s.load(ctx, a, id)
	if err != nil {
		return deliver.Result{Class: "internal", Text: fault.From(err).Message}
	}
	// A new address or secret applies to calls that are queued already.
	profile := s.Directory.Profile(a.Receiver)
	if p == nil || profile.WebhookURL == "" {
		return deliver.Result{
			Verdict: deliver.Succeeded,
			Text:    "The message has left the queue, or the agent wants no calls any more.",
		}
	}
	secret, err := s.Directory.Secret(a.Workspace, a.Receiver, profile)
	if err != nil {
		s.core.Log.Error("cannot call a webhook", "agent", a.Receiver, "error", err.Error())
		return deliver.Result{
			Verdict: deliver.Hopeless, Class: "secret",
			Text: "The webhook secret cannot be read: it was sealed with another webhook.key.",
		}
	}
	body, err := p.call()
	if err != nil {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "internal", Text: "The message cannot be written."}
	}
	a.Target, a.Method, a.Payload, a.Secret = profile.WebhookURL, http.MethodPost, body, secret
	a.Header = map[string]string{"X-AMP-Message-Id": id}
	if p.Handoff != nil {
		a.Header[behalf.DelegationHeader] = p.Handoff.Token
	}
	r := s.core.Outbox.Post(ctx, a)
	switch {
	case r.Verdict == deliver.Succeeded:
		// MSG-65: a 2xx is the acknowledgement. If it cannot be recorded the call is repeated,
		// with the same id.
		if _, err := s.Ack(ctx, who, ByWebhook, id); err != nil {
			return deliver.Result{Class: "internal", Text: "The receiver has the message, and that could not be recorded."}
		}
	case isFinalRefusal(r.Status), a.Number > int64(len(webhookPauses)):
		r.Verdict = deliver.Hopeless
	// A receiver may ask for a longer pause, never for a shorter one.
	default:
		r.RetryAfter = max(r.RetryAfter, webhookPauses[a.Number-1])
	}
	return r
}

// load reads the message and its recipient. The message is nil if it has left the queue, or if
// the recipient is gone or suspended.
func (s webhookSender) load(ctx context.Context, a deliver.Attempt, id string) (*Pending, roster.Identity, error) {
	who, err := s.core.Roster.Find(ctx, a.Target)
	if fault.Is(err, fault.NotFound) || err == nil && who.Suspended {
		return nil, who, nil
	}
	if err != nil {
		return nil, who, err
	}
	p, err := s.inQueueOf(ctx, a.Receiver, id)
	return p, who, err
}
