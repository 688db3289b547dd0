package directory

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// The kinds of entries. The subject of the first is an agent's id, of the second a fingerprint.
const (
	kindProfile = "profile.changed"
	kindRevoked = "fingerprint.revoked"
)

// revoked is the body of fingerprint.revoked. Reason is a word of the protocol: key_rotation or
// agent_deregistered.
type revoked struct {
	Address      string `json:"address"`
	Reason       string `json:"reason"`
	SupersededBy string `json:"superseded_by,omitzero"`
}

// Tables are the tables of the directory, which the migrations of package mail make.
func Tables() []ledger.Table {
	return ledger.Tables("mail_profile (agent)", "mail_revocation (fingerprint)")
}

// Apply is how entries change them.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{
		kindProfile: applyProfile, kindRevoked: ledger.ApplyBody(applyRevoked),
		"agent.removed": applyAgentRemoved,
	}
}

// applyProfile points to the newest profile of an agent; Load joins with the entries.
func applyProfile(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO mail_profile (agent, seq) VALUES ($1, $2) ON CONFLICT (agent) DO UPDATE SET seq = excluded.seq",
		e.Subject, e.Seq)
	return nil
}

// applyRevoked adds or replaces a revocation: the newest reason counts.
func applyRevoked(tx *store.Tx, e *ledger.Entry, b *revoked) {
	tx.Exec(`INSERT INTO mail_revocation (fingerprint, address, revoked_at, reason, superseded_by)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (fingerprint) DO UPDATE SET revoked_at = excluded.revoked_at, reason = excluded.reason,
superseded_by = excluded.superseded_by`,
		e.Subject, b.Address, e.At.UnixMicro(), b.Reason, b.SupersededBy)
}

// applyAgentRemoved removes the profile; revocations outlive the agent.
func applyAgentRemoved(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("DELETE FROM mail_profile WHERE agent = $1", e.Subject)
	return nil
}

// Supersede revokes the key of a foreign agent in favour of a new one, in the transaction of the
// message that brought the new one. at is microseconds.
func Supersede(tx *store.Tx, fingerprint, address, by string, at int64) {
	tx.Exec("INSERT INTO mail_revocation (fingerprint, address, revoked_at, reason, superseded_by) VALUES ($1, $2, $3, "+
		"'key_rotation', $4) ON CONFLICT (fingerprint) DO NOTHING", fingerprint, address, at, by)
}

// revoke appends fingerprint.revoked.
func revoke(tx *ledger.Tx, actor roster.Identity, workspace, fingerprint string, body revoked) {
	tx.Append(ledger.Event{
		Workspace: workspace, Kind: kindRevoked, Actor: actor.Actor(), Subject: fingerprint,
		Body: body,
	})
}

// CheckRevoked refuses a public key that was replaced or given up, by whichever agent.
func (d *Directory) CheckRevoked(ctx context.Context, key ed25519.PublicKey) error {
	var reason string
	err := d.core.DB.QueryRow(ctx, "SELECT reason FROM mail_revocation WHERE fingerprint = $1",
		[]any{roster.Fingerprint(key)}, &reason)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	// The reason is told to anybody who has the key: it is its former holder, or somebody who should know.
	return fault.New(fault.KeyRevoked,
		"The public key %s was given up (%s), and is not taken again. Make a new pair with `openssl "+
			"genpkey -algorithm ed25519`.", roster.Fingerprint(key), reason).About("public_key")
}

// Replaced is the fingerprint that an agent's current key, given as PEM, has replaced, "" for none.
// Other providers are told of it with every message, since they may not have heard of it yet.
func (d *Directory) Replaced(ctx context.Context, address, key string) string {
	parsed, err := roster.ParsePublicKey(key)
	if err != nil {
		return ""
	}
	var before string
	// Without an answer nothing is said, and the other provider refuses the new key for now.
	// Address and new key, so that a key which moved between agents is not mixed up.
	_ = d.core.DB.QueryRow(ctx, "SELECT fingerprint FROM mail_revocation WHERE superseded_by = $1 AND address = $2",
		[]any{roster.Fingerprint(parsed), address}, &before)
	return before
}
