package mail

import (
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/homes"
	"signalbox/internal/mail/once"
	"signalbox/internal/store"
)

// Migrations make the tables of mail and of the packages below it.
//
// A message is stored once, in the body of the entry seq; mail_message and mail_queue point to
// it. place is the order of a queue: the entry that put the message there, and 0 in mail_message
// for a message in no queue. A queue belongs to an agent, or to another server ("@…").
//
// mail_words and mail_party, which lists the messages of each agent, are indexes beside the
// ledger: words.go fills them later, and a rebuild empties them. Every other index would cost
// every message; the messages of a thread are found by the trace of their entries.
//
// mail_duties points to what an agent has to keep. mail_signed has the signatures that are good once, and when they
// were used last.
//
// Steps are append only: their digests are checked.
var Migrations = store.Migrations{Package: "mail", Steps: []string{`
CREATE TABLE mail_message (
  seq {bigint} PRIMARY KEY,
  id {text} NOT NULL UNIQUE,
  workspace {text} NOT NULL,
  at {bigint} NOT NULL,
  sender {text} NOT NULL,
  sender_address {text} NOT NULL,
  recipient {text} NOT NULL,
  recipient_workspace {text} NOT NULL,
  recipient_address {text} NOT NULL,
  thread {text} NOT NULL,
  subject {text} NOT NULL,
  priority {text} NOT NULL,
  kind {text} NOT NULL,
  trust {text} NOT NULL,
  flags {text} NOT NULL,
  alias {text} NOT NULL,
  idem {text} NOT NULL,
  request {text} NOT NULL,
  quarantine {text} NOT NULL,
  gate {text} NOT NULL,
  expires_at {bigint} NOT NULL,
  status {text} NOT NULL,
  method {text} NOT NULL,
  delivered_at {bigint} NOT NULL,
  read_at {bigint} NOT NULL,
  ended_at {bigint} NOT NULL,
  erased {bool} NOT NULL,
  place {bigint} NOT NULL
) {strict};
CREATE UNIQUE INDEX mail_message_idem ON mail_message (sender, idem) WHERE idem <> '';
CREATE INDEX mail_message_alias ON mail_message (alias) WHERE alias <> '';
CREATE UNIQUE INDEX mail_message_quarantine ON mail_message (quarantine) WHERE quarantine <> '';
CREATE INDEX mail_message_gate ON mail_message (gate) WHERE gate <> '';
CREATE INDEX mail_message_ended ON mail_message (ended_at) WHERE ended_at > 0 AND NOT erased;

CREATE TABLE mail_queue (
  agent {text} NOT NULL,
  place {bigint} NOT NULL,
  seq {bigint} NOT NULL,
  expires_at {bigint} NOT NULL,
  PRIMARY KEY (agent, place)
) {keyed};
CREATE INDEX mail_queue_expiry ON mail_queue (expires_at);

CREATE TABLE mail_attachment (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  agent {text} NOT NULL,
  filename {text} NOT NULL,
  content_type {text} NOT NULL,
  size {bigint} NOT NULL,
  digest {text} NOT NULL,
  status {text} NOT NULL,
  note {text} NOT NULL,
  blob {text} NOT NULL,
  message {text} NOT NULL,
  uploaded_at {bigint} NOT NULL,
  expires_at {bigint} NOT NULL
) {strict};
CREATE INDEX mail_attachment_expiry ON mail_attachment (expires_at) WHERE status <> 'expired';
CREATE INDEX mail_attachment_blob ON mail_attachment (blob) WHERE blob <> '';

CREATE TABLE mail_blocked (
  seq {bigint} PRIMARY KEY,
  sender {text} NOT NULL,
  at {bigint} NOT NULL
) {strict};
CREATE INDEX mail_blocked_sender ON mail_blocked (sender, seq);

CREATE TABLE mail_profile (
  agent {text} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};

CREATE TABLE mail_revocation (
  fingerprint {text} PRIMARY KEY,
  address {text} NOT NULL,
  revoked_at {bigint} NOT NULL,
  reason {text} NOT NULL,
  superseded_by {text} NOT NULL
) {strict};

CREATE TABLE mail_pin (
  address {text} PRIMARY KEY,
  fingerprint {text} NOT NULL
) {strict};

{full-text mail_words}

CREATE TABLE mail_party (
  agent {text} NOT NULL,
  seq {bigint} NOT NULL,
  PRIMARY KEY (agent, seq)
) {keyed};
`, homes.Migration, directory.RotationMigration, attachment.AwayMigration, directory.DutiesMigration, once.Migration}}
