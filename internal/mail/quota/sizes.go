package quota

import (
	"sync"
	"time"
)

// Sizes is a cache of the sizes of queues, so that not every message has to count one. A cached
// size is never smaller than what this node knows: acknowledgements are not subtracted, and a
// queue that seems full is counted again.
type Sizes struct {
	Alone bool // no other node fills the queues

	mu      sync.Mutex
	byAgent map[string]size
}

// size is one cached size and when it was counted.
type size struct {
	taken   int64
	counted time.Time
}

const (
	// countAgain is how old a size may be: other nodes fill the same queues, and people release what was held.
	countAgain    = time.Second
	aloneAgain    = time.Minute
	maxQueueSizes = 100_000 // then the cache is emptied, which only costs counts
)

// Take counts one more message in a queue; false if the queue has to be counted first.
func (r *Sizes) Take(agent string, most int64, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.byAgent[agent]
	again := countAgain
	if r.Alone {
		again = aloneAgain
	}
	if !ok || known.taken >= most || now.Sub(known.counted) > again || now.Before(known.counted) {
		return false
	}
	known.taken++
	r.byAgent[agent] = known
	return true
}

// Set stores a size that was counted.
func (r *Sizes) Set(agent string, taken int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAgent == nil || len(r.byAgent) >= maxQueueSizes {
		r.byAgent = map[string]size{}
	}
	r.byAgent[agent] = size{taken, now}
}
