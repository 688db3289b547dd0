package mail

import (
	"context"

	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/hub"
	"signalbox/internal/mail/sent"
)

// recipientOf is the id of the agent whose queue an entry puts a message into, "" for none. The
// ledger calls it for every entry and wakes the waiters of that agent, which read the queue.
func (m *Mail) recipientOf(e *ledger.Entry) string {
	if m.arrivals.Waiting() == 0 {
		return "" // spare the decoding
	}
	switch e.Kind {
	case kindRouted:
		if b, err := readRouted(e); err == nil && b.Meta.Quarantine == "" {
			return b.Meta.Recipient
		}
	case kindReleased:
		if b, err := ledger.Read[transition](e); err == nil {
			return b.Agent
		}
	}
	return ""
}

// reportMessage reports what happened to a message to the sender that waits for it, and sends
// receipts, and why a message does not arrive, to the sender's sockets. Every node does it for its own.
func (m *Mail) reportMessage(ctx context.Context, e *ledger.Entry) error {
	b, err := ledger.Read[transition](e)
	if err != nil {
		return err
	}
	switch e.Kind {
	// An acknowledgement by poll or socket is no delivery of ours that a sender would wait for.
	case kindAcked:
		if calledOut(b.Via) {
			m.hub.Report(e.Subject, hub.Outcome{Method: b.Via, Held: b.Held})
		}
	case kindFailed:
		m.hub.Report(e.Subject, hub.Outcome{Final: true, Reason: b.Note})
	// Receipts are for senders that asked for one with options.receipt; Sender is empty otherwise.
	case kindDelivered:
		if b.Sender != "" {
			m.hub.Send(b.Sender, frame("message.delivered",
				map[string]any{"id": e.Subject, "to": b.To, "delivered_at": amp.Stamp(e.At), "method": b.Via}))
		}
	case kindRead:
		m.hub.Send(b.Sender, frame("message.read", map[string]any{"id": e.Subject, "read_at": amp.Stamp(e.At)}))
	}
	if !m.hub.Sockets() {
		return nil
	}
	end, err := sent.EndingOf(ctx, &m.core, e)
	if err == nil && end.Sender != "" {
		m.hub.Send(end.Sender, frame("message.failed", end.Data)) // MSG-115
	}
	return err
}

// pushed is a message that was written to a socket for the first time, to be recorded.
type pushed struct {
	workspace, id, trace string
	body                 transition
}

// recordPushes records pushes as message.delivered, up to 256 in one write, until ctx ends. A
// crash loses the last records and no message: those are in the queue until acknowledged, and
// are pushed again (MSG-61).
func (m *Mail) recordPushes(ctx context.Context) {
	for {
		var batch []pushed
		select {
		case p := <-m.pushed:
			batch = append(batch, p)
		case <-ctx.Done():
			return
		}
		// This is the only reader of the channel, so a length above 0 means that a receive does not block.
		for len(batch) < 256 && len(m.pushed) > 0 {
			batch = append(batch, <-m.pushed)
		}
		err := m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			for _, p := range batch {
				tx.Append(ledger.Event{
					Workspace: p.workspace, Kind: kindDelivered, Actor: "system", Subject: p.id, Trace: p.trace,
					Body: p.body,
				})
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			m.core.Log.Warn("push records lost: write failed", "count", len(batch), "error", err.Error())
		}
	}
}
