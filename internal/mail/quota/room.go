// Package quota decides whether a queue has room for a message, and remembers how full queues are. It reads the tables of
// queues and messages, and writes nothing.
package quota

import (
	"context"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// A sender may fill a quarter of a queue, and a queue that is full takes a hundredth of its size from each sender all
// the same (MSG-56). Both are at least one message.
const (
	shareOfQueue = 4
	sureOfQueue  = 100
)

// Room refuses a message of a sender for a full queue, which has room for most messages (MSG-56). It counts outside the
// transaction: messages that are sent at the same moment may overfill the queue by as many as they are. sender is "" for
// a notice of ours, which has the whole queue.
func (r *Sizes) Room(ctx context.Context, db *store.DB, most int64, agent, sender string, now time.Time) error {
	pair := func(sender string) string { return agent + " " + sender }
	whole, share := agent+" as a whole", max(most/shareOfQueue, 1)
	// No sender can have more than its share of a queue that has no more; else both are counted.
	if r.Take(agent, share, now) || r.Take(whole, most, now) && r.Take(pair(sender), share, now) {
		return nil
	}
	by, err := store.Map[string, int64](db.Reading(ctx), "SELECT m.sender_address, count(*) FROM mail_queue q "+
		"JOIN mail_message m ON m.seq = q.seq WHERE q.agent = $1 GROUP BY m.sender_address", agent)
	if err != nil {
		return err
	}
	var all int64
	for _, n := range by {
		all += n
	}
	own := by[sender]
	switch {
	case sender == "":
		own, share = all, most
	case all >= most:
		share = max(most/sureOfQueue, 1)
	}
	if own >= share {
		return fault.New(fault.RateLimited, "The queue of the recipient has %d messages, of which %d are of %s: it takes no "+
			"more of those. Try again when it has fetched some.", all, own, sender).
			With("reason", "queue_full").With(wire.RetryAfter, 60)
	}
	if all < max(most/shareOfQueue, 1) { // senders are not told apart yet
		r.Set(agent, all+1, now)
		return nil
	}
	// One count does for all who send to the queue now.
	for other, n := range by {
		r.Set(pair(other), n, now)
	}
	r.Set(whole, all+1, now)
	r.Set(pair(sender), own+1, now)
	return nil
}

// Waiting is how many messages wait in all queues of local agents.
func Waiting(ctx context.Context, db *store.DB) (n int64, err error) {
	err = db.QueryRow(ctx, "SELECT count(*) FROM mail_queue", nil, &n)
	return n, err
}
