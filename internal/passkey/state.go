package passkey

import (
	"bytes"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Migrations make the table of passkeys. A key that was removed keeps its row, so that its credential
// cannot be enrolled again with the signatures that the ledger still has.
var Migrations = store.Migrations{Package: "passkey", Steps: []string{`
CREATE TABLE passkey (
  credential {text} PRIMARY KEY,
  operator {text} NOT NULL,
  name {text} NOT NULL,
  label {text} NOT NULL,
  public_key {blob} NOT NULL,
  rp_id {text} NOT NULL,
  origin {text} NOT NULL,
  sign_count {bigint} NOT NULL,
  aaguid {text} NOT NULL,
  added_at {bigint} NOT NULL,
  removed_at {bigint} NOT NULL DEFAULT 0
) {strict};
CREATE INDEX passkey_operator ON passkey (operator);
`}}

// The kinds of the entries. Their subject is the id of the operator whose passkeys they are about.
const (
	kindAdded     = "passkey.added"
	kindRemoved   = "passkey.removed"
	kindForgotten = "passkey.forgotten" // all of them, on the machine of a server that was stopped
	kindCloned    = "passkey.cloned"    // a signature by a copy was refused
)

// The bodies of the entries. Signed is the signature that allows the change.
type (
	added struct {
		Operator   string     `json:"operator"`
		Label      string     `json:"label"`
		Credential string     `json:"credential"`
		PublicKey  []byte     `json:"public_key"` // COSE
		RPID       string     `json:"rp_id"`
		Origin     string     `json:"origin"`
		Count      int64      `json:"sign_count"`
		AAGUID     string     `json:"aaguid"`
		Signed     *Assertion `json:"signed,omitzero"` // none for the first
	}
	removed struct {
		Operator   string     `json:"operator"`
		Credential string     `json:"credential"`
		Signed     *Assertion `json:"signed"`
	}
	forgotten struct {
		Operator string `json:"operator"`
	}
	cloned struct {
		Operator   string `json:"operator"`
		Credential string `json:"credential"`
		What       string `json:"what"` // what the copy was used for
	}
)

// Projection is what the entries do to the table.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name: "passkey", Tables: ledger.Tables("passkey (credential)"),
		Apply: map[string]ledger.Apply{
			kindAdded:          ledger.ApplyBody(applyAdded),
			kindRemoved:        ledger.ApplyBody(applyRemoved),
			kindForgotten:      applyForgotten,
			"operator.removed": applyForgotten,
		},
	}
}

func applyAdded(tx *store.Tx, e *ledger.Entry, b *added) {
	Counted(tx, b.Signed)
	tx.Exec("INSERT INTO passkey (credential, operator, name, label, public_key, rp_id, origin, sign_count, aaguid, "+
		"added_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", b.Credential, e.Subject, b.Operator, b.Label,
		b.PublicKey, b.RPID, b.Origin, b.Count, b.AAGUID, e.At.UnixMicro())
}

func applyRemoved(tx *store.Tx, e *ledger.Entry, b *removed) {
	Counted(tx, b.Signed)
	tx.Exec("UPDATE passkey SET removed_at = $2 WHERE credential = $1", b.Credential, e.At.UnixMicro())
}

// applyForgotten ends all keys of an operator.
func applyForgotten(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE passkey SET removed_at = $2 WHERE operator = $1 AND removed_at = 0", e.Subject, e.At.UnixMicro())
	return nil
}

// Counted moves the counter of a key on, for the apply function of an entry with a signature. a may be
// nil.
func Counted(tx *store.Tx, a *Assertion) {
	if a != nil {
		tx.Exec("UPDATE passkey SET sign_count = $2 WHERE credential = $1", a.Credential, a.count())
	}
}

const selectKey = "SELECT credential, operator, name, label, public_key, rp_id, origin, sign_count, aaguid, added_at " +
	"FROM passkey WHERE removed_at = 0 "

func scanKey(scan store.Scan) (k Key, err error) {
	var at int64
	err = scan(&k.Credential, &k.OperatorID, &k.Operator, &k.Label, &k.PublicKey, &k.RPID, &k.Origin, &k.Count, &k.AAGUID,
		&at)
	k.AddedAt = time.UnixMicro(at).UTC()
	return k, err
}

// Of are the keys that an operator can sign with now, by the operator's id. The ledger has to say that they were
// added and not removed; how often they have signed is read from the table alone.
func Of(p ledger.Prover, operatorID string) (keys []Key, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		var err error
		keys, err = store.All(p.Query, scanKey, selectKey+"AND operator = $1 ORDER BY added_at, credential", operatorID)
		if err != nil {
			return false, err
		}
		proven, err := enrolled(p, operatorID)
		agree := len(keys) == len(proven)
		for i := range keys {
			k, is := &keys[i], proven[keys[i].Credential]
			agree = agree && is != nil && k.Operator == is.Operator && bytes.Equal(k.PublicKey, is.PublicKey) &&
				k.RPID == is.RPID && k.Origin == is.Origin
		}
		return agree, err
	})
	if err == nil && !agree {
		err = p.Contradicts("passkey", operatorID, "the passkeys of %s are not those that were enrolled", operatorID)
	}
	return keys, err
}

// enrolled are the keys of an operator by their credentials, as the entries say.
func enrolled(p ledger.Prover, operatorID string) (map[string]*added, error) {
	entries, err := p.Entries(ledger.Query{
		Subject: operatorID, Kinds: []string{kindAdded, kindRemoved, kindForgotten, "operator.removed"},
	})
	keys := map[string]*added{}
	for i := 0; i < len(entries) && err == nil; i++ {
		switch e := &entries[i]; e.Kind {
		case kindAdded:
			var b *added
			if b, err = ledger.Read[added](e); err == nil {
				keys[b.Credential] = b
			}
		case kindRemoved:
			var b *removed
			if b, err = ledger.Read[removed](e); err == nil {
				delete(keys, b.Credential)
			}
		default:
			clear(keys)
		}
	}
	return keys, err
}
