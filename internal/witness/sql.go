package witness

import "signalbox/internal/store"

// Migrations make the tables. witness_log has what this server has cosigned last, for each log. witness_checkpoint has
// our own checkpoints with the cosignatures of others, the newest ones.
var Migrations = store.Migrations{Package: "witness", Steps: []string{`
CREATE TABLE witness_log (
  origin {text} PRIMARY KEY,
  size {bigint} NOT NULL,
  root {text} NOT NULL,
  note {text} NOT NULL
) {strict};

CREATE TABLE witness_checkpoint (
  size {bigint} PRIMARY KEY,
  note {text} NOT NULL,
  cosigned {bigint} NOT NULL,
  at {bigint} NOT NULL
) {strict};
`}}

// lock is the table whose row both kinds of bookkeeping lock, as the ledger's own does.
const lock = "ledger_tree"
