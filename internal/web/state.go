package web

import (
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Migrations make the tables of those who are signed in. What is secret stands there, and
// in the ledger, only as a hash. web_code has the codes that were used, for as long as they
// would be good.
var Migrations = store.Migrations{Package: "web", Steps: []string{`
CREATE TABLE web_code (
  hash {text} PRIMARY KEY,
  operator {text} NOT NULL,
  expires_at {bigint} NOT NULL
) {strict};

CREATE TABLE web_session (
  hash {text} PRIMARY KEY,
  operator {text} NOT NULL,
  how {text} NOT NULL,
  opened_at {bigint} NOT NULL,
  expires_at {bigint} NOT NULL
) {strict};
CREATE INDEX web_session_operator ON web_session (operator);

CREATE TABLE web_password (
  operator {text} PRIMARY KEY,
  verifier {text} NOT NULL,
  set_at {bigint} NOT NULL
) {strict};
`}}

// The kinds of the entries. Their subject is the id of the operator whom they are about.
const (
	// A code was made; a session was opened; a password was wrong; a session was ended.
	kindOffered     = "login.offered"
	kindOpened      = "login.opened"
	kindRefused     = "login.refused"
	kindClosed      = "login.closed"
	kindPasswordSet = "password.set"
)

// The bodies of the entries.
type (
	offered struct {
		Expires int64 `json:"expires_at"` // microseconds
	}
	opened struct {
		How string `json:"how"`
		// The hash of the token, by which the row is found again.
		Session string `json:"session_sha256"`
		Expires int64  `json:"expires_at"`
		// Code and CodeExpires are of the login code that was used up. The row keeps it from being used
		// again until it has expired by itself.
		Code        string `json:"code_sha256,omitzero"`
		CodeExpires int64  `json:"code_expires_at,omitzero"`
	}
	refused struct {
		How string `json:"how"`
	}
	closed struct {
		Session string `json:"session_sha256"`
	}
	passwordSet struct {
		Verifier string `json:"verifier,omitzero"` // none takes the password away
	}
)

// Projection is what logins do to the tables.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name:   "web",
		Tables: ledger.Tables("web_code (hash)", "web_session (hash)", "web_password (operator)"),
		Apply: map[string]ledger.Apply{
			kindOpened:         ledger.ApplyBody(applyOpened),
			kindClosed:         ledger.ApplyBody(applyClosed),
			kindPasswordSet:    ledger.ApplyBody(applyPasswordSet),
			"operator.removed": applyOperatorRemoved,
		},
	}
}

// applyOpened also removes what has expired, so that the tables do not grow.
func applyOpened(tx *store.Tx, e *ledger.Entry, b *opened) {
	tx.Exec("DELETE FROM web_session WHERE expires_at <= $1", e.At.UnixMicro())
	tx.Exec("DELETE FROM web_code WHERE expires_at <= $1", e.At.UnixMicro())
	if b.Code != "" {
		tx.Exec("INSERT INTO web_code (hash, operator, expires_at) VALUES ($1, $2, $3)", b.Code, e.Subject, b.CodeExpires)
	}
	tx.Exec("INSERT INTO web_session (hash, operator, how, opened_at, expires_at) VALUES ($1, $2, $3, $4, $5)", b.Session,
		e.Subject, b.How, e.At.UnixMicro(), b.Expires)
}

// applyClosed ends one session.
func applyClosed(tx *store.Tx, _ *ledger.Entry, b *closed) {
	tx.Exec("DELETE FROM web_session WHERE hash = $1", b.Session)
}

// applyPasswordSet also ends every session of the operator: who sets a password anew may
// do so because somebody else knows the one before.
func applyPasswordSet(tx *store.Tx, e *ledger.Entry, b *passwordSet) {
	tx.Exec("DELETE FROM web_session WHERE operator = $1", e.Subject)
	tx.Exec("DELETE FROM web_password WHERE operator = $1", e.Subject)
	if b.Verifier != "" {
		tx.Exec("INSERT INTO web_password (operator, verifier, set_at) VALUES ($1, $2, $3)", e.Subject, b.Verifier,
			e.At.UnixMicro())
	}
}

// applyOperatorRemoved removes everything by which the operator could sign in.
func applyOperatorRemoved(tx *store.Tx, e *ledger.Entry) error {
	for _, table := range []string{"web_code", "web_session", "web_password"} {
		tx.Exec("DELETE FROM "+table+" WHERE operator = $1", e.Subject)
	}
	return nil
}
