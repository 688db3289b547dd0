package gate

import "github.com/signalbox/signalbox/internal/store"

// Migrations make the tables of gates. What an operator is shown lives in the body
// of the entry opened_seq, once.
var Migrations = store.Migrations{Package: "gate", Steps: []string{`
CREATE TABLE gate (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  status {text} NOT NULL,
  risk {bigint} NOT NULL,
  opened_seq {bigint} NOT NULL,
  expires_at {bigint} NOT NULL,
  approvals {bigint} NOT NULL,
  rejections {bigint} NOT NULL,
  resolved_at {bigint} NOT NULL,
  resolved_by {text} NOT NULL,
  cause {text} NOT NULL,
  note {text} NOT NULL,
  modified {blob}
) {strict};
CREATE INDEX gate_inbox ON gate (risk, id) WHERE status = 'pending';
CREATE INDEX gate_agent ON gate (agent, id);

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
