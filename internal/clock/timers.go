package clock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

const (
	// atOnce is how many due timers are fired together; they share commits.
	atOnce = 256
	// gap is the least time between two looks, however many entries arrive.
	gap = 20 * time.Millisecond
	// longestSleep bounds the wait for the next timer, so that a clock that was set
	// forward is noticed.
	longestSleep = time.Second
	// retryAfter is the pause before a handler that failed is called again.
	retryAfter = 5 * time.Second
)

// Handler does what is due, by appending to tx. It must check that it still has to be done:
// the subject may have changed since the timer was set. The timer is gone when it returns
// nil, unless what it appended has set it again.
type Handler func(tx *ledger.Tx, t Timer) error

// Timers fires due timers. failed is kept in memory: after a restart, or on another node, a
// timer whose handler failed is tried at once.
type Timers struct {
	db       *store.DB
	ledger   *ledger.Ledger
	now      func() time.Time
	log      *slog.Logger
	handlers map[string]Handler

	mu     sync.Mutex
	failed map[Timer]time.Time // timers whose handler failed, and when to try again
}

// New makes a runner with a handler for every kind of timer there is.
func New(db *store.DB, l *ledger.Ledger, now func() time.Time, log *slog.Logger, handlers map[string]Handler) *Timers {
	return &Timers{db: db, ledger: l, now: now, log: log, handlers: handlers, failed: map[Timer]time.Time{}}
}

// Run fires timers until ctx ends, while this node holds the lease.
func (t *Timers) Run(ctx context.Context) error {
	return t.ledger.Hold(ctx, "timers", t.fire)
}

// fire fires due timers until ctx ends. New entries may have set a timer that is
// due sooner than the one it sleeps for, so they wake it.
func (t *Timers) fire(ctx context.Context) error {
	for ctx.Err() == nil {
		news, looked := t.ledger.News(), time.Now()
		due, next, err := t.due(ctx)
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		for _, timer := range due {
			wg.Go(func() { t.fireOne(ctx, timer) })
		}
		wg.Wait()
		if len(due) == atOnce {
			continue
		}
		select {
		case <-news:
			ledger.Pause(ctx, nil, gap-time.Since(looked))
		case <-time.After(next):
		case <-ctx.Done():
		}
	}
	return nil
}

// due reads the timers that are due, and how long to sleep until the next one is.
func (t *Timers) due(ctx context.Context) (due []Timer, next time.Duration, err error) {
	now := t.now()
	waiting := t.waiting(now)
	rows, err := t.db.Read.QueryContext(ctx, "SELECT kind, subject, workspace, due_at FROM timer ORDER BY due_at LIMIT $1",
		atOnce+len(waiting)+1)
	if err != nil {
		return nil, 0, fmt.Errorf("look for due timers: %w", err)
	}
	defer func() { _ = rows.Close() }()
	next = longestSleep
	for rows.Next() && len(due) < atOnce {
		var timer Timer
		var at int64
		if err := rows.Scan(&timer.Kind, &timer.Subject, &timer.Workspace, &at); err != nil {
			return nil, 0, err
		}
		timer.Due = time.UnixMicro(at).UTC()
		if wait := timer.Due.Sub(now); wait > 0 {
			next = min(next, wait)
			break
		}
		if _, waits := waiting[timer]; !waits {
			due = append(due, timer)
		}
	}
	return due, next, rows.Err()
}

// settlingTime is how often Settle looks.
const settlingTime = 5 * time.Millisecond

// Settle waits until every timer that is due by now has fired, on whichever node does that.
func (t *Timers) Settle(ctx context.Context) error {
	moment := t.now().UnixMicro()
	for {
		var due int64
		if err := t.db.QueryRow(ctx, "SELECT count(*) FROM timer WHERE due_at <= $1", []any{moment}, &due); err != nil ||
			due == 0 {
			return err
		}
		Pause(ctx, settlingTime)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// waiting are the timers whose handler failed less than retryAfter ago. A time further ahead
// than that means that the clock was set back.
func (t *Timers) waiting(now time.Time) map[Timer]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.failed, func(_ Timer, again time.Time) bool {
		return !now.Before(again) || again.Sub(now) > retryAfter
	})
	return maps.Clone(t.failed)
}

// fireOne runs the handler if the timer is still there, and removes it. One that
// fails is tried again after a pause, and holds up no other.
func (t *Timers) fireOne(ctx context.Context, timer Timer) {
	err := t.ledger.Write(ctx, func(tx *ledger.Tx) error {
		var one int
		err := tx.QueryRow("SELECT 1 FROM timer WHERE kind = $1 AND subject = $2 AND due_at = $3",
			[]any{timer.Kind, timer.Subject, timer.Due.UnixMicro()}, &one)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // cleared, moved, or fired by another node
		}
		if err != nil {
			return err
		}
		handle, ok := t.handlers[timer.Kind]
		if !ok {
			return fmt.Errorf("there is no handler for timers of kind %s", timer.Kind)
		}
		if err := handle(tx, timer); err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: timer.Workspace, Kind: "timer.fired", Actor: "system", Subject: timer.Subject,
			Body: fired{timer.Kind, timer.Due.UnixMicro()},
		})
		return nil
	})
	if err == nil || ctx.Err() != nil {
		return
	}
	t.log.Warn("timer failed; retrying", "kind", timer.Kind, "subject", timer.Subject, "error", err.Error())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed[timer] = t.now().Add(retryAfter)
}
