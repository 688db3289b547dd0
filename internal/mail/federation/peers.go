package federation

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// peer is another provider, as it was discovered.
type peer struct {
	endpoint string // with /api/v1 or the like
	key      ed25519.PublicKey
}

const (
	peerTime      = time.Hour
	discoveryTime = 5 * time.Second
	maxDocument   = 64 << 10
)

func notTrusted(domain string) error {
	return fault.New(fault.ProviderNotTrusted, "This server does not exchange mail with %.254s.", domain)
}

// Admits refuses a provider that mail is not exchanged with, or that is not to be found.
func (f *Federation) Admits(ctx context.Context, domain string) error {
	_, err := f.peer(ctx, domain)
	return err
}

// WellKnown is the discovery document of a provider.
type WellKnown struct {
	Version      string   `json:"version"`
	Endpoint     string   `json:"endpoint"`
	Provider     string   `json:"provider"`
	Capabilities []string `json:"capabilities"`
	PublicKey    string   `json:"public_key"`
	Fingerprint  string   `json:"fingerprint"`
}

// peer finds a provider that mail may be exchanged with.
func (f *Federation) peer(ctx context.Context, domain string) (peer, error) {
	_, listed := f.options.Peering.Peers[domain]
	switch cmp.Or(f.options.Peering.Mode, Closed) {
	case Closed:
		return peer{}, notTrusted(domain)
	case Listed:
		if !listed {
			return peer{}, notTrusted(domain)
		}
	}
	now := f.core.Now()
	if known, ok := f.peers.get(domain, now); ok {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	found, err := f.discover(ctx, domain, listed)
	if err == nil {
		f.peers.put(domain, found, now.Add(peerTime))
	}
	return found, err
}

// discover finds a provider by what is configured, by the domain name system, by its own
// document, and by the registry. Whoever says a fingerprint must say the same.
func (f *Federation) discover(ctx context.Context, domain string, listed bool) (peer, error) {
	base := f.options.Peering.Peers[domain]
	var prints []string
	if txt := f.lookup(ctx, domain); base == "" && txt != nil {
		base = origin(txt["endpoint"])
		prints = append(prints, txt["pubkey"])
	}
	if registry := f.options.Peering.Registry; registry != "" {
		entry, err := f.verifiedBy(ctx, registry, domain)
		if err != nil && f.options.Peering.Mode == Registry && !listed {
			return peer{}, err
		}
		if err == nil {
			base = cmp.Or(base, origin(entry.Endpoint))
			prints = append(prints, entry.Fingerprint)
		}
	} else if f.options.Peering.Mode == Registry && !listed {
		return peer{}, notTrusted(domain)
	}
	var doc WellKnown
	if err := f.getDocument(ctx, cmp.Or(base, "https://"+domain)+"/.well-known/agent-messaging.json", &doc); err != nil {
		return peer{}, err
	}
	key, err := roster.ParsePublicKey(doc.PublicKey)
	if err != nil || doc.Endpoint == "" {
		return peer{}, fault.New(fault.ProviderNotTrusted, "The document of %s has no public key or no endpoint.", domain)
	}
	for _, print := range prints {
		if print != "" && !slices.Contains(amp.Fingerprints(key), print) {
			return peer{}, fault.New(fault.ProviderNotTrusted,
				"The key of %s is not the one that its records in the domain name system or the registry name.", domain)
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
func (f *Federation) lookup(ctx context.Context, domain string) map[string]string {
	find := f.options.Peering.LookupTXT
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
func (f *Federation) verifiedBy(ctx context.Context, registry, domain string) (registryEntry, error) {
	var entry registryEntry
	err := f.getDocument(ctx, strings.TrimSuffix(registry, "/")+"/providers/"+url.PathEscape(domain), &entry)
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
		return fault.Wrap(err, fault.ProviderNotTrusted, "The address %.254q of a provider should begin with https://.",
			address)
	}
	return nil
}

// getDocument reads a small JSON document of somebody else's.
func (f *Federation) getDocument(ctx context.Context, address string, into any) error {
	if err := secureURL(address); err != nil {
		return err
	}
	unreachable := func(err error) error {
		return fault.Wrap(err, fault.ProviderNotTrusted,
			"Nothing is known of the provider: %.254q does not answer as it should.", address)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return unreachable(err)
	}
	res, err := f.core.Outbox.Client().Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return unreachable(errors.New(res.Status))
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxDocument))
	if err == nil {
		err = wire.UnmarshalForeign(text, into)
	}
	if err != nil {
		return unreachable(err)
	}
	return nil
}
