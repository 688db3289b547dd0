package gate

import "github.com/signalbox/signalbox/internal/store"

// Migrations make the tables of gates.
//
// A gate is known by the entry that opened it: what an operator is shown lives in its
// body, once, and the ledger's index of subjects finds it by the gate's id. So opening
// a gate pays for the row and for two small indexes of the inbox. What is looked up of
// gates that are resolved stands in gate_history, and is paid for then.
var Migrations = store.Migrations{Package: "gate", Steps: []string{`
CREATE TABLE gate (
  opened_seq {bigint} PRIMARY KEY,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  status {text} NOT NULL,
  risk {bigint} NOT NULL,
  resolved_at {bigint} NOT NULL DEFAULT 0,
  resolved_by {text} NOT NULL DEFAULT '',
  cause {text} NOT NULL DEFAULT '',
  note {text} NOT NULL DEFAULT '',
  modified {blob}
) {strict};
CREATE INDEX gate_inbox ON gate (risk, opened_seq) WHERE status = 'pending';
CREATE INDEX gate_inbox_workspace ON gate (workspace, risk, opened_seq) WHERE status = 'pending';

CREATE TABLE gate_history (
  opened_seq {bigint} PRIMARY KEY,
  workspace {text} NOT NULL,
  agent {text} NOT NULL
) {strict};
CREATE INDEX gate_history_workspace ON gate_history (workspace, opened_seq);
CREATE INDEX gate_history_agent ON gate_history (agent, opened_seq);

CREATE TABLE gate_vote (
  gate {text} NOT NULL,
  operator {text} NOT NULL,
  cast_by {text} NOT NULL,
  approve {bool} NOT NULL,
  note {text} NOT NULL,
  at {bigint} NOT NULL,
  PRIMARY KEY (gate, operator)
) {strict};

CREATE TABLE gate_receipt (
  gate {text} NOT NULL,
  seq {bigint} NOT NULL,
  PRIMARY KEY (gate, seq)
) {strict};

CREATE TABLE delegation (
  operator {text} NOT NULL,
  delegate {text} NOT NULL,
  until_at {bigint} NOT NULL,
  PRIMARY KEY (operator, delegate)
) {strict};
`}}
