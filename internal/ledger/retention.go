package ledger

import (
	"context"
	"crypto/rand"
	"time"

	"signalbox/internal/store"
)

const (
	// eraseStep is how many entries one write looks at.
	eraseStep = 5000
	// eraseEvery is how often retention looks.
	eraseEvery = 10 * time.Minute
	// eraseCursor is where retention has come to.
	eraseCursor = "retention"
	// bodyErased is the kind that records it.
	bodyErased = "body.erased"
)

// retentionLoop erases bodies that are older than the ledger keeps them. One node
// at a time does it, under the lease of the cursor. Without a retention it returns at once.
func (l *Ledger) retentionLoop(ctx context.Context) {
	for l.retention > 0 && ctx.Err() == nil {
		if n, err := l.Erase(ctx, l.now().Add(-l.retention)); err != nil && ctx.Err() == nil {
			l.log.Warn("cannot erase old bodies; retrying", "error", err.Error())
		} else if n > 0 {
			l.log.Info("erased the bodies of old entries", "count", n)
		}
		Pause(ctx, nil, eraseEvery)
	}
}

// Erase removes the bodies of entries made before t, with their salts. Records and
// proofs stay (LED-13). Bodies that the state is built from are left (LED-14). It returns
// how many it erased, which is none if another node is doing it.
func (l *Ledger) Erase(ctx context.Context, t time.Time) (erased int64, err error) {
	upTo, err := l.SeqBefore(ctx, t)
	if err != nil {
		return 0, err
	}
	c := &cursor{l: l, name: eraseCursor, holder: rand.Text(), lease: leaseTime}
	defer c.release(ctx)
	if held, err := c.renew(ctx); err != nil || !held {
		return 0, err
	}
	for c.seq < upTo {
		to := min(c.seq+eraseStep, upTo)
		n, err := l.eraseStep(ctx, c.seq, to)
		if err != nil {
			return erased, err
		}
		if err := c.move(ctx, to); err != nil {
			return erased, err
		}
		erased += n
	}
	return erased, nil
}

// eraseStep erases the bodies between two numbers and records that in the same transaction.
// It counts first: a step without anything to erase leaves no entry behind. Erasing is the
// only thing for which a write function changes a table by itself: the bodies are the
// ledger's own, and no projection may touch them.
func (l *Ledger) eraseStep(ctx context.Context, from, to int64) (n int64, err error) {
	var where store.Where
	where.And("seq > %s AND seq <= %s AND salt IS NOT NULL", from, to)
	where.And("kind NOT IN (" + where.List(l.projections.kept) + ")")
	err = l.Write(ctx, func(tx *Tx) error {
		n = 0
		if err := tx.QueryRow("SELECT count(*) FROM ledger_entry WHERE "+where.String(), where.Args(), &n); err != nil ||
			n == 0 {
			return err
		}
		tx.st.Exec("UPDATE ledger_entry SET salt = NULL, body = NULL WHERE "+where.String(), where.Args()...)
		tx.Append(Event{Kind: bodyErased, Actor: "system", Body: map[string]int64{"after": from, "to": to, "count": n}})
		return nil
	})
	return n, err
}

// Erase removes the bodies of these entries, with their salts. Records and proofs stay.
// It is for packages whose apply functions can do without those bodies from then on,
// and that have another rule than the ledger's own for how long they are kept.
func (tx *Tx) Erase(seqs ...int64) {
	for _, seq := range seqs {
		tx.st.Exec("UPDATE ledger_entry SET salt = NULL, body = NULL WHERE seq = $1", seq)
	}
	tx.Append(Event{Kind: bodyErased, Actor: "system", Body: map[string][]int64{"entries": seqs}})
}
