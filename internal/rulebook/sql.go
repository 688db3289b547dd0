package rulebook

import (
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Migrations make the tables of versions: of the server's layer, and of the narrower ones by Layer.key. The YAML lives
// in the body of the entry seq, once.
var Migrations = store.Migrations{Package: "rulebook", Steps: []string{`
CREATE TABLE policy_version (
  number {bigint} PRIMARY KEY,
  seq {bigint} NOT NULL,
  sha256 {text} NOT NULL,
  applied_at {bigint} NOT NULL,
  applied_by {text} NOT NULL
) {strict};
`, `
CREATE TABLE policy_layer (
  layer {text} NOT NULL,
  number {bigint} NOT NULL,
  seq {bigint} NOT NULL,
  sha256 {text} NOT NULL,
  applied_at {bigint} NOT NULL,
  applied_by {text} NOT NULL,
  PRIMARY KEY (layer, number)
) {keyed};
`}}

// A version is an entry of kind applied with the subject policy-NUMBER. The number is part of
// the subject, so that the entry alone says which version it is. One of a narrower layer is of kind layered, in its
// workspace, with the layer as its trace.
const (
	applied       = "policy.applied"
	layered       = "policy.layered"
	subjectPrefix = "policy-"
)

// Projection is what applying a policy does to the tables.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name:   "rulebook",
		Tables: ledger.Tables("policy_version (number)", "policy_layer (layer, number)"),
		Apply: map[string]ledger.Apply{
			applied: func(tx *store.Tx, e *ledger.Entry) error {
				v, err := versionOf(e)
				tx.Exec("INSERT INTO policy_version (number, seq, sha256, applied_at, applied_by) VALUES ($1, $2, $3, $4, $5)",
					v.Number, v.Seq, v.SHA256, v.AppliedAt.UnixMicro(), v.AppliedBy)
				return err
			},
			layered: func(tx *store.Tx, e *ledger.Entry) error {
				v, err := versionOf(e)
				tx.Exec("INSERT INTO policy_layer (layer, number, seq, sha256, applied_at, applied_by) "+
					"VALUES ($1, $2, $3, $4, $5, $6)",
					layerOf(e).key(), v.Number, v.Seq, v.SHA256, v.AppliedAt.UnixMicro(), v.AppliedBy)
				return err
			},
		},
	}
}
