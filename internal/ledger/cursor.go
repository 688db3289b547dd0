package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"time"

	"signalbox/internal/store"
)

const (
	// leaseTime is how long a consumer holds its cursor without renewing it. After a crash
	// another process takes over that much later.
	leaseTime = 30 * time.Second
	// handleTime bounds one call of a consumer's function. It is less than what is left of a
	// lease when it is renewed (half), so that a holder that is late has been told to stop
	// before another begins.
	handleTime = leaseTime / 3
	// saveEvery is how often a cursor is stored that has only passed over unwanted entries.
	// Each time is a durable transaction, which delays the writes that callers wait for.
	saveEvery = time.Second
	// holdTime is the lease of Hold. It is shorter, since what runs under it is harmless if
	// two do it for a moment.
	holdTime = 5 * time.Second
)

// Consume calls fn with the entries after the named cursor whose kind is wanted, in order,
// and moves the cursor on after each call that returns nil. The cursor outlives restarts.
// One process at a time holds it: if that one stops, another takes over at once, and if it
// dies, within half a minute. After a crash the last call may be repeated, so fn must be
// idempotent. If fn fails it is called again with the same entries after a pause.
func (l *Ledger) Consume(ctx context.Context, name string, wanted func(kind string) bool,
	fn func(ctx context.Context, entries []Entry) error,
) error {
	return l.ConsumeTogether(ctx, name, wanted, func(ctx context.Context, entries []Entry, _ func(*store.Tx) error) error {
		return fn(ctx, entries)
	})
}

// ConsumeTogether is Consume for what keeps an index in the database: fn may move the cursor on in the transaction
// that has its own writes, which spares a second one, and makes it do every entry once, also after a crash. If fn
// returns nil and has not moved it, it is moved as Consume does.
func (l *Ledger) ConsumeTogether(ctx context.Context, name string, wanted func(kind string) bool,
	fn func(ctx context.Context, entries []Entry, move func(tx *store.Tx) error) error,
) error {
	c := &cursor{l: l, name: name, holder: rand.Text(), lease: leaseTime}
	defer c.release(ctx)
	for ctx.Err() == nil {
		news := l.News()
		if held, err := c.renew(ctx); err != nil || !held {
			Pause(ctx, nil, pollEvery)
			continue
		}
		entries, err := l.Next(ctx, c.seq)
		if err == nil && len(entries) > 0 {
			err = c.handle(ctx, entries, wanted, fn)
		}
		switch {
		case err != nil:
			c.until = time.Time{} // claim anew, from where the cursor is
			if ctx.Err() == nil {
				l.log.Warn("ledger consumer failed; retrying", "cursor", name, "error", err.Error())
			}
			Pause(ctx, nil, pollEvery)
		case len(entries) < Page:
			Pause(ctx, news, l.poll)
		}
	}
	return nil
}

// Hold runs fn while this process holds the named lease, and waits for the lease
// while another does. fn's context ends when the lease is lost, and when ctx does.
// When fn fails it is called again after a pause. Since a process that is frozen
// does not notice that it lost the lease, what fn does must be harmless when two do
// it; the lease keeps it from being done in vain.
func (l *Ledger) Hold(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	c := &cursor{l: l, name: name, holder: rand.Text(), lease: holdTime}
	defer c.release(ctx)
	for ctx.Err() == nil {
		if held, err := c.renew(ctx); err != nil || !held {
			Pause(ctx, nil, pollEvery)
			continue
		}
		if err := c.while(ctx, fn); err != nil && ctx.Err() == nil {
			l.log.Warn("work under a lease failed; retrying", "lease", name, "error", err.Error())
			Pause(ctx, nil, pollEvery)
		}
	}
	return nil
}

// cursor is a row of ledger_cursor that this process holds, or wants to hold. holder is a
// random name for each use, so that two consumers of one process exclude each other too. It
// belongs to one goroutine.
type cursor struct {
	l            *Ledger
	name, holder string
	lease        time.Duration
	seq          int64     // where the cursor is, while it is held
	saved        time.Time // when that was stored
	until        time.Time // when the lease ends
}

// while runs fn and renews the lease until fn returns or the lease is lost. It returns only
// after fn has, also when the lease is lost: two runs of fn in this process never overlap.
func (c *cursor) while(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(c.lease / 4):
			if held, err := c.renew(ctx); err == nil && !held {
				cancel()
			}
		}
	}
}

// renew claims the lease, or claims it again once half of it is over. Most calls return
// without touching the database.
func (c *cursor) renew(ctx context.Context) (held bool, err error) {
	if c.l.now().Before(c.until.Add(-c.lease / 2)) {
		return true, nil
	}
	now := c.l.now()
	seq, held, err := c.claim(ctx, now)
	if held {
		c.seq, c.until = max(c.seq, seq), now.Add(c.lease) // what was passed over need not be stored
	}
	return held, err
}

// handle passes a page to fn and moves the cursor behind it. fn sees the wanted entries only;
// the cursor passes over the others, and is then stored at most once a second.
func (c *cursor) handle(ctx context.Context, entries []Entry, wanted func(string) bool,
	fn func(context.Context, []Entry, func(*store.Tx) error) error,
) error {
	last := entries[len(entries)-1].Seq
	var due []Entry
	for i := range entries {
		if wanted(entries[i].Kind) {
			due = append(due, entries[i])
		}
	}
	if len(due) == 0 {
		if c.seq = last; time.Since(c.saved) < saveEvery {
			return nil
		}
		return c.move(ctx, last)
	}
	bounded, cancel := context.WithTimeout(ctx, handleTime)
	defer cancel()
	moved := false
	err := fn(bounded, due, func(tx *store.Tx) error {
		_, err := c.set(tx, moveCursor, last)
		moved = err == nil
		return ifLost(err)
	})
	if err != nil {
		return err
	}
	if moved {
		c.seq, c.saved = last, time.Now()
		return nil
	}
	// What is done is recorded even when the server is stopping.
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return c.move(saving, last)
}

const moveCursor = "UPDATE ledger_cursor SET seq = $3 WHERE name = $1 AND holder = $2 RETURNING seq"

// move stores how far the holder has come.
func (c *cursor) move(ctx context.Context, seq int64) error {
	if _, err := c.update(ctx, moveCursor, seq); err != nil {
		return ifLost(err)
	}
	c.seq, c.saved = seq, time.Now()
	return nil
}

// ifLost is the error of moving a cursor, in words if no row of this holder was there to be moved.
func ifLost(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New("another process has taken the cursor over")
	}
	return err
}

// claim takes or renews the lease in one statement, and reports the position of the cursor.
// It is not held if another process holds it and its lease has not run out. A stop does not cut the
// statement off: on PostgreSQL it could still commit after the release, and hold the lease for nobody.
func (c *cursor) claim(ctx context.Context, now time.Time) (seq int64, held bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	seq, err = c.update(ctx, `INSERT INTO ledger_cursor (name, holder, seq, held_until) VALUES ($1, $2, 0, $3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
WHERE ledger_cursor.holder = excluded.holder OR ledger_cursor.held_until < $4 RETURNING seq`,
		now.Add(c.lease).UnixMicro(), now.UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return seq, err == nil, err
}

// release gives the lease back, with the position that this process has come to, so that
// another goes on at once. It works while the server stops, when ctx has already ended.
func (c *cursor) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// Not released, the lease runs out by itself.
	_, _ = c.update(ctx, "UPDATE ledger_cursor SET held_until = 0, seq = CASE WHEN seq < $3 THEN $3 ELSE seq END WHERE "+
		"name = $1 AND holder = $2 RETURNING seq", c.seq)
}

// update runs one statement on the cursor's row. Cursors are positions in the
// ledger, not state that follows from it, so they are not recorded in it.
func (c *cursor) update(ctx context.Context, query string, args ...any) (seq int64, err error) {
	err = c.l.db.Bookkeep(ctx, CursorLock, func(tx *store.Tx) (err error) {
		seq, err = c.set(tx, query, args...)
		return err
	})
	return seq, err
}

// CursorLock is the lock of transactions that move cursors, which no sender of entries takes.
const CursorLock = "ledger_tree"

// set is update in a transaction.
func (c *cursor) set(tx *store.Tx, query string, args ...any) (seq int64, err error) {
	err = tx.QueryRow(query, append([]any{c.name, c.holder}, args...), &seq)
	return seq, err
}

// BeginAt lets a cursor that was never used begin after seq, so that Consume passes over
// what was there before. One that is in use stays where it is.
func (l *Ledger) BeginAt(ctx context.Context, name string, seq int64) error {
	c := &cursor{l: l, name: name}
	_, err := c.update(ctx,
		"INSERT INTO ledger_cursor (name, holder, seq, held_until) VALUES ($1, $2, $3, 0) "+
			"ON CONFLICT (name) DO NOTHING RETURNING seq", seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// Cursor reads where a named cursor stands, 0 for one that was never used.
func (l *Ledger) Cursor(ctx context.Context, name string) (int64, error) {
	var seq int64
	err := l.db.Read.QueryRowContext(ctx, "SELECT seq FROM ledger_cursor WHERE name = $1", name).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return seq, store.Explain(err)
}
