package ledger

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Waiters are calls that wait until the ledger gets an entry that concerns them, such as
// the resolution of a gate, whichever node writes it. One goroutine of the ledger follows
// and wakes them all: ten thousand waiting calls do not read the ledger ten thousand times.
type Waiters struct {
	key func(*Entry) string

	mu  sync.Mutex
	all map[string][]chan struct{} // by what they wait for
}

// Waiters makes a group of waiters, which the ledger wakes while it runs. key names what an
// entry is about, "" when nobody waits for it.
func (l *Ledger) Waiters(key func(*Entry) string) *Waiters {
	w := &Waiters{key: key, all: map[string][]chan struct{}{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = append(l.waiters, w)
	return w
}

// groups returns the groups so far; the list is only appended to, so it may be read without the
// lock.
func (l *Ledger) groups() []*Waiters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiters
}

// Await calls look until it reports that it is done, or ctx ends: at once, and again after
// every entry about key. The end of ctx ends the waiting and not a look, and is no error: the
// caller finds out from what look has seen.
func (w *Waiters) Await(ctx context.Context, key string, look func(context.Context) (done bool, err error)) error {
	woken := make(chan struct{}, 1)
	w.join(key, woken) // before the first look, so that no entry is missed
	defer w.leave(key, woken)
	for {
		if done, err := look(context.WithoutCancel(ctx)); err != nil || done {
			return err
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *Waiters) join(key string, woken chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[key] = append(w.all[key], woken)
}

// leave removes a waiter, and the key with the last of them, so that the map does not grow.
func (w *Waiters) leave(key string, woken chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.all[key]
	i := slices.Index(left, woken)
	if left = slices.Delete(left, i, i+1); len(left) > 0 {
		w.all[key] = left
		return
	}
	delete(w.all, key)
}

// wake wakes the calls that wait for key, and all of them for "".
func (w *Waiters) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key != "" {
		wakeUp(w.all[key])
		return
	}
	for _, all := range w.all {
		wakeUp(all)
	}
}

// wakeUp sends without blocking: a channel that is full has a wake-up that was not read yet, and
// that look sees everything.
func wakeUp(waiting []chan struct{}) {
	for _, woken := range waiting {
		select {
		case woken <- struct{}{}:
		default: // it will look
		}
	}
}

// wakeLoop wakes waiters until ctx ends.
func (l *Ledger) wakeLoop(ctx context.Context) {
	begin := func(context.Context) error {
		for _, w := range l.groups() {
			w.wake("") // for what was written before the first entry that is followed
		}
		return nil
	}
	for e := range l.FollowNow(ctx, begin) {
		for _, w := range l.groups() {
			if key := w.key(&e); key != "" {
				w.wake(key)
			}
		}
	}
}

// Pause waits for the time, for news (a channel that is closed, nil for none), or for the
// end of ctx, which it reports.
func Pause(ctx context.Context, news <-chan struct{}, most time.Duration) (ended bool) {
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		select {
		case <-news:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() != nil
}

// Waiting is for how many keys somebody waits.
func (w *Waiters) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}
