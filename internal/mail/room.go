package mail

import (
	"context"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// rooms remembers how full queues are, so that not every message has to count one. What
// it says is never less than what this node has seen: what was taken out since is not
// subtracted, and a queue that seems full is counted anew.
type rooms struct {
	mu      sync.Mutex
	byAgent map[string]room
}

type room struct {
	taken   int64
	counted time.Time
}

const (
	// countAgain is how soon what other nodes have sent is seen.
	countAgain = time.Second
	maxRooms   = 100_000
)

// take takes a place by what is remembered; false when that is not enough to say.
func (r *rooms) take(agent string, most int64, now time.Time) bool {
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

func (r *rooms) set(agent string, taken int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAgent == nil || len(r.byAgent) >= maxRooms {
		r.byAgent = map[string]room{}
	}
	r.byAgent[agent] = room{taken, now}
}

// admitTo refuses what comes too fast for its recipient, or would overfill its queue.
func (m *Mail) admitTo(ctx context.Context, l *letter) error {
	if l.remote == "" {
		limit := receivedPerMinute
		if l.imported != "" && l.from.Provider != l.to.Provider {
			limit = perRecipient
		}
		if _, err := m.core.Roster.Take(l.recipient, "received messages", limit); err != nil {
			return fault.From(err).With("reason", "recipient_busy").About("to")
		}
	}
	return m.checkRoom(ctx, l.recipient.ID)
}

// checkRoom refuses what would overfill a queue. Messages that are counted at the same
// moment do not see one another, and may overfill it by as many as they are.
func (m *Mail) checkRoom(ctx context.Context, agent string) error {
	now := m.core.Now()
	if m.rooms.take(agent, m.QueueCap, now) {
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
	m.rooms.set(agent, n+1, now)
	return nil
}
