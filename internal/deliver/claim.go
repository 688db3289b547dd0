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

// identity is the name under which a runner holds lanes. A runner that was taken for
// dead goes on under a new one.
type identity struct {
	holder     string
	registered bool            // has a row in delivery_runner; of the loop
	mayHold    bool            // was about to get one: it may be there although nobody told us; of the loop
	ctx        context.Context //nolint:containedctx // ends with the identity: tries under it are broken off
	end        context.CancelFunc
	until      atomic.Int64 // by our stopwatch: nobody takes its lanes before
}

func newIdentity(ctx context.Context) *identity {
	who := &identity{holder: rand.Text()}
	who.ctx, who.end = context.WithCancel(ctx)
	return who
}

// errTakenForDead says that others have our lanes.
var errTakenForDead = errors.New("this runner was taken for dead, and others have its lanes")

// bookTime bounds a transaction of the bookkeeping.
const bookTime = 5 * time.Second

// booking is the context of a transaction of the bookkeeping. A stop does not cut it: the
// database may carry out a commit whose answer nobody waits for, and a claim that we do
// not know of would be held until the lease is over.
func booking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), bookTime)
}

// exchange gives lanes back, shows that we are alive, and claims others, all in one
// transaction. The limits are for lanes whose last try was good and for those that
// are failing.
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
	r.who.mayHold = true
	if _, err := tx.Commit(false); err != nil {
		return nil, err
	}
	r.who.registered = true
	r.who.until.Store(int64(begun + r.lease))
	return claimed, nil
}

// beat counts up. A row that should be there and is not was removed by a runner that
// took us for dead.
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

// claim takes lanes that are nobody's, the least served first.
func (r *runner) claim(tx *store.Tx, failing bool, limit int) ([]dueLane, error) {
	due, args := r.due(failing)
	return store.All(tx.Query, func(scan store.Scan) (dueLane, error) {
		l := dueLane{failing: failing, ours: true}
		return l, scan(&l.key)
	}, `INSERT INTO delivery_claim (order_key, holder, served_at) SELECT l.order_key, CAST($2 AS text), CAST($1 AS bigint)`+
		due+" AND r.holder IS NULL"+leastServed+`
ON CONFLICT (order_key) DO UPDATE SET holder = excluded.holder, served_at = excluded.served_at RETURNING order_key`,
		args(limit)...)
}

// giveBack lets others have the lanes. What is left of a claim is when it was served,
// and nothing when the lane is empty.
func giveBack(tx *store.Tx, holder string, now int64, keys []string) {
	for part := range chunks(keys) {
		args := append([]any{holder}, part...)
		tx.Exec("UPDATE delivery_claim SET holder = '', served_at = CAST("+store.Marks(len(args)+1, 1)+
			" AS bigint) WHERE holder = $1 AND order_key IN ("+store.Marks(2, len(part))+")", append(args, now)...)
		tx.Exec("DELETE FROM delivery_claim WHERE holder = '' AND order_key IN ("+store.Marks(1, len(part))+`)
AND NOT EXISTS (SELECT 1 FROM delivery_lane l WHERE l.order_key = delivery_claim.order_key)`, part...)
	}
}

// leave gives everything back.
func (r *runner) leave(ctx context.Context) error {
	ctx, cancel := booking(ctx)
	defer cancel()
	err := r.forget(ctx, r.who.holder, "", nil)
	if err == nil {
		r.who.registered, r.who.mayHold = false, false
	}
	return err
}

// forget removes a runner and its claims, if the condition holds.
func (r *runner) forget(ctx context.Context, holder, condition string, args []any) error {
	return r.db.Bookkeep(ctx, "delivery_lock", func(tx *store.Tx) error {
		return store.Each(tx.Query, func(store.Scan) error {
			tx.Exec("DELETE FROM delivery_claim WHERE holder = $1", holder)
			return nil
		}, "DELETE FROM delivery_runner WHERE holder = $1"+condition+" RETURNING holder", append([]any{holder}, args...)...)
	})
}

// sighting is a beat of another runner, and when we first saw it.
type sighting struct {
	beat int64
	at   time.Duration
}

// watch looks whether the other runners are alive, and takes the lanes of those
// whose beat stood still for the time of a lease while we were looking.
func (r *runner) watch(ctx context.Context) error {
	before := r.seen
	r.seen = map[string]sighting{} // a look that fails says nothing about anybody
	seen, now := map[string]sighting{}, r.stopwatch()
	err := store.Each(r.db.Reading(ctx), func(scan store.Scan) error {
		var holder string
		s := sighting{at: now}
		if err := scan(&holder, &s.beat); err != nil {
			return err
		}
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
			r.log.Warn("another runner of deliveries has died; its lanes are free", "runner", holder)
			if err := r.forget(ctx, holder, " AND beat = $2", []any{s.beat}); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunkSize is fixed, and the last chunk filled up, so that there is one text of a
// statement to prepare.
const chunkSize = 64

// chunks yields the texts as arguments, repeating the last to fill a chunk.
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
