package deliver

import "signalbox/internal/store"

// Migrations make the tables. delivery_lock, delivery_runner and delivery_claim are bookkeeping of the
// runners: they do not follow from the ledger, and may be emptied while no server runs.
//
// place is the order within a lane. due_at is when a delivery may be tried, 0 for at once; since is
// when its pause began, by which a clock that was set back is noticed. reference is the receiver's
// name for a delivery that has arrived. Times are microseconds.
//
// Steps are append only: their digests are checked.
var Migrations = store.Migrations{Package: "deliver", Steps: []string{`
CREATE TABLE delivery (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  status {text} NOT NULL,
  sender {text} NOT NULL,
  target {text} NOT NULL,
  order_key {text} NOT NULL,
  entry {bigint} NOT NULL,
  place {bigint} NOT NULL,
  attempts {bigint} NOT NULL,
  tries {bigint} NOT NULL,
  due_at {bigint} NOT NULL,
  since {bigint} NOT NULL,
  queued_at {bigint} NOT NULL,
  give_up_after {bigint} NOT NULL,
  give_up_at {bigint} NOT NULL,
  ended_at {bigint} NOT NULL,
  last_error {text} NOT NULL
) {strict};
CREATE INDEX delivery_place ON delivery (order_key, place) WHERE status = 'pending';
CREATE INDEX delivery_open ON delivery (id) WHERE status <> 'delivered';
CREATE INDEX delivery_workspace ON delivery (workspace, id);
CREATE INDEX delivery_target ON delivery (target, id);

CREATE TABLE delivery_lane (
  order_key {text} PRIMARY KEY,
  delivery {text} NOT NULL,
  tries {bigint} NOT NULL,
  due_at {bigint} NOT NULL,
  since {bigint} NOT NULL
) {strict};
CREATE INDEX delivery_lane_due ON delivery_lane (due_at);

CREATE TABLE delivery_lock (id {bigint} PRIMARY KEY) {strict};
INSERT INTO delivery_lock (id) VALUES (1);

CREATE TABLE delivery_runner (
  holder {text} PRIMARY KEY,
  beat {bigint} NOT NULL
) {strict};

CREATE TABLE delivery_claim (
  order_key {text} PRIMARY KEY,
  holder {text} NOT NULL,
  served_at {bigint} NOT NULL
) {strict};
CREATE INDEX delivery_claim_holder ON delivery_claim (holder);
`, `
ALTER TABLE delivery ADD COLUMN reference {text} NOT NULL DEFAULT '';
`}}
