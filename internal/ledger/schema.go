package ledger

import "signalbox/internal/store"

// Migrations make the ledger's tables.
//
// Columns of ledger_entry beside record, salt and body repeat what is in the
// record, for looking things up; audit compares the two. ledger_head and ledger_tree have
// one row each, which is what transactions lock: writers the head, the builder of the tree
// and bookkeeping the other, so that signing does not wait for writers.
var Migrations = store.Migrations{Package: "ledger", Steps: []string{`
CREATE TABLE ledger_head (
  id {bigint} PRIMARY KEY,
  seq {bigint} NOT NULL,
  at {bigint} NOT NULL
) {strict};
INSERT INTO ledger_head (id, seq, at) VALUES (1, 0, 0);

CREATE TABLE ledger_entry (
  seq {bigint} PRIMARY KEY,
  workspace {text} NOT NULL,
  kind {text} NOT NULL,
  subject {text} NOT NULL,
  trace {text} NOT NULL,
  record {blob} NOT NULL,
  salt {blob},
  body {blob}
) {strict};
CREATE INDEX ledger_entry_kind ON ledger_entry (kind, seq);
CREATE INDEX ledger_entry_subject ON ledger_entry (subject, seq) WHERE subject <> '';
CREATE INDEX ledger_entry_trace ON ledger_entry (trace, seq) WHERE trace <> '';
{append-only ledger_entry seq workspace kind subject trace record / salt body}

CREATE TABLE ledger_tree (
  id {bigint} PRIMARY KEY,
  size {bigint} NOT NULL,
  vkey {text} NOT NULL
) {strict};
INSERT INTO ledger_tree (id, size, vkey) VALUES (1, 0, '');

CREATE TABLE ledger_tile (
  level {bigint} NOT NULL,
  n {bigint} NOT NULL,
  hashes {blob} NOT NULL,
  PRIMARY KEY (level, n)
) {strict};

CREATE TABLE ledger_checkpoint (
  size {bigint} PRIMARY KEY,
  note {text} NOT NULL
) {strict};

CREATE TABLE ledger_cursor (
  name {text} PRIMARY KEY,
  seq {bigint} NOT NULL,
  holder {text} NOT NULL,
  held_until {bigint} NOT NULL
) {strict};
`}}
