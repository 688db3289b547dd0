package mail

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/injection"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Notice is mail that the server itself writes, for another part of it that has something
// for an agent.
type Notice struct {
	// From is the first part of the address that it comes from. It begins with "_", which
	// the name of no agent does, so that nobody can take it.
	From    string
	To      roster.Agent
	Subject string
	Kind    string // payload.type
	Text    string // payload.message
	Context any    // payload.context, nil for none
	// Key is the same whenever the same notice is sent: it is delivered once.
	Key string
}

// Notify puts a notice into the queue of its recipient. It asks no policy: whoever has it
// sent has. A recipient whose queue is full, or who may not read, gets none, which is no
// error; an error means that nothing was stored.
func (m *Mail) Notify(ctx context.Context, n Notice) error {
	if n.To.Suspended {
		return nil
	}
	if err := m.checkRoom(ctx, n.To.ID); fault.Is(err, fault.RateLimited) {
		m.core.Log.Warn("an agent's queue is full; it is not told by mail", "agent", n.To.Address, "subject", n.Subject)
		return nil
	} else if err != nil {
		return err
	}
	l, err := m.compose(n)
	if err != nil {
		return err
	}
	body, err := l.encode()
	if err != nil {
		return err
	}
	webhook := m.Directory.Profile(n.To.ID).WebhookURL != ""
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var one int
		err := tx.QueryRow("SELECT 1 FROM mail_message WHERE sender = '' AND idem = $1 AND idem <> ''", []any{l.idem}, &one)
		if !errors.Is(err, sql.ErrNoRows) {
			return err // nil: it was sent before
		}
		l.append(tx, body)
		if webhook {
			return m.call(tx, l.recipient, l.meta.Envelope.ID, l.meta.Envelope.ThreadID)
		}
		return nil
	})
	if webhook {
		m.core.Outbox.Wake()
	}
	return err
}

// compose makes a letter of a notice.
func (m *Mail) compose(n Notice) (*letter, error) {
	o := &outgoing{
		subject: firstLine(n.Subject, maxSubject-1), priority: "normal", kind: n.Kind, message: n.Text,
		idem: n.Key,
	}
	if len(o.message) > maxMessage {
		o.message = strings.ToValidUTF8(o.message[:maxMessage-len("…")], "") + "…"
	}
	payload := struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Context any    `json:"context,omitempty"`
	}{o.kind, o.message, n.Context}
	var err error
	if o.payload, err = wire.Marshal(payload); err != nil {
		return nil, err
	}
	if len(o.payload) > maxPayload {
		payload.Context = nil
		if o.payload, err = wire.Marshal(payload); err != nil {
			return nil, err
		}
	}
	to := roster.Identity{
		Kind: roster.HolderAgent, ID: n.To.ID, Name: n.To.Name, Workspace: n.To.Workspace,
		Address: n.To.Address,
	}
	l := &letter{outgoing: o, recipient: to, workspace: to.Workspace, trust: Untrusted}
	if l.to, err = m.Domains.Parse(n.To.Address); err != nil {
		return nil, err
	}
	l.from = l.to
	l.from.Name, l.from.Scope = n.From, ""
	l.sender = roster.Identity{Address: l.from.String()} // of no agent
	l.meta.Envelope.From, l.meta.Envelope.To = l.from.String(), l.to.String()
	l.flags = injection.Scan(o.subject, o.message)
	m.complete(l)
	return l, nil
}
