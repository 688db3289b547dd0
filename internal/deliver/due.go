package deliver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"signalbox/internal/store"
)

// dueLane is a lane that has something to do and that we may serve.
type dueLane struct {
	key      string
	failing  bool // its first delivery has failed before
	ours     bool
	servedAt int64
}

// leastServed is the order of fairness: who has waited longest for a turn is first.
const leastServed = " ORDER BY COALESCE(c.served_at, 0), l.due_at, l.order_key LIMIT $3"

// due is the part of a query that finds lanes with something to do, whoever holds
// them; a claim whose holder has no row is void. args makes its arguments: the time,
// us, the limit, and in some rounds the moment after which no pause can have begun.
func (r *runner) due(failing bool) (text string, args func(limit int) []any) {
	now := r.now()
	text = ` FROM delivery_lane l LEFT JOIN delivery_claim c ON c.order_key = l.order_key LEFT JOIN delivery_runner r ON r.holder = c.holder WHERE `
	if r.lookBack {
		text += "(l.due_at <= $1 OR l.since > $4)"
	} else {
		text += "l.due_at <= $1"
	}
	if failing {
		text += " AND l.tries > 0"
	} else {
		text += " AND l.tries = 0"
	}
	return text, func(limit int) []any {
		list := []any{now.UnixMicro(), r.who.holder, limit}
		if r.lookBack {
			list = append(list, now.Add(clockSlack).UnixMicro())
		}
		return list
	}
}

// dueLanes reads which lanes have something to do and are ours or nobody's, the least
// served first. Those that fail are read apart from the others, so that however many
// they are they do not fill the page.
func (r *runner) dueLanes(ctx context.Context) ([]dueLane, error) {
	var all []dueLane
	for _, failing := range []bool{false, true} {
		part, err := r.duePart(ctx, failing)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	slices.SortStableFunc(all, func(a, b dueLane) int { return cmp.Compare(a.servedAt, b.servedAt) })
	return all, nil
}

// duePart reads twice as many lanes as there are slots, since those that are being
// served are among them.
func (r *runner) duePart(ctx context.Context, failing bool) ([]dueLane, error) {
	due, args := r.due(failing)
	return store.All(r.db.Reading(ctx), func(scan store.Scan) (dueLane, error) {
		l := dueLane{failing: failing}
		err := scan(&l.key, &l.ours, &l.servedAt)
		return l, err
	}, "SELECT l.order_key, r.holder IS NOT NULL, COALESCE(c.served_at, 0)"+due+" AND (r.holder IS NULL OR r.holder = $2)"+
		leastServed, args(2*r.slots)...)
}

// lookBackEvery is how often pauses that began in the future are looked for without
// a reason. No index helps with it.
const lookBackEvery = 30 * time.Second

// checkClock decides whether this round looks for pauses that began in the future:
// when the clock was seen to go back, and now and then in case nobody was looking.
func (r *runner) checkClock() {
	now, watch := r.now(), r.stopwatch()
	// Round drops the reading of the stopwatch that a time carries with it.
	drift := now.Round(0).Sub(r.began.Round(0)) - watch
	r.lookBack = drift < r.drift-clockSlack/2 || r.lastBack == 0 || watch-r.lastBack > lookBackEvery
	r.drift = drift
	if r.lookBack {
		r.lastBack = watch
	}
}
