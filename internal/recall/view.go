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
	by map[string]T
}

// Get is what holds for the subject.
func (v *View[T]) Get(subject string) (body T, known bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	body, known = v.by[subject]
	return body, known
}

// Put stores a body that this process has just committed, without waiting for Follow, so
// that a caller sees its own change.
func (v *View[T]) Put(subject string, body T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by == nil {
		v.by = map[string]T{}
	}
	v.by[subject] = body
}

// Follow takes over what an entry says.
func (v *View[T]) Follow(e *ledger.Entry) error {
	body, err := ledger.Read[T](e)
	if err == nil {
		v.Put(e.Subject, *body)
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
