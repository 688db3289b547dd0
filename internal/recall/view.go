package recall

import (
	"context"
	"sync"

	"signalbox/internal/ledger"
)

// View keeps the newest body of each subject in memory, for what is read with every call,
// such as settings. T is the type of the bodies. It is filled with Load and kept current
// with Follow, from a loop over FollowNow. On other nodes it is behind by as long as an
// entry takes to be followed. The zero value is empty and ready for use.
type View[T any] struct {
	mu sync.RWMutex
	by map[string]newest[T]
}

// newest is a body with the number of its entry.
type newest[T any] struct {
	seq  int64
	body T
}

// Get is what holds for the subject.
func (v *View[T]) Get(subject string) (body T, known bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	n, known := v.by[subject]
	return n.body, known
}

// Put stores the body of an entry that this process has just committed, without waiting for Follow, so that a caller
// sees its own change. The body of a later entry stays: Follow may still be at an earlier one, and of two who commit at
// the same time the first may come here last.
func (v *View[T]) Put(subject string, seq int64, body T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by == nil {
		v.by = map[string]newest[T]{}
	}
	if v.by[subject].seq <= seq {
		v.by[subject] = newest[T]{seq, body}
	}
}

// Follow takes over what an entry says.
func (v *View[T]) Follow(e *ledger.Entry) error {
	body, err := ledger.Read[T](e)
	if err == nil {
		v.Put(e.Subject, e.Seq, *body)
	}
	return err
}

// Load reads the entries that a table refers to, such as "JOIN x ON x.seq = e.seq".
func (v *View[T]) Load(ctx context.Context, l *ledger.Ledger, rest string) error {
	entries, err := l.Select(ctx, rest)
	for i := 0; i < len(entries) && err == nil; i++ {
		err = v.Follow(&entries[i])
	}
	return err
}
