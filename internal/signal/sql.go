package signal

import (
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Migrations make the tables of signals. A row points with seq to the entry that holds the
// message, which is stored nowhere else.
var Migrations = store.Migrations{Package: "signal", Steps: []string{`
CREATE TABLE signal (
  agent {text} NOT NULL,
  run_id {text} NOT NULL,
  request {text} NOT NULL,
  seq {bigint} NOT NULL,
  gate {text} NOT NULL,
  PRIMARY KEY (agent, run_id, request)
) {keyed};

CREATE TABLE price_table (
  version {bigint} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};

CREATE TABLE registration (
  agent {text} PRIMARY KEY,
  seq {bigint} NOT NULL,
  trust {text} NOT NULL,
  gate {text} NOT NULL
) {strict};

CREATE TABLE agent_webhook (
  agent {text} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};

CREATE TABLE heartbeat (
  agent {text} NOT NULL,
  run_id {text} NOT NULL,
  workspace {text} NOT NULL,
  last_at {bigint} NOT NULL,
  due_at {bigint} NOT NULL,
  missed {bool} NOT NULL,
  PRIMARY KEY (agent, run_id)
) {keyed};

CREATE TABLE run_halt (
  agent {text} NOT NULL,
  run_id {text} NOT NULL,
  reason {text} NOT NULL,
  PRIMARY KEY (agent, run_id)
) {strict};
`, `
INSERT INTO price_change (version, seq) SELECT version, seq FROM price_table;
DROP TABLE price_table;
`}}

// The kinds of entries. They are part of the stored format: a new meaning is a new kind.
const (
	kindReceived = "signal.received"
	kindRepeated = "signal.repeated"

	kindRegistered = "agent.registered"
	kindHooked     = "webhook.registered"
	kindBeat       = "heartbeat.received"
	kindMissed     = "heartbeat.missed"
	kindEnded      = "heartbeat.ended"
	kindHalted     = "run.halted"
)

// Projection is what the entries do to the tables. All tables can be built again from the ledger
// by running it from the first entry.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name: "signal",
		Tables: ledger.Tables(
			"signal (agent, run_id, request)", "registration (agent)", "agent_webhook (agent)",
			"heartbeat (agent, run_id)", "run_halt (agent, run_id)",
		),
		Apply: map[string]ledger.Apply{
			kindReceived:   applyReceived,
			kindRegistered: ledger.ApplyBody(applyRegistered),
			kindHooked:     applyHooked,
			kindBeat:       ledger.ApplyBody(applyBeat),
			kindMissed:     ledger.ApplyBody(applyMissed),
			kindEnded:      ledger.ApplyBody(applyEnded),
			kindHalted:     ledger.ApplyBody(applyHalted),
		},
	}
}

// applyReceived stores where a signal is. The primary key (agent, run_id, request) is what makes
// a run count once (SIG-15): a second insert fails the transaction with store.IsUnique.
func applyReceived(tx *store.Tx, e *ledger.Entry) error {
	b, err := ledger.Read[received](e)
	if err != nil {
		return err
	}
	tx.Exec("INSERT INTO signal (agent, run_id, request, seq, gate) VALUES ($1, $2, $3, $4, $5)", b.Agent, b.RunID,
		b.Request, e.Seq, b.Gate)
	return nil
}

// applyRegistered keeps an agent's last registration.
func applyRegistered(tx *store.Tx, e *ledger.Entry, b *registered) {
	tx.Exec("INSERT INTO registration (agent, seq, trust, gate) VALUES ($1, $2, $3, $4) ON CONFLICT (agent) DO UPDATE "+
		"SET seq = excluded.seq, trust = excluded.trust, gate = excluded.gate",
		e.Subject, e.Seq, b.Trust, b.Gate)
}

// applyHooked keeps where an agent's last webhook is registered.
func applyHooked(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO agent_webhook (agent, seq) VALUES ($1, $2) ON CONFLICT (agent) DO UPDATE SET seq = excluded.seq",
		e.Subject, e.Seq)
	return nil
}
