package federation

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/protocol"
	"signalbox/internal/wire"
)

// The modes of exchanging mail with other providers (MSG-78). Each admits what the ones before it
// admit.
const (
	Closed   = "closed"    // none
	Listed   = "allowlist" // those in mail.peers
	Registry = "registry"  // and those that the registry has verified
	Open     = "open"      // every provider that can be discovered
)

// Modes are the values of mail.federation.
var Modes = []string{Closed, Listed, Registry, Open}

// Peering is which providers mail is exchanged with, and how they are found.
type Peering struct {
	Mode string // one of Modes; closed when empty
	// Peers are the listed domains, each with the address of its server, or "" to discover it.
	Peers    map[string]string
	Registry string // the address of a registry, "" for none
	// LookupTXT looks up TXT records; nil is the resolver of this machine.
	LookupTXT func(ctx context.Context, name string) ([]string, error)
}

// On reports whether mail is exchanged with any other provider.
func (p *Peering) On() bool { return p.Mode != "" && p.Mode != Closed }

// Mesh is a set of hosts that serve one provider together. Each has a database and agents of its
// own; package homes keeps two hosts from having the same address.
type Mesh struct {
	Host  string          // the id by which the other hosts know this one
	Hosts map[string]Host // by their ids
	// Open are networks whose hosts need no secret (MSG-87): anybody there can pass for any host
	// and any of its agents. It is for hosts that cannot sign.
	Open []netip.Prefix
}

// Registrar is the host whose ledger decides which host has an address (MSG-97): the first by its id of this one
// and those that share a secret with it. A host without a secret proves nothing, and cannot decide. "" means that
// there is nobody to agree with: this host is alone.
func (m *Mesh) Registrar() string {
	first, alone := m.Host, true
	for name, host := range m.Hosts {
		if host.Secret.Reveal() != "" {
			first, alone = min(first, name), false
		}
	}
	if alone {
		return ""
	}
	return first
}

// Host is another host of the mesh.
type Host struct {
	URL    string
	Secret wire.Secret // the same on both hosts
}

// Options are the settings of federation.
type Options struct {
	Domains amp.Domains
	Peering Peering
	Mesh    Mesh
}

// Federation is the client and the verifier of calls between servers. Make one with New; it has
// no goroutines and may be used from any.
type Federation struct {
	options Options
	core    protocol.Core
	key     ed25519.PrivateKey
	// hosts calls the hosts of the mesh. Unlike calls to providers, these are not guarded against
	// private addresses: an operator has configured them.
	hosts *http.Client

	peers cache[peer]   // by domain
	found cache[string] // the unproved host that has an agent, by the agent's address
}

// New makes the service over a core whose ledger has the Projection of package mail. The key of
// this provider is derived from the core's. If webhook.key changes, so does it: other providers
// refuse our calls until their caches expire, and fingerprints in DNS have to be changed.
func New(core protocol.Core, o Options) *Federation {
	return &Federation{
		options: o, core: core, key: ed25519.NewKeyFromSeed(core.Derive("signalbox mail provider key")),
		hosts: &http.Client{
			Timeout:       hostTime,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Key is the public key of this provider, as the discovery document publishes it.
func (f *Federation) Key() ed25519.PublicKey { return f.key.Public().(ed25519.PublicKey) }

// Target is another server that a message goes to: the domain of a provider, or "mesh:" and the
// id of a host. It is stored in deliveries.
type Target string

// hostPrefix tells a host from a provider; no domain contains a colon.
const hostPrefix = "mesh:"

// TargetHost is the target of a host.
func TargetHost(name string) Target { return Target(hostPrefix + name) }

// Host is the id of a target that is a host, false for a provider.
func (t Target) Host() (name string, is bool) { return strings.CutPrefix(string(t), hostPrefix) }

// The kinds of deliveries, as the outbox knows them.
const (
	toProvider = "mail-peer"
	toHost     = "mail-mesh"
)

// Senders are the kinds of deliveries that carry messages to targets.
func Senders() []string { return []string{toProvider, toHost} }

// Sender is the kind of deliveries to the target.
func (t Target) Sender() string {
	if _, mesh := t.Host(); mesh {
		return toHost
	}
	return toProvider
}

// Queue is the name of the queue of a target. It stands where the id of an agent stands otherwise,
// and begins with "@", which no id does.
func (t Target) Queue() string { return "@" + string(t) }

// QueueTarget is the target of a queue, false for the queue of an agent.
func QueueTarget(queue string) (Target, bool) {
	name, is := strings.CutPrefix(queue, "@")
	return Target(name), is
}

// CheckTime refuses a time that is more than five minutes past or one minute ahead (MSG-81).
func CheckTime(at, now time.Time) error {
	switch off := at.Sub(now); {
	case off > time.Minute:
		return fault.New(fault.TimestampFuture,
			"The timestamp %s is more than a minute in the future. Check your clock.", amp.Stamp(at))
	case off < -5*time.Minute:
		return fault.New(fault.TimestampExpired, "The timestamp %s is more than five minutes old.", amp.Stamp(at))
	}
	return nil
}

// maxRemembered bounds a memory. A full one forgets everything, which costs discoveries.
const maxRemembered = 100_000

// cache is a cache whose values expire. It may be used from any goroutine.
type cache[T any] struct {
	mu    sync.Mutex
	known map[string]remembered[T]
}

type remembered[T any] struct {
	value T
	until time.Time
}

func (m *cache[T]) get(name string, now time.Time) (value T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[name]
	return r.value, now.Before(r.until)
}

func (m *cache[T]) put(name string, value T, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxRemembered {
		m.known = map[string]remembered[T]{}
	}
	m.known[name] = remembered[T]{value, until}
}
