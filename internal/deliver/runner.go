package deliver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// gap is the shortest time between two rounds, however often we are woken.
	gap = 20 * time.Millisecond
	// quantum is how many deliveries a lane may send while other lanes wait for a slot.
	quantum = 16
)

// runner is the state of one Run. The loop, which is the goroutine of Run, owns everything that has no
// other mark; workers serve lanes, and hand them back through done.
type runner struct {
	*Outbox
	began    time.Time
	stopping context.Context //nolint:containedctx // that of Run; ended means stop
	working  context.Context //nolint:containedctx // ends when tries under way are broken off, after the grace
	who      *identity
	owned    map[string]*lane    // by order key
	seen     map[string]sighting // other runners, by name
	busy     int                 // lanes that are being served
	failing  int                 // those of them that were failing when they began
	lastBeat time.Duration       // by the stopwatch
	trouble  bool                // the last round failed; its error is logged once

	lookBack bool          // this round looks for pauses that began in the future
	lastBack time.Duration // when a round last did
	drift    time.Duration // of the wall clock against the stopwatch

	scarce   atomic.Bool // lanes wait for a slot; workers read it
	done     chan *lane
	outcomes chan *outcome
	workers  sync.WaitGroup
}

// lane is a lane that we own. It belongs to the loop, and to its worker while busy is set: the worker
// writes yield and rest before it hands the lane back.
type lane struct {
	key     string
	who     *identity
	failing bool
	busy    bool
	idle    time.Duration // when it was last handed back
	yield   bool          // others waited for its slot: give it back, to the end of the queue
	rest    time.Duration // do not serve it before this time
}

// Run sends due deliveries until ctx ends, beside any number of other runners. It returns when the tries
// under way have ended, their outcomes are recorded, and its lanes are free for others. The ledger
// must run for longer than it.
func (o *Outbox) Run(ctx context.Context) error {
	// Tries under way outlive ctx by the grace, so that a stop does not repeat calls that are being
	// answered.
	working, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	r := &runner{
		Outbox: o, began: time.Now(), stopping: ctx, working: working, who: newIdentity(working),
		owned: map[string]*lane{}, seen: map[string]sighting{},
		done: make(chan *lane, o.slots), outcomes: make(chan *outcome, o.slots),
	}
	defer o.webhook.close()
	if o.alone {
		if err := r.succeed(ctx); err != nil {
			o.log.Warn("cannot take over the deliveries of the process before; it is done when their lease is over",
				"error", err.Error())
		}
	}
	recorded := make(chan struct{})
	go func() { defer close(recorded); r.recordLoop() }()
	for ctx.Err() == nil {
		// Before looking: a commit after this closes the channel, so no work is missed in between.
		news := o.ledger.News()
		r.collect()
		r.look(ctx)
		r.wait(ctx, news)
	}
	late := time.AfterFunc(o.grace, cut)
	defer late.Stop()
	// The order of the end: workers hand in their last outcomes, these are recorded, the lanes are given
	// back. In another order a delivery could be claimed elsewhere before its success is recorded.
	r.workers.Wait()
	close(r.outcomes)
	<-recorded
	if r.who.mayHold {
		if err := r.leave(ctx); err != nil {
			o.log.Warn("cannot give the deliveries back; others take them over when the lease is over", "error", err.Error())
		}
	}
	return nil
}

// stopwatch is the monotonic time since Run began: no step of the wall clock changes it.
func (r *runner) stopwatch() time.Duration { return time.Since(r.began) }

// wait returns when there may be work: after a commit, a Wake, a slot that others wait for, or Poll; and
// not before gap has passed.
func (r *runner) wait(ctx context.Context, news <-chan struct{}) {
	looked := time.Now()
	poll := time.NewTimer(r.poll)
	defer poll.Stop()
	for woken := false; !woken; {
		select {
		case l := <-r.done:
			r.finished(l)
			woken = r.scarce.Load()
		case <-news:
			woken = true
		case <-r.wake:
			woken = true
		case <-poll.C:
			woken = true
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-time.After(gap - time.Since(looked)):
	case <-ctx.Done():
	}
}

// collect takes back the lanes that workers have handed back, without waiting.
func (r *runner) collect() {
	for {
		select {
		case l := <-r.done:
			r.finished(l)
		default:
			return
		}
	}
}

// finished counts a lane as no longer served.
func (r *runner) finished(l *lane) {
	l.busy, l.idle = false, r.stopwatch()
	r.busy--
	if l.failing {
		r.failing--
	}
}

// look is one round: keep our lease, watch the other runners, and serve what is due. Errors are of the
// database; they are logged once, and the next round tries again.
func (r *runner) look(ctx context.Context) {
	r.checkClock()
	err := r.keep(ctx)
	if err == nil {
		err = r.dispatch(ctx)
	}
	// Not an error to report: it has been handled, and the next round continues.
	if errors.Is(err, errTakenForDead) {
		r.startOver()
		err = nil
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil && !r.trouble {
		r.log.Warn("cannot read due deliveries; retrying", "error", err.Error())
	}
	r.trouble = err != nil
}

// startOver gives up the identity whose lanes others have taken, and continues under a new one. Tries
// under way are broken off; what they did is repeated by the new owners.
func (r *runner) startOver() {
	r.log.Warn("this delivery runner was stalled for longer than its lease; others took over its deliveries")
	r.who.end()
	r.who = newIdentity(r.working)
	r.owned = map[string]*lane{}
}

// keep counts up our beat six times in a lease while we own lanes, and watches the other runners as
// often. Lanes that were idle since the last time are given back.
func (r *runner) keep(ctx context.Context) error {
	now := r.stopwatch()
	// Six beats in a lease: several may fail before others take our lanes.
	if r.lastBeat != 0 && now-r.lastBeat < r.lease/6 {
		return nil
	}
	if err := r.watch(ctx); err != nil {
		return err
	}
	var back []string
	for key, l := range r.owned {
		// Idle for a whole interval. Giving lanes back sooner would claim them again for every delivery.
		if !l.busy && l.rest < now && l.idle < r.lastBeat {
			back = append(back, key)
		}
	}
	var err error
	switch {
	case r.who.registered && len(back) == len(r.owned):
		// We own nothing any more: remove our row, so that an idle server writes nothing.
		err = r.leave(ctx)
	case r.who.registered:
		_, err = r.exchange(ctx, back, 0, 0)
	}
	if err != nil {
		return err
	}
	r.release(back)
	r.lastBeat = now
	return nil
}

// release forgets lanes that were given back.
func (r *runner) release(keys []string) {
	for _, key := range keys {
		delete(r.owned, key)
	}
}

// dispatch serves our lanes that are due, and claims others for the slots that are left. Failing lanes
// get at most half of the slots, so that targets which hang leave room for those that answer.
func (r *runner) dispatch(ctx context.Context) error {
	if err := r.makeRoom(ctx); err != nil {
		return err
	}
	due, err := r.dueLanes(ctx)
	if err != nil {
		return err
	}
	// At least one slot for failing lanes, or they would never recover.
	room, roomForFailing := r.slots-r.busy, max(1, r.slots/2)-r.failing
	// The read may be out of date; exchange claims under the lock, at most as many as are counted here.
	wanted, wantedFailing, waiting := 0, 0, false
	for _, d := range due {
		l := r.owned[d.key]
		switch {
		case l != nil && (l.busy || l.rest > r.stopwatch()):
			continue
		case room <= 0 || d.failing && roomForFailing <= 0:
			waiting = true
			continue
		}
		room--
		if d.failing {
			roomForFailing--
		}
		switch {
		case d.ours:
			r.start(d)
		case d.failing:
			wantedFailing++
		default:
			wanted++
		}
	}
	r.scarce.Store(waiting)
	if wanted+wantedFailing == 0 {
		return nil
	}
	claimed, err := r.exchange(ctx, nil, wanted, wantedFailing)
	if err != nil {
		return err
	}
	for _, d := range claimed {
		r.start(d)
	}
	return nil
}

// makeRoom gives back the lanes that stopped for others, so that they queue behind lanes that have
// waited for longer.
func (r *runner) makeRoom(ctx context.Context) error {
	var back []string
	for key, l := range r.owned {
		if !l.busy && l.yield && l.rest < r.stopwatch() {
			back = append(back, key)
		}
	}
	if len(back) == 0 {
		return nil
	}
	if _, err := r.exchange(ctx, back, 0, 0); err != nil {
		return err
	}
	r.release(back)
	return nil
}

// start serves a lane in a goroutine of its own, which hands it back when it is done.
func (r *runner) start(d dueLane) {
	l := r.owned[d.key]
	if l == nil {
		l = &lane{key: d.key, who: r.who}
		r.owned[d.key] = l
	}
	l.busy, l.failing = true, d.failing
	r.busy++
	if l.failing {
		r.failing++
	}
	r.workers.Go(func() {
		r.serve(l)
		r.done <- l
	})
}
