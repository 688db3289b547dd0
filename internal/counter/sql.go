package counter

import (
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// costColumns are of both steps, which have landed.
const costColumns = `  cost_nano {bigint} NOT NULL,
  cost_verified {bigint} NOT NULL,
  cost_under {bigint} NOT NULL,
  cost_over {bigint} NOT NULL,
  cost_unknown {bigint} NOT NULL,
  cost_zero {bigint} NOT NULL,
  gates_opened {bigint} NOT NULL,
  gates_approved {bigint} NOT NULL,
  gates_rejected {bigint} NOT NULL,
  gates_expired {bigint} NOT NULL,
`

// countColumns are what is counted, the same for every way to tell it apart. It is part of a step that has landed.
const countColumns = `  completed {bigint} NOT NULL,
  failed {bigint} NOT NULL,
  interrupted {bigint} NOT NULL,
  calls {bigint} NOT NULL,
  calls_estimated {bigint} NOT NULL,
  input_tokens {bigint} NOT NULL,
  output_tokens {bigint} NOT NULL,
  cache_read_tokens {bigint} NOT NULL,
  cache_write_tokens {bigint} NOT NULL,
` + costColumns + `  gates_withdrawn {bigint} NOT NULL,
  blocks {bigint} NOT NULL,
`

// Migrations make the tables. Those named counter_… are counted and can be counted again; hours and days come first
// in their keys, since that is what is asked for. counter_hour is what was counted, as fine as it is told apart;
// counter_sum are sums of it, written with it. The second step drops the counters by day and counts anew.
var Migrations = store.Migrations{Package: "counter", Steps: []string{`
CREATE TABLE deck (
  workspace {text} NOT NULL,
  name {text} NOT NULL,
  title {text} NOT NULL,
  PRIMARY KEY (workspace, name)
) {strict};

CREATE TABLE counter_cursor (
  id {bigint} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};
INSERT INTO counter_cursor (id, seq) VALUES (1, 0);

CREATE TABLE counter_deck (
  workspace {text} NOT NULL,
  name {text} NOT NULL,
  first_at {bigint} NOT NULL,
  PRIMARY KEY (workspace, name)
) {strict};

CREATE TABLE counter_day (
  day {text} NOT NULL,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  completed {bigint} NOT NULL,
  failed {bigint} NOT NULL,
  interrupted {bigint} NOT NULL,
  input_tokens {bigint} NOT NULL,
  output_tokens {bigint} NOT NULL,
` + costColumns + `  PRIMARY KEY (day, workspace, project, agent)
) {keyed};

CREATE TABLE counter_decision (
  day {text} NOT NULL,
  seq {bigint} NOT NULL,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  waited {bigint} NOT NULL,
  PRIMARY KEY (day, seq)
) {keyed};
`, `
DROP TABLE counter_day;
DROP TABLE counter_decision;
DELETE FROM counter_deck;

CREATE TABLE counter_hour (
  hour {text} NOT NULL,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  protocol {text} NOT NULL,
  model {text} NOT NULL,
  rule {text} NOT NULL,
` + countColumns + `  PRIMARY KEY (hour, workspace, project, agent, protocol, model, rule)
) {keyed};
CREATE INDEX counter_hour_agent ON counter_hour (agent, hour);

CREATE TABLE counter_sum (
  axis {text} NOT NULL,
  day {text} NOT NULL,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  protocol {text} NOT NULL,
  name {text} NOT NULL,
` + countColumns + `  PRIMARY KEY (axis, day, workspace, project, protocol, name)
) {keyed};

CREATE TABLE counter_decision (
  hour {text} NOT NULL,
  seq {bigint} NOT NULL,
  workspace {text} NOT NULL,
  project {text} NOT NULL,
  agent {text} NOT NULL,
  protocol {text} NOT NULL,
  rule {text} NOT NULL,
  waited {bigint} NOT NULL,
  PRIMARY KEY (hour, seq)
) {keyed};

CREATE TABLE counter_name (
  day {text} NOT NULL,
  workspace {text} NOT NULL,
  what {text} NOT NULL,
  agent {text} NOT NULL,
  name {text} NOT NULL,
  PRIMARY KEY (day, workspace, what, agent, name)
) {keyed};

UPDATE counter_cursor SET seq = 0 WHERE id = 1;
`, `
ALTER TABLE counter_hour ADD COLUMN cancelled {bigint} NOT NULL DEFAULT 0;
ALTER TABLE counter_hour ADD COLUMN stopped {bigint} NOT NULL DEFAULT 0;
ALTER TABLE counter_sum ADD COLUMN cancelled {bigint} NOT NULL DEFAULT 0;
ALTER TABLE counter_sum ADD COLUMN stopped {bigint} NOT NULL DEFAULT 0;
`}}

// counted are the tables that Reset empties.
var counted = []string{"counter_deck", "counter_hour", "counter_sum", "counter_decision", "counter_name"}

// kindDeckChanged is the one kind of entry that this package appends.
const kindDeckChanged = "deck.changed"

// deckChanged is the body of deck.changed, whose subject is the deck's name.
type deckChanged struct {
	Title string `json:"title"`
}

// Projection is the titles that operators give decks. The tables of counters are not part of
// it, because they are not state: a rebuild empties them with Reset.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name:   "counter",
		Tables: ledger.Tables("deck (workspace, name)"),
		Apply: map[string]ledger.Apply{kindDeckChanged: func(tx *store.Tx, e *ledger.Entry) error {
			var b deckChanged
			if err := e.Decode(&b); err != nil {
				return err
			}
			tx.Exec("INSERT INTO deck (workspace, name, title) VALUES ($1, $2, $3) ON CONFLICT "+
				"(workspace, name) DO UPDATE SET title = excluded.title", e.Workspace, e.Subject, b.Title)
			return nil
		}},
	}
}
