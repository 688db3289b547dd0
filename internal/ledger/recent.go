package ledger

import "sync"

const (
	// recentEntries are enough for followers that look a few times a second.
	recentEntries = 4 * Page
	// recentBytes bounds what bodies and records of recent entries may occupy.
	recentBytes = 8 << 20
)

// recent holds the last entries that this process has committed, so that its followers
// need not read them back from the database. Other nodes' entries are not in it: after
// one of those it begins anew.
type recent struct {
	mu      sync.RWMutex
	entries []Entry // without a gap
	bytes   int
}

// add takes over what was committed just now.
func (r *recent) add(appended []*Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.entries); n > 0 && r.entries[n-1].Seq+1 != appended[0].Seq {
		r.entries, r.bytes = nil, 0
	}
	for _, e := range appended {
		r.entries = append(r.entries, *e)
		r.bytes += len(e.Body) + len(e.Record)
	}
	// Half goes at a time, so that moving the rest is rare.
	for len(r.entries) > recentEntries || r.bytes > recentBytes && len(r.entries) > 0 {
		half := (len(r.entries) + 1) / 2
		for _, e := range r.entries[:half] {
			r.bytes -= len(e.Body) + len(e.Record)
		}
		r.entries = append(make([]Entry, 0, recentEntries+maxBatch), r.entries[half:]...)
	}
}

// after returns the entries that follow seq, at most as many as asked for. It returns none
// to a follower that is too far behind, or that has caught up with this process; both read
// the database. The slice is shared and must not be changed.
func (r *recent) after(seq int64, most int) []Entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.entries) == 0 || seq+1 < r.entries[0].Seq {
		return nil
	}
	from := min(int(seq+1-r.entries[0].Seq), len(r.entries))
	to := min(from+most, len(r.entries))
	return r.entries[from:to:to] // what is added goes behind it
}
