package directory

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// The kinds of entries. The subject is an agent's id, and of fingerprint.revoked a fingerprint.
const (
	kindProfile = "profile.changed"
	kindRevoked = "fingerprint.revoked"
	kindDuties  = "duties.changed"
)

// revoked is the body of fingerprint.revoked. Reason is a word of the protocol: key_rotation or
// agent_deregistered.
type revoked struct {
	Address      string `json:"address"`
	Reason       string `json:"reason"`
	SupersededBy string `json:"superseded_by,omitzero"`
	// Rotation proves that the holder of the key has replaced it, nil if somebody else did.
	Rotation *amp.Rotation `json:"rotation,omitempty"`
}

// Tables are the tables of the directory, which the migrations of package mail make.
func Tables() []ledger.Table {
	return ledger.Tables("mail_profile (agent)", "mail_revocation (fingerprint)", "mail_rotation (fingerprint)",
		"mail_duties (agent)")
}

// RotationMigration is the step of package mail that makes the table of rotations, by the key that was replaced.
const RotationMigration = `
CREATE TABLE mail_rotation (
  fingerprint {text} PRIMARY KEY,
  address {text} NOT NULL,
  next {text} NOT NULL,
  rotation {blob} NOT NULL
) {strict};
CREATE INDEX mail_rotation_next ON mail_rotation (next);
`

// Apply is how entries change them.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{
		kindProfile: applyProfile, kindRevoked: ledger.ApplyBody(applyRevoked),
		kindDuties: applyDuties, "agent.removed": applyAgentRemoved,
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
	if b.Rotation != nil {
		RecordRotations(tx, b.Address, []amp.Rotation{*b.Rotation})
	}
}

// RecordRotations keeps the proofs by which an agent has changed its key, of ours or of another host.
func RecordRotations(tx *store.Tx, address string, all []amp.Rotation) {
	for _, r := range all {
		text, err := wire.Marshal(r)
		if err != nil {
			continue // never: it was read from JSON
		}
		tx.Exec("INSERT INTO mail_rotation (fingerprint, address, next, rotation) VALUES ($1, $2, $3, $4) ON CONFLICT "+
			"(fingerprint) DO NOTHING", roster.Fingerprint(r.Old), strings.ToLower(address), roster.Fingerprint(r.New), text)
	}
}

// RotationsTo are the rotations of an agent that lead to a key, given as PEM, the oldest first. Without an answer there
// are none, and whoever knows an older key does not believe the new one for now.
func (d *Directory) RotationsTo(ctx context.Context, address, key string) (all []amp.Rotation) {
	parsed, err := roster.ParsePublicKey(key)
	if err != nil {
		return nil
	}
	return d.rotationsTo(ctx, address, roster.Fingerprint(parsed))
}

func (d *Directory) rotationsTo(ctx context.Context, address, fingerprint string) (all []amp.Rotation) {
	for range amp.MaxRotations {
		var text []byte
		var r amp.Rotation
		err := d.core.DB.QueryRow(ctx, "SELECT fingerprint, rotation FROM mail_rotation WHERE next = $1 AND address = $2",
			[]any{fingerprint, strings.ToLower(address)}, &fingerprint, &text)
		if err != nil || wire.UnmarshalPart(text, &r) != nil {
			break
		}
		all = append(all, r)
	}
	slices.Reverse(all)
	return all
}

// applyAgentRemoved removes profile and duties; revocations outlive the agent.
func applyAgentRemoved(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("DELETE FROM mail_profile WHERE agent = $1", e.Subject)
	tx.Exec("DELETE FROM mail_duties WHERE agent = $1", e.Subject)
	return nil
}

// Supersede revokes the key of a foreign agent in favour of a new one, in the transaction of the
// message that brought the new one. at is microseconds.
func Supersede(tx *store.Tx, fingerprint, address, by string, at int64) {
	tx.Exec("INSERT INTO mail_revocation (fingerprint, address, revoked_at, reason, superseded_by) VALUES ($1, $2, $3, "+
		"'key_rotation', $4) ON CONFLICT (fingerprint) DO NOTHING", fingerprint, address, at, by)
}

// KeyIsItsOwn reports whether an agent has come to its public key by itself: it is the one that it was registered with, or
// one that it went to with a proof of the key before. A key that an owner or operator has put in place of another does not
// prove that the agent is who it was (MSG-116), nor does any that follows it. It is decided with the entry that changes the
// key, so it is read once for each.
func (d *Directory) KeyIsItsOwn(ctx context.Context, who roster.Identity) (bool, error) {
	if who.PublicKey == nil {
		return true, nil
	}
	key := roster.Fingerprint(who.PublicKey)
	known := [2]string{who.ID, key}
	if given, is := d.given.Load(known); is {
		return !given.(bool), nil
	}
	given := false
	for range maxReplaced {
		var before string
		err := d.core.DB.QueryRow(ctx, replacedBy, []any{key, who.Address}, &before)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return false, err
		}
		e, err := d.core.Ledger.Entries(ctx, ledger.Query{Kinds: []string{kindRevoked}, Subject: before, Newest: true, Limit: 1})
		if err != nil {
			return false, err
		}
		// A version before 0.2 kept no proofs; that the agent did it itself, its actor says.
		if given = len(e) == 0 || !strings.HasPrefix(e[0].Actor, string(roster.HolderAgent)+":"); given {
			break
		}
		key = before
	}
	d.given.Store(known, given)
	return !given, nil
}

// maxReplaced bounds the keys of an agent that are looked at.
const maxReplaced = 10_000

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
	_ = d.core.DB.QueryRow(ctx, replacedBy, []any{roster.Fingerprint(parsed), address}, &before)
	return before
}

// replacedBy finds the key that a key has replaced.
const replacedBy = "SELECT fingerprint FROM mail_revocation WHERE superseded_by = $1 AND address = $2"
