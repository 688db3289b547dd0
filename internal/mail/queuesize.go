package mail

import (
	"context"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// checkRecipientLimits refuses a message that is too much for its recipient: for its rate, or for its queue.
func (m *Mail) checkRecipientLimits(ctx context.Context, l *letter) error {
	if l.remote == "" {
		limit := receivedPerMinute
		if l.imported != "" && l.from.Provider != l.to.Provider {
			limit = perRecipient
		}
		// A foreign provider gets less: it may have any number of senders.
		if _, err := m.core.Roster.Take(l.recipient, "received messages", limit); err != nil {
			return fault.From(err).With("reason", "recipient_busy").About("to")
		}
	}
	return m.checkQueueRoom(ctx, l.recipient.ID)
}

// checkQueueRoom refuses a message for a full queue (MSG-56). It counts outside the transaction:
// messages that are sent at the same moment may overfill the queue by as many as they are.
func (m *Mail) checkQueueRoom(ctx context.Context, agent string) error {
	now := m.core.Now()
	if m.queueSizes.Take(agent, m.QueueCap, now) {
		return nil
	}
	var n int64
	if err := m.core.DB.QueryRow(ctx, "SELECT count(*) FROM mail_queue WHERE agent = $1", []any{agent}, &n); err != nil {
		return err
	}
	if n >= m.QueueCap {
		return fault.New(fault.RateLimited,
			"The queue of the recipient is full, with %d messages. Try again when it has fetched some.", n).
			With("reason", "queue_full").With(wire.RetryAfter, 60)
	}
	m.queueSizes.Set(agent, n+1, now)
	return nil
}
