package gate

import "github.com/signalbox/signalbox/internal/store"

// Migrations make the tables of gates.
//
// A gate is known by the entry that opened it: what an operator is shown lives in its
// body, once, and the ledger's index of subjects finds it by the gate's id. So opening
// a gate pays for the row and for the two indexes of the inbox, which hold what it is
// filtered by. The indexes of resolved gates are paid for when they are resolved.
var Migrations = store.Migrations{Package: "gate", Steps: []string{`
CREATE TABLE gate (
  opened_seq {bigint} PRIMARY KEY,
  id {text} NOT NULL,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  status {text} NOT NULL,
  risk {bigint} NOT NULL,
  expires_at {bigint} NOT NULL,
  resolved_at {bigint} NOT NULL DEFAULT 0,
  resolved_by {text} NOT NULL DEFAULT '',
  cause {text} NOT NULL DEFAULT '',
  note {text} NOT NULL DEFAULT '',
  modified {blob}
) {strict};
CREATE INDEX gate_inbox ON gate (risk, opened_seq, agent, project) WHERE status = 'pending';
CREATE INDEX gate_inbox_workspace ON gate (workspace, risk, opened_seq, agent, project) WHERE status = 'pending';
CREATE INDEX gate_past_workspace ON gate (workspace, opened_seq) WHERE status <> 'pending';
CREATE INDEX gate_past_agent ON gate (agent, opened_seq) WHERE status <> 'pending';

CREATE TABLE gate_vote (
  gate {text} NOT NULL,
  operator {text} NOT NULL,
  cast_by {text} NOT NULL,
  approve {bool} NOT NULL,
  note {text} NOT NULL,
  at {bigint} NOT NULL,
  PRIMARY KEY (gate, operator)
) {strict};

CREATE TABLE delegation (
  operator {text} NOT NULL,
  delegate {text} NOT NULL,
  until_at {bigint} NOT NULL,
  PRIMARY KEY (operator, delegate)
) {strict};
`}}
