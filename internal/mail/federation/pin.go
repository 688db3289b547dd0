package federation

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// Tables are those of federation. Package mail makes them, with its own.
func Tables() []ledger.Table { return ledger.Tables("mail_pin (address)") }

// Pin is the key by which an agent of another provider is known from a message on.
type Pin struct {
	Fingerprint string // "" for a sender without a key
	Replaces    string // the fingerprint of the key that it had before, "" for the same or none
}

// Pin compares a sender's key with the one it had before. A change is taken from a provider
// that says which key the new one replaces, and from nobody else.
func (f *Federation) Pin(ctx context.Context, address string, key ed25519.PublicKey, replaces string) (Pin, error) {
	fingerprint := roster.Fingerprint(key)
	var pinned string
	err := f.core.DB.QueryRow(ctx, "SELECT fingerprint FROM mail_pin WHERE address = $1", []any{address}, &pinned)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && pinned == fingerprint:
		return Pin{Fingerprint: fingerprint}, nil
	case err != nil:
		return Pin{}, err
	case replaces == pinned:
		return Pin{fingerprint, pinned}, nil
	}
	return Pin{}, fault.New(fault.KeyConflict,
		"%s was known by the key %s, and now has %s. Its provider has to say that the old one was revoked.", address, pinned,
		fingerprint).About("sender_public_key")
}

// Remember keeps the key of another provider's agent, in the transaction of its message.
func Remember(tx *store.Tx, address string, p Pin) {
	if p.Fingerprint == "" {
		return
	}
	address = strings.ToLower(address)
	if p.Replaces != "" {
		tx.Exec("DELETE FROM mail_pin WHERE address = $1 AND fingerprint = $2", address, p.Replaces)
	}
	tx.Exec("INSERT INTO mail_pin (address, fingerprint) VALUES ($1, $2) ON CONFLICT (address) DO NOTHING", address,
		p.Fingerprint)
}
