package roster

import (
	"context"
	"database/sql"
	"errors"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/refusal"
	"signalbox/internal/roster/key"
	"signalbox/internal/wire"
)

// Authenticate returns the identity that holds the key, or unauthenticated. It is called for
// every request, so keys are cached. An agent counts as seen by it. A suspended agent is
// returned as such: the policy blocks what it does, so that it is told why.
func (r *Roster) Authenticate(ctx context.Context, secret string) (Identity, error) {
	hash := key.Hash(secret)
	h, err := r.cache.Get(string(hash), func() (holding, error) { return r.provenHolder(ctx, hash) })
	if err != nil {
		return Identity{}, err
	}
	now := r.now().UnixMicro()
	if h.revoked != 0 { // whenever: this node's clock may be behind the one that wrote it
		return Identity{}, h.who.refused(refusal.RevokedKey, fault.New(fault.Unauthenticated,
			"This key was revoked. An operator makes a new one with `signalbox %s %s`.", newKeyCommand[h.who.Kind], h.who.Name))
	}
	if h.expires != 0 && now >= h.expires {
		return Identity{}, h.who.refused(refusal.ExpiredKey,
			fault.New(fault.Unauthenticated, "This key has ended: it was rotated, or made for a day. Use the key that replaced "+
				"it, or sign in again with `signalbox login --cli`."))
	}
	if h.who.Kind == HolderAgent {
		r.presence.Note(h.who.ID, now)
	}
	wire.NoteCaller(ctx, h.who.ID, h.who.Actor(), h.who.Workspace)
	return h.identityAt(now), nil
}

// refused says of an error why a call of this holder is refused, for those who record it.
func (i Identity) refused(why refusal.Reason, err error) error {
	c := refusal.Cause{Reason: why, Workspace: i.Workspace, Key: i.KeyID}
	if i.Kind != "" { // else it is an address, which the call has
		c.Actor = i.Actor()
	}
	if i.Kind == HolderAgent {
		c.Agent = i.ID
	}
	return refusal.Because(err, c)
}

// RefusedWorkspace says of an error that it refuses a call which names another workspace than this holder's.
func (i Identity) RefusedWorkspace(err error) error { return i.refused(refusal.OtherWorkspace, err) }

// Named is the identity of an agent that is known by where it calls from, such as the Unix
// socket of this machine, and sends no key. The caller has to be sure of that.
func (r *Roster) Named(ctx context.Context, workspace, name string) (Identity, error) {
	known := "agent:" + workspace + "/" + name
	h, found, round := r.cache.Find(known)
	if !found {
		a, err := r.Agent(ctx, workspace, name)
		if err != nil {
			return Identity{}, err
		}
		h = a.holding()
		r.cache.Put(known, h, round)
	}
	now := r.now().UnixMicro()
	r.presence.Note(h.who.ID, now)
	return h.identityAt(now), nil
}

// ByID is the identity of an agent for what it asked for earlier, as it stands today. It does not
// count as seen by that.
func (r *Roster) ByID(ctx context.Context, workspace, agentID string) (Identity, error) {
	a, err := r.Agent(ctx, workspace, agentID)
	if err != nil {
		return Identity{}, err
	}
	return a.holding().identityAt(r.now().UnixMicro()), nil
}

// holding is an agent that is known without a key.
func (a Agent) holding() (h holding) {
	h.who = Identity{
		Kind: HolderAgent, ID: a.ID, Name: a.Name, Workspace: a.Workspace,
		Address: a.Address, Trust: a.Trust, Labels: a.Labels, Suspended: a.Suspended, RateLimit: a.RateLimit,
		Owner: a.owner, ActsFor: a.actsFor, Scopes: a.Scopes, OIDCClient: a.OIDCClient,
	}
	if a.SuspendedUntil != nil {
		h.suspendedUntil = a.SuspendedUntil.UnixMicro()
	}
	return h
}

// newKeyCommand is the command that makes a new key, by kind of holder, for the error about a
// revoked one.
var newKeyCommand = map[HolderKind]string{
	HolderAgent: "keys issue", HolderOperator: "operators token",
	HolderOwner: "users key",
}

// withHolder joins a key with the one of three who holds it.
const withHolder = `
FROM access_key k LEFT JOIN agent a ON a.id = k.holder LEFT JOIN operator o ON o.id = k.holder
LEFT JOIN owner w ON w.id = k.holder `

// provenHolder reads a key and its holder, and checks that the ledger says the same of both.
func (r *Roster) provenHolder(ctx context.Context, hash []byte) (h holding, err error) {
	p := r.ledger.Prover(ctx)
	agree, err := ledger.Agree(func() (bool, error) {
		if h, err = r.holder(ctx, hash); err != nil {
			return false, err
		}
		f, k, err := prove(p, h.who.ID, h.who.KeyID)
		f.lend(&h)
		return f.isOf(&h) && k.isOf(&h, hash), err
	})
	if err == nil && !agree {
		err = contradicted(p, "access_key", h.who.KeyID, h.who.Name)
	}
	return h, err
}

// holder reads a key and its holder, an agent, an operator or an owner, in one query.
func (r *Roster) holder(ctx context.Context, hash []byte) (h holding, err error) {
	var kind KeyKind
	var labels []byte
	who := &h.who
	err = r.db.Read.QueryRowContext(ctx, `SELECT k.id, k.kind, k.holder, k.rate_limit, k.expires_at, k.revoked_at,
COALESCE(a.name, o.name, w.name, ''), COALESCE(a.workspace, o.workspace, w.workspace, ''), COALESCE(o.role, ''),
COALESCE(a.address, ''), COALESCE(a.trust, ''), a.labels, COALESCE(a.suspended, $2),
COALESCE(a.suspended_until, 0), a.rate_limit, p.key`+withHolder+`
LEFT JOIN agent_public_key p ON p.agent = k.holder AND p.retired_at = 0 WHERE k.hash = $1`, hash, false).
		Scan(&who.KeyID, &kind, &who.ID, &who.KeyLimit, &h.expires, &h.revoked, &who.Name, &who.Workspace, &who.Role,
			&who.Address, &who.Trust, &labels, &who.Suspended, &h.suspendedUntil, &who.RateLimit, (*[]byte)(&who.PublicKey))
	if errors.Is(err, sql.ErrNoRows) {
		return h, unknownKey()
	}
	if err != nil {
		return h, err
	}
	if who.Name == "" { // an orphaned key; an identity without a workspace would see all of them
		return h, unknownKey()
	}
	who.Kind = kind.holder()
	if who.Kind == HolderAgent {
		err = wire.Unmarshal(labels, &who.Labels)
	}
	return h, err
}

// Find finds the identity of an agent by its address, which is in lower case. It does not
// count as seen by that.
func (r *Roster) Find(ctx context.Context, address string) (Identity, error) {
	name := "address:" + address
	h, err := r.cache.Get(name, func() (holding, error) { return r.provenAddress(ctx, address) })
	if err != nil {
		return Identity{}, err
	}
	return h.identityAt(r.now().UnixMicro()), nil
}

// provenAddress finds the agent with an address, and checks that the ledger says the same of it.
func (r *Roster) provenAddress(ctx context.Context, address string) (h holding, err error) {
	p := r.ledger.Prover(ctx)
	agree, err := ledger.Agree(func() (bool, error) {
		if h, err = r.addressed(ctx, address); err != nil {
			return false, err
		}
		f, _, err := prove(p, h.who.ID, "")
		f.lend(&h)
		return f.isOf(&h), err
	})
	if err == nil && !agree {
		err = contradicted(p, "agent", h.who.ID, h.who.Name)
	}
	return h, err
}

// addressed reads the agent with an address.
func (r *Roster) addressed(ctx context.Context, address string) (h holding, err error) {
	who := &h.who
	who.Kind = HolderAgent
	var labels []byte
	err = r.db.QueryRow(ctx,
		`SELECT a.id, a.name, a.workspace, a.address, a.trust, a.labels, a.suspended, a.suspended_until, a.rate_limit, p.key
FROM agent a LEFT JOIN agent_public_key p ON p.agent = a.id AND p.retired_at = 0
WHERE a.address = $1 AND a.address <> ''`, []any{address},
		&who.ID, &who.Name, &who.Workspace, &who.Address, &who.Trust, &labels, &who.Suspended, &h.suspendedUntil,
		&who.RateLimit, (*[]byte)(&who.PublicKey))
	if errors.Is(err, sql.ErrNoRows) {
		return h, NoAddress(address)
	}
	if err == nil {
		err = wire.Unmarshal(labels, &who.Labels)
	}
	return h, err
}

// NoAddress is the error for an address that no agent has, or none that the caller may know of.
func NoAddress(address string) error {
	return fault.New(fault.NotFound, "There is no agent with the address %.254s here.", address)
}

// unknownKey is one error for keys that never existed and keys of removed holders.
func unknownKey() error {
	return refusal.Because(fault.New(fault.Unauthenticated,
		"This key is not known here. Check that it was copied whole, and that it belongs to this server."),
		refusal.Cause{Reason: refusal.WrongKey})
}
