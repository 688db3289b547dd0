// Package once keeps the signatures that are good once: those of agents that demand signing, and those of messages
// from other hosts of the mesh (MSG-111). Who has a copy of a signed message, such as its recipient, could otherwise
// have it delivered again, with a stolen API key or from a hostile host.
//
// It owns the table mail_signed, which follows from the entries of messages, and knows no messages.
package once

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Window is how long a signature that covers no nonce is good once: for as long as its message may wait.
const Window = 7 * 24 * time.Hour

// Use is the use of a signature, as the entry of its message has it. The zero value is of one that may be used again.
type Use struct {
	Key   string `json:"key,omitzero"`   // a hash of the signature
	Nonce bool   `json:"nonce,omitzero"` // the signature covers a nonce: it is never good again
	At    int64  `json:"at,omitzero"`    // microseconds, in an entry that has the use from an earlier one
}

// Of is the use of a signature in base64. The hash is over its bytes: base64 has several spellings of the same.
func Of(signature string, nonce bool) Use {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		raw = []byte(signature) // not one that verifies
	}
	sum := sha256.Sum256(raw)
	return Use{Key: hex.EncodeToString(sum[:]), Nonce: nonce}
}

// Check refuses a signature that was used before, in the transaction that stores its message. One that covers a nonce is
// not looked up: Apply inserts it, and a write that inserts it again fails; Explain then says why. A read in the
// transaction would have to wait for what every message before it in the batch has queued.
func (u Use) Check(tx *ledger.Tx) error {
	if u.Key == "" || u.Nonce {
		return nil
	}
	at, err := u.last(tx.QueryRow)
	if err != nil || at == 0 || tx.Now().Sub(time.UnixMicro(at)) > Window {
		return err
	}
	return again(at)
}

// Explain is the error for a sender whose message was not stored because of a row that was there: err, unless it was the
// signature.
func (u Use) Explain(ctx context.Context, db *store.DB, err error) error {
	if u.Key == "" {
		return err
	}
	at, failed := u.last(func(query string, args []any, dest ...any) error {
		return db.QueryRow(ctx, query, args, dest...)
	})
	if failed != nil || at == 0 {
		return cmp.Or(failed, err)
	}
	return again(at)
}

// last is when the signature was used last, in microseconds; 0 if it never was.
func (u Use) last(row func(query string, args []any, dest ...any) error) (at int64, err error) {
	err = row("SELECT at FROM mail_signed WHERE signature = $1", []any{u.Key}, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return at, err
}

// again is the error for a signature that was used before.
func again(at int64) error {
	return fault.New(fault.DuplicateMessage, "A message with this signature was sent at %s, and a signature is good once "+
		"here. To say the same again, sign a payload with another nonce.",
		time.UnixMicro(at).UTC().Format(time.RFC3339)).About("signature")
}

// Apply notes a use, in the apply function of the entry with the message. at is microseconds.
func (u Use) Apply(tx *store.Tx, at int64) {
	switch {
	case u.Key == "":
	case u.Nonce && u.At == 0: // never good again: see Check
		tx.Exec("INSERT INTO mail_signed (signature, at) VALUES ($1, $2)", u.Key, at)
	default:
		tx.Exec("INSERT INTO mail_signed (signature, at) VALUES ($1, $2) ON CONFLICT (signature) DO UPDATE SET at = "+
			"CASE WHEN mail_signed.at > excluded.at THEN mail_signed.at ELSE excluded.at END", u.Key, at)
	}
}

// Migration is the step of package mail that makes the table: the signatures that are good once, and when they were used
// last.
const Migration = `
CREATE TABLE mail_signed (
  signature {text} PRIMARY KEY,
  at {bigint} NOT NULL
) {keyed};
`

// Tables are the tables of the package, which the migrations of package mail make.
func Tables() []ledger.Table { return ledger.Tables("mail_signed (signature)") }
