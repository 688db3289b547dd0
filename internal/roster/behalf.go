package roster

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// Behalf says for whom an agent acts in one call. For makes it.
//
// What always holds: User is somebody for whom the agent may act, or nobody. What a call names and nobody has proved is
// Claimed and gives no power: the agent is bound to its owner all the same.
type Behalf struct {
	User    *User
	Proof   Proof
	Claimed string   // the user that the call named, if that is not proved
	Scopes  []string // what a token is narrowed to, nil if it says nothing of that
	Hops    bool     // the token lists others who acted before, which proves nothing
}

// Proof is how it is known for whom an agent acts.
type Proof string

// The proofs. No proof means that nobody is known.
const (
	ProofOwner Proof = "owner" // the agent's key, and the agent is theirs
	ProofKey   Proof = "key"   // the agent's key, and the agent may act for them
	ProofOIDC  Proof = "oidc"  // a token of their own
	// ProofHandoff is a handoff: somebody who acts for them has handed the work on.
	ProofHandoff Proof = "handoff"
)

// ForOwner is the entry in the list of those for whom an agent may act that stands for its owner, as people write it.
const ForOwner = "owner"

// ForAnybody is what people write for every user of the workspace, and anybody what is stored.
const (
	ForAnybody = "anybody"
	anybody    = "*"
)

// ForOIDC is what people write, and what is stored, for every user who proves with a token that the agent acts for them.
const ForOIDC = "oidc"

// For is on whose behalf an agent acts that names a user by name, id or e-mail; "" for one that names nobody. It is
// called for every decision, so what the ledger says of users is cached like keys.
func (r *Roster) For(ctx context.Context, who Identity, named string) (Behalf, error) {
	if who.Proved != nil {
		return who.Proved.named(named)
	}
	if who.Kind != HolderAgent || who.Owner == "" && named == "" {
		return Behalf{}, nil
	}
	b := Behalf{Claimed: named}
	if named != "" {
		user, err := r.cachedUser(ctx, who.Workspace, named)
		if err != nil {
			return Behalf{}, err
		}
		if user != nil && who.actsFor(user.ID) {
			proof := ProofKey
			if user.ID == who.Owner {
				proof = ProofOwner
			}
			return Behalf{User: user, Proof: proof}, nil
		}
	}
	if who.Owner == "" {
		return b, nil
	}
	owner, err := r.cachedUser(ctx, who.Workspace, who.Owner)
	if err == nil && owner != nil {
		b.User, b.Proof = owner, ProofOwner
	}
	return b, err
}

// named is what a token has proved, for a call that names a user as well: they have to be the same.
func (b *Behalf) named(user string) (Behalf, error) {
	if u := b.User; user != "" && user != u.Name && user != u.ID && (u.Email == "" || !strings.EqualFold(user, u.Email)) {
		return Behalf{}, fault.New(fault.Forbidden, "The call names the user %.80q, and its token is of %s.", user, u.Name)
	}
	return *b, nil
}

// ClaimsHops reports whether the token of a call lists others who acted before the agent.
func (i *Identity) ClaimsHops() bool { return i.Proved != nil && i.Proved.Hops }

// actsFor reports whether the agent may act for a user.
func (i *Identity) actsFor(userID string) bool {
	return userID == i.Owner || slices.Contains(i.ActsFor, anybody) || slices.Contains(i.ActsFor, userID)
}

// Called is the user of a workspace with a name, id or e-mail, nil if there is none.
func (r *Roster) Called(ctx context.Context, workspace, named string) (*User, error) {
	return r.cachedUser(ctx, workspace, named)
}

// cachedUser is a user by name, id or e-mail, nil if there is none.
func (r *Roster) cachedUser(ctx context.Context, workspace, named string) (*User, error) {
	known := "user:" + workspace + "/" + named
	h, found, round := r.cache.Find(known)
	if found {
		return h.user, nil
	}
	u, err := r.anyUser(r.ledger.Prover(ctx), workspace, named)
	if err != nil {
		return nil, err
	}
	r.cache.Put(known, holding{user: u}, round)
	return u, nil
}

// KnownUser is a user of a workspace by name, id or e-mail, nil if there is none. What the ledger says of users is
// cached like keys.
func (r *Roster) KnownUser(ctx context.Context, workspace, named string) (*User, error) {
	return r.cachedUser(ctx, workspace, named)
}

// IsNamed reports whether a call that names a user by name, id or e-mail means this one.
func (u *User) IsNamed(named string) bool {
	return named == u.ID || named == u.Name || u.Email != "" && strings.EqualFold(u.Email, named)
}

// anyUser finds a user by name, id or e-mail, nil if there is none.
func (r *Roster) anyUser(p ledger.Prover, workspace, named string) (*User, error) {
	if strings.Contains(named, "@") {
		id, err := r.userByEmail(p, workspace, named)
		if err != nil || id == "" {
			return nil, err
		}
		named = id
	}
	u, err := r.user(p, workspace, named)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return &u, err
}

// OwnerOf is the id of the user whose agent one with an id is, "" if it is nobody's.
func (r *Roster) OwnerOf(ctx context.Context, agentID string) (string, error) {
	known := "owner:" + agentID
	h, found, round := r.cache.Find(known)
	if found {
		return h.who.Owner, nil
	}
	err := r.db.QueryRow(ctx, "SELECT owner FROM agent WHERE id = $1", []any{agentID}, &h.who.Owner)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	r.cache.Put(known, h, round)
	return h.who.Owner, nil
}

// resolveUsers turns the names of users for whom an agent may act into what is stored: ids, the star, or "oidc". "owner" is
// always among them and is not stored.
func (r *Roster) resolveUsers(p ledger.Prover, workspace string, names []string) ([]string, error) {
	ids := []string{}
	for _, name := range names {
		switch name {
		case ForOwner:
		case ForAnybody:
			ids = append(ids, anybody)
		case ForOIDC:
			ids = append(ids, ForOIDC)
		default:
			u, err := r.user(p, workspace, name)
			if err != nil {
				return nil, err
			}
			ids = append(ids, u.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// userNames are the names of the users for whom an agent may act, as people write them. Users who were removed are
// left out.
func (r *Roster) userNames(p ledger.Prover, workspace string, ids []string) ([]string, error) {
	all, err := r.users(p, workspace)
	names := []string{}
	if slices.Contains(ids, anybody) {
		names = append(names, ForAnybody)
	}
	if slices.Contains(ids, ForOIDC) {
		names = append(names, ForOIDC)
	}
	for _, u := range all {
		if slices.Contains(ids, u.ID) {
			names = append(names, u.Name)
		}
	}
	return names, err
}
