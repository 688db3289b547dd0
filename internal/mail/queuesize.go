package mail

import (
	"context"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
)

// checkRecipientLimits refuses a message that is too much for its recipient: of this sender, or for its queue. Limits are
// those of a sender with a recipient, so that nobody can close a mailbox to others.
func (m *Mail) checkRecipientLimits(ctx context.Context, l *letter) error {
	if l.remote == "" {
		// A foreign provider gets less, and counts as one: it may have any number of senders.
		from, limit := l.from.String(), messagesPerMinute
		if l.imported != "" && l.from.Provider != l.to.Provider {
			from, limit = l.from.Provider, perRecipient
		}
		pair := roster.Identity{ID: l.recipient.ID + " from " + from, Name: from, RateLimit: l.recipient.RateLimit}
		if _, err := m.core.Roster.Take(pair, "messages to "+l.recipient.Address, limit); err != nil {
			return fault.From(err).With("reason", "recipient_busy").About("to")
		}
	}
	return m.queueSizes.Room(ctx, m.core.DB, m.QueueCap, l.recipient.ID, l.sender.Address, m.core.Now())
}
