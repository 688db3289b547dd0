package signal

import (
	"hash/maphash"
	"sync"
)

// seen knows which runs were signalled lately, by anybody who writes to this ledger. A
// run that it does not know is almost always new, and need not be looked for: the table
// refuses it if it is not.
type seen struct {
	mu       sync.Mutex
	seed     maphash.Seed
	now, old map[uint64]struct{} // hashes of traces
}

// perGeneration is how many runs are remembered before the older ones are forgotten.
const perGeneration = 100_000

func newSeen() *seen { return &seen{seed: maphash.MakeSeed(), now: map[uint64]struct{}{}} }

func (s *seen) add(trace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.now) >= perGeneration {
		s.now, s.old = map[uint64]struct{}{}, s.now
	}
	s.now[maphash.String(s.seed, trace)] = struct{}{}
}

func (s *seen) has(trace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := maphash.String(s.seed, trace)
	_, now := s.now[sum]
	_, old := s.old[sum]
	return now || old
}
