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

// Tables are the tables of federation, which the migrations of package mail make.
func Tables() []ledger.Table { return ledger.Tables("mail_pin (address)") }

// Pin is the key by which a foreign agent is known. Its first message pins it (trust on first
// use); a later message may replace it if the agent's provider names the old one.
type Pin struct {
	Fingerprint string // "" for a sender without a key, which is pinned to nothing
	Replaces    string // the pinned fingerprint that this one replaces, "" for none
}

// Pin compares the key of a foreign sender with the pinned one (MSG-82). Whether another key is accepted is for changed
// to say, by the fingerprint of the pinned one; else it is a key_conflict. It stores nothing: Remember does, with the
// message.
func (f *Federation) Pin(ctx context.Context, address string, key ed25519.PublicKey, changed func(pinned string) bool) (
	Pin, error,
) {
	fingerprint := roster.Fingerprint(key)
	var pinned string
	err := f.core.DB.QueryRow(ctx, "SELECT fingerprint FROM mail_pin WHERE address = $1", []any{address}, &pinned)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && pinned == fingerprint:
		return Pin{Fingerprint: fingerprint}, nil
	case err != nil:
		return Pin{}, err
	case changed(pinned):
		return Pin{fingerprint, pinned}, nil
	}
	return Pin{}, fault.New(fault.KeyConflict,
		"%s is known by the key %s, and now has %s. Its provider has to say that the old one was revoked, or within a "+
			"provider to show that the agent itself replaced it.", address, pinned, fingerprint).About("sender_public_key")
}

// Remember stores a pin in the transaction of the message that brought it. Of two first messages
// at once the first to commit wins.
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
