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
	// A person gave a terminal their power, or refused; the terminal has come for its token.
	kindConfirmed = "login.confirmed"
	kindDenied    = "login.denied"
	kindTaken     = "login.taken"
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
	// answered is how a person answered a terminal: what they saw, and the hash of the terminal's secret.
	answered struct {
		Secret  string `json:"secret_sha256"`
		Expires int64  `json:"expires_at"`
		Machine string `json:"machine"`
		User    string `json:"user"`
		Process string `json:"process"`
		From    string `json:"from"`
	}
	taken struct {
		Secret string `json:"secret_sha256"`
		Key    string `json:"key"` // its id
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
			kindConfirmed:      ledger.ApplyBody(applyAnswered(answeredYes)),
			kindDenied:         ledger.ApplyBody(applyAnswered(answeredNo)),
			kindTaken:          ledger.ApplyBody(applyTaken),
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

// applyAnswered keeps the answer to a terminal for as long as it could be asked again.
func applyAnswered(state string) func(*store.Tx, *ledger.Entry, *answered) {
	return func(tx *store.Tx, e *ledger.Entry, b *answered) {
		tx.Exec("DELETE FROM web_code WHERE expires_at <= $1", e.At.UnixMicro())
		tx.Exec("INSERT INTO web_code (hash, operator, expires_at) VALUES ($1, $2, $3)", state+b.Secret, e.Subject, b.Expires)
	}
}

// applyTaken uses an answer up. Its row stays, so that the question cannot be answered again.
func applyTaken(tx *store.Tx, _ *ledger.Entry, b *taken) {
	tx.Exec("UPDATE web_code SET hash = $1 WHERE hash = $2", neverAgain+b.Secret, answeredYes+b.Secret)
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
