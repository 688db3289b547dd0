package homes

import (
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// While the registrar is away no ledger decides which of two hosts that register a name at the same moment has it. Each
// has a bid for the name before it asks the other one, so at least one of them sees the other's: the host whose id comes
// first wins while both ask, and a bid that was won yields to nobody. Bids are in memory: what they do not prevent, on a
// host of several nodes or between hosts that do not see each other, the registrar settles when it is back (MSG-99).

// bid is what this host is about to register without the registrar.
type bid struct {
	at        time.Time
	won, lost bool
}

// bid begins to bid for an address.
func (h *Homes) bid(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.core.Now()
	for other, b := range h.bids { // of registrations that failed after Reserve
		if now.Sub(b.at) > unused {
			delete(h.bids, other)
		}
	}
	// Two registrations of one name on this host share the bid: the database lets one of them through.
	if h.bids[address] == nil {
		h.bids[address] = &bid{at: now}
	}
}

// winBid ends the asking: nobody else has the address, unless this host has yielded to another one in the meantime.
func (h *Homes) winBid(a amp.Address) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.bids[a.String()]
	if b == nil || b.lost {
		delete(h.bids, a.String())
		return fault.New(fault.NameTaken, "The name %q is taken in the tenant %q: another host of this provider registers %s at "+
			"this moment. Take another name.", a.Name, a.Tenant, a).About("name")
	}
	b.won = true
	return nil
}

// endBid ends a bid: the address is registered, or another host has it.
func (h *Homes) endBid(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.bids, address)
}

// yields reports whether another host may have an address as far as the bids of this one go.
func (h *Homes) yields(address, to string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.bids[address]
	if b == nil || h.core.Now().Sub(b.at) > unused {
		return true
	}
	if b.won || h.options.Mesh.Host < to {
		return false
	}
	b.lost = true
	return true
}
