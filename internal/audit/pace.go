package audit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/ledger"
)

// pace keeps what the audit takes of a processor below a share. Workers tell it what they have used, and rest for as
// long as the share demands.
type pace struct {
	share float64
	// beside is by how much more the process takes than the threads that are measured: for collecting garbage, and for
	// what the driver does in goroutines of its own.
	beside float64
	first  atomic.Bool // the fast round is under way, and the whole one waits

	mu    sync.Mutex
	owed  time.Duration // processor time that was used and not yet rested for; less than nothing is in hand
	at    time.Time
	taken time.Duration
}

// inHand is how much processor time may be saved up: a longer step than this is followed by a rest.
const inHand = 20 * time.Millisecond

// use adds processor time that was used, and returns how long to rest for it.
func (p *pace) use(used time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.owed = max(p.owed-time.Duration(p.share*float64(now.Sub(p.at))), -inHand) + used
	p.at = now
	p.taken += used
	if p.owed <= 0 {
		return 0
	}
	return time.Duration(float64(p.owed) / p.share)
}

// used is the processor time of all workers so far.
func (p *pace) used() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// worker is one of the two rounds. It belongs to a goroutine that has a thread to itself.
type worker struct {
	p    *pace
	fast bool
	mark time.Duration // the thread's processor time when it was added up last
	used time.Duration // in this round
}

func (p *pace) worker(fast bool) *worker { return &worker{p: p, fast: fast, mark: threadTime()} }

// What BenchmarkAudit has found for either database, rounded up.
const (
	besideSQLite   = 1.25
	besidePostgres = 1.8
)

// rest adds up what was used since the last rest, and waits. It returns the error of ctx when that ends.
func (w *worker) rest(ctx context.Context) error {
	now := threadTime()
	used := time.Duration(w.p.beside * float64(now-w.mark))
	w.used += used
	pause := w.p.use(used)
	w.mark = now
	for {
		ledger.Pause(ctx, nil, pause)
		if ctx.Err() != nil || w.fast || !w.p.first.Load() {
			w.mark = threadTime()
			return ctx.Err()
		}
		pause = max(pause, 10*time.Millisecond)
	}
}
