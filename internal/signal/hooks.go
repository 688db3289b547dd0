package signal

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
)

// Webhook says where the resolutions of an agent's gates are sent. An operator registers it; it
// holds until the next registration. It is also the body of webhook.registered.
type Webhook struct {
	URL string `json:"url"` // for signals that name none; "" for none
	// Hosts may be named by a signal's webhook_url, beside the host of URL. An agent without a
	// registration may name any public address; one that has been registered, with whatever
	// values, only these (SIG-32).
	Hosts []string `json:"hosts"`
	// Generation counts how often the secret was changed. The secret itself is derived from it
	// and stored nowhere.
	Generation int `json:"generation"`
}

// chooseWebhook fills in where the resolution is sent, and refuses an address that the signal
// may not name (SIG-32, SIG-33). The address is fixed with the signal: a later registration
// does not move the callback of a gate that is open.
func (s *Signals) chooseWebhook(ctx context.Context, who roster.Identity, sig *Signal) error {
	hook, registered := s.hooks.Get(who.ID)
	if sig.WebhookURL == "" {
		sig.WebhookURL = hook.URL // checked when it was registered
		return nil
	}
	if registered && !hook.allows(sig.WebhookURL) {
		return fault.New(fault.InvalidTarget,
			"The host in webhook_url is not registered for this agent. Leave webhook_url out, or ask an "+
				"operator to register the host.").About("webhook_url")
	}
	if err := s.core.Outbox.CheckTarget(ctx, sig.WebhookURL); err != nil {
		return fault.From(err).About("webhook_url")
	}
	return nil
}

// allows reports whether a signal may name the target. Hosts are compared without their port.
func (h Webhook) allows(target string) bool {
	host := hostOf(target)
	return host == hostOf(h.URL) || slices.Contains(h.Hosts, host)
}

// hostOf is the host of an address in lower case, "" if it cannot be read. Parse has refused
// a webhook_url without a host, so "" never matches a registration without a URL by accident.
func hostOf(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// WebhookOf is the webhook of an agent, zero if it has none. Other protocols use it to tell the
// agent of decisions. It is read from memory and follows the ledger by milliseconds.
func (s *Signals) WebhookOf(agentID string) Webhook {
	h, _ := s.hooks.Get(agentID)
	return h
}

// ShownWebhook is a webhook with the secret that verifies its calls, as the agent and its
// operators see it.
type ShownWebhook struct {
	Webhook
	Secret string `json:"secret"`
}

// withSecret adds the secret to the webhook. The secret follows from workspace, agent and generation.
func (s *Signals) withSecret(workspace, agentID string) ShownWebhook {
	h := s.WebhookOf(agentID)
	if h.Hosts == nil {
		h.Hosts = []string{}
	}
	return ShownWebhook{h, s.core.Outbox.SecretFor(workspace, agentID, h.Generation).Reveal()}
}

// NewWebhook replaces an agent's webhook: fields that are absent are emptied. RotateSecret makes a
// new secret at once; calls that are queued are signed with the one of their generation.
type NewWebhook struct {
	URL          string   `json:"url,omitempty"`
	Hosts        []string `json:"hosts,omitempty"`
	RotateSecret bool     `json:"rotate_secret,omitempty"`
}

// SetWebhook registers where the resolutions of an agent are sent. This node uses it at once,
// others when they have followed the ledger.
func (s *Signals) SetWebhook(ctx context.Context, by roster.Identity, workspace, agent string,
	in NewWebhook,
) (ShownWebhook, error) {
	a, err := s.core.Roster.SeenAgent(ctx, workspace, agent)
	if err != nil {
		return ShownWebhook{}, err
	}
	before := s.WebhookOf(a.ID)
	r, err := s.core.Outbox.Register(ctx, deliver.Registration{URL: before.URL, Generation: before.Generation}, in.URL,
		in.RotateSecret)
	if err != nil {
		return ShownWebhook{}, err
	}
	h := Webhook{URL: r.URL, Hosts: []string{}, Generation: r.Generation}
	// Hosts are compared in lower case (hostOf).
	for _, host := range in.Hosts {
		h.Hosts = append(h.Hosts, strings.ToLower(host))
	}
	var seq int64
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		seq = tx.Append(ledger.Event{Workspace: a.Workspace, Kind: kindHooked, Actor: by.Actor(), Subject: a.ID, Body: h})
		return nil
	})
	if err != nil {
		return ShownWebhook{}, err
	}
	s.hooks.Put(a.ID, seq, h)
	return s.withSecret(a.Workspace, a.ID), nil
}

// ShowWebhook is the webhook of an agent; one in another workspace than the caller's is not
// found.
func (s *Signals) ShowWebhook(ctx context.Context, workspace, agent string) (ShownWebhook, error) {
	a, err := s.core.Roster.SeenAgent(ctx, workspace, agent)
	if err != nil {
		return ShownWebhook{}, err
	}
	return s.withSecret(a.Workspace, a.ID), nil
}

func (s *Signals) putWebhook(r *http.Request, in NewWebhook) (ShownWebhook, error) {
	return s.SetWebhook(r.Context(), roster.From(r.Context()), r.URL.Query().Get("workspace"), r.PathValue("name"), in)
}

func (s *Signals) getWebhook(r *http.Request) (ShownWebhook, error) {
	return s.ShowWebhook(r.Context(), r.URL.Query().Get("workspace"), r.PathValue("name"))
}

// getOwnWebhook shows an agent the secret with which it verifies our calls.
func (s *Signals) getOwnWebhook(r *http.Request) (ShownWebhook, error) {
	who := roster.From(r.Context())
	return s.withSecret(who.Workspace, who.ID), nil
}
