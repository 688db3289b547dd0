package passkey

import (
	"fmt"

	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Register is who could sign with what, as the entries of a ledger say it up to the last one that it was
// given. It needs no server, and checks what a server has checked: a key that was added or removed
// without the signature that it takes is an error.
type Register struct {
	live   map[string]*Key // by credential
	ended  map[string]bool
	admins map[string]bool // ids of operators
}

// Kinds are the kinds of the entries about passkeys. An entry's subject is the operator's id.
var Kinds = []string{kindAdded, kindRemoved, kindForgotten}

// Removed is the kind of the entry that removes one passkey, with the signature of its owner or of an admin.
const Removed = kindRemoved

// NewRegister is the register of an empty ledger.
func NewRegister() *Register {
	return &Register{live: map[string]*Key{}, ended: map[string]bool{}, admins: map[string]bool{}}
}

// Of are the keys that an operator could sign with, by the operator's name, which no two have at a time.
func (r *Register) Of(operator string) (keys []Key) {
	for _, k := range r.live {
		if k.Operator == operator {
			keys = append(keys, *k)
		}
	}
	return keys
}

// Signed checks a signature by one of the keys, and moves its counter on.
func (r *Register) Signed(keys []Key, c Challenge, a *Assertion) error {
	k, err := Verify(keys, c, a)
	if err == nil {
		r.live[k.Credential].Count = k.Count
	}
	return err
}

// Entry takes the next entry of the ledger. Of an entry about passkeys the body must be there.
func (r *Register) Entry(e *ledger.Entry) error {
	var err error
	switch e.Kind {
	case "operator.added":
		var who struct {
			Role roster.Role `json:"role"`
		}
		if err = wire.UnmarshalPart(e.Body, &who); err == nil && who.Role.Allows(roster.Admin) {
			r.admins[e.Subject] = true
		}
	case kindAdded:
		err = r.add(e)
	case kindRemoved:
		err = r.remove(e)
	case kindForgotten, "operator.removed":
		for _, k := range r.live {
			if k.OperatorID == e.Subject {
				r.end(k.Credential)
			}
		}
	}
	return err
}

func (r *Register) end(credential string) {
	delete(r.live, credential)
	r.ended[credential] = true
}

func (r *Register) add(e *ledger.Entry) error {
	k, signed, err := enrolled(e)
	if err != nil {
		return err
	}
	if r.live[k.Credential] != nil || r.ended[k.Credential] {
		return fmt.Errorf("entry %d enrols a passkey that was enrolled before", e.Seq)
	}
	if own := r.Of(k.Operator); len(own) > 0 {
		if signed == nil {
			return fmt.Errorf("entry %d enrols a further passkey of %s without a signature by one before", e.Seq, k.Operator)
		}
		if err := r.Signed(own, k.addition(), signed); err != nil {
			return fmt.Errorf("entry %d enrols a further passkey of %s: %w", e.Seq, k.Operator, err)
		}
	}
	r.live[k.Credential] = k
	return nil
}

func (r *Register) remove(e *ledger.Entry) error {
	var b removed
	if err := e.Decode(&b); err != nil {
		return err
	}
	k := r.live[b.Credential]
	if k == nil || b.Signed == nil {
		return fmt.Errorf("entry %d removes a passkey that is not there, or without a signature", e.Seq)
	}
	// By its owner, or by an admin.
	var may []Key
	for _, other := range r.live {
		if other.OperatorID == k.OperatorID || r.admins[other.OperatorID] {
			may = append(may, *other)
		}
	}
	if err := r.Signed(may, k.removal(), b.Signed); err != nil {
		return fmt.Errorf("entry %d removes a passkey of %s: %w", e.Seq, b.Operator, err)
	}
	r.end(k.Credential)
	return nil
}
