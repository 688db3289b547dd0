package passkey

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
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

// Of are the keys that an operator can sign with now, by the operator's id. They are what the ledger says of them:
// a row that somebody put into the table signs nothing, and one that was taken out does not make a vote without a
// signature good.
func Of(p ledger.Prover, operatorID string) (keys []Key, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		if keys, err = store.All(p.Query, scanKey, selectKey+"AND operator = $1 ORDER BY added_at, credential",
			operatorID); err != nil {
			return false, err
		}
		live, err := recorded(p, operatorID)
		return err == nil && slices.EqualFunc(keys, live, Key.enrolledAs), err
	})
	if err == nil && !agree {
		err = p.Contradicts("passkey", operatorID, "the passkeys of the operator %s there are not those that the ledger has",
			operatorID)
	}
	return keys, err
}

// enrolledAs reports whether two keys are the same, apart from the counter, which follows from what they signed.
func (k Key) enrolledAs(other Key) bool {
	return k.Credential == other.Credential && k.Operator == other.Operator && k.Label == other.Label &&
		bytes.Equal(k.PublicKey, other.PublicKey) && k.RPID == other.RPID && k.Origin == other.Origin
}

// recorded are the live keys of an operator by the entries about them, in the order of Of.
func recorded(p ledger.Prover, operatorID string) (live []Key, err error) {
	entries, err := p.Entries(ledger.Query{
		Subject: operatorID, Kinds: []string{kindAdded, kindRemoved, kindForgotten, "operator.removed"},
	})
	for _, e := range entries {
		switch e.Kind {
		case kindAdded:
			k, _, err := enrolled(&e)
			if err != nil {
				return nil, err
			}
			live = append(live, *k)
		case kindRemoved:
			b, err := ledger.Read[removed](&e)
			if err != nil {
				return nil, err
			}
			live = slices.DeleteFunc(live, func(k Key) bool { return k.Credential == b.Credential })
		default:
			live = nil
		}
	}
	slices.SortStableFunc(live, func(a, b Key) int {
		return cmp.Or(a.AddedAt.Compare(b.AddedAt), strings.Compare(a.Credential, b.Credential))
	})
	return live, err
}

// enrolled is the key that an entry enrols, and the signature that allows it.
func enrolled(e *ledger.Entry) (*Key, *Assertion, error) {
	b, err := ledger.Read[added](e)
	if err != nil {
		return nil, nil, err
	}
	return &Key{
		Credential: b.Credential, OperatorID: e.Subject, Operator: b.Operator, Label: b.Label, PublicKey: b.PublicKey,
		RPID: b.RPID, Origin: b.Origin, Count: b.Count, AAGUID: b.AAGUID, AddedAt: e.At,
	}, b.Signed, nil
}
