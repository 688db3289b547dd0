package web

import (
	"context"
	"sync"
	"time"

	"signalbox/internal/gate"
)

// queues remembers what waits, by workspace, for as long as the ledger has no newer entry:
// every page shows the number, and people open many pages between two entries.
type queues struct {
	mu    sync.Mutex
	known map[string]queue
}

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

// waiting is what waits, and the last entry that there was.
func (q *queues) waiting(ctx context.Context, w *Web, workspace string) (all []gate.Waiting, seq int64, err error) {
	head, err := w.ledger.Head(ctx)
	if err != nil {
		return nil, 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock() // one counts, and the others have it from them
	known, ok := q.known[workspace]
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
