package behalf

import (
	"bytes"
	"slices"
	"strings"

	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Of is for whom something was done, as the body of an entry has it that holds no decision; a decision's record has
// the same. It is stored for ever: members are only added.
//
// What always holds: User is the id of somebody for whom the agent may act. What a call named and nobody has proved is
// in Claimed, as the call wrote it.
type Of struct {
	User    string `json:"user,omitzero"`
	Claimed string `json:"user_claimed,omitzero"`
	Handoff string `json:"handoff,omitzero"` // the id of the handoff that it was under
	// Within is the id of the handoff to a process that another agent has done this in (policy.Claim.Within).
	Within string `json:"within,omitzero"`
}

// Among reports whether it is one of those that Index.Keys has found; nil is no condition. It is for lists that Among
// has selected: a row of the index can be forged, and the entry cannot.
func (o Of) Among(keys []string) bool {
	return keys == nil || o.User != "" && slices.Contains(keys, o.User) ||
		o.Claimed != "" && slices.Contains(keys, claimedPrefix+o.Claimed)
}

// Decided is for whom a decision was made. named is the user that the call named.
func Decided(u policy.User, named string) Of {
	of := Of{User: u.ID}
	if named != "" && !u.Verified {
		of.Claimed = Clip(named)
	}
	return of
}

// Found is for whom an agent acts, as the roster has found out.
func Found(b roster.Behalf) Of {
	of := Of{Claimed: Clip(b.Claimed)}
	if b.User != nil {
		of.User = b.User.ID
	}
	return of
}

// maxClaimed is how many bytes of a claimed name are kept: as many as an e-mail address may have.
const maxClaimed = 254

// Clip is a name as entries keep it, which may be anything that a call has written.
func Clip(named string) string {
	named = strings.ReplaceAll(named[:min(len(named), maxClaimed)], "\x00", "\uFFFD")
	return strings.ToValidUTF8(named, "\uFFFD")
}

// said is where bodies of entries say for whom they are: at the top, and in the record of a decision.
type said struct {
	User     wire.Raw `json:"user"`
	Claimed  wire.Raw `json:"user_claimed"`
	Decision wire.Raw `json:"decision"`
}

// decided is the part of a decision's record that says it.
type decided struct {
	User    policy.User `json:"user"`
	Claimed string      `json:"user_claimed"`
	Event   struct {
		User string `json:"user"`
	} `json:"event"`
}

// userPrefix is that of the ids of users; bodies have other things, too, that are called user.
const userPrefix = "usr_"

// Read is for whom an entry is: one user as a rule, or nobody. A body that was erased says nothing.
func Read(e *ledger.Entry) []Of { return ReadBody(e.Body) }

// ReadBody is Read for the body of an entry.
func ReadBody(body []byte) []Of {
	// Few bodies are about users, and some are large.
	if !bytes.Contains(body, []byte(`"user`)) || body[0] != '{' {
		return nil
	}
	var b said
	if wire.UnmarshalPart(body, &b) != nil {
		return nil
	}
	var of Of
	if id, _ := wire.Text(b.User); strings.HasPrefix(id, userPrefix) {
		of.User = id
	}
	of.Claimed, _ = wire.Text(b.Claimed)
	var all []Of
	if of != (Of{}) {
		all = append(all, of)
	}
	var d decided
	if b.Decision.Kind() == '{' && wire.UnmarshalPart(b.Decision, &d) == nil {
		one := Of{User: d.User.ID, Claimed: d.Claimed}
		if one.Claimed == "" && d.Event.User != "" && !d.User.Verified {
			one.Claimed = Clip(d.Event.User)
		}
		if one != (Of{}) && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// Under are the ids of the handoffs under which the decision in an entry was made, the first of the chain first: none
// for most entries. What a call only claimed is not among them.
func Under(e *ledger.Entry) (handoffs []string) {
	under, _ := underAndWithin(e)
	return under
}

// underAndWithin is Under, and the handoff in whose process the decision was asked for as another agent, "" for none.
func underAndWithin(e *ledger.Entry) (under []string, within string) {
	// Few bodies are about handoffs, and some are large.
	if !bytes.Contains(e.Body, []byte(`"delegation"`)) && !bytes.Contains(e.Body, []byte(`"within":"`)) {
		return nil, ""
	}
	var b struct {
		Decision wire.Raw `json:"decision"`
	}
	var d struct {
		Delegation policy.Delegation `json:"delegation"`
		Within     string            `json:"within"`
	}
	if wire.UnmarshalPart(e.Body, &b) != nil || b.Decision.Kind() != '{' || wire.UnmarshalPart(b.Decision, &d) != nil {
		return nil, ""
	}
	if d.Delegation.Verified {
		for _, hop := range d.Delegation.Hops {
			under = append(under, hop.ID)
		}
	}
	return under, d.Within
}

// done are the handoffs under which and in which something was done, as the body of an entry says that holds no decision
// (Of.Handoff, Of.Within), "" for none.
func done(e *ledger.Entry) (under, within string) {
	if !bytes.Contains(e.Body, []byte(`"handoff":"`)) && !bytes.Contains(e.Body, []byte(`"within":"`)) {
		return "", ""
	}
	var b struct {
		Handoff wire.Raw `json:"handoff"`
		Within  wire.Raw `json:"within"`
	}
	if wire.UnmarshalPart(e.Body, &b) != nil {
		return "", ""
	}
	under, _ = wire.Text(b.Handoff)
	within, _ = wire.Text(b.Within)
	return under, within
}
