package roster

import (
	"context"
	"database/sql"
	"errors"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Authenticate finds out who holds the key. An agent has been seen by that, and may be
// suspended: policy blocks what it does, and it hears why.
func (r *Roster) Authenticate(ctx context.Context, secret string) (Identity, error) {
	hash := hashSecret(secret)
	h, found, round := r.cache.find(hash)
	if !found {
		var err error
		if h, err = r.holder(ctx, hash); err != nil {
			return Identity{}, err
		}
		r.cache.put(hash, h, round)
	}
	now := r.now().UnixMicro()
	if h.revoked != 0 { // whenever: this node's clock may be behind the one that wrote it
		return Identity{}, fault.New(fault.Unauthenticated,
			"This key was revoked. An operator makes a new one with `signalbox %s %s`.", newKeyCommand[h.who.Kind], h.who.Name)
	}
	if h.expires != 0 && now >= h.expires {
		return Identity{},
			fault.New(fault.Unauthenticated, "This key was rotated, and its grace period is over. Use the key that replaced it.")
	}
	if h.who.Kind == HolderAgent {
		r.presence.see(h.who.ID, now)
	}
	return h.at(now), nil
}

// Named is the identity of an agent that is known by where it calls from, such as this
// machine's own socket, and shows no key.
func (r *Roster) Named(ctx context.Context, workspace, name string) (Identity, error) {
	known := []byte("agent:" + workspace + "/" + name)
	h, found, round := r.cache.find(known)
	if !found {
		a, err := r.Agent(ctx, workspace, name)
		if err != nil {
			return Identity{}, err
		}
		h.who = Identity{
			Kind: HolderAgent, ID: a.ID, Name: a.Name, Workspace: a.Workspace,
			Address: a.Address, Trust: a.Trust, Labels: a.Labels, Suspended: a.Suspended, RateLimit: a.RateLimit,
		}
		r.cache.put(known, h, round)
	}
	r.presence.see(h.who.ID, r.now().UnixMicro())
	return h.who, nil
}

var newKeyCommand = map[HolderKind]string{
	HolderAgent: "keys issue", HolderOperator: "operators token",
	HolderOwner: "owners key",
}

// withHolder joins a key with the one of three who holds it.
const withHolder = `
FROM access_key k LEFT JOIN agent a ON a.id = k.holder LEFT JOIN operator o ON o.id = k.holder LEFT JOIN owner w ON w.id = k.holder `

// holder reads a key and whom it stands for.
func (r *Roster) holder(ctx context.Context, hash []byte) (h holding, err error) {
	var kind KeyKind
	var labels []byte
	who := &h.who
	err = r.db.Read.QueryRowContext(ctx, `SELECT k.id, k.kind, k.holder, k.rate_limit, k.expires_at, k.revoked_at,
COALESCE(a.name, o.name, w.name, ''), COALESCE(a.workspace, o.workspace, w.workspace, ''), COALESCE(o.role, ''),
COALESCE(a.address, ''), COALESCE(a.trust, ''), a.labels, COALESCE(a.suspended, $2), COALESCE(a.suspended_until, 0), a.rate_limit, p.key`+withHolder+`
LEFT JOIN agent_public_key p ON p.agent = k.holder AND p.retired_at = 0 WHERE k.hash = $1`, hash, false).
		Scan(&who.KeyID, &kind, &who.ID, &who.KeyLimit, &h.expires, &h.revoked, &who.Name, &who.Workspace, &who.Role,
			&who.Address, &who.Trust, &labels, &who.Suspended, &h.suspendedUntil, &who.RateLimit, (*[]byte)(&who.PublicKey))
	if errors.Is(err, sql.ErrNoRows) {
		return h, unknownKey()
	}
	if err != nil {
		return h, err
	}
	if who.Name == "" { // nobody holds it; an identity of no workspace would be one of all
		return h, unknownKey()
	}
	who.Kind = kind.holder()
	if who.Kind == HolderAgent {
		err = wire.Unmarshal(labels, &who.Labels)
	}
	return h, err
}

// Find finds an agent by its address, in lower case, as if it had called.
func (r *Roster) Find(ctx context.Context, address string) (Identity, error) {
	name := []byte("address:" + address)
	h, found, round := r.cache.find(name)
	if !found {
		who := &h.who
		var labels []byte
		err := r.db.QueryRow(ctx,
			`SELECT a.id, a.name, a.workspace, a.address, a.trust, a.labels, a.suspended, a.suspended_until, a.rate_limit, p.key
FROM agent a LEFT JOIN agent_public_key p ON p.agent = a.id AND p.retired_at = 0 WHERE a.address = $1 AND a.address <> ''`, []any{address},
			&who.ID, &who.Name, &who.Workspace, &who.Address, &who.Trust, &labels, &who.Suspended, &h.suspendedUntil,
			&who.RateLimit, (*[]byte)(&who.PublicKey))
		if errors.Is(err, sql.ErrNoRows) {
			return Identity{}, fault.New(fault.NotFound, "There is no agent with the address %.254s here.", address)
		}
		if err == nil {
			err = wire.Unmarshal(labels, &who.Labels)
		}
		if err != nil {
			return Identity{}, err
		}
		who.Kind = HolderAgent
		r.cache.put(name, h, round)
	}
	return h.at(r.now().UnixMicro()), nil
}

func unknownKey() error {
	return fault.New(fault.Unauthenticated,
		"This key is not known here. Check that it was copied whole, and that it belongs to this server.")
}
