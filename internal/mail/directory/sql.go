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

// The kinds of entries: of an agent, and of a public key's fingerprint.
const (
	kindProfile = "profile.changed"
	kindRevoked = "fingerprint.revoked"
)

// revoked is the body of fingerprint.revoked.
type revoked struct {
	Address      string `json:"address"`
	Reason       string `json:"reason"`
	SupersededBy string `json:"superseded_by,omitzero"`
}

// Tables are those of the directory. Package mail makes them, with its own.
func Tables() []ledger.Table {
	return ledger.Tables("mail_profile (agent)", "mail_revocation (fingerprint)")
}

// Apply is what entries do to them.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{
		kindProfile: applyProfile, kindRevoked: ledger.ApplyBody(applyRevoked),
		"agent.removed": applyAgentRemoved,
	}
}

func applyProfile(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO mail_profile (agent, seq) VALUES ($1, $2) ON CONFLICT (agent) DO UPDATE SET seq = excluded.seq",
		e.Subject, e.Seq)
	return nil
}

func applyRevoked(tx *store.Tx, e *ledger.Entry, b *revoked) {
	tx.Exec(`INSERT INTO mail_revocation (fingerprint, address, revoked_at, reason, superseded_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (fingerprint) DO UPDATE SET revoked_at = excluded.revoked_at, reason = excluded.reason, superseded_by = excluded.superseded_by`,
		e.Subject, b.Address, e.At.UnixMicro(), b.Reason, b.SupersededBy)
}

func applyAgentRemoved(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("DELETE FROM mail_profile WHERE agent = $1", e.Subject)
	return nil
}

// Supersede gives up the key of another provider's agent for a new one, in the transaction of
// the message that brings it.
func Supersede(tx *store.Tx, fingerprint, address, by string, at int64) {
	tx.Exec("INSERT INTO mail_revocation (fingerprint, address, revoked_at, reason, superseded_by) VALUES ($1, $2, $3, "+
		"'key_rotation', $4) ON CONFLICT (fingerprint) DO NOTHING", fingerprint, address, at, by)
}

func revoke(tx *ledger.Tx, actor roster.Identity, workspace, fingerprint string, body revoked) {
	tx.Append(ledger.Event{
		Workspace: workspace, Kind: kindRevoked, Actor: actor.Actor(), Subject: fingerprint,
		Body: body,
	})
}

// CheckRevoked refuses a key that was replaced or given up.
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
	return fault.New(fault.KeyRevoked,
		"The public key %s was given up (%s), and is not taken again. Make a new pair with `openssl "+
			"genpkey -algorithm ed25519`.", roster.Fingerprint(key), reason).About("public_key")
}

// Replaced is the fingerprint of the key that an agent's key, as PEM, has taken the place of,
// "" for none.
func (d *Directory) Replaced(ctx context.Context, address, key string) string {
	parsed, err := roster.ParsePublicKey(key)
	if err != nil {
		return ""
	}
	var before string
	// none is none
	_ = d.core.DB.QueryRow(ctx, "SELECT fingerprint FROM mail_revocation WHERE superseded_by = $1 AND address = $2",
		[]any{roster.Fingerprint(parsed), address}, &before)
	return before
}
