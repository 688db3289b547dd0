package harness

import (
	"maps"
	"slices"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/gate"
	"signalbox/internal/harness/knowledge"
	"signalbox/internal/harness/spool"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Migrations make the tables of the harness.
//
// Steps have no table: what was asked and answered lives in their entries, which the
// ledger finds by the session's trace. So a decision costs one entry and nothing else. Their
// approvals are in the table of gate, and knowledge is in the package of that name.
var Migrations = store.Migrations{Package: "harness", Steps: []string{`
CREATE TABLE harness_session (
  agent {text} NOT NULL,
  session {text} NOT NULL,
  workspace {text} NOT NULL,
  opened_seq {bigint} NOT NULL,
  opened_at {bigint} NOT NULL,
  ended_at {bigint} NOT NULL,
  beat_at {bigint} NOT NULL,
  errors {bigint} NOT NULL,
  greeted {bool} NOT NULL,
  PRIMARY KEY (agent, session)
) {keyed};
CREATE INDEX harness_session_opened ON harness_session (workspace, opened_seq);

CREATE TABLE harness_report (
  agent {text} NOT NULL,
  session {text} NOT NULL,
  type {text} NOT NULL,
  run_id {text} NOT NULL,
  seq {bigint} NOT NULL,
  place {bigint} NOT NULL,
  updated_at {bigint} NOT NULL,
  final {bool} NOT NULL,
  PRIMARY KEY (agent, session, type, run_id)
) {keyed};

CREATE TABLE harness_gate (
  agent {text} NOT NULL,
  session {text} NOT NULL,
  digest {text} NOT NULL,
  gate {text} NOT NULL,
  good_for {bigint} NOT NULL,
  once {bool} NOT NULL,
  used {bool} NOT NULL,
  PRIMARY KEY (agent, session, digest)
) {keyed};

CREATE TABLE knowledge (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  seq {bigint} NOT NULL,
  words {bigint} NOT NULL
) {strict};
CREATE INDEX knowledge_workspace ON knowledge (workspace, seq);

CREATE TABLE knowledge_word (
  workspace {text} NOT NULL,
  word {text} NOT NULL,
  id {text} NOT NULL,
  times {bigint} NOT NULL,
  PRIMARY KEY (workspace, word, id)
) {keyed};
CREATE INDEX knowledge_word_id ON knowledge_word (id);
`, `
INSERT INTO gate_approval (agent, key, digest, gate, good_for, uses, until_at)
SELECT agent, 'ahp:' || session, digest, gate, good_for, CASE WHEN NOT once THEN -1 WHEN used THEN 0 ELSE 1 END, 0 FROM harness_gate;
DROP TABLE harness_gate;
`, spool.Migration}}

// The kinds of entries. They are stored: a kind is never renamed, and its meaning never
// changes.
const (
	kindAllowed  = "step.allowed"
	kindBlocked  = "step.blocked"
	kindModified = "step.modified"
	kindDeferred = "step.deferred"
	kindHeld     = "step.held"    // a gate was opened for it
	kindSettled  = "step.settled" // the gate's outcome was answered

	kindOpened   = "session.opened"
	kindNoted    = "session.noted"    // notifications
	kindReported = "session.reported" // what people see of a session
)

// stepKinds are the kinds with a decision of the policy in them.
var stepKinds = []string{kindAllowed, kindBlocked, kindModified, kindDeferred, kindHeld}

// Projection is what the entries do to the tables. step.allowed and its like do
// nothing: a decision costs one entry and no row.
func Projection() ledger.Projection {
	p := ledger.Projection{
		Name: "harness",
		Tables: slices.Concat(ledger.Tables("harness_session (agent, session)", "harness_report (agent, session, type, run_id)"),
			knowledge.Tables(), spool.Tables()),
		Apply: knowledge.Apply(),
	}
	maps.Copy(p.Apply, spool.Apply())
	maps.Copy(p.Apply, map[string]ledger.Apply{
		kindHeld: ledger.ApplyBody(applyHeld), kindSettled: ledger.ApplyBody(applySettled),
		kindOpened: ledger.ApplyBody(applyOpened), kindReported: ledger.TryBody(applyReported),
	})
	return p
}

// applyHeld makes the approval that the held step waits for.
func applyHeld(tx *store.Tx, e *ledger.Entry, b *step) {
	gate.SetApproval(tx, b.approval(sessionOf(e.Trace, b.Agent)), e.At)
}

// settled is the body of step.settled: the outcome of a gate as it was answered.
type settled struct {
	behalf.Of          // that of the gate
	Agent     string   `json:"agent"`
	Digest    string   `json:"digest"`
	Gate      string   `json:"gate"`
	Used      bool     `json:"used"` // the approval is used up
	Answer    wire.Raw `json:"answer"`
}

// applySettled takes one use from the approval, if the outcome was an approval.
func applySettled(tx *store.Tx, _ *ledger.Entry, b *settled) {
	if b.Used {
		gate.TakeUse(tx, b.Gate)
	}
}

// opened is the body of session.opened.
type opened struct {
	Agent string   `json:"agent"`
	Info  wire.Raw `json:"info,omitzero"` // what the handshake said
}

// applyOpened adds the session. appendEntries has made sure that there is none of that
// name.
func applyOpened(tx *store.Tx, e *ledger.Entry, b *opened) {
	tx.Exec("INSERT INTO harness_session (agent, session, workspace, opened_seq, opened_at, ended_at, beat_at, errors, "+
		"greeted) VALUES ($1, $2, $3, $4, $5, 0, 0, 0, $6)",
		b.Agent, e.Subject, e.Workspace, e.Seq, e.At.UnixMicro(), b.Info != nil)
}

// notes is the body of session.noted and session.reported: what arrived since the entry
// before, in the order of arrival.
type notes struct {
	Agent   string `json:"agent"`
	Dropped int64  `json:"dropped,omitzero"` // telemetry that there was no room for
	Notes   []note `json:"notes"`
}

// note is one notification with the event as the agent sent it.
type note struct {
	At    int64    `json:"at"` // of arrival, in microseconds
	Type  Type     `json:"type"`
	Event wire.Raw `json:"event"`
}

// applyReported does what the notifications do to the session.
func applyReported(tx *store.Tx, e *ledger.Entry, b *notes) error {
	for i, n := range b.Notes {
		if err := applyNote(tx, e, b.Agent, int64(i), n); err != nil {
			return err
		}
	}
	return nil
}

// applyNote updates the session, and the newest report of the note's type. AHP-49:
// reports overtake one another, so a report replaces one that is not newer by its own
// time, and a run that has ended is never taken back to one that has not.
func applyNote(tx *store.Tx, e *ledger.Entry, agent string, place int64, n note) error {
	where := " WHERE agent = $1 AND session = $2"
	switch n.Type {
	case SessionEnd:
		tx.Exec("UPDATE harness_session SET ended_at = $3"+where, agent, e.Subject, n.At)
	case SessionStart:
		tx.Exec("UPDATE harness_session SET ended_at = 0"+where, agent, e.Subject)
	case Heartbeat:
		tx.Exec("UPDATE harness_session SET beat_at = $3"+where+" AND beat_at < $3", agent, e.Subject, n.At)
	case ErrorEvent:
		tx.Exec("UPDATE harness_session SET errors = errors + 1"+where, agent, e.Subject)
		return nil
	default:
	}
	var b struct {
		Payload struct {
			RunID     wire.Raw `json:"run_id"`
			Status    wire.Raw `json:"status"`
			UpdatedAt wire.Raw `json:"updated_at"`
		} `json:"payload"`
	}
	if kinds[n.Type].contract { // others have a payload of any form
		if err := wire.UnmarshalPart(n.Event, &b); err != nil {
			return err
		}
	}
	run, _ := wire.Text(b.Payload.RunID)
	status, _ := wire.Text(b.Payload.Status)
	tx.Exec(`INSERT INTO harness_report (agent, session, type, run_id, seq, place, updated_at, final)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (agent, session, type, run_id) DO UPDATE SET
  seq = excluded.seq, place = excluded.place, updated_at = excluded.updated_at, final = excluded.final
WHERE excluded.updated_at >= harness_report.updated_at AND (excluded.final OR NOT harness_report.final)`,
		agent, e.Subject, string(n.Type), keyOf(run), e.Seq, place, updatedAt(b.Payload.UpdatedAt, n.At),
		n.Type == RunLifecycle && isFinal(status))
	return nil
}

// isFinal reports whether the status is that of a run that has ended.
func isFinal(status string) bool {
	return status == "completed" || status == "failed" || status == "cancelled"
}

// updatedAt is the time at which a report says it was true, in microseconds. One that
// cannot be parsed counts from its arrival.
func updatedAt(raw wire.Raw, arrived int64) int64 {
	said, _ := wire.Text(raw)
	if at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(said)); err == nil {
		return at.UnixMicro()
	}
	return arrived
}
