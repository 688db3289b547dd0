package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"time"

	"github.com/signalbox/signalbox/internal/store"
)

const (
	leaseTime = 30 * time.Second
	// handleTime is less than the lease, so that a holder that is late has been
	// told to stop before another begins.
	handleTime = 20 * time.Second
)

// Consume hands the entries after the named cursor to fn, in order, and moves the
// cursor on after each call that returns nil. The cursor outlives restarts, and
// one process at a time holds it: when that one dies, another goes on within half
// a minute. After a crash the last call may come again, so fn is idempotent. When
// fn fails it is called again with the same entries after a pause.
func (l *Ledger) Consume(ctx context.Context, name string, fn func(ctx context.Context, entries []Entry) error) error {
	c := cursor{l: l, name: name, holder: rand.Text()}
	defer c.release(ctx)
	for ctx.Err() == nil {
		news := l.news()
		seq, held, err := c.claim(ctx)
		if err != nil || !held {
			pause(ctx, nil, pollEvery)
			continue
		}
		entries, err := l.after(ctx, seq)
		if err == nil && len(entries) > 0 {
			err = c.handle(ctx, entries, fn)
		}
		switch {
		case err != nil:
			if ctx.Err() == nil {
				l.log.Warn("a follower of the ledger failed; it will try again", "cursor", name, "error", err.Error())
			}
			pause(ctx, nil, pollEvery)
		case len(entries) < page:
			pause(ctx, news, pollEvery)
		}
	}
	return nil
}

type cursor struct {
	l            *Ledger
	name, holder string
}

func (c cursor) handle(ctx context.Context, entries []Entry, fn func(context.Context, []Entry) error) error {
	bounded, cancel := context.WithTimeout(ctx, handleTime)
	defer cancel()
	if err := fn(bounded, entries); err != nil {
		return err
	}
	// What is done is recorded even when the server is stopping.
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := c.update(saving, "UPDATE ledger_cursor SET seq = $3 WHERE name = $1 AND holder = $2 RETURNING seq", entries[len(entries)-1].Seq)
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New("another process has taken the cursor over")
	}
	return err
}

// claim takes or renews the lease.
func (c cursor) claim(ctx context.Context) (seq int64, held bool, err error) {
	now := c.l.now()
	seq, err = c.update(ctx, `INSERT INTO ledger_cursor (name, holder, seq, held_until) VALUES ($1, $2, 0, $3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
WHERE ledger_cursor.holder = excluded.holder OR ledger_cursor.held_until < $4 RETURNING seq`,
		now.Add(leaseTime).UnixMicro(), now.UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return seq, err == nil, err
}

func (c cursor) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// Not released, the lease runs out by itself.
	_, _ = c.update(ctx, "UPDATE ledger_cursor SET held_until = 0 WHERE name = $1 AND holder = $2 RETURNING seq")
}

// update runs one statement on the cursor's row. Cursors are positions in the
// ledger, not state that follows from it, so they are not recorded in it.
func (c cursor) update(ctx context.Context, query string, args ...any) (seq int64, err error) {
	tx, err := c.l.db.Begin(ctx, "ledger_tree")
	if err != nil {
		return 0, err
	}
	if err := tx.QueryRow(query, append([]any{c.name, c.holder}, args...), &seq); err != nil {
		tx.Rollback()
		return 0, err
	}
	_, err = tx.Commit(false)
	return seq, err
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

func pause(ctx context.Context, news <-chan struct{}, d time.Duration) {
	select {
	case <-news:
	case <-time.After(d):
	case <-ctx.Done():
	}
}
