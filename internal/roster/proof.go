package roster

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"maps"
	"slices"

	"signalbox/internal/ledger"
)

// The tables find a key, its holder and an operator quickly. Whether they are what they seem is read from the
// entries about them: whoever can write to the database could add a row, and nobody can add an entry that was
// signed.

// facts are what the entries about a holder say of it.
type facts struct {
	who            Identity
	suspendedUntil int64
	contacts       map[string]string
	user           *User
	publicKeys     map[string]ed25519.PublicKey // those that are not retired, by fingerprint
}

// keyFacts are what the entries about a key say of it.
type keyFacts struct {
	keyIssued
	expires, revoked int64
}

// aboutHolders are the kinds of the entries that facts follow from. Others about a holder, such as agent.proved, change
// nothing of it.
var aboutHolders = []string{
	"agent.added", "agent.changed", "agent.suspended", "agent.resumed", "agent.removed", "public_key.added",
	"public_key.retired", "operator.added", "operator.changed", "operator.removed", "owner.added", "owner.removed",
	kindUserAdded, kindUserChanged, kindUserSuspended, kindUserResumed, kindUserLinked, kindUserRemoved,
}

// aboutUsers are those of them that are about users.
var aboutUsers = aboutHolders[slices.Index(aboutHolders, "owner.added"):]

// aboutKeys are the kinds of the entries that keyFacts follow from.
var aboutKeys = []string{"key.issued", "key.rotated", "key.revoked"}

// prove reads what the ledger says of a holder, and of a key if there is one.
func prove(p ledger.Prover, holderID, keyID string) (f facts, k keyFacts, err error) {
	q := ledger.Query{Subjects: []string{holderID}, Kinds: aboutHolders}
	if keyID != "" {
		q.Subjects, q.Kinds = append(q.Subjects, keyID), slices.Concat(aboutHolders, aboutKeys)
	}
	entries, err := p.Entries(q)
	for i := 0; i < len(entries) && err == nil; i++ {
		if e := &entries[i]; e.Subject == holderID {
			err = f.follow(e)
		} else {
			err = k.follow(e)
		}
	}
	return f, k, err
}

// follow takes over what an entry about a holder says, as its apply function does for the tables.
func (f *facts) follow(e *ledger.Entry) error {
	switch e.Kind {
	case "agent.added":
		b, err := ledger.Read[agentAdded](e)
		*f = facts{publicKeys: map[string]ed25519.PublicKey{}, who: Identity{
			Kind: HolderAgent, ID: e.Subject, Name: b.Name, Workspace: e.Workspace, Address: b.Address, Trust: b.Trust,
			Labels: b.Labels, Owner: b.Owner, ActsFor: b.ActsFor, Scopes: b.Scopes, OIDCClient: b.OIDCClient,
		}}
		return err
	case "agent.changed":
		b, err := ledger.Read[agentChanged](e)
		f.who.Trust, f.who.Labels, f.who.RateLimit = b.Trust, b.Labels, b.RateLimit
		f.who.ActsFor, f.who.Scopes, f.who.OIDCClient = b.ActsFor, b.Scopes, b.OIDCClient
		return err
	case "agent.suspended":
		b, err := ledger.Read[agentSuspended](e)
		f.who.Suspended, f.suspendedUntil = true, b.Until
		return err
	case "agent.resumed":
		f.who.Suspended, f.suspendedUntil = false, 0
	case "public_key.added":
		b, err := ledger.Read[publicKeyAdded](e)
		if f.publicKeys != nil {
			f.publicKeys[b.Fingerprint] = b.Key
		}
		return err
	case "public_key.retired":
		b, err := ledger.Read[publicKeyRetired](e)
		delete(f.publicKeys, b.Fingerprint)
		return err
	case "operator.added":
		b, err := ledger.Read[operatorAdded](e)
		*f = facts{who: Identity{
			Kind: HolderOperator, ID: e.Subject, Name: b.Name, Role: b.Role, Workspace: b.Workspace,
		}}
		return err
	case "operator.changed":
		b, err := ledger.Read[operatorChanged](e)
		f.contacts = b.Contacts
		return err
	default:
		return f.followUser(e)
	}
	return nil
}

// followUser is follow for an entry about a user, and for one that ends a holder.
func (f *facts) followUser(e *ledger.Entry) error {
	switch e.Kind {
	case "owner.added", kindUserAdded:
		b, err := ledger.Read[userAdded](e)
		*f = facts{who: Identity{Kind: HolderOwner, ID: e.Subject, Name: b.Name, Workspace: e.Workspace}}
		f.user = &User{ID: e.Subject, Name: b.Name, Workspace: e.Workspace, Source: SourceHand}
		if b.Login != nil {
			f.user.Source, f.user.Logins = SourceOIDC, []Login{*b.Login}
		}
		f.user.set(b.userSettings)
		return err
	case kindUserChanged:
		b, err := ledger.Read[userSettings](e)
		if f.user != nil {
			f.user.set(*b)
		}
		return err
	case kindUserLinked:
		b, err := ledger.Read[Login](e)
		if f.user != nil {
			f.user.Logins = append(f.user.Logins, *b)
		}
		return err
	case kindUserSuspended, kindUserResumed:
		if f.user != nil {
			f.user.Suspended = e.Kind == kindUserSuspended
		}
	default: // agent.removed and its like
		*f = facts{}
	}
	return nil
}

// follow takes over what an entry about a key says.
func (k *keyFacts) follow(e *ledger.Entry) error {
	if e.Kind == "key.issued" {
		b, err := ledger.Read[keyIssued](e)
		k.keyIssued, k.expires = *b, b.Expires
		return err
	}
	b, err := ledger.Read[keyRetired](e)
	if e.Kind == "key.revoked" {
		k.revoked = b.At
	} else {
		k.expires = b.At
	}
	return err
}

// publicKey is the current public key, nil for none.
func (f *facts) publicKey() ed25519.PublicKey {
	for _, key := range f.publicKeys {
		return key // there is one at the most
	}
	return nil
}

// lend gives a holding what no table has: for whom the agent acts, and what it may do.
func (f *facts) lend(h *holding) {
	h.who.Owner, h.who.ActsFor, h.who.Scopes = f.who.Owner, f.who.ActsFor, f.who.Scopes
	h.who.OIDCClient = f.who.OIDCClient
}

// isOf reports whether a row about a holder says the same.
func (f *facts) isOf(h *holding) bool {
	a, b := &f.who, &h.who
	return a.Kind == b.Kind && a.ID == b.ID && a.Name == b.Name && a.Workspace == b.Workspace && a.Role == b.Role &&
		a.Address == b.Address && a.Trust == b.Trust && maps.Equal(a.Labels, b.Labels) && a.Suspended == b.Suspended &&
		f.suspendedUntil == h.suspendedUntil && sameLimit(a.RateLimit, b.RateLimit) && bytes.Equal(f.publicKey(), b.PublicKey)
}

// isOfAgent is isOf for an agent as it is shown: a suspension that is over does not show, and its public key is text.
func (f *facts) isOfAgent(a *Agent, now int64) bool {
	h := a.holding()
	shown := facts{who: f.who, publicKeys: f.publicKeys}
	if shown.who.Suspended = suspendedAt(f.who.Suspended, f.suspendedUntil, now); shown.who.Suspended {
		shown.suspendedUntil = f.suspendedUntil
	}
	current := ""
	if i := slices.IndexFunc(a.PublicKeys, func(k PublicKey) bool { return k.RetiredAt == nil }); i >= 0 {
		current, h.who.PublicKey = a.PublicKeys[i].PublicKey, f.publicKey()
	}
	return shown.isOf(&h) && (current == "" || current == EncodePublicKey(f.publicKey()))
}

func sameLimit(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// isOf reports whether a row about a key with this hash says the same.
func (k *keyFacts) isOf(h *holding, hash []byte) bool {
	return k.Kind.holder() == h.who.Kind && k.Holder == h.who.ID && k.Hash == hex.EncodeToString(hash) &&
		k.Limit == h.who.KeyLimit && k.expires == h.expires && k.revoked == h.revoked
}

// contradicted is the error for a row of a holder that is not what the ledger says.
func contradicted(p ledger.Prover, table, id, name string) error {
	return p.Contradicts(table, id, "%.80q is not there in the ledger as it stands in the table", name)
}
