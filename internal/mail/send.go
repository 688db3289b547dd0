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
	"signalbox/internal/mail/errand"
	"signalbox/internal/mail/hub"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// complete makes the envelope and the rest of Meta. MSG-27: id and timestamp are ours, but for a
// message that another server has already given them.
func (m *Mail) complete(l *letter) {
	now := m.core.Now()
	e := &l.meta.Envelope
	e.Version, e.ID, e.Subject, e.Priority = amp.Version, amp.NewID("msg", now), l.Subject, l.Priority
	e.Signature, e.InReplyTo = l.Signature, l.InReplyTo
	e.Timestamp = amp.Stamp(now)
	if l.imported != "" {
		e.ID, e.Timestamp = l.imported, amp.Stamp(l.at)
	}
	// MSG-29: neither the hint nor in_reply_to led to a thread.
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
		meta.Sender, meta.At = "", now.UnixMicro() // "remote:…" is no agent of the roster
	}
	meta.Recipient, meta.RecipientWorkspace = l.recipient.ID, l.recipient.Workspace
	meta.RecipientAddress = l.recipient.Address
	meta.Kind, meta.Trust, meta.Flags, meta.Alias = l.Kind, l.trust, l.flags, l.ClientID
	meta.Marks = l.marks
	meta.Receipt = l.Receipt
	if l.Idem != "" {
		meta.Idem, meta.Request = l.Idem, l.Request
	}
	// The queue's expiry, which may be earlier than the signed envelope's.
	meta.ExpiresAt, meta.PayloadSHA256 = expiry(now, l.ExpiresAt).UnixMicro(), hex.EncodeToString(sum[:])
}

// encode makes the body of message.routed. MSG-32: the payload is spliced in byte for byte; the
// value beside the text spares followers on this node the decoding.
func (l *letter) encode(record rulebook.Record) (ledger.Body, error) {
	b := &routed{Meta: l.meta, text: l.Text}
	if record.Then != "" { // a Notice is not decided upon
		record.Event = nil // readDecision makes it again from the message
		b.Decision = (*rulebook.Plain)(&record)
	}
	text, err := wire.Marshal(b)
	if err != nil {
		return ledger.Body{}, err
	}
	b.Payload = l.Payload
	return ledger.Body{Value: b, JSON: wire.Splice(text, wire.Member{Name: "payload", Value: l.Payload})}, nil
}

// trace is the trace of all entries about a thread, by which they are found without an index of
// their own.
func trace(thread string) string { return "thread:" + thread }

// append appends message.routed in a transaction.
func (l *letter) append(tx *ledger.Tx, body ledger.Body) {
	e := &l.meta.Envelope
	tx.Append(ledger.Event{
		Workspace: l.workspace, Kind: kindRouted, Actor: l.sender.Actor(), Subject: e.ID,
		Trace: trace(e.ThreadID), Body: body,
	})
}

// store claims the attachments of the message and appends it, in one transaction: of two
// messages that name the same attachment, the second fails. With *rulebook.StaleError it must not be stored.
func (l *letter) store(tx *ledger.Tx, body ledger.Body) error {
	body, err := l.decision.Body(tx, body, l.encode)
	if err != nil {
		return err
	}
	if err := l.meta.Once.Check(tx); err != nil {
		return err
	}
	if err := attachment.Claim(tx, l.meta.Attachments); err != nil {
		return err
	}
	l.append(tx, body)
	return nil
}

// send stores a message, and waits a moment for its delivery so that the answer can say how it
// went. The message is safe once it is stored: whatever fails or ends after that, it stays in
// the queue until it is acknowledged, and the answer is "queued".
//
// The order is fixed: everything that can refuse comes before this; the commit; then the wait, which is
// only for the answer. A context that ends during the wait does not undo the message.
func (m *Mail) send(ctx context.Context, l *letter) (Answer, error) {
	if !l.ExpiresAt.IsZero() && !l.ExpiresAt.After(m.core.Now()) {
		return Answer{}, fault.New(fault.InvalidField, "The field \"expires_at\" is %s, which is in the past.",
			amp.Stamp(l.ExpiresAt)).About("expires_at")
	}
	m.complete(l)
	body, err := l.encode(l.decision.Record)
	if err != nil {
		return Answer{}, err
	}
	id, work := l.meta.Envelope.ID, l.meta.errand(l.sender)
	profile := m.Directory.Profile(l.recipient.ID)
	// MSG-67: a socket or the webhook, not both. Only sockets of this node are known here; one of
	// another node gets the message too, and the answer to the sender says "queued".
	socket := m.hub.Connected(l.recipient.ID) && (profile.WebhookURL == "" || !profile.WebhookFirst())
	webhook := profile.WebhookURL != "" && !socket
	// Before the write: the delivery may be over before Write returns.
	var outcome *hub.Expectation
	if socket || webhook || l.remote != "" {
		outcome = m.hub.Expect(id)
		defer outcome.End()
	}
	// The time of the entry, which is the queue's time, not that of complete.
	var at time.Time
	var stalled bool
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		at = tx.Now()
		err := l.store(tx, body)
		if err == nil {
			err = errand.Take(ctx, &m.core, tx, work, l.decision.By(l.sender, ""))
		}
		switch {
		case err != nil:
			return err
		case l.remote != "":
			stalled, err = queueCall(tx, l.export(), outcome)
		case webhook:
			stalled, err = queueCall(tx, webhookCall(l.recipient, id, l.meta.Envelope.ThreadID), outcome)
		}
		return err
	})
	if work.Concerns() {
		m.core.Handoffs.Forget()
	}
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{ID: id, Status: Queued, Method: ByRelay, QueuedAt: amp.Stamp(at), Warnings: l.warningList()}
	var became hub.Outcome
	switch {
	case socket:
		became = outcome.Await(ctx, m.WebhookWait)
	case webhook, l.remote != "": // MSG-36: bounded, since clients give up after 15 s
		m.core.Outbox.Wake()
		answer.Method, answer.RemoteHost = l.pendingMethod()
		if stalled {
			became.Reason = "earlier messages wait for it too"
		} else {
			became = outcome.Await(ctx, m.WebhookWait)
		}
	}
	answer.Conclude(became, answer.Method == ByWebhook, amp.Stamp(m.core.Now()))
	return answer, nil
}

// queueCall queues the call that carries a message, and makes its sender wait for the result. stalled says that nobody
// makes the call soon, since the receiver failed before.
func queueCall(tx *ledger.Tx, call deliver.Delivery, sender *hub.Expectation) (stalled bool, err error) {
	if stalled, err = deliver.Stalled(tx, call); err != nil {
		return stalled, err
	}
	id, err := deliver.Queue(tx, call)
	sender.Also(id)
	return stalled, err
}

// pendingMethod is the method and the host in the answer about a message that the outbox carries. A
// message that waits for another host is "relay" until that host has it.
func (l *letter) pendingMethod() (method, host string) {
	if host, mesh := l.remote.Host(); mesh {
		return ByRelay, host
	}
	if l.remote != "" {
		return ByFederation, ""
	}
	return ByWebhook, ""
}

// warningList are the warnings in the answer about a message that was accepted all the same.
func (l *letter) warningList() []string {
	list := l.warnings
	for _, f := range l.flags {
		list = append(list, "injection_"+f)
	}
	return list
}

// webhookCall is the call to the recipient's webhook. The delivery holds the id and not the message:
// the sender reads the message when it calls, and does not call if it was fetched by then.
// OrderKey keeps the messages of one agent in order.
func webhookCall(recipient roster.Identity, id, thread string) deliver.Delivery {
	return deliver.Delivery{
		Workspace: recipient.Workspace, Sender: sender, Target: recipient.Address, Payload: []byte(id),
		OrderKey: recipient.ID,
		Receiver: recipient.ID, GiveUpAfter: 10 * time.Minute, Trace: trace(thread),
	}
}
