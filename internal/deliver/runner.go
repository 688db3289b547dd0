package deliver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// gap is the least time between two looks for work, however often we are woken.
	gap = 20 * time.Millisecond
	// quantum is how many deliveries a lane may send before it makes room for one
	// that waits for a slot.
	quantum = 16
)

// runner is one Run. Its maps belong to the loop.
type runner struct {
	*Outbox
	began    time.Time
	stopping context.Context //nolint:containedctx // that of Run
	working  context.Context //nolint:containedctx // ends when what is under way is broken off
	who      *identity
	owned    map[string]*lane
	seen     map[string]sighting
	busy     int // lanes that are being served
	failing  int // those of them that were failing when they began
	lastBeat time.Duration
	trouble  bool // the last look at the database failed

	lookBack bool          // this round looks for pauses that began in the future
	lastBack time.Duration // when a round last did
	drift    time.Duration // of the wall clock against the stopwatch

	scarce   atomic.Bool // lanes wait for a slot
	done     chan *lane
	outcomes chan *outcome
	workers  sync.WaitGroup
}

// lane is a line of deliveries that we own. The worker writes the last two fields
// before it hands the lane back.
type lane struct {
	key     string
	who     *identity
	failing bool
	busy    bool
	idle    time.Duration // since when
	yield   bool          // others waited for its slot
	rest    time.Duration // it is not to be served before
}

// Run sends what is due until ctx ends, beside any number of others. It returns when
// what was under way has ended and its lanes are free for others. The ledger must
// run for longer.
func (o *Outbox) Run(ctx context.Context) error {
	working, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	r := &runner{
		Outbox: o, began: time.Now(), stopping: ctx, working: working, who: newIdentity(working),
		owned: map[string]*lane{}, seen: map[string]sighting{},
		done: make(chan *lane, o.slots), outcomes: make(chan *outcome, o.slots),
	}
	defer o.webhook.close()
	recorded := make(chan struct{})
	go func() { defer close(recorded); r.recordLoop() }()
	for ctx.Err() == nil {
		news := o.ledger.News()
		r.collect()
		r.look(ctx)
		r.wait(ctx, news)
	}
	late := time.AfterFunc(o.grace, cut)
	defer late.Stop()
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

// stopwatch is the time since Run began, which no step of the clock changes.
func (r *runner) stopwatch() time.Duration { return time.Since(r.began) }

// wait returns when there may be work.
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

// collect takes in the lanes that are done, without waiting.
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

func (r *runner) finished(l *lane) {
	l.busy, l.idle = false, r.stopwatch()
	r.busy--
	if l.failing {
		r.failing--
	}
}

// look does one round: beat, watch the others, and hand out what is due.
func (r *runner) look(ctx context.Context) {
	r.checkClock()
	err := r.keep(ctx)
	if err == nil {
		err = r.dispatch(ctx)
	}
	if errors.Is(err, errTakenForDead) {
		r.startOver()
		err = nil
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil && !r.trouble {
		r.log.Warn("cannot look for deliveries; will try again", "error", err.Error())
	}
	r.trouble = err != nil
}

// startOver drops everything that others have taken over, and goes on as somebody
// else. Tries under way are broken off.
func (r *runner) startOver() {
	r.log.Warn("this runner was away for so long that others have taken its deliveries over; it starts anew")
	r.who.end()
	r.who = newIdentity(r.working)
	r.owned = map[string]*lane{}
}

// keep shows that we are alive, several times in a lease, as long as we hold lanes.
// Those that have been idle since the last time are given back.
func (r *runner) keep(ctx context.Context) error {
	now := r.stopwatch()
	if r.lastBeat != 0 && now-r.lastBeat < r.lease/6 {
		return nil
	}
	if err := r.watch(ctx); err != nil {
		return err
	}
	var back []string
	for key, l := range r.owned {
		if !l.busy && l.rest < now && l.idle < r.lastBeat {
			back = append(back, key)
		}
	}
	var err error
	switch {
	case r.who.registered && len(back) == len(r.owned):
		// Nothing is left to hold, and an idle server writes nothing.
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

func (r *runner) release(keys []string) {
	for _, key := range keys {
		delete(r.owned, key)
	}
}

// dispatch starts the lanes of ours that have become due, and claims others for the
// slots that are left. Lanes that are failing get half of the slots at the most, so
// that targets that hang leave room for those that answer.
func (r *runner) dispatch(ctx context.Context) error {
	if err := r.makeRoom(ctx); err != nil {
		return err
	}
	due, err := r.dueLanes(ctx)
	if err != nil {
		return err
	}
	room, roomForFailing := r.slots-r.busy, max(1, r.slots/2)-r.failing
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

// makeRoom gives back the lanes that made room for others, so that they stand behind
// those who have waited longer.
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
