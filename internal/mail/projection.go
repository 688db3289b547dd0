package mail

import (
	"slices"
	"strings"

	"signalbox/internal/ledger"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/store"
)

// Projection is what the entries do to the tables, of mail itself and of its parts.
func Projection() ledger.Projection {
	p := ledger.Projection{
		Name:     "mail",
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
		e.Seq, e.Subject, e.Workspace, e.At.UnixMicro(), m.Sender, m.SenderAddress, m.Recipient, m.RecipientWorkspace,
		m.RecipientAddress, m.Envelope.ThreadID, m.Envelope.Subject, m.Envelope.Priority, m.Kind, string(m.Trust),
		strings.Join(m.Flags, ","), m.Alias, m.Idem, m.Request, m.Quarantine, m.Gate, m.ExpiresAt, status, false, place)
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

func applyReleased(tx *store.Tx, e *ledger.Entry, b *about) {
	tx.Exec("UPDATE mail_message SET status = 'queued', place = $2 WHERE seq = $1", b.Seq, e.Seq)
	enqueue(tx, b.Agent, e.Seq, b.Seq, b.Until)
}

func applyDelivered(tx *store.Tx, e *ledger.Entry, b *about) {
	tx.Exec("UPDATE mail_message SET method = $2, delivered_at = $3, status = CASE WHEN status = 'queued' THEN "+
		"'delivered' ELSE status END WHERE seq = $1", b.Seq, b.Via, e.At.UnixMicro())
}

// applyEnded takes a message out of the queue: nothing else does, but the end of the
// agent itself.
func applyEnded(status string) ledger.Apply {
	return ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *about) {
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

func applyRead(tx *store.Tx, e *ledger.Entry, b *about) {
	tx.Exec("UPDATE mail_message SET read_at = $2 WHERE seq = $1", b.Seq, e.At.UnixMicro())
}

// applyErased writes what the body of message.routed said, for a rebuild that comes to
// it without that body. Where it was said before, nothing changes.
func applyErased(tx *store.Tx, _ *ledger.Entry, b *erased) {
	for i := range b.Messages {
		m := &b.Messages[i].Meta
		tx.Exec(`UPDATE mail_message SET sender = $2, sender_address = $3, recipient = $4, recipient_workspace = $5, recipient_address = $6, thread = $7, subject = $8, priority = $9,
kind = $10, trust = $11, flags = $12, alias = $13, idem = $14, request = $15, quarantine = $16, gate = $17, expires_at = $18, erased = $19, status = $20, ended_at = $21 WHERE seq = $1`,
			b.Messages[i].Seq, m.Sender, m.SenderAddress, m.Recipient, m.RecipientWorkspace, m.RecipientAddress,
			m.Envelope.ThreadID, m.Envelope.Subject, m.Envelope.Priority, m.Kind, string(m.Trust),
			strings.Join(m.Flags, ","), m.Alias, m.Idem, m.Request, m.Quarantine, m.Gate, m.ExpiresAt, true,
			b.Messages[i].Status, b.Messages[i].EndedAt)
		attachment.Bind(tx, m.Envelope.ID, m.Attachments, m.AttachedUntil)
		m.remember(tx)
	}
}

// applyBlocked needs no body, so that what was refused need not be kept.
func applyBlocked(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO mail_blocked (seq, sender, at) VALUES ($1, $2, $3)", e.Seq, e.Subject, e.At.UnixMicro())
	return nil
}

// applyAgentRemoved empties the queue of an agent that is gone, whoever removed it.
func applyAgentRemoved(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE mail_message SET status = 'undeliverable', ended_at = $2, place = 0 WHERE seq IN (SELECT seq FROM "+
		"mail_queue WHERE agent = $1)", e.Subject, e.At.UnixMicro())
	tx.Exec("DELETE FROM mail_queue WHERE agent = $1", e.Subject)
	return nil
}
