package gate

import "signalbox/internal/store"

// Migrations make the tables of gates.
//
// A gate is known by the entry that opened it: what an operator is shown lives in its
// body, once, and the ledger's index of subjects finds it by the gate's id. While it waits
// it has a row of the inbox, stored in the inbox's order, and that is all that opening
// costs. When it is resolved it leaves the inbox, and has a row that says how.
//
// gate_approval is written by the apply functions of protocols; see Approval.
var Migrations = store.Migrations{Package: "gate", Steps: []string{`
CREATE TABLE gate_waiting (
  workspace {text} NOT NULL,
  risk {bigint} NOT NULL,
  opened_seq {bigint} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  PRIMARY KEY (workspace, risk, opened_seq)
) {keyed};

CREATE TABLE gate_resolved (
  opened_seq {bigint} PRIMARY KEY,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  status {text} NOT NULL,
  resolved_at {bigint} NOT NULL,
  resolved_by {text} NOT NULL,
  cause {text} NOT NULL,
  note {text} NOT NULL,
  modified {blob}
) {strict};
CREATE INDEX gate_resolved_workspace ON gate_resolved (workspace, opened_seq);
CREATE INDEX gate_resolved_agent ON gate_resolved (agent, opened_seq);

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
`, `
CREATE TABLE gate_approval (
  agent {text} NOT NULL,
  key {text} NOT NULL,
  digest {text} NOT NULL,
  gate {text} NOT NULL,
  good_for {bigint} NOT NULL,
  uses {bigint} NOT NULL,
  until_at {bigint} NOT NULL,
  PRIMARY KEY (agent, key, digest)
) {keyed};
CREATE INDEX gate_approval_until ON gate_approval (until_at) WHERE until_at > 0;
`, `
CREATE INDEX gate_approval_gate ON gate_approval (gate) WHERE uses > 0;
`, `
ALTER TABLE gate_vote ADD COLUMN modified {blob};
ALTER TABLE gate_vote ADD COLUMN digest {text} NOT NULL DEFAULT '';
`, `
ALTER TABLE gate_waiting ADD COLUMN run {text} NOT NULL DEFAULT '';
`, `
ALTER TABLE gate_vote ADD COLUMN passkey {text} NOT NULL DEFAULT '';
`}}
