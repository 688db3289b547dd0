package deliver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"signalbox/internal/store"
)

// identity is the name under which a runner owns lanes. A runner that was taken for dead continues
// under a new one, so that nothing it does under the old one can touch lanes that others own now.
type identity struct {
	holder     string
	registered bool // it has a row in delivery_runner; only the loop uses it
	// mayHold is set before a commit that may give it a row, which may be there even if the commit
	// failed; only the loop uses it.
	mayHold bool
	ctx     context.Context //nolint:containedctx // ends with the identity: tries under it are broken off
	end     context.CancelFunc
	until   atomic.Int64 // by our stopwatch, in nanoseconds: nobody takes its lanes before
}

// newIdentity draws a name that nobody has.
func newIdentity(ctx context.Context) *identity {
	who := &identity{holder: rand.Text()}
	who.ctx, who.end = context.WithCancel(ctx)
	return who
}

// errTakenForDead means that another runner removed our row, and that others may own our lanes.
var errTakenForDead = errors.New("this runner was taken for dead, and others have its lanes")

// bookTime bounds one transaction of the bookkeeping.
const bookTime = 5 * time.Second

// booking is the context of a transaction of the bookkeeping. A stop does not cancel it: the
// database may carry out a commit whose answer nobody waits for, and a claim that we do not know
// of would be held until the lease is over.
func booking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), bookTime)
}

// exchange gives lanes back, counts up the beat, and claims other lanes, all in one transaction.
// fresh and failing are how many lanes of each sort to claim. It prolongs our lease from the
// moment before the transaction began, which is the earliest that others can have seen the beat.
func (r *runner) exchange(ctx context.Context, back []string, fresh, failing int) (claimed []dueLane, err error) {
	ctx, cancel := booking(ctx)
	defer cancel()
	begun := r.stopwatch()
	tx, err := r.db.Begin(ctx, "delivery_lock")
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	giveBack(tx, r.who.holder, r.now().UnixMicro(), back)
	if err := r.beat(tx); err != nil {
		return nil, err
	}
	for i, limit := range []int{fresh, failing} {
		if limit > 0 {
			part, err := r.claim(tx, i == 1, limit)
			if err != nil {
				return nil, err
			}
			claimed = append(claimed, part...)
		}
	}
	// Before the commit: if its answer is lost we may own lanes, and must give them back at the end.
	r.who.mayHold = true
	if _, err := tx.Commit(false); err != nil {
		return nil, err
	}
	r.who.registered = true
	r.who.until.Store(int64(begun + r.lease))
	return claimed, nil
}

// beat counts up our row. If it should exist and does not, a runner that took us for dead has
// removed it.
func (r *runner) beat(tx *store.Tx) error {
	if !r.who.registered {
		tx.Exec("INSERT INTO delivery_runner (holder, beat) VALUES ($1, 1) ON CONFLICT (holder) DO "+
			"UPDATE SET beat = delivery_runner.beat + 1", r.who.holder)
		return nil
	}
	var beat int64
	err := tx.QueryRow("UPDATE delivery_runner SET beat = beat + 1 WHERE holder = $1 RETURNING beat", []any{r.who.holder},
		&beat)
	if errors.Is(err, sql.ErrNoRows) {
		return errTakenForDead
	}
	return err
}

// claim takes due lanes that nobody owns, least recently served first. delivery_lock is held, so no
// two runners can claim the same lane.
func (r *runner) claim(tx *store.Tx, failing bool, limit int) ([]dueLane, error) {
	due, args := r.due(failing)
	return store.All(tx.Query, func(scan store.Scan) (dueLane, error) {
		l := dueLane{failing: failing, ours: true}
		return l, scan(&l.key)
	}, "INSERT INTO delivery_claim (order_key, holder, served_at) "+
		"SELECT l.order_key, CAST($2 AS text), CAST($1 AS bigint)"+due+" AND r.holder IS NULL"+leastServed+`
ON CONFLICT (order_key) DO UPDATE SET holder = excluded.holder, served_at = excluded.served_at RETURNING order_key`,
		args(limit)...)
}

// giveBack gives lanes back. The row of a claim stays, for when the lane was last served; it is
// removed if the lane is empty.
func giveBack(tx *store.Tx, holder string, now int64, keys []string) {
	for part := range chunks(keys) {
		args := append([]any{holder}, part...)
		tx.Exec("UPDATE delivery_claim SET holder = '', served_at = CAST("+store.Marks(len(args)+1, 1)+
			" AS bigint) WHERE holder = $1 AND order_key IN ("+store.Marks(2, len(part))+")", append(args, now)...)
		tx.Exec("DELETE FROM delivery_claim WHERE holder = '' AND order_key IN ("+store.Marks(1, len(part))+`)
AND NOT EXISTS (SELECT 1 FROM delivery_lane l WHERE l.order_key = delivery_claim.order_key)`, part...)
	}
}

// leave gives all lanes back and removes our row.
func (r *runner) leave(ctx context.Context) error {
	ctx, cancel := booking(ctx)
	defer cancel()
	err := r.forget(ctx, r.who.holder, "", nil)
	if err == nil {
		r.who.registered, r.who.mayHold = false, false
	}
	return err
}

// succeed frees the lanes of all runners that there were before, such as of this server before it was killed.
func (r *runner) succeed(ctx context.Context) error {
	ctx, cancel := booking(ctx)
	defer cancel()
	return r.db.Bookkeep(ctx, "delivery_lock", func(tx *store.Tx) error {
		tx.Exec("UPDATE delivery_claim SET holder = '' WHERE holder <> ''")
		tx.Exec("DELETE FROM delivery_runner")
		return nil
	})
}

// forget removes a runner and its claims, if the condition about its row holds.
func (r *runner) forget(ctx context.Context, holder, condition string, args []any) error {
	return r.db.Bookkeep(ctx, "delivery_lock", func(tx *store.Tx) error {
		return store.Each(tx.Query, func(store.Scan) error {
			tx.Exec("DELETE FROM delivery_claim WHERE holder = $1", holder)
			return nil
		}, "DELETE FROM delivery_runner WHERE holder = $1"+condition+" RETURNING holder", append([]any{holder}, args...)...)
	})
}

// sighting is a beat of another runner, and when we first saw it, by our stopwatch.
type sighting struct {
	beat int64
	at   time.Duration
}

// watch reads the beats of the other runners, and frees the lanes of those whose beat stood still
// for a lease while we were watching. Time is measured here, from our first sighting: clocks of
// other machines do not matter, and a beat that we could not read says nothing.
func (r *runner) watch(ctx context.Context) error {
	before := r.seen
	r.seen = map[string]sighting{} // after a failed look everybody's time starts again
	seen, now := map[string]sighting{}, r.stopwatch()
	err := store.Each(r.db.Reading(ctx), func(scan store.Scan) error {
		var holder string
		s := sighting{at: now}
		if err := scan(&holder, &s.beat); err != nil {
			return err
		}
		// The same beat as before: keep when it was first seen.
		if old, ok := before[holder]; ok && old.beat == s.beat {
			s = old
		}
		seen[holder] = s
		return nil
	}, "SELECT holder, beat FROM delivery_runner WHERE holder <> $1", r.who.holder)
	if err != nil {
		return err
	}
	r.seen = seen
	for holder, s := range seen {
		if now-s.at > r.lease {
			// The condition on the beat: it may have moved since we read it.
			r.log.Warn("another delivery runner died; its lanes are free", "runner", holder)
			if err := r.forget(ctx, holder, " AND beat = $2", []any{s.beat}); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunkSize is how many values one IN list has. It is fixed, and the last list is filled up, so that
// there is one statement to prepare.
const chunkSize = 64

// chunks yields the texts in lists of chunkSize arguments; the last text is repeated to fill the last
// list.
func chunks(all []string) func(yield func([]any) bool) {
	return func(yield func([]any) bool) {
		for start := 0; start < len(all); start += chunkSize {
			part := make([]any, chunkSize)
			for i := range part {
				part[i] = all[min(start+i, len(all)-1)]
			}
			if !yield(part) {
				return
			}
		}
	}
}
