package mail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/errand"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
)

// quarantineTTL is how long a message waits for a decision before it is rejected (MSG-50). A rule
// of the policy that gates messages may set another time.
const quarantineTTL = 72 * time.Hour

// hold stores a message outside the queue and opens a gate for it, in one transaction. The
// gate's digest is that of the payload, so what is approved is what will be delivered.
func (m *Mail) hold(ctx context.Context, l *letter, rules gate.Rules, risk, rule, reason string) (Answer, error) {
	m.complete(l)
	id := l.meta.Envelope.ID
	l.meta.Quarantine, l.meta.Gate = amp.NewID("qtn", m.core.Now()), gate.NewID()
	body, err := l.encode(l.decision.Record)
	if err != nil {
		return Answer{}, err
	}
	// All that will be delivered is shown: it is the text that is in doubt.
	opening := gate.Opening{
		Project: "mail", Of: l.decision.Record.Behalf(), Agent: l.sender.ID, AgentName: l.sender.Name, Requester: l.sender.Actor(), Risk: risk,
		Origin: gate.Origin{Protocol: Name, Reference: id}, Rules: rules, Digest: l.meta.PayloadSHA256,
		Shown: gate.Shown{
			Title: amp.FirstLine("Message to "+l.to.String()+": "+l.Subject, 120), Summary: l.Text,
			ProposedAction: "Deliver the message to " + l.to.String(), Rule: rule, Reason: reason,
			Facts: append(gate.OnBehalf(&l.decision.Record, l.Named.User), []gate.Fact{
				{Name: "subject", Value: l.Subject},
				{Name: "from", Value: l.sender.Address},
				{Name: "trust", Value: string(l.trust)},
				{Name: "quarantine", Value: l.meta.Quarantine},
			}...),
		},
	}
	opening.Attach("payload", l.Payload)   // with context and attachments
	prepared, err := gate.Prepare(opening) // outside the transaction, which everybody else waits for
	if err != nil {
		return Answer{}, err
	}
	var at time.Time
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		at = tx.Now()
		if err := l.store(tx, body); err != nil {
			return err
		}
		prepared.Open(tx, l.meta.Gate, l.workspace, trace(l.meta.Envelope.ThreadID))
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	m.suspendIfCritical(ctx, l.sender)
	return Answer{
		ID: id, Status: Held, Method: ByRelay, QueuedAt: amp.Stamp(at), QuarantineID: l.meta.Quarantine,
		GateID: l.meta.Gate, Warnings: l.warningList(),
	}, nil
}

// applyDecision is the consequence of a decision about a held message, in the transaction that takes
// the decision: an approved message enters the queue, a rejected one ends. It does nothing for a
// message that has ended in the meantime, so it may run twice.
func (m *Mail) applyDecision(tx *ledger.Tx, g gate.Gate) error {
	var b transition
	var recipientWorkspace, address, thread, status string
	err := tx.QueryRow("SELECT seq, recipient, recipient_workspace, recipient_address, thread, status, expires_at FROM "+
		"mail_message WHERE id = $1", []any{g.Origin.Reference},
		&b.Seq, &b.Agent, &recipientWorkspace, &address, &thread, &status, &b.Until)
	if errors.Is(err, sql.ErrNoRows) || err == nil && status != Held {
		return nil
	}
	if err != nil {
		return err
	}
	// The recipient may have left while the message was held; then an approval comes too late.
	kind := kindRejected
	target, remote := federation.QueueTarget(b.Agent)
	if g.Status == gate.Approved && remote {
		kind = kindReleased
	} else if g.Status == gate.Approved {
		kind = kindReleased
		if _, err := m.core.Roster.AgentIn(tx, recipientWorkspace, b.Agent); fault.Is(err, fault.NotFound) {
			kind, b.Note = kindRejected, "the recipient is gone"
		} else if err != nil {
			return err
		}
	}
	if kind == kindRejected {
		b.Note = cmp.Or(b.Note, g.Note)
		b.Until = 0
	} else {
		// MSG-50: the decision may have used up the message's time; the recipient gets a day.
		b.Until = max(b.Until, tx.Now().Add(24*time.Hour).UnixMicro())
	}
	tx.Append(ledger.Event{
		Workspace: g.Workspace, Kind: kind, Actor: "system", Subject: g.Origin.Reference,
		Trace: g.Trace, Body: b,
	})
	if kind == kindReleased && !remote {
		if err := m.handOnReleased(tx, b.Seq); err != nil {
			return err
		}
	}
	// Released mail takes the same ways as sent mail: to another server, to a webhook, or to a poll.
	if remote && kind == kindReleased {
		l := &letter{workspace: g.Workspace, remote: target}
		l.meta.Envelope.ID, l.meta.Envelope.ThreadID = g.Origin.Reference, thread
		return m.queueExport(tx, l)
	}
	if profile := m.Directory.Profile(b.Agent); kind == kindReleased && profile.WebhookURL != "" {
		recipient := roster.Identity{ID: b.Agent, Workspace: recipientWorkspace, Address: address}
		return m.queueWebhook(tx, recipient, g.Origin.Reference, thread)
	}
	return nil
}

// handOnReleased hands on what a message asks for that was held until now.
func (m *Mail) handOnReleased(tx *ledger.Tx, seq int64) error {
	e, err := tx.Prover().At(seq)
	var b routed
	if err := cmp.Or(err, e.Decode(&b)); err != nil {
		return err
	}
	sender := roster.Identity{ID: b.Meta.Sender, Workspace: e.Workspace}
	return errand.Released(context.Background(), &m.core, tx, b.Meta.errand(sender), b.Decision)
}
