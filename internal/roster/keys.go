package roster

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster/key"
	"signalbox/internal/store"
)

// The life of a key. It is issued, with a secret that is shown once. It may be rotated once:
// a new key takes its place, and it works for 24 hours more. It may be revoked at any time,
// also during that grace, and is refused from then on. It ends with its holder too. Rows are
// kept after a rotation or a revocation, so that the error can say what happened.

// Grace is how long a key keeps working after it was rotated, so that the agent can be given
// the new one.
const Grace = 24 * time.Hour

// Issued is a new key with its secret, which is shown this once.
type Issued struct {
	Key    Key
	Secret string
}

// prepare draws a key outside of the transaction, which may run twice.
func prepare(kind KeyKind) Issued {
	secret := key.Draw(string(kind))
	return Issued{Secret: secret, Key: Key{ID: id.New("key"), Kind: kind, Hint: key.Hint(secret)}}
}

// issue appends key.issued. The entry has the hash of the secret and a hint, never the secret.
func issue(tx *ledger.Tx, by Identity, workspace, holder string, k *Issued) {
	k.Key.IssuedAt = tx.Now()
	body := keyIssued{
		Kind: k.Key.Kind, Holder: holder, Hash: hex.EncodeToString(key.Hash(k.Secret)), Hint: k.Key.Hint,
		Limit: k.Key.RateLimit,
	}
	if k.Key.ExpiresAt != nil {
		body.Expires = k.Key.ExpiresAt.UnixMicro()
	}
	tx.Append(ledger.Event{Workspace: workspace, Kind: "key.issued", Actor: by.Actor(), Subject: k.Key.ID, Body: body})
}

// IssueFor gives an operator, by id, a further token that ends by itself, in the caller's transaction, which must be one
// of Roster.Write.
func (r *Roster) IssueFor(tx *ledger.Tx, operator string, token *Issued, until time.Time) (Person, error) {
	p, err := provenOperator(tx.Prover(), func(query store.Query) (Person, map[string]string, error) {
		return operatorBy(query, "id", operator)
	})
	if err != nil {
		return p, err
	}
	token.Key.Operator, token.Key.ExpiresAt = p.Name, &until
	issue(tx, p.Identity(), p.Workspace, p.ID, token)
	return p, nil
}

// IssueAgentKey makes a further key for an agent of the workspace that WorkspaceOf returns.
func (r *Roster) IssueAgentKey(ctx context.Context, by Identity, in IssueKey) (Issued, error) {
	workspace, err := WorkspaceOf(ctx, in.Workspace)
	if err != nil {
		return Issued{}, err
	}
	k, err := agentKeyKind(in.Kind)
	if err != nil {
		return Issued{}, err
	}
	if in.RateLimit < 0 || in.RateLimit > MaxRateLimit {
		return Issued{}, fault.New(fault.InvalidPayload,
			"The rate_limit of a key should be a whole number of requests a minute, from 1 to "+
				"%d, or 0 for none but the agent's. It is %d.", MaxRateLimit, in.RateLimit).About("rate_limit")
	}
	out := prepare(k)
	out.Key.RateLimit = in.RateLimit
	err = r.onAgent(ctx, workspace, in.Agent, func(tx *ledger.Tx, a Agent) error {
		issue(tx, by, a.Workspace, a.ID, &out)
		out.Key.Agent, out.Key.Workspace = a.Name, a.Workspace
		return nil
	})
	return out, err
}

// RotateKey makes a key that replaces another, which works for 24 hours more.
func (r *Roster) RotateKey(ctx context.Context, by Identity, keyID string) (Issued, error) {
	var out Issued
	err := r.onKey(ctx, by, keyID, func(tx *ledger.Tx, old heldKey) error {
		if old.ExpiresAt != nil || old.RevokedAt != nil {
			return fault.New(fault.Conflict, "The key %s was rotated or revoked already. Rotate the one that is in use.", keyID)
		}
		// Drawn again if the transaction runs again; the one of the last run is committed.
		out = prepare(old.Kind)
		out.Key.Workspace, out.Key.RateLimit = old.Workspace, old.RateLimit
		out.Key.Agent, out.Key.Operator, out.Key.Owner = old.Agent, old.Operator, old.Owner
		issue(tx, by, old.Workspace, old.holder, &out)
		tx.Append(ledger.Event{
			Workspace: old.Workspace, Kind: "key.rotated", Actor: by.Actor(), Subject: old.ID,
			Body: keyRetired{tx.Now().Add(Grace).UnixMicro()},
		})
		return nil
	})
	return out, err
}

// RevokeKey makes a key invalid at once and for good. Revoking it again changes nothing.
func (r *Roster) RevokeKey(ctx context.Context, by Identity, keyID string) (Key, error) {
	var out Key
	err := r.onKey(ctx, by, keyID, func(tx *ledger.Tx, old heldKey) error {
		out = old.Key
		if old.RevokedAt != nil {
			return nil
		}
		now := tx.Now()
		out.RevokedAt = &now
		tx.Append(ledger.Event{
			Workspace: old.Workspace, Kind: "key.revoked", Actor: by.Actor(), Subject: old.ID,
			Body: keyRetired{now.UnixMicro()},
		})
		return nil
	})
	return out, err
}

// EndOwn revokes the token that an operator calls with, if it is one that ends by itself.
func (r *Roster) EndOwn(ctx context.Context, by Identity) error {
	return r.Write(ctx, func(tx *ledger.Tx) error {
		var expires int64
		err := tx.QueryRow("SELECT expires_at FROM access_key WHERE id = $1", []any{by.KeyID}, &expires)
		if errors.Is(err, sql.ErrNoRows) || err == nil && expires == 0 {
			return fault.New(fault.Forbidden,
				"Only the token of a terminal can be ended by itself. An admin ends others with `signalbox keys revoke`.")
		}
		if err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: by.Workspace, Kind: "key.revoked", Actor: by.Actor(), Subject: by.KeyID,
			Body: keyRetired{tx.Now().UnixMicro()},
		})
		return nil
	})
}

// heldKey is a key with the id of its holder.
type heldKey struct {
	Key
	holder string
}

// onKey finds a key inside of a transaction, as far as the caller may see and change it. A key
// of another workspace does not exist for a caller who is confined to one.
func (r *Roster) onKey(ctx context.Context, by Identity, keyID string, fn func(*ledger.Tx, heldKey) error) error {
	return r.Write(ctx, func(tx *ledger.Tx) error {
		var held heldKey
		k, err := scanKey(func(dest ...any) error {
			return tx.QueryRow("SELECT k.holder, "+keyColumns+withHolder+"WHERE k.id = $1", []any{keyID},
				append([]any{&held.holder}, dest...)...)
		})
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err != nil || by.Workspace != "" && by.Workspace != k.Workspace {
			return fault.New(fault.NotFound, "There is no key %.80q. `signalbox keys ls` lists the ids of those there are.",
				keyID)
		}
		if k.Operator != "" && !by.Role.Allows(Admin) {
			return fault.New(fault.Forbidden, "Only an admin may change an operator's token.")
		}
		held.Key = k
		return fn(tx, held)
	})
}
