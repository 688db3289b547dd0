package mail

import (
	"slices"
	"strings"

	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Migrations make the tables. A message lives in the body of the entry seq, once: the
// queue and the list of messages point to it. mail_words and mail_party, which has the
// messages of each agent, stand beside the ledger; they follow from it and are not state.
//
// place is the order of the queue: the entry by which the message came into it, and 0 in
// mail_message when it is not there. Every index costs every message: the messages of a
// thread are found by the trace of their entries.
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
`}}

// The kinds of entries. The subject of those about a message is its id.
const (
	kindRouted    = "message.routed"
	kindReleased  = "message.released"  // from quarantine into the queue
	kindRejected  = "message.rejected"  // by a person
	kindDelivered = "message.delivered" // pushed
	kindAcked     = "message.acknowledged"
	kindRead      = "message.read"
	kindExpired   = "message.expired"
	kindFailed    = "message.failed" // another provider refuses it
	kindErased    = "message.erased"
	kindBlocked   = "message.blocked" // refused, and not kept
)

// Meta is what is known of a message beside its payload. It outlives the payload.
type Meta struct {
	Envelope           amp.Envelope `json:"envelope"`
	Sender             string       `json:"sender,omitzero"` // the agent's id, "" for one of another provider
	SenderAddress      string       `json:"sender_address"`  // as registered
	SenderKey          []byte       `json:"sender_key,omitzero"`
	Recipient          string       `json:"recipient"`
	RecipientWorkspace string       `json:"recipient_workspace"`
	RecipientAddress   string       `json:"recipient_address"`
	Kind               string       `json:"kind"`
	Trust              Trust        `json:"trust"`
	Flags              []string     `json:"flags,omitempty"`
	Alias              string       `json:"alias,omitzero"` // the id that the client made up
	Idem               string       `json:"idempotency_key,omitzero"`
	Request            string       `json:"request_sha256,omitzero"`
	Receipt            bool         `json:"receipt,omitzero"`
	ExpiresAt          int64        `json:"expires_at"` // microseconds
	Quarantine         string       `json:"quarantine,omitzero"`
	Gate               string       `json:"gate,omitzero"`
	PayloadSHA256      string       `json:"payload_sha256"`
	Attachments        []string     `json:"attachments,omitempty"`
	AttachedUntil      int64        `json:"attached_until,omitzero"` // microseconds
	Pin                string       `json:"pin,omitzero"`            // the key of another provider's agent
	Unpin              string       `json:"unpin,omitzero"`          // the one that it replaces
	At                 int64        `json:"at,omitzero"`             // microseconds, with Pin
}

// routed is the body of message.routed. The payload is last, and as it came.
type routed struct {
	Meta     Meta             `json:"meta"`
	Decision *rulebook.Record `json:"decision"`
	Payload  wire.Raw         `json:"payload,omitzero"` // see encode

	text string // payload.message, while this process has it in memory
}

type (
	// about is the body of what happens to one message.
	about struct {
		Seq    int64  `json:"seq"`            // the entry of the message
		Agent  string `json:"agent,omitzero"` // whose queue it is in
		Place  int64  `json:"place,omitzero"` // and where
		Until  int64  `json:"until,omitzero"` // when it leaves the queue, for released
		Via    string `json:"via,omitzero"`   // how it reached the recipient, or was acknowledged
		Sender string `json:"sender,omitzero"`
		To     string `json:"to,omitzero"`
		Note   string `json:"note,omitzero"`
	}
	erased struct {
		Messages []erasedMessage `json:"messages"`
	}
	erasedMessage struct {
		Seq     int64  `json:"seq"`
		Status  string `json:"status"`
		EndedAt int64  `json:"ended_at"` // microseconds
		Meta    Meta   `json:"meta"`
	}
	// blocked is about what the sender, who is the subject, was refused.
	blocked struct {
		To       string           `json:"to"`
		Subject  string           `json:"message_subject"`
		Flags    []string         `json:"flags,omitempty"`
		Decision *rulebook.Record `json:"decision,omitempty"`
	}
)

// Projection is what the entries do to the tables, of mail itself and of its parts.
func Projection() ledger.Projection {
	p := ledger.Projection{
		Name:     "mail",
		Erasable: []string{kindBlocked},
		Tables: []ledger.Table{
			{Name: "mail_message", Key: "seq"},
			{Name: "mail_queue", Key: "agent, place"},
			{Name: "mail_blocked", Key: "seq"},
		},
		Apply: map[string]ledger.Apply{
			kindRouted:      applyRouted,
			kindReleased:    applyReleased,
			kindDelivered:   applyDelivered,
			kindAcked:       applyEnded(Acknowledged),
			kindRejected:    applyEnded(Rejected),
			kindExpired:     applyEnded(Expired),
			kindFailed:      applyEnded(Failed),
			kindRead:        applyRead,
			kindErased:      applyErased,
			kindBlocked:     applyBlocked,
			"agent.removed": applyAgentRemoved,
		},
	}
	p.Tables = slices.Concat(p.Tables, attachment.Tables(), federation.Tables(), directory.Tables())
	for _, part := range []map[string]ledger.Apply{attachment.Apply(), directory.Apply()} {
		for kind, apply := range part {
			p.Apply[kind] = both(p.Apply[kind], apply)
		}
	}
	return p
}

// both does what an entry does in two parts of mail; the first may have nothing to do.
func both(first, second ledger.Apply) ledger.Apply {
	if first == nil {
		return second
	}
	return func(tx *store.Tx, e *ledger.Entry) error {
		if err := first(tx, e); err != nil {
			return err
		}
		return second(tx, e)
	}
}

// applyRouted puts a message in its place. One whose payload was erased has no body any
// more; it has reached its end, and message.erased says the rest.
func applyRouted(tx *store.Tx, e *ledger.Entry) error {
	b, inMemory := e.Value().(*routed)
	if !inMemory {
		b = &routed{}
		if e.Body != nil {
			if err := e.Decode(b); err != nil {
				return err
			}
		}
	}
	m := &b.Meta
	status, place := Queued, e.Seq
	if m.Quarantine != "" {
		status = Held
	}
	if m.Quarantine != "" || e.Body == nil {
		place = 0
	}
	tx.Exec(`INSERT INTO mail_message (seq, id, workspace, at, sender, sender_address, recipient, recipient_workspace, recipient_address, thread, subject, priority, kind, trust, flags, alias, idem, request, quarantine, gate, expires_at, status, method, delivered_at, read_at, ended_at, erased, place)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, 'relay', 0, 0, 0, $23, $24)`,
		e.Seq, e.Subject, e.Workspace, e.At.UnixMicro(), m.Sender, m.SenderAddress, m.Recipient, m.RecipientWorkspace, m.RecipientAddress, m.Envelope.ThreadID, m.Envelope.Subject,
		m.Envelope.Priority, m.Kind, string(m.Trust), strings.Join(m.Flags, ","), m.Alias, m.Idem, m.Request, m.Quarantine, m.Gate, m.ExpiresAt, status, false, place)
	attachment.Bind(tx, e.Subject, m.Attachments, m.AttachedUntil)
	m.remember(tx)
	if place != 0 {
		enqueue(tx, m.Recipient, place, e.Seq, m.ExpiresAt)
	}
	return nil
}

// remember keeps the key of another provider's agent, and gives up the one before.
func (m *Meta) remember(tx *store.Tx) {
	federation.Remember(tx, m.SenderAddress, federation.Pin{Fingerprint: m.Pin, Replaces: m.Unpin})
	if m.Unpin != "" {
		directory.Supersede(tx, m.Unpin, strings.ToLower(m.SenderAddress), m.Pin, m.At)
	}
}

func enqueue(tx *store.Tx, agent string, place, seq, expires int64) {
	tx.Exec("INSERT INTO mail_queue (agent, place, seq, expires_at) VALUES ($1, $2, $3, $4)", agent, place, seq, expires)
}

func applyReleased(tx *store.Tx, e *ledger.Entry) error {
	var b about
	if err := e.Decode(&b); err != nil {
		return err
	}
	tx.Exec("UPDATE mail_message SET status = 'queued', place = $2 WHERE seq = $1", b.Seq, e.Seq)
	enqueue(tx, b.Agent, e.Seq, b.Seq, b.Until)
	return nil
}

func applyDelivered(tx *store.Tx, e *ledger.Entry) error {
	var b about
	if err := e.Decode(&b); err != nil {
		return err
	}
	tx.Exec("UPDATE mail_message SET method = $2, delivered_at = $3, status = CASE WHEN status = 'queued' THEN 'delivered' ELSE status END WHERE seq = $1", b.Seq, b.Via, e.At.UnixMicro())
	return nil
}

// applyEnded takes a message out of the queue: nothing else does, but the end of the
// agent itself.
func applyEnded(status string) ledger.Apply {
	return func(tx *store.Tx, e *ledger.Entry) error {
		var b about
		if err := e.Decode(&b); err != nil {
			return err
		}
		if b.Place != 0 {
			tx.Exec("DELETE FROM mail_queue WHERE agent = $1 AND place = $2", b.Agent, b.Place)
		}
		if status == Acknowledged && calledOut(b.Via) {
			tx.Exec("UPDATE mail_message SET method = $3, delivered_at = $2 WHERE seq = $1", b.Seq, e.At.UnixMicro(), b.Via)
		}
		tx.Exec("UPDATE mail_message SET status = $2, ended_at = $3, place = 0 WHERE seq = $1", b.Seq, status, e.At.UnixMicro())
		return nil
	}
}

func applyRead(tx *store.Tx, e *ledger.Entry) error {
	var b about
	if err := e.Decode(&b); err != nil {
		return err
	}
	tx.Exec("UPDATE mail_message SET read_at = $2 WHERE seq = $1", b.Seq, e.At.UnixMicro())
	return nil
}

// applyErased writes what the body of message.routed said, for a rebuild that comes to
// it without that body. Where it was said before, nothing changes.
func applyErased(tx *store.Tx, e *ledger.Entry) error {
	var b erased
	if err := e.Decode(&b); err != nil {
		return err
	}
	for i := range b.Messages {
		m := &b.Messages[i].Meta
		tx.Exec(`UPDATE mail_message SET sender = $2, sender_address = $3, recipient = $4, recipient_workspace = $5, recipient_address = $6, thread = $7, subject = $8, priority = $9,
kind = $10, trust = $11, flags = $12, alias = $13, idem = $14, request = $15, quarantine = $16, gate = $17, expires_at = $18, erased = $19, status = $20, ended_at = $21 WHERE seq = $1`,
			b.Messages[i].Seq, m.Sender, m.SenderAddress, m.Recipient, m.RecipientWorkspace, m.RecipientAddress, m.Envelope.ThreadID, m.Envelope.Subject, m.Envelope.Priority,
			m.Kind, string(m.Trust), strings.Join(m.Flags, ","), m.Alias, m.Idem, m.Request, m.Quarantine, m.Gate, m.ExpiresAt, true, b.Messages[i].Status, b.Messages[i].EndedAt)
		attachment.Bind(tx, m.Envelope.ID, m.Attachments, m.AttachedUntil)
		m.remember(tx)
	}
	return nil
}

// applyBlocked needs no body, so that what was refused need not be kept.
func applyBlocked(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO mail_blocked (seq, sender, at) VALUES ($1, $2, $3)", e.Seq, e.Subject, e.At.UnixMicro())
	return nil
}

// applyAgentRemoved empties the queue of an agent that is gone, whoever removed it.
func applyAgentRemoved(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE mail_message SET status = 'undeliverable', ended_at = $2, place = 0 WHERE seq IN (SELECT seq FROM mail_queue WHERE agent = $1)", e.Subject, e.At.UnixMicro())
	tx.Exec("DELETE FROM mail_queue WHERE agent = $1", e.Subject)
	return nil
}
