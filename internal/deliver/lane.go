package deliver

import (
	"context"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

const (
	// pageSize is how many deliveries of a lane are read at once.
	pageSize = 32
	// restTime is how long a lane rests after a failure on our side, such as of the database.
	restTime = 5 * time.Second
)

// waiting is a pending delivery of a lane, without its payload. attempts counts all tries, tries
// those since it was queued or resent; times are microseconds.
type waiting struct {
	id       string
	sender   string
	entry    int64
	attempts int64
	tries    int64
	dueAt    int64
	since    int64
	giveUpAt int64
}

// serve sends the due deliveries of a lane, one after another, in a goroutine of its own. It stops at
// the first that fails, at one that is not due, at a stop, and after a quantum if other lanes wait
// for a slot.
func (r *runner) serve(l *lane) {
	// Read at the end: what counts is whether somebody waits now.
	defer func() { l.yield = r.scarce.Load() }()
	for sent := 0; ; {
		page, err := r.page(l.who.ctx, l.key)
		if err != nil {
			l.rest = r.stopwatch() + restTime
			return
		}
		for _, d := range page {
			if r.stopping.Err() != nil || !isDue(d.dueAt, d.since, r.now()) {
				return
			}
			if sent >= quantum && r.scarce.Load() {
				return
			}
			if !r.send(l, d) {
				return
			}
			sent++
		}
		if len(page) == 0 {
			return
		}
	}
}

// page reads the first pending deliveries of a lane. Nobody else tries them while we own it.
func (r *runner) page(ctx context.Context, key string) ([]waiting, error) {
	r.reading <- struct{}{}
	defer func() { <-r.reading }()
	return store.All(r.db.Reading(ctx), func(scan store.Scan) (d waiting, err error) {
		err = scan(&d.id, &d.sender, &d.entry, &d.attempts, &d.tries, &d.dueAt, &d.since, &d.giveUpAt)
		return d, err
	}, `SELECT id, sender, entry, attempts, tries, due_at, since, give_up_at FROM delivery
WHERE order_key = $1 AND status = 'pending' ORDER BY place LIMIT $2`, key, pageSize)
}

// entry reads the entry of a delivery, which has its payload.
func (r *runner) entry(ctx context.Context, seq int64) (ledger.Entry, error) {
	r.reading <- struct{}{}
	defer func() { <-r.reading }()
	return r.ledger.Entry(ctx, seq)
}

// send makes one try and waits until its outcome is recorded. It reports whether the lane goes on to
// the next delivery: not after a failure, since order holds, and not if the outcome was lost.
func (r *runner) send(l *lane, d waiting) bool {
	e, err := r.entry(l.who.ctx, d.entry)
	if err != nil {
		l.rest = r.stopwatch() + restTime
		return false
	}
	if !r.mayTry(l.who) {
		return false
	}
	// Wall clock for the record, monotonic time for the duration.
	at, begun := r.now(), time.Now()
	result := r.tryEntry(l.who.ctx, &e, d, at)
	// We broke it off, so the receiver may have it or not: the next owner sends it again, with its id.
	if result.cut {
		return false
	}
	out := &outcome{id: d.id, workspace: e.Workspace, trace: e.Trace, reply: make(chan recording, 1), body: tried{
		Attempt: d.attempts + 1, At: at.UnixMicro(), TookMS: time.Since(begun).Milliseconds(),
		Status: result.Status, Class: result.Class, Text: result.Text,
	}}
	if result.Verdict == Succeeded {
		out.body.Reference = result.Reference
	}
	out.kind, out.body.NextAt = verdictOn(result, r.now(), pauseAfter(r.pauses, d.tries+1, result.RetryAfter), d.giveUpAt)
	// Waiting for the record keeps the order: the next delivery of the lane is not sent before this one has
	// an outcome on disk.
	r.outcomes <- out
	switch <-out.reply {
	case written:
		if out.kind == kindGivenUp {
			r.log.Warn("a delivery was given up; it can be sent again", "delivery", d.id, "attempts", out.body.Attempt, "class",
				out.body.Class)
		}
		return out.kind != kindFailed
	case lost:
		l.rest = r.stopwatch() + restTime
	case superseded: // somebody else got there first; the loop looks again
	}
	return false
}

// tryEntry makes the attempt from its entry. A payload that retention has erased ends the delivery.
func (r *runner) tryEntry(ctx context.Context, e *ledger.Entry, d waiting, at time.Time) Result {
	var q queued
	if err := e.Decode(&q); err != nil {
		return Result{
			Verdict: Hopeless, Class: "erased",
			Text: "The payload is no longer in the ledger: it was erased, or cannot be read.",
		}
	}
	return r.try(ctx, d.sender, Attempt{
		ID: d.id, Workspace: e.Workspace, Target: q.Target, Method: q.Method, Header: q.Header, Payload: q.payload(),
		Receiver: q.Receiver, Generation: q.Generation, Number: d.attempts + 1, At: at,
	})
}

// mayTry waits until our lease lasts for longer than a try can take, so that no other runner tries the
// same delivery at the same time. It reports false if we stop or lose our identity first.
func (r *runner) mayTry(who *identity) bool {
	for int64(r.stopwatch()+r.timeout) > who.until.Load() {
		select {
		case <-time.After(gap):
		case <-r.stopping.Done():
			return false
		case <-who.ctx.Done():
			return false
		}
	}
	return true
}
