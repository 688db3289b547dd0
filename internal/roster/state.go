package roster

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// The bodies of the roster's entries. The subject is the id of what they are about. They are
// stored for ever: members are only added, never renamed.
type (
	// agentAdded is the body of agent.added. The address is fixed from then on: it is in mail
	// that was sent.
	agentAdded struct {
		Name    string            `json:"name"`
		Address string            `json:"address,omitempty"`
		Owner   string            `json:"owner,omitempty"` // an id
		Trust   string            `json:"trust"`
		Labels  map[string]string `json:"labels"`
		ActsFor []string          `json:"acts_for,omitzero"` // ids of users, or "*"
		Scopes  []string          `json:"scopes,omitzero"`   // nil is everything, and an empty list nothing
		// OIDCClient is its client id at an issuer of tokens.
		OIDCClient string `json:"oidc_client,omitzero"`
	}
	// agentChanged holds all settings as they are after the change, so that an apply function
	// need not know those before.
	agentChanged struct {
		Trust     string            `json:"trust"`
		Labels    map[string]string `json:"labels"`
		RateLimit *int64            `json:"rate_limit,omitempty"`
		ActsFor   []string          `json:"acts_for,omitzero"`
		Scopes    []string          `json:"scopes,omitzero"`
		// OIDCClient is its client id at an issuer of tokens.
		OIDCClient string `json:"oidc_client,omitzero"`
	}
	// agentSuspended is the body of agent.suspended.
	agentSuspended struct {
		Reason string `json:"reason,omitzero"`
		Until  int64  `json:"until,omitzero"` // microseconds; 0 is until somebody says so
	}
	// agentProved is the body of agent.proved; the time makes a proof usable once.
	agentProved struct {
		At int64 `json:"at"` // the time in the proof, in seconds
	}
	// agentRemoved is the body of agent.removed.
	agentRemoved struct {
		HeldUntil int64 `json:"held_until,omitzero"` // microseconds; nobody gets the address before
	}
	// The subject of public_key entries is the agent.
	publicKeyAdded struct {
		Fingerprint string `json:"fingerprint"`
		Key         []byte `json:"key"`
	}
	publicKeyRetired struct {
		Fingerprint string `json:"fingerprint"`
	}
	// operatorAdded is the body of operator.added.
	operatorAdded struct {
		Name string `json:"name"`
		Role Role   `json:"role"`
		// Workspace is the one the operator is confined to, "" for all.
		Workspace string `json:"workspace,omitempty"`
	}
	// operatorChanged is the body of operator.changed.
	operatorChanged struct {
		Contacts map[string]string `json:"contacts"` // all that they have now
	}
	// keyIssued is the body of key.issued. A reader of the ledger cannot use the key: the secret
	// is random, so its hash gives nothing away.
	keyIssued struct {
		Kind   KeyKind `json:"kind"`
		Holder string  `json:"holder"` // the id of the agent, operator or owner
		Hash   string  `json:"sha256"`
		Hint   string  `json:"hint"`
		Limit  int64   `json:"rate_limit,omitzero"`
		// Expires is when it ends by itself, 0 for never.
		Expires int64 `json:"expires_at,omitzero"`
	}
	// keyRetired is the body of key.rotated and key.revoked.
	keyRetired struct {
		At int64 `json:"at"` // microseconds; from then on it is refused
	}
	// empty is the body of entries that say everything with their kind and subject.
	empty struct{}
)

// Projection is what the roster's entries do to its tables. agent_presence is not
// among them: nothing in the ledger says when an agent was seen.
func Projection() ledger.Projection {
	removeUser := applyRemoved("owner", "UPDATE agent SET owner = '' WHERE owner = $1")
	return ledger.Projection{
		Name: "roster",
		Tables: ledger.Tables(
			"workspace (name)", "agent (id)", "agent_public_key (agent, fingerprint)",
			"operator (id)", "operator_contact (operator, channel)", "owner (id)", "user_login (workspace, issuer, subject)",
			"access_key (id)", "address_hold (address)", "invite (id)",
		),
		Apply: map[string]ledger.Apply{
			"workspace.added":    applyWorkspaceAdded,
			kindOpened:           keep,
			kindClosed:           keep,
			"agent.added":        ledger.TryBody(applyAgentAdded),
			"agent.changed":      ledger.TryBody(applyAgentChanged),
			"agent.suspended":    ledger.ApplyBody(applySuspended),
			"agent.resumed":      applyResumed,
			"agent.proved":       ledger.ApplyBody(applyProved),
			"agent.removed":      ledger.TryBody(applyAgentRemoved),
			"public_key.added":   ledger.ApplyBody(applyPublicKeyAdded),
			"public_key.retired": ledger.ApplyBody(applyPublicKeyRetired),
			"operator.added":     ledger.ApplyBody(applyOperatorAdded),
			"operator.changed":   ledger.ApplyBody(applyOperatorChanged),
			"operator.removed":   applyRemoved("operator", "DELETE FROM operator_contact WHERE operator = $1"),
			"owner.added":        ledger.ApplyBody(applyUserAdded),
			"owner.removed":      removeUser,
			kindUserAdded:        ledger.ApplyBody(applyUserAdded),
			kindUserChanged:      keep,
			kindUserSuspended:    keep,
			kindUserResumed:      keep,
			kindUserLinked:       ledger.ApplyBody(applyLogin),
			kindUserRemoved:      removeUser,
			"invite.made":        ledger.TryBody(applyInviteMade),
			"invite.used":        applyInviteUsed,
			"invite.ended":       applyInviteEnded,
			"key.issued":         ledger.TryBody(applyKeyIssued),
			"key.rotated":        applyKeyRetired("expires_at"),
			"key.revoked":        applyKeyRetired("revoked_at"),
		},
	}
}

// applyWorkspaceAdded adds a row; workspaces are never removed, since entries name them.
func applyWorkspaceAdded(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO workspace (name, added_at) VALUES ($1, $2)", e.Subject, e.At.UnixMicro())
	return nil
}

// keep does nothing: openings of workspaces and settings of users are read from their entries. That there is an apply
// function keeps retention from erasing their bodies.
func keep(*store.Tx, *ledger.Entry) error { return nil }

// applyAgentAdded stores labels as JSON. Marshal sorts them, so that a rebuild writes the same
// bytes.
func applyAgentAdded(tx *store.Tx, e *ledger.Entry, b *agentAdded) error {
	labels, err := wire.Marshal(b.Labels)
	if err != nil {
		return err
	}
	tx.Exec("INSERT INTO agent (id, workspace, name, address, owner, trust, labels, suspended, "+
		"added_at, oidc_client) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		e.Subject, e.Workspace, b.Name, b.Address, b.Owner, b.Trust, labels, false, e.At.UnixMicro(), b.OIDCClient)
	return nil
}

func applyAgentChanged(tx *store.Tx, e *ledger.Entry, b *agentChanged) error {
	labels, err := wire.Marshal(b.Labels)
	if err != nil {
		return err
	}
	tx.Exec("UPDATE agent SET trust = $2, labels = $3, rate_limit = $4, oidc_client = $5 WHERE id = $1", e.Subject, b.Trust,
		labels, b.RateLimit, b.OIDCClient)
	return nil
}

// applySuspended sets the suspension and its end, 0 for none. Nothing happens at the end:
// readers compare the time.
func applySuspended(tx *store.Tx, e *ledger.Entry, b *agentSuspended) {
	tx.Exec("UPDATE agent SET suspended = $2, suspended_until = $3 WHERE id = $1", e.Subject, true, b.Until)
}

func applyResumed(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE agent SET suspended = $2, suspended_until = 0 WHERE id = $1", e.Subject, false)
	return nil
}

// applyProved moves the time of the last proof on.
func applyProved(tx *store.Tx, e *ledger.Entry, b *agentProved) {
	tx.Exec("UPDATE agent SET proved_at = $2 WHERE id = $1", e.Subject, b.At)
}

// applyAgentRemoved removes the agent, and reserves its address for a while if the entry says
// so.
func applyAgentRemoved(tx *store.Tx, e *ledger.Entry, b *agentRemoved) error {
	if b.HeldUntil > 0 {
		tx.Exec("DELETE FROM address_hold WHERE address = (SELECT address FROM agent WHERE id = $1)", e.Subject)
		tx.Exec("INSERT INTO address_hold (address, until_at) SELECT address, CAST($2 AS bigint) FROM agent WHERE id = $1",
			e.Subject, b.HeldUntil)
	}
	return applyRemoved("agent", "DELETE FROM agent_public_key WHERE agent = $1")(tx, e)
}

// applyRemoved deletes a holder and all of their keys: somebody who gets the same name later
// is another holder. further are statements about what else was theirs, with the id as $1.
func applyRemoved(table string, further ...string) ledger.Apply {
	return func(tx *store.Tx, e *ledger.Entry) error {
		tx.Exec("DELETE FROM access_key WHERE holder = $1", e.Subject)
		tx.Exec("DELETE FROM "+table+" WHERE id = $1", e.Subject)
		for _, statement := range further {
			tx.Exec(statement, e.Subject)
		}
		return nil
	}
}

// applyPublicKeyAdded makes a key the current one; a key that was retired is current again.
func applyPublicKeyAdded(tx *store.Tx, e *ledger.Entry, b *publicKeyAdded) {
	tx.Exec(`INSERT INTO agent_public_key (agent, fingerprint, key, added_at, retired_at) VALUES ($1, $2, $3, $4, 0)
ON CONFLICT (agent, fingerprint) DO UPDATE SET added_at = excluded.added_at, retired_at = 0`, e.Subject, b.Fingerprint,
		b.Key, e.At.UnixMicro())
}

// applyPublicKeyRetired keeps the row: what the key has signed can still be checked.
func applyPublicKeyRetired(tx *store.Tx, e *ledger.Entry, b *publicKeyRetired) {
	tx.Exec("UPDATE agent_public_key SET retired_at = $3 WHERE agent = $1 AND fingerprint = $2", e.Subject, b.Fingerprint,
		e.At.UnixMicro())
}

// applyUserAdded adds a user to the workspace of the entry. The settings stay in the entries: see keep.
func applyUserAdded(tx *store.Tx, e *ledger.Entry, b *userAdded) {
	tx.Exec("INSERT INTO owner (id, workspace, name, added_at) VALUES ($1, $2, $3, $4)", e.Subject, e.Workspace, b.Name,
		e.At.UnixMicro())
	if b.Login != nil {
		applyLogin(tx, e, b.Login)
	}
}

// applyLogin stores to whom a subject belongs. The row stays when the user is removed, so that nobody is made again.
func applyLogin(tx *store.Tx, e *ledger.Entry, b *Login) {
	tx.Exec(`INSERT INTO user_login (workspace, issuer, subject, owner) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace, issuer, subject) DO UPDATE SET owner = excluded.owner`, e.Workspace, b.Issuer, b.Subject, e.Subject)
}

func applyOperatorAdded(tx *store.Tx, e *ledger.Entry, b *operatorAdded) {
	tx.Exec("INSERT INTO operator (id, name, role, added_at, workspace) VALUES ($1, $2, $3, $4, $5)", e.Subject, b.Name,
		string(b.Role), e.At.UnixMicro(), b.Workspace)
}

// applyOperatorChanged replaces all contacts: the entry lists those that the operator has now.
func applyOperatorChanged(tx *store.Tx, e *ledger.Entry, b *operatorChanged) {
	tx.Exec("DELETE FROM operator_contact WHERE operator = $1", e.Subject)
	for _, channel := range slices.Sorted(maps.Keys(b.Contacts)) {
		tx.Exec("INSERT INTO operator_contact (operator, channel, contact) VALUES ($1, $2, $3)", e.Subject, channel,
			b.Contacts[channel])
	}
}

// applyKeyIssued stores the hash, by which Authenticate finds the key.
func applyKeyIssued(tx *store.Tx, e *ledger.Entry, b *keyIssued) error {
	hash, err := hex.DecodeString(b.Hash)
	if err != nil {
		return fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	tx.Exec("INSERT INTO access_key (id, hash, kind, holder, hint, rate_limit, issued_at, expires_at, revoked_at) "+
		"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)",
		e.Subject, hash, string(b.Kind), b.Holder, b.Hint, b.Limit, e.At.UnixMicro(), b.Expires)
	return nil
}

// applyKeyRetired sets when a key ends: expires_at for a rotation, which has a grace period, or
// revoked_at.
func applyKeyRetired(column string) ledger.Apply {
	return ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *keyRetired) {
		tx.Exec("UPDATE access_key SET "+column+" = $2 WHERE id = $1", e.Subject, b.At)
	})
}
