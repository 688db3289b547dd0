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

// peer is a discovered provider: where its API is, and the key that its calls are verified with.
type peer struct {
	endpoint string // without a slash at the end
	key      ed25519.PublicKey
}

const (
	peerTime      = time.Hour       // that a discovery is cached; a new key takes as long to be seen
	discoveryTime = 5 * time.Second // for all steps together; a sender waits for it
	maxDocument   = 64 << 10        // bytes of a document or an answer of another server
)

// notTrusted is the answer about every provider that is not admitted, known or not.
func notTrusted(domain string) error {
	return fault.New(fault.ProviderNotTrusted, "This server does not exchange mail with %.254s.", domain)
}

// CheckPeer refuses a provider that mail is not exchanged with, or that cannot be discovered.
func (f *Federation) CheckPeer(ctx context.Context, domain string) error {
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

// peer is a provider that mail is exchanged with, from the cache or discovered now. A failed
// discovery is not cached: the other side may be starting.
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

// discover finds a provider (MSG-79). The address of its server is that of mail.peers, of the TXT
// record, of the registry, or https://domain, whichever exists first. The document there has the
// endpoint and the key; every fingerprint that DNS or the registry names must be of that key.
func (f *Federation) discover(ctx context.Context, domain string, listed bool) (peer, error) {
	base := f.options.Peering.Peers[domain]
	var prints []string
	// A configured address comes before DNS, and so does the trust in it: no fingerprint is asked for.
	if txt := f.lookupTXT(ctx, domain); base == "" && txt != nil {
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
		// MSG-23: the record may have either form of the fingerprint.
		if print != "" && !slices.Contains(amp.Fingerprints(key), print) {
			return peer{}, fault.New(fault.ProviderNotTrusted,
				"The key of %s does not match the fingerprint in its DNS record or in the registry.", domain)
		}
	}
	// A server that serves another provider would otherwise speak for this one.
	if doc.Provider != domain {
		return peer{}, fault.New(fault.ProviderNotTrusted, "The server of %s says that it is the provider %.254q.",
			domain, doc.Provider)
	}
	if err := secureURL(doc.Endpoint); err != nil {
		return peer{}, err
	}
	return peer{endpoint: strings.TrimSuffix(doc.Endpoint, "/"), key: key}, nil
}

// lookupTXT reads the fields of a provider's TXT record, nil if it has none.
func (f *Federation) lookupTXT(ctx context.Context, domain string) map[string]string {
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
		// v=AMP1; endpoint=https://…; pubkey=SHA256:…
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

// registryEntry is a registry's answer about a provider.
type registryEntry struct {
	Provider    string `json:"provider"`
	Endpoint    string `json:"endpoint"`
	Fingerprint string `json:"fingerprint"`
	Verified    bool   `json:"verified"`
}

// verifiedBy asks the registry for a provider; one that it has not verified is an error.
func (f *Federation) verifiedBy(ctx context.Context, registry, domain string) (registryEntry, error) {
	var entry registryEntry
	err := f.getDocument(ctx, strings.TrimSuffix(registry, "/")+"/providers/"+url.PathEscape(domain), &entry)
	if err == nil && (!entry.Verified || entry.Provider != domain) {
		err = notTrusted(domain)
	}
	return entry, err
}

// origin is the scheme and host of an address, "" if it has none. The document is there, whatever
// path the endpoint has.
func origin(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// secureURL refuses plain http, except on this machine and in private networks, which only an
// operator can have allowed.
func secureURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || !amp.Confidential(u) {
		return fault.Wrap(err, fault.ProviderNotTrusted, "The address %.254q of a provider should begin with https://.",
			address)
	}
	return nil
}

// getDocument fetches and decodes a small JSON document of another server, through the guarded
// client: a domain that leads into our own network is not called.
func (f *Federation) getDocument(ctx context.Context, address string, into any) error {
	if err := secureURL(address); err != nil {
		return err
	}
	unreachable := func(err error) error {
		return fault.Wrap(err, fault.ProviderNotTrusted,
			"The provider cannot be discovered: %.254q did not return a valid document.", address)
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
