package run

import (
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Migrations make the tables of runs. Events live in the bodies of entries, once.
//
// run_pulse is no state: it says until when a supervisor, or a run's hold on a session,
// counts as alive, and stands beside the ledger.
var Migrations = store.Migrations{Package: "run", Steps: []string{`
CREATE TABLE run (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  engine {text} NOT NULL,
  thread {text} NOT NULL,
  status {text} NOT NULL,
  stop {text} NOT NULL,
  opened_at {bigint} NOT NULL,
  ended_at {bigint} NOT NULL,
  seq {bigint} NOT NULL,
  events {bigint} NOT NULL,
  tokens {bigint} NOT NULL,
  nanos {bigint} NOT NULL,
  max_tokens {bigint} NOT NULL,
  max_nanos {bigint} NOT NULL
) {strict};
CREATE INDEX run_open ON run (status, id) WHERE status = 'running';
CREATE INDEX run_thread ON run (engine, thread, id);

CREATE TABLE run_event (
  run {text} NOT NULL,
  n {bigint} NOT NULL,
  seq {bigint} NOT NULL,
  PRIMARY KEY (run, n)
) {strict};

CREATE TABLE run_day (
  workspace {text} NOT NULL,
  day {text} NOT NULL,
  tokens {bigint} NOT NULL,
  nanos {bigint} NOT NULL,
  PRIMARY KEY (workspace, day)
) {strict};

CREATE TABLE run_pulse (
  name {text} PRIMARY KEY,
  run {text} NOT NULL,
  until {bigint} NOT NULL
) {strict};
`}}

// The kinds of entries. They are stored: a kind is never renamed, and its meaning never
// changes.
const (
	kindOpened    = "run.opened"
	kindStarted   = "run.started"
	kindActed     = "run.acted"
	kindCompleted = "run.completed"
	kindStopped   = "run.stopped"
)

// Projection is what the entries do to the tables.
func Projection() ledger.Projection {
	report := ledger.ApplyBody(applyReported)
	return ledger.Projection{
		Name:   "run",
		Tables: ledger.Tables("run (id)", "run_event (run, n)", "run_day (workspace, day)"),
		Apply: map[string]ledger.Apply{
			kindOpened: ledger.ApplyBody(applyOpened), kindStopped: ledger.ApplyBody(applyStopped),
			kindStarted: report, kindActed: report, kindCompleted: report,
		},
	}
}

// applyOpened adds the run. Its prompt stays in the entry.
func applyOpened(tx *store.Tx, e *ledger.Entry, b *opened) {
	tx.Exec(`INSERT INTO run (id, workspace, engine, thread, status, stop, opened_at, ended_at, seq,
  events, tokens, nanos, max_tokens, max_nanos)
VALUES ($1, $2, $3, $4, $5, '', $6, 0, $7, 0, 0, 0, $8, $9)`,
		e.Subject, e.Workspace, b.Engine, b.Resume, Running, e.At.UnixMicro(), e.Seq, b.Budget.Tokens, nanos(b.Budget.USD))
}

// applyReported adds an event, and what it says about the run: its session, its end,
// what it used.
func applyReported(tx *store.Tx, e *ledger.Entry, b *reported) {
	tx.Exec("INSERT INTO run_event (run, n, seq) VALUES ($1, $2, $3)", e.Subject, b.N, e.Seq)
	tx.Exec("UPDATE run SET events = $2, tokens = tokens + $3, nanos = nanos + $4 WHERE id = $1", e.Subject, b.N,
		b.Spent.Tokens, b.Spent.Nanos)
	if b.Session != "" {
		tx.Exec("UPDATE run SET thread = $2 WHERE id = $1", e.Subject, b.Session)
	}
	if b.Status != "" {
		tx.Exec("UPDATE run SET status = $2, ended_at = $3 WHERE id = $1", e.Subject, b.Status, e.At.UnixMicro())
	}
	if b.Spent != (spent{}) {
		tx.Exec(`INSERT INTO run_day (workspace, day, tokens, nanos) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace, day) DO UPDATE SET
  tokens = run_day.tokens + excluded.tokens, nanos = run_day.nanos + excluded.nanos`,
			e.Workspace, day(e.At), b.Spent.Tokens, b.Spent.Nanos)
	}
}

// applyStopped notes the order to stop. It does not end the run: the completed event
// does.
func applyStopped(tx *store.Tx, e *ledger.Entry, b *stopped) {
	tx.Exec("UPDATE run SET stop = $2 WHERE id = $1", e.Subject, b.Reason)
}
