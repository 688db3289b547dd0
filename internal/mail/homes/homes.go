package homes

import (
	"context"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/protocol"
)

// Options are what homes is made of.
type Options struct {
	Domains    amp.Domains
	Mesh       federation.Mesh
	Federation *federation.Federation
}

// Homes knows where the addresses of a mesh live. Make one with New, and keep Run running. Without a mesh every
// method returns at once, and nothing is asked of anybody.
type Homes struct {
	options   Options
	core      protocol.Core
	registrar string // "" without a mesh
	wake      chan struct{}

	mu    sync.Mutex
	dirty bool // agents may be there that are not claimed
	again bool // the registrar has lost its ledger: everything has to be claimed again
	links map[string]Contact
	bids  map[string]*bid // by the address
}

// Contact is how the last call to a host went.
type Contact struct {
	At    time.Time
	Error string // "" if it answered
}

// New makes the service over a core whose ledger has Apply.
func New(core protocol.Core, o Options) *Homes {
	return &Homes{
		options: o, core: core, registrar: o.Mesh.Registrar(), wake: make(chan struct{}, 1), dirty: true,
		links: map[string]Contact{}, bids: map[string]*bid{},
	}
}

// On reports whether there are other hosts to agree with.
func (h *Homes) On() bool { return h.registrar != "" }

// Registrar is the host that decides, "" without a mesh.
func (h *Homes) Registrar() string { return h.registrar }

// decides reports whether this host is the registrar.
func (h *Homes) decides() bool { return h.registrar == h.options.Mesh.Host }

// Contact is how the last call of this process to a host went; the zero value if there was none.
func (h *Homes) Contact(host string) Contact {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.links[host]
}

// Changed says that agents were added or resumed here. It never waits.
func (h *Homes) Changed() {
	h.mark(false)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// takeDirty reports whether agents have to be looked at, and whether all of them are to be claimed again.
func (h *Homes) takeDirty() (dirty, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dirty, again = h.dirty, h.again
	h.dirty, h.again = false, false
	return dirty, again
}

// mark undoes takeDirty, after a failure.
func (h *Homes) mark(again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dirty, h.again = true, h.again || again
}

// taken is the error for a name that another host has.
func taken(a amp.Address, host string) error {
	return fault.New(fault.NameTaken, "The name %q is taken in the tenant %q: %s lives on the host %s of this provider. "+
		"If the agent is yours, use it there; else take another name.", a.Name, a.Tenant, a, host).About("name")
}

// Reserve makes sure that no other host has or gets an address which an agent is about to be registered with here
// (MSG-97). While the registrar is away it asks the others, of which each keeps what it is asked for; what those do not
// know that cannot be reached is then settled later.
func (h *Homes) Reserve(ctx context.Context, a amp.Address) error {
	if !h.On() {
		return nil
	}
	if _, is := h.options.Mesh.Hosts[a.Tenant]; is {
		return fault.New(fault.TenantDenied, "%q is the id of a host of this provider, and no tenant. Take another one.",
			a.Tenant).About("tenant")
	}
	there, err := h.Of(ctx, a)
	if err != nil {
		return err
	}
	if h.isElsewhere(there) {
		return taken(a, there.Host)
	}
	answers, err := h.claim(ctx, []Claim{{Address: a.String()}})
	if err == nil {
		return refusedBy(a, h.options.Mesh.Host, answers)
	}
	h.Changed()
	h.bid(a.String())
	if err := refusedBy(a, h.options.Mesh.Host, h.askOthers(ctx, a, true)); err != nil {
		h.endBid(a.String())
		return err
	}
	return h.winBid(a)
}

// refusedBy is the error for an address that somebody says another host has.
func refusedBy(a amp.Address, own string, answers []Claim) error {
	for _, answer := range answers {
		if answer.Host != "" && answer.Host != own {
			return taken(a, answer.Host)
		}
	}
	return nil
}

// Confirm claims an address for an agent that was registered here with a key. What does not get through is repeated
// by Run.
func (h *Homes) Confirm(ctx context.Context, a amp.Address, fingerprint string) {
	if !h.On() {
		return
	}
	h.endBid(a.String()) // the agent is here now
	if _, err := h.claim(ctx, []Claim{{Address: a.String(), Key: fingerprint}}); err != nil {
		h.Changed()
	}
}

// isElsewhere reports whether an address is another host's.
func (h *Homes) isElsewhere(there Home) bool {
	return there.Host != "" && there.Host != h.options.Mesh.Host
}

// Elsewhere reports whether another host has an address, which the registrar has decided.
func (h *Homes) Elsewhere(ctx context.Context, a amp.Address) (bool, error) {
	there, err := h.Of(ctx, a)
	return h.isElsewhere(there), err
}

// Lost is what an agent of this host is told whose address another host had first, nil for any other (MSG-99).
func (h *Homes) Lost(ctx context.Context, a amp.Address) error {
	there, err := h.Of(ctx, a)
	if err != nil || !h.isElsewhere(there) {
		return err
	}
	return fault.New(fault.AgentSuspended, "This agent is suspended: the address %s lives on the host %s, where it was "+
		"registered first. Register with another name.", a, there.Host)
}

// Locate finds the host that has an agent which is not on this one: the host that the address names in place of the
// tenant, the one that has claimed it, or one that shares no secret with us and says that it has it. "" means that
// nobody has it. A host that is known to have it is the answer also while it is away (MSG-88).
func (h *Homes) Locate(ctx context.Context, a amp.Address) (host string, err error) {
	hosts := h.options.Mesh.Hosts
	if _, named := hosts[a.Tenant]; named {
		return a.Tenant, nil
	}
	there, err := h.find(ctx, a)
	if err == nil && there.Host == "" && h.On() && !h.decides() {
		// The registrar may have decided since we asked last.
		if err := h.pull(ctx); err != nil {
			return h.locateWithout(ctx, a, federation.Unavailable(err, a.String(), h.registrar))
		}
		there, err = h.find(ctx, a)
	}
	if err != nil {
		return "", err
	}
	if there.Host == "" {
		return h.options.Federation.FindUnproved(ctx, a.String())
	}
	if _, known := hosts[there.Host]; !known {
		return "", nil // this host, which has no agent of that name any more, or one that was removed
	}
	return there.Host, nil
}

// locateWithout finds the host that has an agent while the registrar does not answer: the one that all of those name that
// know one. Otherwise nobody knows, which is silent.
func (h *Homes) locateWithout(ctx context.Context, a amp.Address, silent error) (host string, err error) {
	for _, answer := range h.askOthers(ctx, a, false) {
		if _, known := h.options.Mesh.Hosts[answer.Host]; !known {
			continue
		}
		if host != "" && host != answer.Host {
			return "", silent
		}
		host = answer.Host
	}
	if host == "" {
		return "", silent
	}
	return host, nil
}

// Vouches reports whether a host may send for an agent: it does if the registrar has its claim, with a key. For an
// address of another host that is an error. False is "nobody knows": the host has registered the agent while the
// registrar was away, or says so (MSG-86).
func (h *Homes) Vouches(ctx context.Context, host string, a amp.Address) (bool, error) {
	there, err := h.Of(ctx, a)
	if err == nil && (there.Host == "" || there.Key == "") && !h.decides() && h.On() {
		if h.pull(ctx) == nil { // without an answer nobody knows
			there, err = h.Of(ctx, a)
		}
	}
	if err != nil {
		return false, err
	}
	if there.Host != "" && there.Host != host {
		return false, fault.New(fault.Forbidden, "%s lives on the host %s, which sends for it.", a, there.Host).About("from")
	}
	return there.Host == host && there.Key != "", nil
}
