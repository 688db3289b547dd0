package deliver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"signalbox/internal/store"
)

// dueLane is a lane with a delivery that is due, and that is ours or nobody's.
type dueLane struct {
	key      string
	failing  bool  // its first delivery has failed before
	ours     bool  // we own it already
	servedAt int64 // microseconds, 0 for never
}

// leastServed is the order of fairness: the lane that was served longest ago comes first.
const leastServed = " ORDER BY COALESCE(c.served_at, 0), l.due_at, l.order_key LIMIT $3"

// due is the part of a query that finds lanes with a delivery that is due, whoever owns them. A claim
// whose holder has no row is void. args makes the arguments: $1 the time, $2 our name, $3 the limit,
// and in some rounds $4, the time after which no pause can have begun.
func (r *runner) due(failing bool) (text string, args func(limit int) []any) {
	now := r.now()
	text = " FROM delivery_lane l LEFT JOIN delivery_claim c ON c.order_key = l.order_key" +
		" LEFT JOIN delivery_runner r ON r.holder = c.holder WHERE "
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

// dueLanes reads the due lanes that are ours or nobody's, least recently served first. Failing lanes
// are read apart from the others: however many there are, they do not fill the page.
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

// duePart reads failing lanes or the others: twice as many as there are slots, since lanes that are
// being served are among them.
func (r *runner) duePart(ctx context.Context, failing bool) ([]dueLane, error) {
	due, args := r.due(failing)
	return store.All(r.db.Reading(ctx), func(scan store.Scan) (dueLane, error) {
		l := dueLane{failing: failing}
		err := scan(&l.key, &l.ours, &l.servedAt)
		return l, err
	}, "SELECT l.order_key, r.holder IS NOT NULL, COALESCE(c.served_at, 0)"+due+" AND (r.holder IS NULL OR r.holder = $2)"+
		leastServed, args(2*r.slots)...)
}

// lookBackEvery is how often to look for pauses that began in the future, even if no step of the
// clock was seen. No index helps with it, so it is not done in every round.
const lookBackEvery = 30 * time.Second

// checkClock decides whether this round looks for pauses that began in the future: if the wall clock
// was seen to go back, and every lookBackEvery, since it may have gone back while no runner ran.
func (r *runner) checkClock() {
	now, watch := r.now(), r.stopwatch()
	// Round strips the monotonic reading, so that this is the difference of the wall clock.
	drift := now.Round(0).Sub(r.began.Round(0)) - watch
	r.lookBack = drift < r.drift-clockSlack/2 || r.lastBack == 0 || watch-r.lastBack > lookBackEvery
	r.drift = drift
	if r.lookBack {
		r.lastBack = watch
	}
}
