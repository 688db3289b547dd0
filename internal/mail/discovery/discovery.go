// Package discovery answers what clients and other providers ask before they have a key: who the provider is, what its
// limits are, how agents register, and whether it is well. It changes nothing, and knows no messages.
package discovery

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"slices"
	"time"

	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Options are what there is to tell.
type Options struct {
	Domain       string
	Registration string // one of directory.Modes
	Federation   bool   // mail is exchanged with other providers
	Mesh         federation.Mesh
	Scans        bool // attachments are scanned for viruses
	PerMinute    int  // how many messages an agent may send
	Key          ed25519.PublicKey
}

// Discovery answers. Make one with New.
type Discovery struct {
	Options
	core    protocol.Core
	started time.Time
}

// New makes the answers of a server that starts now.
func New(core protocol.Core, o Options) *Discovery { return &Discovery{o, core, core.Now()} }

// Routes are the calls that need no key.
func (m *Discovery) Routes() []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/.well-known/agent-messaging.json", Summary: "The discovery document (AMP v0.1.2)",
			Answer: federation.WellKnown{}, Handle: m.getWellKnown,
		},
		{
			Method: "GET", Path: "/v1/info", Summary: "The provider, its limits and how agents register", Answer: Info{},
			Handle: m.getInfo,
		},
		{Method: "GET", Path: "/v1/health", Summary: "The health of the provider", Answer: Health{}, Handle: m.getHealth},
		{
			Method: "GET", Path: "/v1/organization", Summary: "The tenant for clients that have none; also at /api/organization",
			Answer: Organization{}, Handle: m.getOrganization,
		},
	}
}

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
func (m *Discovery) capabilities() []string {
	list := slices.Clone(capabilities)
	// Tokens that clients do not know are ignored by them, so listing all is safe.
	if m.Federation {
		list = append(list, "federation")
	}
	if len(m.Mesh.Hosts) > 0 {
		list = append(list, "mesh-routing")
	}
	return list
}

// WellKnown is our discovery document, by which other providers find our endpoint and key.
func (m *Discovery) WellKnown() federation.WellKnown {
	key := m.Key
	return federation.WellKnown{
		Version: amp.Version, Endpoint: amp.Endpoint(m.core.BaseURL), Provider: m.Domain,
		Capabilities: m.capabilities(), PublicKey: amp.KeyText(key), Fingerprint: roster.Fingerprint(key),
	}
}

// getWellKnown answers pages of any origin: the document is public, and cached for an hour.
func (m *Discovery) getWellKnown(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	return wire.Reply(w, http.StatusOK, m.WellKnown())
}

// modes are the registration modes in the protocol's words, which has none for owners:
// "verified" is the closest.
func (m *Discovery) modes() []string {
	if m.Registration == directory.ByOwner {
		return []string{directory.ByProof}
	}
	return []string{m.Registration}
}

// Info describes the provider, its limits and how agents register.
func (m *Discovery) Info() Info {
	known := m.WellKnown()
	return Info{
		Provider: known.Provider, Version: known.Version, Capabilities: known.Capabilities, RegistrationModes: m.modes(),
		PublicKey: known.PublicKey, Fingerprint: known.Fingerprint,
		RateLimits: map[string]int{
			"messages_per_minute":     m.PerMinute,
			"api_requests_per_minute": amp.RequestsPerMinute,
		},
		AttachmentLimits: map[string]any{
			"max_attachment_size": attachment.MaxSize, "max_total_attachment_size": attachment.MaxTotal,
			"max_attachments_per_message": attachment.MaxCount, "direct_upload": false, "av_scanning": m.Scans,
		},
	}
}

func (m *Discovery) getInfo(w http.ResponseWriter, _ *http.Request) error {
	return wire.Reply(w, http.StatusOK, m.Info())
}

// Health reports whether mail works: unhealthy without the database, degraded if the ledger is
// not what was signed and can only be read. well is false for unhealthy.
func (m *Discovery) Health(ctx context.Context) (h Health, well bool) {
	h = Health{
		Status: "healthy", Version: amp.Version, Provider: m.Domain, Federation: m.Federation,
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
func (m *Discovery) getHealth(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-cache, no-store")
	h, well := m.Health(r.Context())
	if !well {
		return wire.Reply(w, http.StatusServiceUnavailable, h)
	}
	return wire.Reply(w, http.StatusOK, h)
}

func (m *Discovery) getOrganization(w http.ResponseWriter, _ *http.Request) error {
	return wire.Reply(w, http.StatusOK, Organization{roster.DefaultWorkspace})
}
