package mail

import (
	"slices"
	"strings"

	"signalbox/internal/ledger"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/homes"
	"signalbox/internal/mail/once"
	"signalbox/internal/store"
)

// Projection is how entries change the tables of mail and of the packages below it. Apply
// functions run in the transaction that appends the entry, and again when the tables are
// rebuilt; they depend on nothing but the entry and the tables, and never fail for content that
// was once accepted.
func Projection() ledger.Projection {
	p := ledger.Projection{
		Name: "mail",
		// Entries whose bodies retention may erase. Those of messages have their own time, mail.keep.
		Erasable: []string{kindBlocked},
		Tables:   ledger.Tables("mail_message (seq)", "mail_queue (agent, place)", "mail_blocked (seq)"),
		Apply: map[string]ledger.Apply{
			kindRouted:      applyRouted,
			kindReleased:    ledger.ApplyBody(applyReleased),
			kindDelivered:   ledger.ApplyBody(applyDelivered),
			kindAcked:       applyEnded(Acknowledged),
			kindRejected:    applyEnded(Rejected),
			kindExpired:     applyEnded(Expired),
			kindFailed:      applyEnded(Failed),
			kindRead:        ledger.ApplyBody(applyRead),
			kindErased:      ledger.ApplyBody(applyErased),
			kindBlocked:     applyBlocked,
			"agent.removed": applyAgentRemoved,
		},
	}
	p.Tables = slices.Concat(p.Tables, attachment.Tables(), federation.Tables(), directory.Tables(), homes.Tables(),
		once.Tables())
	// agent.removed is applied by mail and by the directory.
	for _, part := range []map[string]ledger.Apply{attachment.Apply(), directory.Apply(), homes.Apply()} {
		for kind, apply := range part {
			p.Apply[kind] = chainApply(p.Apply[kind], apply)
		}
	}
	return p
}

// chainApply is one apply function for an entry that changes tables of two packages. first may be nil.
func chainApply(first, second ledger.Apply) ledger.Apply {
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

// applyRouted adds a message, and puts it into its queue unless it is held. In a rebuild the body
// may be gone: then the message has ended, and message.erased, which comes later, fills in the
// row.
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
	tx.Exec(`INSERT INTO mail_message (seq, id, workspace, at, sender, sender_address, recipient,
recipient_workspace, recipient_address, thread, subject, priority, kind, trust, flags, alias, idem, request,
quarantine, gate, expires_at, status, method, delivered_at, read_at, ended_at, erased, place)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
'relay', 0, 0, 0, $23, $24)`,
		e.Seq, e.Subject, e.Workspace, e.At.UnixMicro(), m.Sender, m.SenderAddress, m.Recipient, m.RecipientWorkspace,
		m.RecipientAddress, m.Envelope.ThreadID, m.Envelope.Subject, m.Envelope.Priority, m.Kind, string(m.Trust),
		strings.Join(m.Flags, ","), m.Alias, m.Idem, m.Request, m.Quarantine, m.Gate, m.ExpiresAt, status, false, place)
	// In the apply function, so that a rebuild gives attachments to their messages too.
	attachment.Bind(tx, e.Subject, m.Attachments, m.AttachedUntil)
	attachment.Carried(tx, e.Subject, m.Away)
	m.pinSenderKey(tx)
	m.Once.Apply(tx, e.At.UnixMicro())
	if place != 0 {
		enqueue(tx, m.Recipient, place, e.Seq, m.ExpiresAt)
	}
	return nil
}

// pinSenderKey pins the key of a foreign sender, and revokes the one that it replaces (MSG-82).
func (m *Meta) pinSenderKey(tx *store.Tx) {
	federation.Remember(tx, m.SenderAddress, federation.Pin{Fingerprint: m.Pin, Replaces: m.Unpin})
	directory.RecordRotations(tx, m.SenderAddress, m.Rotations)
	if m.Unpin != "" {
		directory.Supersede(tx, m.Unpin, strings.ToLower(m.SenderAddress), m.Pin, m.At)
	}
}

// enqueue adds a message to a queue. place orders the queue: it is the entry that put it there.
func enqueue(tx *store.Tx, agent string, place, seq, expires int64) {
	tx.Exec("INSERT INTO mail_queue (agent, place, seq, expires_at) VALUES ($1, $2, $3, $4)", agent, place, seq, expires)
}

// applyReleased puts an approved message at the end of the queue, not where it would have been.
func applyReleased(tx *store.Tx, e *ledger.Entry, b *transition) {
	tx.Exec("UPDATE mail_message SET status = 'queued', place = $2 WHERE seq = $1", b.Seq, e.Seq)
	enqueue(tx, b.Agent, e.Seq, b.Seq, b.Until)
}

// applyDelivered notes a push. The status of a message that was acknowledged by then stays.
func applyDelivered(tx *store.Tx, e *ledger.Entry, b *transition) {
	tx.Exec("UPDATE mail_message SET method = $2, delivered_at = $3, status = CASE WHEN status = 'queued' THEN "+
		"'delivered' ELSE status END WHERE seq = $1", b.Seq, b.Via, e.At.UnixMicro())
}

// applyEnded removes a message from its queue with a final status. Only applyAgentRemoved
// removes messages otherwise.
func applyEnded(status string) ledger.Apply {
	return ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *transition) {
		status := status
		if b.Held {
			status = HeldAway
			tx.Exec("UPDATE mail_message SET method = $2 WHERE seq = $1", b.Seq, b.Via)
		}
		if b.Place != 0 {
			tx.Exec("DELETE FROM mail_queue WHERE agent = $1 AND place = $2", b.Agent, b.Place)
		}
		if status == Acknowledged && calledOut(b.Via) {
			tx.Exec("UPDATE mail_message SET method = $3, delivered_at = $2 WHERE seq = $1", b.Seq, e.At.UnixMicro(), b.Via)
		}
		tx.Exec("UPDATE mail_message SET status = $2, ended_at = $3, place = 0 WHERE seq = $1", b.Seq, status,
			e.At.UnixMicro())
	})
}

// applyRead notes when the recipient read a message, which changes nothing else.
func applyRead(tx *store.Tx, e *ledger.Entry, b *transition) {
	tx.Exec("UPDATE mail_message SET read_at = $2 WHERE seq = $1", b.Seq, e.At.UnixMicro())
}

// applyErased fills in the rows of messages whose bodies are gone, which matters in a rebuild
// only: the first time, the rows have these values already, but for erased.
func applyErased(tx *store.Tx, _ *ledger.Entry, b *erased) {
	for i := range b.Messages {
		m := &b.Messages[i].Meta
		tx.Exec(`UPDATE mail_message SET sender = $2, sender_address = $3, recipient = $4, recipient_workspace = $5,
recipient_address = $6, thread = $7, subject = $8, priority = $9, kind = $10, trust = $11, flags = $12, alias = $13,
idem = $14, request = $15, quarantine = $16, gate = $17, expires_at = $18, erased = $19, status = $20,
ended_at = $21 WHERE seq = $1`,
			b.Messages[i].Seq, m.Sender, m.SenderAddress, m.Recipient, m.RecipientWorkspace, m.RecipientAddress,
			m.Envelope.ThreadID, m.Envelope.Subject, m.Envelope.Priority, m.Kind, string(m.Trust),
			strings.Join(m.Flags, ","), m.Alias, m.Idem, m.Request, m.Quarantine, m.Gate, m.ExpiresAt, true,
			b.Messages[i].Status, b.Messages[i].EndedAt)
		attachment.Bind(tx, m.Envelope.ID, m.Attachments, m.AttachedUntil)
		attachment.Carried(tx, m.Envelope.ID, m.Away)
		m.pinSenderKey(tx)
		m.Once.Apply(tx, m.Once.At)
	}
}

// applyBlocked counts a refusal against its sender. It reads no body, so the body can be erased.
func applyBlocked(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO mail_blocked (seq, sender, at) VALUES ($1, $2, $3)", e.Seq, e.Subject, e.At.UnixMicro())
	return nil
}

// applyAgentRemoved ends the messages in the queue of an agent that left or was removed.
func applyAgentRemoved(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE mail_message SET status = 'undeliverable', ended_at = $2, place = 0 WHERE seq IN (SELECT seq FROM "+
		"mail_queue WHERE agent = $1)", e.Subject, e.At.UnixMicro())
	tx.Exec("DELETE FROM mail_queue WHERE agent = $1", e.Subject)
	return nil
}
