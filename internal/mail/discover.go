package mail

import (
	"context"
	"net/http"
	"slices"

	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The answers that need no key: a client asks them before it registers.
type (
	// Info is the answer to GET /v1/info: limits, and how agents register.
	Info struct {
		// Provider is the bare domain, as in every other answer: clients compare it with the domain
		// that they write.
		Provider          string         `json:"provider"`
		Version           string         `json:"version"`
		Capabilities      []string       `json:"capabilities"`
		RegistrationModes []string       `json:"registration_modes"`
		RateLimits        map[string]int `json:"rate_limits"`
		PublicKey         string         `json:"public_key"`
		Fingerprint       string         `json:"fingerprint"`
		AttachmentLimits  map[string]any `json:"attachment_limits"`
	}
	// Health is the answer to GET /v1/health.
	Health struct {
		Status        string      `json:"status"` // healthy, degraded or unhealthy
		Version       string      `json:"version"`
		Provider      string      `json:"provider"`
		Federation    bool        `json:"federation"`
		AgentsOnline  int64       `json:"agents_online"`
		UptimeSeconds int64       `json:"uptime_seconds"`
		Mesh          *MeshHealth `json:"mesh,omitempty"`
	}
	// MeshHealth describes the mesh of hosts, if there is one.
	MeshHealth struct {
		Enabled bool   `json:"enabled"`
		Hosts   int    `json:"hosts_configured"`
		Self    string `json:"self_host_id"`
	}
	// Organization is the tenant for clients that were given none (MSG-3).
	Organization struct {
		Organization string `json:"organization"`
	}
)

// capabilities are the tokens of the protocol that hold for every configuration.
var capabilities = []string{
	"registration", "local-delivery", "relay-queue", "attachments", "webhooks", "websockets",
	"notify:v1", "notify:longpoll",
}

// capabilities adds those that depend on the configuration.
func (m *Mail) capabilities() []string {
	list := slices.Clone(capabilities)
	// Tokens that clients do not know are ignored by them, so listing all is safe.
	if m.Peering.On() {
		list = append(list, "federation")
	}
	if len(m.Mesh.Hosts) > 0 {
		list = append(list, "mesh-routing")
	}
	return list
}

// WellKnown is our discovery document, by which other providers find our endpoint and key.
func (m *Mail) WellKnown() federation.WellKnown {
	key := m.Federation.Key()
	return federation.WellKnown{
		Version: amp.Version, Endpoint: amp.Endpoint(m.core.BaseURL), Provider: m.Domains.Own,
		Capabilities: m.capabilities(), PublicKey: amp.KeyText(key), Fingerprint: roster.Fingerprint(key),
	}
}

// getWellKnown answers pages of any origin: the document is public, and cached for an hour.
func (m *Mail) getWellKnown(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	return wire.Reply(w, http.StatusOK, m.WellKnown())
}

// modes are the registration modes in the protocol's words, which has none for owners:
// "verified" is the closest.
func (m *Mail) modes() []string {
	if m.Registration == directory.ByOwner {
		return []string{directory.ByProof}
	}
	return []string{m.Registration}
}

// Info describes the provider, its limits and how agents register.
func (m *Mail) Info() Info {
	known := m.WellKnown()
	return Info{
		Provider: known.Provider, Version: known.Version, Capabilities: known.Capabilities, RegistrationModes: m.modes(),
		PublicKey: known.PublicKey, Fingerprint: known.Fingerprint,
		RateLimits: map[string]int{
			"messages_per_minute":     messagesPerMinute,
			"api_requests_per_minute": amp.RequestsPerMinute,
		},
		AttachmentLimits: map[string]any{
			"max_attachment_size": attachment.MaxSize, "max_total_attachment_size": attachment.MaxTotal,
			"max_attachments_per_message": attachment.MaxCount, "direct_upload": false, "av_scanning": m.Clam != "",
		},
	}
}

func (m *Mail) getInfo(w http.ResponseWriter, _ *http.Request) error {
	return wire.Reply(w, http.StatusOK, m.Info())
}

// Health reports whether mail works: unhealthy without the database, degraded if the ledger is
// not what was signed and can only be read. well is false for unhealthy.
func (m *Mail) Health(ctx context.Context) (h Health, well bool) {
	h = Health{
		Status: "healthy", Version: amp.Version, Provider: m.Domains.Own, Federation: m.Peering.On(),
		UptimeSeconds: int64(m.core.Now().Sub(m.started).Seconds()),
	}
	if n := len(m.Mesh.Hosts); n > 0 {
		h.Mesh = &MeshHealth{true, n, m.Mesh.Host}
	}
	var err error
	switch h.AgentsOnline, err = m.core.Roster.Online(ctx); {
	case err != nil:
		h.Status = "unhealthy"
	// The ledger is not what was signed: mail can be read and not sent.
	case m.core.Ledger.Mismatch() != nil:
		h.Status = "degraded" // it can be read
	}
	return h, err == nil
}

// getHealth answers 503 for unhealthy, so that a load balancer needs no JSON.
func (m *Mail) getHealth(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-cache, no-store")
	h, well := m.Health(r.Context())
	if !well {
		return wire.Reply(w, http.StatusServiceUnavailable, h)
	}
	return wire.Reply(w, http.StatusOK, h)
}

func (m *Mail) getOrganization(w http.ResponseWriter, _ *http.Request) error {
	return wire.Reply(w, http.StatusOK, Organization{roster.DefaultWorkspace})
}
