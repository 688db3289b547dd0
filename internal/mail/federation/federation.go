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

// The modes of exchanging mail with other providers.
const (
	Closed   = "closed"    // with none
	Listed   = "allowlist" // with those that are listed
	Registry = "registry"  // and with those that a registry has verified
	Open     = "open"      // with all
)

// Modes lists them.
var Modes = []string{Closed, Listed, Registry, Open}

// Peering says which providers mail is exchanged with.
type Peering struct {
	Mode string // one of Modes; closed when empty
	// Peers are the domains that are listed, with the address where each is reached: ""
	// for where discovery finds it.
	Peers    map[string]string
	Registry string // the address of a registry, "" for none
	// LookupTXT finds records of the domain name system; the machine's own when nil.
	LookupTXT func(ctx context.Context, name string) ([]string, error)
}

// On reports whether mail is exchanged with anybody.
func (p *Peering) On() bool { return p.Mode != "" && p.Mode != Closed }

// Mesh is a set of hosts that serve one provider together, each with agents of its own.
type Mesh struct {
	Host  string // the id by which the others know us
	Hosts map[string]Host
	// Open are networks whose calls are believed without a secret: whoever is there can
	// say to be any host, and any agent. For hosts that cannot sign.
	Open []netip.Prefix
}

// Host is another host of the mesh.
type Host struct {
	URL    string
	Secret wire.Secret // the same on both sides
}

// Options are what an operator sets.
type Options struct {
	Domains amp.Domains
	Peering Peering
	Mesh    Mesh
}

// Federation is the providers and hosts that mail is exchanged with.
type Federation struct {
	options Options
	core    protocol.Core
	key     ed25519.PrivateKey
	hosts   *http.Client // calls hosts that an operator has configured, wherever they are

	peers memory[peer]   // by domain
	found memory[string] // the host that has an agent, by its address
}

// New makes the service over a core whose ledger has Projection of package mail. Our own key
// follows from the core's.
func New(core protocol.Core, o Options) *Federation {
	return &Federation{
		options: o, core: core, key: ed25519.NewKeyFromSeed(core.Derive("signalbox mail provider key")),
		hosts: &http.Client{
			Timeout:       hostTime,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Key is our public key, by which other providers know us.
func (f *Federation) Key() ed25519.PublicKey { return f.key.Public().(ed25519.PublicKey) }

// Target is where a message goes that is not for an agent of this server: the domain of a
// provider, or a host of the mesh.
type Target string

const hostPrefix = "mesh:" // before a host, where a provider's domain could stand

func targetHost(name string) Target { return Target(hostPrefix + name) }

// Host is the host of the mesh that the target is, false for a provider.
func (t Target) Host() (name string, is bool) { return strings.CutPrefix(string(t), hostPrefix) }

// The kinds of deliveries: to other providers, and to other hosts.
const (
	toProvider = "mail-peer"
	toHost     = "mail-mesh"
)

// Senders are the kinds of deliveries to targets.
func Senders() []string { return []string{toProvider, toHost} }

// Sender is the kind of deliveries to the target.
func (t Target) Sender() string {
	if _, mesh := t.Host(); mesh {
		return toHost
	}
	return toProvider
}

// Queue is the name of the queue of what waits for the target, where an agent's id could stand.
func (t Target) Queue() string { return "@" + string(t) }

// QueueTarget is the target that a queue is of, false for an agent's.
func QueueTarget(queue string) (Target, bool) {
	name, is := strings.CutPrefix(queue, "@")
	return Target(name), is
}

// CheckTime refuses what was said too long ago, or in the future.
func CheckTime(at, now time.Time) error {
	switch off := at.Sub(now); {
	case off > time.Minute:
		return fault.New(fault.TimestampFuture, "%s is more than a minute ahead of us. Set the clock.", amp.Stamp(at))
	case off < -5*time.Minute:
		return fault.New(fault.TimestampExpired, "%s is more than five minutes past.", amp.Stamp(at))
	}
	return nil
}

// maxRemembered is how much a memory holds; when it is full it forgets everything.
const maxRemembered = 100_000

// memory remembers what was found out, each for a while.
type memory[T any] struct {
	mu    sync.Mutex
	known map[string]remembered[T]
}

type remembered[T any] struct {
	value T
	until time.Time
}

func (m *memory[T]) get(name string, now time.Time) (value T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[name]
	return r.value, now.Before(r.until)
}

func (m *memory[T]) put(name string, value T, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxRemembered {
		m.known = map[string]remembered[T]{}
	}
	m.known[name] = remembered[T]{value, until}
}
