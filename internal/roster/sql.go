package roster

import "signalbox/internal/store"

// Migrations make the roster's tables.
//
// Step 1 has workspaces, agents, operators and keys. Step 2 confines operators to a
// workspace. Step 3 adds addresses, owners, public keys and presence. Step 4 adds contacts of
// operators. Step 5 adds suspensions that end, proofs, reserved addresses and invites. Step 6 adds
// what issuers of tokens know users and agents by.
//
// Keys and invites are found by the hash of their secret, which is unique. Times are in
// microseconds, and 0 stands for never.
var Migrations = store.Migrations{Package: "roster", Steps: []string{`
CREATE TABLE workspace (
  name {text} PRIMARY KEY,
  added_at {bigint} NOT NULL
) {strict};

CREATE TABLE agent (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  name {text} NOT NULL,
  trust {text} NOT NULL,
  labels {blob} NOT NULL,
  suspended {bool} NOT NULL,
  added_at {bigint} NOT NULL
) {strict};
CREATE UNIQUE INDEX agent_name ON agent (workspace, name);

CREATE TABLE operator (
  id {text} PRIMARY KEY,
  name {text} NOT NULL UNIQUE,
  role {text} NOT NULL,
  added_at {bigint} NOT NULL
) {strict};

CREATE TABLE access_key (
  id {text} PRIMARY KEY,
  hash {blob} NOT NULL UNIQUE,
  kind {text} NOT NULL,
  holder {text} NOT NULL,
  hint {text} NOT NULL,
  rate_limit {bigint} NOT NULL,
  issued_at {bigint} NOT NULL,
  expires_at {bigint} NOT NULL,
  revoked_at {bigint} NOT NULL
) {strict};
CREATE INDEX access_key_holder ON access_key (holder, id);
`, `
ALTER TABLE operator ADD COLUMN workspace {text} NOT NULL DEFAULT '';
`, `
ALTER TABLE agent ADD COLUMN address {text} NOT NULL DEFAULT '';
ALTER TABLE agent ADD COLUMN owner {text} NOT NULL DEFAULT '';
ALTER TABLE agent ADD COLUMN rate_limit {bigint};
CREATE UNIQUE INDEX agent_address ON agent (address) WHERE address <> '';
CREATE INDEX agent_owner ON agent (owner);

CREATE TABLE owner (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  name {text} NOT NULL,
  added_at {bigint} NOT NULL
) {strict};
CREATE UNIQUE INDEX owner_name ON owner (workspace, name);

CREATE TABLE agent_public_key (
  agent {text} NOT NULL,
  fingerprint {text} NOT NULL,
  key {blob} NOT NULL,
  added_at {bigint} NOT NULL,
  retired_at {bigint} NOT NULL,
  PRIMARY KEY (agent, fingerprint)
) {strict};
CREATE UNIQUE INDEX agent_public_key_current ON agent_public_key (fingerprint) WHERE retired_at = 0;

CREATE TABLE agent_presence (
  agent {text} PRIMARY KEY,
  seen_at {bigint} NOT NULL
) {strict};
`, `
CREATE TABLE operator_contact (
  operator {text} NOT NULL,
  channel {text} NOT NULL,
  contact {text} NOT NULL,
  PRIMARY KEY (operator, channel)
) {strict};
CREATE UNIQUE INDEX operator_contact_whose ON operator_contact (channel, contact);
`, `
ALTER TABLE agent ADD COLUMN suspended_until {bigint} NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN proved_at {bigint} NOT NULL DEFAULT 0;

CREATE TABLE address_hold (
  address {text} PRIMARY KEY,
  until_at {bigint} NOT NULL
) {strict};

CREATE TABLE invite (
  id {text} PRIMARY KEY,
  hash {blob} NOT NULL UNIQUE,
  workspace {text} NOT NULL,
  uses_left {bigint} NOT NULL,
  expires_at {bigint} NOT NULL,
  made_at {bigint} NOT NULL
) {strict};
`, `
ALTER TABLE agent ADD COLUMN oidc_client {text} NOT NULL DEFAULT '';
CREATE UNIQUE INDEX agent_oidc_client ON agent (workspace, oidc_client) WHERE oidc_client <> '';

CREATE TABLE user_login (
  workspace {text} NOT NULL,
  issuer {text} NOT NULL,
  subject {text} NOT NULL,
  owner {text} NOT NULL,
  PRIMARY KEY (workspace, issuer, subject)
) {strict};
`}}
