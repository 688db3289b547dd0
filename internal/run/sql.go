package run

import (
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Migrations make the tables of runs. Events live in the bodies of entries, once.
//
// run_usage is what was counted of a run by model. run_session is what the CLI has reported of a whole session, in
// the run that did so last, and in the one before that.
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
`, `
ALTER TABLE run ADD COLUMN meter {text} NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN calls {bigint} NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN called {bigint} NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN said_tokens {bigint} NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN said_nanos {bigint} NOT NULL DEFAULT 0;

CREATE TABLE run_usage (
  run {text} NOT NULL,
  model {text} NOT NULL,
  input {bigint} NOT NULL,
  output {bigint} NOT NULL,
  cache_read {bigint} NOT NULL,
  cache_write {bigint} NOT NULL,
  cache_write_1h {bigint} NOT NULL,
  nanos {bigint} NOT NULL,
  PRIMARY KEY (run, model)
) {strict};

CREATE TABLE run_session (
  workspace {text} NOT NULL,
  engine {text} NOT NULL,
  thread {text} NOT NULL,
  run {text} NOT NULL,
  reported {text} NOT NULL,
  before {text} NOT NULL,
  PRIMARY KEY (workspace, engine, thread)
) {strict};
`, `
ALTER TABLE run ADD COLUMN cause {text} NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN silent_at {bigint} NOT NULL DEFAULT 0;
UPDATE run SET status = 'completed' WHERE status = 'done';
`}}

// The kinds of entries. They are stored: a kind is never renamed, and its meaning never
// changes.
const (
	kindOpened    = "run.opened"
	kindStarted   = "run.started"
	kindActed     = "run.acted"
	kindCompleted = "run.completed"
	kindStopped   = "run.stopped"
	kindMetered   = "run.metered"
)

// Projection is what the entries do to the tables.
func Projection() ledger.Projection {
	report := ledger.ApplyBody(applyReported)
	return ledger.Projection{
		Name: "run",
		Tables: ledger.Tables("run (id)", "run_event (run, n)", "run_day (workspace, day)", "run_usage (run, model)",
			"run_session (workspace, engine, thread)"),
		Apply: map[string]ledger.Apply{
			kindOpened: ledger.ApplyBody(applyOpened), kindStopped: ledger.ApplyBody(applyStopped),
			kindStarted: report, kindActed: report, kindCompleted: report, kindMetered: ledger.ApplyBody(applyMetered),
		},
	}
}

// applyOpened adds the run. Its prompt stays in the entry.
func applyOpened(tx *store.Tx, e *ledger.Entry, b *opened) {
	tx.Exec(`INSERT INTO run (id, workspace, engine, thread, status, stop, opened_at, ended_at, seq,
  events, tokens, nanos, max_tokens, max_nanos, meter)
VALUES ($1, $2, $3, $4, $5, '', $6, 0, $7, 0, 0, 0, $8, $9, $10)`,
		e.Subject, e.Workspace, b.Engine, b.Resume, Running, e.At.UnixMicro(), e.Seq, b.Budget.Tokens, nanos(b.Budget.USD),
		b.MeterAgent)
}

// applyReported adds an event, and what it says about the run: its session, its end,
// what it used.
func applyReported(tx *store.Tx, e *ledger.Entry, b *reported) {
	tx.Exec("INSERT INTO run_event (run, n, seq) VALUES ($1, $2, $3)", e.Subject, b.N, e.Seq)
	silentAt := int64(0)
	if b.Silent {
		silentAt = e.At.UnixMicro()
	}
	tx.Exec("UPDATE run SET events = $2, silent_at = $3 WHERE id = $1", e.Subject, b.N, silentAt)
	if b.Session != "" {
		tx.Exec("UPDATE run SET thread = $2 WHERE id = $1", e.Subject, b.Session)
	}
	if status := b.Status; status != "" {
		if status == oldDone {
			status = Done
		}
		tx.Exec("UPDATE run SET status = $2, cause = $3, ended_at = $4 WHERE id = $1", e.Subject, status, b.Cause, e.At.UnixMicro())
	}
	if b.Said != nil {
		tx.Exec("UPDATE run SET said_tokens = $2, said_nanos = $3 WHERE id = $1", e.Subject, b.Said.Tokens, b.Said.Nanos)
	}
	if text, err := wire.Marshal(b.Usage.Session); err == nil && b.Usage.Session != nil {
		tx.Exec(`INSERT INTO run_session (workspace, engine, thread, run, reported, before)
SELECT workspace, engine, thread, id, $2, '' FROM run WHERE id = $1 AND thread <> ''
ON CONFLICT (workspace, engine, thread) DO UPDATE SET
  before = CASE WHEN run_session.run = excluded.run THEN run_session.before ELSE run_session.reported END,
  run = excluded.run, reported = excluded.reported`, e.Subject, string(text))
	}
	applySpent(tx, e, &b.Spent)
}

// applyMetered adds what the proxy has seen of a run, which may have ended meanwhile.
func applyMetered(tx *store.Tx, e *ledger.Entry, b *metered) {
	tx.Exec("UPDATE run SET called = $2 WHERE id = $1", e.Subject, b.Seq)
	applySpent(tx, e, &b.Spent)
}

// mostSum is where the sums of a day stop.
const mostSum = int64(1) << 61

// applySpent adds what was used, to the run and to the day.
func applySpent(tx *store.Tx, e *ledger.Entry, b *spent) {
	if b.isZero() {
		return
	}
	tx.Exec("UPDATE run SET tokens = tokens + $2, nanos = nanos + $3, calls = calls + $4 WHERE id = $1", e.Subject, b.Tokens,
		b.Nanos, b.Calls)
	for _, one := range b.By {
		tx.Exec(`INSERT INTO run_usage (run, model, input, output, cache_read, cache_write, cache_write_1h, nanos)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (run, model) DO UPDATE SET
  input = run_usage.input + excluded.input, output = run_usage.output + excluded.output,
  cache_read = run_usage.cache_read + excluded.cache_read, cache_write = run_usage.cache_write + excluded.cache_write,
  cache_write_1h = run_usage.cache_write_1h + excluded.cache_write_1h, nanos = run_usage.nanos + excluded.nanos`,
			e.Subject, one.Model, one.Input, one.Output, one.CacheRead, one.CacheWrite, one.CacheWrite1h, one.Nanos)
	}
	tx.Exec(`INSERT INTO run_day (workspace, day, tokens, nanos) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace, day) DO UPDATE SET
  tokens = CASE WHEN run_day.tokens > $5 THEN run_day.tokens ELSE run_day.tokens + excluded.tokens END,
  nanos = CASE WHEN run_day.nanos > $5 THEN run_day.nanos ELSE run_day.nanos + excluded.nanos END`,
		e.Workspace, day(e.At), b.Tokens, b.Nanos, mostSum)
}

// applyStopped notes the order to stop. It does not end the run: the completed event
// does.
func applyStopped(tx *store.Tx, e *ledger.Entry, b *stopped) {
	tx.Exec("UPDATE run SET stop = $2, cause = $3 WHERE id = $1", e.Subject, b.Reason, b.Cause)
}
