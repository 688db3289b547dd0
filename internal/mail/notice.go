package mail

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Notice is a message that the server itself writes to an agent, such as a task that was
// dispatched to it. It is unsigned, so recipients see it as untrusted.
type Notice struct {
	// From is the name in the sender's address. It begins with "_", which no agent's name may,
	// so that nobody can register it.
	From    string
	To      roster.Agent
	Subject string
	Kind    string // payload.type
	Text    string // payload.message
	Context any    // payload.context, nil for none
	// Key identifies the notice: however often it is sent, it is delivered once.
	Key string
}

// Notify puts a notice into the queue of its recipient. It does not ask the policy, since the
// caller has. A suspended recipient and one whose queue is full get no notice, which is no
// error; an error means that nothing was stored and that the caller should try again.
func (m *Mail) Notify(ctx context.Context, n Notice) error {
	if n.To.Suspended {
		return nil
	}
	if err := m.queueSizes.Room(ctx, m.core.DB, m.QueueCap, n.To.ID, "", m.core.Now()); fault.Is(err, fault.RateLimited) {
		m.core.Log.Warn("notice not sent: the agent's queue is full", "agent", n.To.Address, "subject", n.Subject)
		return nil
	} else if err != nil {
		return err
	}
	l, err := m.compose(n)
	if err != nil {
		return err
	}
	body, err := l.encode(l.decision.Record)
	if err != nil {
		return err
	}
	webhook := m.Directory.Profile(n.To.ID).WebhookURL != ""
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		// The check is in the transaction that appends: two followers at once cannot both send it.
		var one int
		err := tx.QueryRow("SELECT 1 FROM mail_message WHERE sender = '' AND idem = $1 AND idem <> ''", []any{l.Idem}, &one)
		if !errors.Is(err, sql.ErrNoRows) {
			return err // nil if the notice was sent before
		}
		l.append(tx, body)
		if webhook {
			_, err := deliver.Queue(tx, webhookCall(l.recipient, l.meta.Envelope.ID, l.meta.Envelope.ThreadID))
			return err
		}
		return nil
	})
	if webhook {
		m.core.Outbox.Wake()
	}
	return err
}

// compose makes a letter of a notice, cut to the limits of a message: subject and text are
// shortened, and a context that is too large is left out.
func (m *Mail) compose(n Notice) (*letter, error) {
	o := &amp.Draft{
		Subject: amp.FirstLine(n.Subject, amp.MaxSubject-1), Priority: "normal", Kind: n.Kind, Text: n.Text,
		Idem: n.Key,
	}
	// Cut at a character, with a mark that something is missing.
	if len(o.Text) > amp.MaxText {
		o.Text = strings.ToValidUTF8(o.Text[:amp.MaxText-len("…")], "") + "…"
	}
	payload := struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Context any    `json:"context,omitempty"`
	}{o.Kind, o.Text, n.Context}
	var err error
	if o.Payload, err = wire.Marshal(payload); err != nil {
		return nil, err
	}
	if len(o.Payload) > amp.MaxPayload {
		payload.Context = nil
		if o.Payload, err = wire.Marshal(payload); err != nil {
			return nil, err
		}
	}
	to := roster.Identity{
		Kind: roster.HolderAgent, ID: n.To.ID, Name: n.To.Name, Workspace: n.To.Workspace,
		Address: n.To.Address,
	}
	l := &letter{Draft: o, recipient: to, workspace: to.Workspace, trust: Untrusted}
	if l.to, err = m.Domains.Parse(n.To.Address); err != nil {
		return nil, err
	}
	// An address in the recipient's tenant, with a name that nobody can register.
	l.from = l.to
	l.from.Name, l.from.Scope = n.From, ""
	l.sender = roster.Identity{Address: l.from.String()} // no ID: no agent sent it
	l.meta.Envelope.From, l.meta.Envelope.To = l.from.String(), l.to.String()
	l.scan()
	m.complete(l)
	return l, nil
}
