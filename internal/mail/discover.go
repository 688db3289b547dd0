package mail

import (
	"crypto/ed25519"
	"net/http"
	"slices"

	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The answers to who does not know us yet.
type (
	// WellKnown is the discovery document.
	WellKnown struct {
		Version      string   `json:"version"`
		Endpoint     string   `json:"endpoint"`
		Provider     string   `json:"provider"`
		Capabilities []string `json:"capabilities"`
		PublicKey    string   `json:"public_key"`
		Fingerprint  string   `json:"fingerprint"`
	}
	// Info says what a client has to know before it registers.
	Info struct {
		Provider          string         `json:"provider"`
		Version           string         `json:"version"`
		Capabilities      []string       `json:"capabilities"`
		RegistrationModes []string       `json:"registration_modes"`
		RateLimits        map[string]int `json:"rate_limits"`
		PublicKey         string         `json:"public_key"`
		Fingerprint       string         `json:"fingerprint"`
		AttachmentLimits  map[string]any `json:"attachment_limits"`
	}
	// Health says how we are.
	Health struct {
		Status        string      `json:"status"`
		Version       string      `json:"version"`
		Provider      string      `json:"provider"`
		Federation    bool        `json:"federation"`
		AgentsOnline  int64       `json:"agents_online"`
		UptimeSeconds int64       `json:"uptime_seconds"`
		Mesh          *MeshHealth `json:"mesh,omitempty"`
	}
	// MeshHealth says which hosts we serve the provider with.
	MeshHealth struct {
		Enabled bool   `json:"enabled"`
		Hosts   int    `json:"hosts_configured"`
		Self    string `json:"self_host_id"`
	}
	// Organization is the tenant for clients that have none.
	Organization struct {
		Organization string `json:"organization"`
	}
)

var capabilities = []string{"registration", "local-delivery", "relay-queue", "attachments", "webhooks", "websockets", "notify:v1", "notify:longpoll"}

func (m *Mail) capabilities() []string {
	list := slices.Clone(capabilities)
	if m.federates() {
		list = append(list, "federation")
	}
	if len(m.Mesh.Hosts) > 0 {
		list = append(list, "mesh-routing")
	}
	return list
}

func (m *Mail) federates() bool { return m.Federation.Mode != "" && m.Federation.Mode != PeersClosed }

// ownKey is our public key, by which other providers know us.
func (m *Mail) ownKey() ed25519.PublicKey { return m.provider.Public().(ed25519.PublicKey) }

func (m *Mail) getWellKnown(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	return wire.Reply(w, http.StatusOK, WellKnown{amp.Version, amp.Endpoint(m.core.BaseURL), m.Domains.Own, m.capabilities(), amp.KeyText(m.ownKey()), roster.Fingerprint(m.ownKey())})
}

// modes are the registration modes in the protocol's words: an owner is somebody who was
// verified.
func (m *Mail) modes() []string {
	if m.Registration == directory.ByOwner {
		return []string{directory.ByProof}
	}
	return []string{m.Registration}
}

func (m *Mail) getInfo(w http.ResponseWriter, _ *http.Request) error {
	limits := map[string]int{"messages_per_minute": messagesPerMinute, "api_requests_per_minute": amp.RequestsPerMinute}
	files := map[string]any{"max_attachment_size": attachment.MaxSize, "max_total_attachment_size": attachment.MaxTotal, "max_attachments_per_message": attachment.MaxCount, "direct_upload": false, "av_scanning": m.Clam != ""}
	return wire.Reply(w, http.StatusOK, Info{m.Domains.Own, amp.Version, m.capabilities(), m.modes(), limits, amp.KeyText(m.ownKey()), roster.Fingerprint(m.ownKey()), files})
}

func (m *Mail) getHealth(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-cache, no-store")
	h := Health{Status: "healthy", Version: amp.Version, Provider: m.Domains.Own, Federation: m.federates(), UptimeSeconds: int64(m.core.Now().Sub(m.started).Seconds())}
	if n := len(m.Mesh.Hosts); n > 0 {
		h.Mesh = &MeshHealth{true, n, m.Mesh.Host}
	}
	status := http.StatusOK
	var err error
	switch h.AgentsOnline, err = m.core.Roster.Online(r.Context()); {
	case err != nil:
		h.Status, status = "unhealthy", http.StatusServiceUnavailable
	case m.core.Ledger.Mismatch() != nil:
		h.Status = "degraded" // it can be read
	}
	return wire.Reply(w, status, h)
}

func (m *Mail) getOrganization(w http.ResponseWriter, _ *http.Request) error {
	return wire.Reply(w, http.StatusOK, Organization{roster.DefaultWorkspace})
}
