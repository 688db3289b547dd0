package homes

import (
	"context"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
)

// Claim is an address that a host claims, and what the registrar has decided about it.
type Claim struct {
	Address string `json:"address"`
	Host    string `json:"host,omitzero"` // "" for nobody
	Key     string `json:"key,omitzero"`  // the fingerprint of the agent's key, "" for a reservation
	Place   int64  `json:"place,omitzero"`
	Refused string `json:"refused,omitzero"` // why it can belong to nobody
}

// decide appends what a host claims and releases to the registrar's ledger, and answers each claim with who has the
// address. It runs on the registrar. changed reports whether anything is new.
func (h *Homes) decide(ctx context.Context, host string, claims []Claim, release []string) (out []Claim, changed bool,
	err error,
) {
	err = h.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		out, changed = nil, false
		for _, c := range claims {
			answer, isNew, err := h.decideOne(tx, host, c)
			if err != nil {
				return err
			}
			out, changed = append(out, answer), changed || isNew
		}
		for _, address := range release {
			there, err := read(tx.QueryRow, address)
			if err != nil {
				return err
			}
			if there.Host == host && there.Key == "" {
				h.append(tx, kindReleased, address, claimed{Host: host, Short: there.Short, Registrar: h.registrar})
				changed = true
			}
		}
		return nil
	})
	return out, changed, err
}

func (h *Homes) decideOne(tx *ledger.Tx, host string, c Claim) (answer Claim, isNew bool, err error) {
	answer = Claim{Address: c.Address}
	a, err := h.options.Domains.Parse(c.Address)
	if err != nil || a.Provider != h.options.Domains.Own || a.String() != c.Address {
		answer.Refused = "it is no address of this provider"
		return answer, false, nil //nolint:nilerr // the refusal says it
	}
	_, isHost := h.options.Mesh.Hosts[a.Tenant]
	if isHost || a.Tenant == h.options.Mesh.Host {
		answer.Refused = "its tenant is the id of a host"
		return answer, false, nil
	}
	there, err := read(tx.QueryRow, c.Address)
	if err != nil {
		return answer, false, err
	}
	next := claimed{Host: there.Host, Key: there.Key, Short: a.Short(), Registrar: h.registrar}
	switch {
	case there.Host == "":
		next.Host, next.Key = host, c.Key
		// An agent that an operator has added here a moment ago was first.
		local, err := h.isHere(tx, a)
		if err != nil {
			return answer, false, err
		}
		if local && host != h.options.Mesh.Host {
			next.Host, next.Key = h.options.Mesh.Host, ""
		}
	case there.Host == host && there.Key == "" && c.Key != "":
		next.Key = c.Key
	case there.Registrar == h.registrar:
		next.Host = "" // nothing is new
	}
	if isNew = next.Host != ""; isNew { // a decision of an earlier registrar stands, and is repeated
		h.append(tx, kindClaimed, c.Address, next)
		if there, err = read(tx.QueryRow, c.Address); err != nil {
			return answer, false, err
		}
	}
	answer.Host, answer.Key, answer.Place = there.Host, there.Key, there.Place
	return answer, isNew, nil
}

// isHere reports whether an agent with the address is registered on this host.
func (h *Homes) isHere(tx *ledger.Tx, a amp.Address) (bool, error) {
	name := a.Name
	if a.Scope != "" {
		name += "." + a.Scope
	}
	found, err := h.core.Roster.AgentIn(tx, a.Tenant, name)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil && found.Address == a.String(), err
}

func (h *Homes) append(tx *ledger.Tx, kind, address string, body claimed) {
	tx.Append(ledger.Event{Workspace: roster.DefaultWorkspace, Kind: kind, Actor: "system", Subject: address, Body: body})
}

// learn appends what the registrar has decided to this host's own ledger. An address with a key never moves: a
// registrar that says so has lost its ledger, or lies, and operators have to look. anew is for a registrar whose ledger
// is another one than before.
func (h *Homes) learn(ctx context.Context, news []Claim, anew bool) error {
	var mine bool
	err := h.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		mine = false
		for _, c := range news {
			a, err := h.options.Domains.Parse(c.Address)
			if err != nil || a.String() != c.Address {
				continue
			}
			there, err := read(tx.QueryRow, c.Address)
			if err != nil {
				return err
			}
			switch {
			case there.Registrar == h.registrar && (there.Place == c.Place || there.Place > c.Place && !anew):
			case there.Key != "" && there.Host != c.Host:
				err = alarm.Raise(tx, alarm.Alarm{
					Kind: "address_moved", Title: "A host of the mesh gives an address to another host",
					Detail: "The host " + h.registrar + " says that " + c.Address + " lives on " + c.Host + "; it lives on " +
						there.Host + ", and stays there. If " + h.registrar + " has lost its ledger, restore it.",
				})
			case c.Host == "":
				h.append(tx, kindReleased, c.Address, claimed{Short: a.Short(), Registrar: h.registrar, Place: c.Place})
			default:
				h.append(tx, kindClaimed, c.Address,
					claimed{Host: c.Host, Key: c.Key, Short: a.Short(), Registrar: h.registrar, Place: c.Place})
				var local bool
				local, err = h.isHere(tx, a)
				mine = mine || local && c.Host != h.options.Mesh.Host
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if mine { // somebody else has the address of an agent of ours: see settle
		h.Changed()
	}
	return err
}
