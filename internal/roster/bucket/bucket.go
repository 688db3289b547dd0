// Package bucket keeps the token buckets by which calls are limited, in the memory of one node and within bounds. It
// must not know whose they are.
package bucket

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Name includes the limit: a limit that is changed starts with a full bucket, and calls
// for which a protocol has different limits are counted separately.
type Name struct {
	Holder, What string
	Limit        int
}

// Buckets are token buckets that refill within a minute, or an hour. One that was not used for
// that long is full, like a new one, and can be dropped. Two generations do that without a
// timer: at each turn the old one is dropped, and what is used moves to the young one.
type Buckets struct {
	Hours      bool // the limits are for an hour
	mu         sync.Mutex
	turned     time.Time
	young, old map[Name]*rate.Limiter // used since the turn, and before
}

// span is how long an empty bucket takes to fill up.
func (b *Buckets) span() time.Duration {
	if b.Hours {
		return time.Hour
	}
	return time.Minute
}

// Unit is the span as people say it.
func (b *Buckets) Unit() string {
	if b.Hours {
		return "an hour"
	}
	return "a minute"
}

// Find is the bucket of a name, full if it is new. A limiter that is returned may be used
// without the lock.
func (b *Buckets) Find(name Name, now time.Time) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.young == nil || now.Sub(b.turned).Abs() >= b.span() { // also when the clock was set back
		b.turned, b.old, b.young = now, b.young, map[Name]*rate.Limiter{}
	}
	found := b.young[name]
	if found == nil {
		if found = b.old[name]; found == nil {
			found = rate.NewLimiter(rate.Limit(float64(name.Limit)/b.span().Seconds()), name.Limit)
		}
		b.young[name] = found
	}
	return found
}
