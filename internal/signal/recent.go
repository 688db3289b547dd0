package signal

import (
	"hash/maphash"
	"sync"
)

// recentRuns remembers which runs were signalled lately, on any node, as hashes of their traces. It
// saves a query per signal: a run that it does not know is almost always new, and is inserted
// without looking; the table refuses it if it is not. A hash collision costs one query and
// changes no answer.
//
// It holds between one and two generations, so its memory is bounded and the runs of the last
// minutes are always in it.
type recentRuns struct {
	mu       sync.Mutex
	seed     maphash.Seed
	now, old map[uint64]struct{} // hashes of traces, of this generation and the one before
}

// perGeneration is how many runs a generation has; both take a few megabytes.
const perGeneration = 100_000

func newRecentRuns() *recentRuns {
	return &recentRuns{seed: maphash.MakeSeed(), now: map[uint64]struct{}{}}
}

func (s *recentRuns) add(trace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.now) >= perGeneration {
		s.now, s.old = map[uint64]struct{}{}, s.now
	}
	s.now[maphash.String(s.seed, trace)] = struct{}{}
}

func (s *recentRuns) has(trace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := maphash.String(s.seed, trace)
	_, now := s.now[sum]
	_, old := s.old[sum]
	return now || old
}
