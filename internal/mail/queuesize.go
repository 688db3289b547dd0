package mail

import (
	"context"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// queueSizes is a cache of the sizes of queues, so that not every message has to count one. A cached
// size is never smaller than what this node knows: acknowledgements are not subtracted, and a
// queue that seems full is counted again.
type queueSizes struct {
	mu      sync.Mutex
	byAgent map[string]queueSize
}

// queueSize is one cached size and when it was counted.
type queueSize struct {
	taken   int64
	counted time.Time
}

const (
	// countAgain is how old a size may be: other nodes fill the same queues.
	countAgain    = time.Second
	maxQueueSizes = 100_000 // then the cache is emptied, which only costs counts
)

// take counts one more message in a queue; false if the queue has to be counted first.
func (r *queueSizes) take(agent string, most int64, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.byAgent[agent]
	if !ok || known.taken >= most || now.Sub(known.counted) > countAgain || now.Before(known.counted) {
		return false
	}
	known.taken++
	r.byAgent[agent] = known
	return true
}

// set stores a size that was counted.
func (r *queueSizes) set(agent string, taken int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAgent == nil || len(r.byAgent) >= maxQueueSizes {
		r.byAgent = map[string]queueSize{}
	}
	r.byAgent[agent] = queueSize{taken, now}
}

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
	if m.queueSizes.take(agent, m.QueueCap, now) {
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
	m.queueSizes.set(agent, n+1, now)
	return nil
}
