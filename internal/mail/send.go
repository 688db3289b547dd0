package mail

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// complete fills in what the server says of a message.
func (m *Mail) complete(l *letter) {
	now := m.core.Now()
	e := &l.meta.Envelope
	e.Version, e.ID, e.Subject, e.Priority = amp.Version, amp.NewID("msg", now), l.Subject, l.Priority
	e.Signature, e.InReplyTo = l.Signature, l.InReplyTo
	e.Timestamp = amp.Stamp(now)
	if l.imported != "" {
		e.ID, e.Timestamp = l.imported, amp.Stamp(l.at)
	}
	if e.ThreadID == "" {
		e.ThreadID = e.ID
	}
	if !l.ExpiresAt.IsZero() {
		e.ExpiresAt = amp.Stamp(l.ExpiresAt)
	}
	sum := sha256.Sum256(l.Payload)
	meta := &l.meta
	meta.Sender, meta.SenderAddress, meta.SenderKey = l.sender.ID, l.sender.Address, l.sender.PublicKey
	if l.imported != "" {
		meta.Sender, meta.At = "", now.UnixMicro()
	}
	meta.Recipient, meta.RecipientWorkspace, meta.RecipientAddress = l.recipient.ID, l.recipient.Workspace, l.recipient.Address
	meta.Kind, meta.Trust, meta.Flags, meta.Alias = l.Kind, l.trust, l.flags, l.ClientID
	meta.Receipt = l.Receipt
	if l.Idem != "" {
		meta.Idem, meta.Request = l.Idem, l.Request
	}
	meta.ExpiresAt, meta.PayloadSHA256 = expiry(now, l.ExpiresAt).UnixMicro(), hex.EncodeToString(sum[:])
}

// encode makes the body of message.routed, with the payload byte for byte.
func (l *letter) encode() (ledger.Body, error) {
	b := &routed{Meta: l.meta, text: l.Text}
	if l.decision.Action != "" { // a notice is nobody's to decide about
		record := l.decision.Record
		record.Event = nil // it follows from the message
		b.Decision = &record
	}
	text, err := wire.Marshal(b)
	if err != nil {
		return ledger.Body{}, err
	}
	b.Payload = l.Payload
	return ledger.Body{Value: b, JSON: wire.Splice(text, wire.Member{Name: "payload", Value: l.Payload})}, nil
}

func trace(thread string) string { return "thread:" + thread }

// append appends the message in a transaction.
func (l *letter) append(tx *ledger.Tx, body ledger.Body) {
	e := &l.meta.Envelope
	tx.Append(ledger.Event{
		Workspace: l.workspace, Kind: kindRouted, Actor: l.sender.Actor(), Subject: e.ID,
		Trace: trace(e.ThreadID), Body: body,
	})
}

// store appends the message in a transaction, with the attachments that it claims.
func (l *letter) store(tx *ledger.Tx, body ledger.Body) error {
	if err := attachment.Claim(tx, l.meta.Attachments); err != nil {
		return err
	}
	l.append(tx, body)
	return nil
}

// send stores a message and brings it on its way. Once it is stored it is safe, whatever
// becomes of the rest: it waits in the queue until the recipient has acknowledged it.
func (m *Mail) send(ctx context.Context, l *letter) (Answer, error) {
	if !l.ExpiresAt.IsZero() && !l.ExpiresAt.After(m.core.Now()) {
		return Answer{}, fault.New(fault.InvalidField, "The field \"expires_at\" is %s, which is past.",
			amp.Stamp(l.ExpiresAt)).About("expires_at")
	}
	m.complete(l)
	body, err := l.encode()
	if err != nil {
		return Answer{}, err
	}
	id := l.meta.Envelope.ID
	profile := m.Directory.Profile(l.recipient.ID)
	socket := m.hub.connected(l.recipient.ID) && (profile.WebhookURL == "" || !profile.WebhookFirst())
	webhook := profile.WebhookURL != "" && !socket
	var outcome <-chan string
	if socket || webhook || l.remote != "" {
		var forget func()
		outcome, forget = m.hub.expect(id)
		defer forget()
	}
	var at time.Time
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		at = tx.Now()
		if err := l.store(tx, body); err != nil {
			return err
		}
		switch {
		case l.remote != "":
			return m.export(tx, l)
		case webhook:
			return m.call(tx, l.recipient, id, l.meta.Envelope.ThreadID)
		}
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{ID: id, Status: Queued, Method: ByRelay, QueuedAt: amp.Stamp(at), Warnings: l.warned()}
	method := ""
	switch {
	case socket:
		method = await(ctx, outcome, socketWait)
	case webhook, l.remote != "":
		m.core.Outbox.Wake()
		answer.Method, answer.RemoteHost = l.way()
		method = await(ctx, outcome, m.WebhookWait)
	}
	switch method {
	case "":
	case Failed:
		answer.Status = Failed
	default:
		answer.Status, answer.Method, answer.QueuedAt, answer.DeliveredAt = Delivered, method, "", amp.Stamp(m.core.Now())
	}
	return answer, nil
}

// way is how a message goes that is called out: to another host, to another provider, or to
// the recipient's webhook. What waits for a host waits in the relay's queue.
func (l *letter) way() (method, host string) {
	if host, mesh := l.remote.Host(); mesh {
		return ByRelay, host
	}
	if l.remote != "" {
		return ByFederation, ""
	}
	return ByWebhook, ""
}

// warned is what the sender should know of a message that is taken all the same.
func (l *letter) warned() []string {
	list := l.warnings
	for _, f := range l.flags {
		list = append(list, "injection_"+f)
	}
	return list
}

// call queues the call of a webhook. It holds the message's id and not the message, which
// is read when it is sent.
func (m *Mail) call(tx *ledger.Tx, recipient roster.Identity, id, thread string) error {
	_, err := deliver.Queue(tx, deliver.Delivery{
		Workspace: recipient.Workspace, Sender: sender, Target: recipient.Address, Payload: []byte(id),
		OrderKey: recipient.ID,
		Receiver: recipient.ID, GiveUpAfter: 10 * time.Minute, Trace: trace(thread),
	})
	return err
}
