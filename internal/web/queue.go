package web

import (
	"context"
	"sync"
	"time"

	"signalbox/internal/gate"
)

// queues remembers what waits, by workspace, until the ledger has a newer entry. Every page shows
// the number, and people open many pages between two entries.
type queues struct {
	mu    sync.Mutex
	known map[string]queue
}

// queue is the last count of one workspace, and how long counting took.
type queue struct {
	seq  int64
	at   time.Time
	took time.Duration
	all  []gate.Waiting
}

const (
	// slowCount is from when on counting is a burden, and the last count is good for a
	// moment even if there are newer entries.
	slowCount = 20 * time.Millisecond
	slowGood  = 2 * time.Second
)

// waiting is what waits, and the newest entry of the ledger. The lock is held while counting, so
// that pages that are loaded at the same time share one count.
func (q *queues) waiting(ctx context.Context, w *Web, workspace string) (all []gate.Waiting, seq int64, err error) {
	head, err := w.ledger.Head(ctx)
	if err != nil {
		return nil, 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock() // one counts, and the others have it from them
	known, ok := q.known[workspace]
	// With a million waiting gates a count takes long, and a number that is two seconds old is fine.
	if ok && (known.seq >= head || known.took > slowCount && time.Since(known.at) < slowGood) {
		return known.all, head, nil
	}
	began := time.Now()
	all, _, err = w.Gates.Waiting(ctx, gate.Filter{Workspace: workspace})
	if err == nil {
		q.known[workspace] = queue{head, time.Now(), time.Since(began), all}
	}
	return all, head, err
}
