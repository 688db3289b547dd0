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

// Webhook is where an agent's resolutions are sent.
type Webhook struct {
	URL string `json:"url"` // for signals that name none; "" for none
	// Hosts are those that a signal may name instead. Without any, and without a URL,
	// a signal may name every public address.
	Hosts []string `json:"hosts"`
	// Generation counts how often the secret was changed.
	Generation int `json:"generation"`
}

// chooseWebhook settles where the resolution goes, and checks that it may.
func (s *Signals) chooseWebhook(ctx context.Context, who roster.Identity, sig *Signal) error {
	hook, registered := s.hooks.Get(who.ID)
	if sig.WebhookURL == "" {
		sig.WebhookURL = hook.URL // checked when it was registered
		return nil
	}
	if registered && !hook.allows(sig.WebhookURL) {
		return fault.New(fault.InvalidTarget,
			"The webhooks of this agent go to hosts that an operator has registered, and this is none of "+
				"them. Leave webhook_url out, or ask an operator.").About("webhook_url")
	}
	if err := s.core.Outbox.CheckTarget(ctx, sig.WebhookURL); err != nil {
		return fault.From(err).About("webhook_url")
	}
	return nil
}

func (h Webhook) allows(target string) bool {
	host := hostOf(target)
	return host == hostOf(h.URL) || slices.Contains(h.Hosts, host)
}

func hostOf(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// WebhookOf is the webhook of an agent, for other protocols that tell it of decisions.
func (s *Signals) WebhookOf(agentID string) Webhook {
	h, _ := s.hooks.Get(agentID)
	return h
}

// ShownWebhook is a webhook with the secret that verifies it.
type ShownWebhook struct {
	Webhook
	Secret string `json:"secret"`
}

func (s *Signals) shown(workspace, agentID string) ShownWebhook {
	h := s.WebhookOf(agentID)
	if h.Hosts == nil {
		h.Hosts = []string{}
	}
	return ShownWebhook{h, s.core.Outbox.SecretFor(workspace, agentID, h.Generation).Reveal()}
}

// NewWebhook registers a webhook. RotateSecret makes a new secret.
type NewWebhook struct {
	URL          string   `json:"url,omitempty"`
	Hosts        []string `json:"hosts,omitempty"`
	RotateSecret bool     `json:"rotate_secret,omitempty"`
}

// SetWebhook says where the resolutions of an agent are sent.
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
	for _, host := range in.Hosts {
		h.Hosts = append(h.Hosts, strings.ToLower(host))
	}
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: a.Workspace, Kind: kindHooked, Actor: by.Actor(), Subject: a.ID, Body: h})
		return nil
	})
	if err != nil {
		return ShownWebhook{}, err
	}
	s.hooks.Put(a.ID, h)
	return s.shown(a.Workspace, a.ID), nil
}

// ShowWebhook is the webhook of an agent that the caller may see.
func (s *Signals) ShowWebhook(ctx context.Context, workspace, agent string) (ShownWebhook, error) {
	a, err := s.core.Roster.SeenAgent(ctx, workspace, agent)
	if err != nil {
		return ShownWebhook{}, err
	}
	return s.shown(a.Workspace, a.ID), nil
}

func (s *Signals) putWebhook(r *http.Request, in NewWebhook) (ShownWebhook, error) {
	return s.SetWebhook(r.Context(), roster.From(r.Context()), r.URL.Query().Get("workspace"), r.PathValue("name"), in)
}

func (s *Signals) getWebhook(r *http.Request) (ShownWebhook, error) {
	return s.ShowWebhook(r.Context(), r.URL.Query().Get("workspace"), r.PathValue("name"))
}

// getOwnWebhook lets an agent learn the secret by which it recognises us.
func (s *Signals) getOwnWebhook(r *http.Request) (ShownWebhook, error) {
	who := roster.From(r.Context())
	return s.shown(who.Workspace, who.ID), nil
}
