package mail

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
)

// The modes of exchanging mail with other providers.
const (
	PeersClosed   = "closed"    // with none
	PeersListed   = "allowlist" // with those that are listed
	PeersRegistry = "registry"  // and with those that a registry has verified
	PeersOpen     = "open"      // with all
)

// PeerModes lists them.
var PeerModes = []string{PeersClosed, PeersListed, PeersRegistry, PeersOpen}

// Federation says which providers mail is exchanged with.
type Federation struct {
	Mode string // one of PeerModes; closed when empty
	// Peers are the domains that are listed, with the address where each is reached: ""
	// for where discovery finds it.
	Peers    map[string]string
	Registry string // the address of a registry, "" for none
	// LookupTXT finds records of the domain name system; the machine's own when nil.
	LookupTXT func(ctx context.Context, name string) ([]string, error)
}

// peer is another provider, as it was discovered.
type peer struct {
	endpoint string // with /api/v1 or the like
	key      ed25519.PublicKey
	until    time.Time
}

// peerBook remembers who was discovered.
type peerBook struct {
	mu    sync.Mutex
	known map[string]peer
}

const (
	peerTime      = time.Hour
	discoveryTime = 5 * time.Second
	maxDocument   = 64 << 10
)

func notTrusted(domain string) error {
	return fault.New(fault.ProviderNotTrusted, "This server does not exchange mail with %.254s.", domain)
}

// peer finds a provider that mail may be exchanged with.
func (m *Mail) peer(ctx context.Context, domain string) (peer, error) {
	_, listed := m.Federation.Peers[domain]
	switch cmp.Or(m.Federation.Mode, PeersClosed) {
	case PeersClosed:
		return peer{}, notTrusted(domain)
	case PeersListed:
		if !listed {
			return peer{}, notTrusted(domain)
		}
	}
	now := m.core.Now()
	m.peers.mu.Lock()
	known, ok := m.peers.known[domain]
	m.peers.mu.Unlock()
	if ok && now.Before(known.until) {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	found, err := m.discover(ctx, domain, listed)
	if err != nil {
		return peer{}, err
	}
	found.until = now.Add(peerTime)
	m.peers.mu.Lock()
	defer m.peers.mu.Unlock()
	if m.peers.known == nil || len(m.peers.known) > maxRooms {
		m.peers.known = map[string]peer{}
	}
	m.peers.known[domain] = found
	return found, nil
}

// discover finds a provider by what is configured, by the domain name system, by its own
// document, and by the registry. Whoever says a fingerprint must say the same.
func (m *Mail) discover(ctx context.Context, domain string, listed bool) (peer, error) {
	base := m.Federation.Peers[domain]
	var prints []string
	if txt := m.lookup(ctx, domain); base == "" && txt != nil {
		base = origin(txt["endpoint"])
		prints = append(prints, txt["pubkey"])
	}
	if registry := m.Federation.Registry; registry != "" {
		entry, err := m.verifiedBy(ctx, registry, domain)
		if err != nil && m.Federation.Mode == PeersRegistry && !listed {
			return peer{}, err
		}
		if err == nil {
			base = cmp.Or(base, origin(entry.Endpoint))
			prints = append(prints, entry.Fingerprint)
		}
	} else if m.Federation.Mode == PeersRegistry && !listed {
		return peer{}, notTrusted(domain)
	}
	var doc WellKnown
	if err := m.getDocument(ctx, cmp.Or(base, "https://"+domain)+"/.well-known/agent-messaging.json", &doc); err != nil {
		return peer{}, err
	}
	key, err := roster.ParsePublicKey(doc.PublicKey)
	if err != nil || doc.Endpoint == "" {
		return peer{}, fault.New(fault.ProviderNotTrusted, "The document of %s has no public key or no endpoint.", domain)
	}
	for _, print := range prints {
		if print != "" && !slices.Contains(amp.Fingerprints(key), print) {
			return peer{}, fault.New(fault.ProviderNotTrusted, "The key of %s is not the one that its records in the domain name system or the registry name.", domain)
		}
	}
	if doc.Provider != domain {
		return peer{}, fault.New(fault.ProviderNotTrusted, "Where %s should be is %.254q.", domain, doc.Provider)
	}
	if err := secureURL(doc.Endpoint); err != nil {
		return peer{}, err
	}
	return peer{endpoint: strings.TrimSuffix(doc.Endpoint, "/"), key: key}, nil
}

// lookup reads the TXT record of a provider, nil when there is none.
func (m *Mail) lookup(ctx context.Context, domain string) map[string]string {
	find := m.Federation.LookupTXT
	if find == nil {
		find = net.DefaultResolver.LookupTXT
	}
	records, err := find(ctx, "_amp._tcp."+domain)
	if err != nil {
		return nil
	}
	for _, record := range records {
		fields := map[string]string{}
		for part := range strings.SplitSeq(record, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			fields[strings.ToLower(name)] = strings.TrimSpace(value)
		}
		if strings.HasPrefix(strings.ToUpper(fields["v"]), "AMP") {
			return fields
		}
	}
	return nil
}

// registryEntry is what a registry says of a provider.
type registryEntry struct {
	Provider    string `json:"provider"`
	Endpoint    string `json:"endpoint"`
	Fingerprint string `json:"fingerprint"`
	Verified    bool   `json:"verified"`
}

// verifiedBy asks the registry, a third party, for a provider that it has verified.
func (m *Mail) verifiedBy(ctx context.Context, registry, domain string) (registryEntry, error) {
	var entry registryEntry
	err := m.getDocument(ctx, strings.TrimSuffix(registry, "/")+"/providers/"+url.PathEscape(domain), &entry)
	if err == nil && (!entry.Verified || entry.Provider != domain) {
		err = notTrusted(domain)
	}
	return entry, err
}

// origin is the scheme and host of an address.
func origin(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// secureURL refuses what is read on the way, but for networks that an operator vouches for.
func secureURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || !amp.Confidential(u) {
		return fault.Wrap(err, fault.ProviderNotTrusted, "The address %.254q of a provider should begin with https://.", address)
	}
	return nil
}

// getDocument reads a small JSON document of somebody else's.
func (m *Mail) getDocument(ctx context.Context, address string, into any) error {
	if err := secureURL(address); err != nil {
		return err
	}
	unreachable := func(err error) error {
		return fault.Wrap(err, fault.ProviderNotTrusted, "Nothing is known of the provider: %.254q does not answer as it should.", address)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return unreachable(err)
	}
	res, err := m.core.Outbox.Client().Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return unreachable(errors.New(res.Status))
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxDocument)).Decode(into); err != nil {
		return unreachable(err)
	}
	return nil
}
