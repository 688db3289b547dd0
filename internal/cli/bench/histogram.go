package bench

import (
	"math/bits"
	"time"
)

// histogram counts times to within one per cent, in 40 KiB however many there are: whole microseconds up
// to 256, and 128 steps for each doubling after that. One goroutine adds; merge puts those of many
// together. max is exact.
type histogram struct {
	// So many doublings reach far beyond the duration of any load.
	counts [40 << 7]int64
	total  int64
	max    time.Duration
}

// add counts one time. Times beyond the last step count there.
func (h *histogram) add(d time.Duration) {
	h.counts[min(step(d), len(h.counts)-1)]++
	h.total++
	h.max = max(h.max, d)
}

// step is the place of a time: the number of doublings beyond 256 µs, and 8 significant bits.
func step(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	shift := max(0, bits.Len64(us)-8)
	return shift<<7 + int(us>>shift)
}

// longestIn is the longest time that step puts into a place; percentiles are rounded up to it.
func longestIn(step int) time.Duration {
	shift := max(0, step>>7-1)
	return time.Duration((uint64(step-shift<<7)+1)<<shift-1) * time.Microsecond
}

// merge adds what another histogram has counted.
func (h *histogram) merge(other *histogram) {
	for i, n := range &other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// percentile is the time within which the share of all, from 0 to 1, were answered.
func (h *histogram) percentile(share float64) time.Duration {
	// The call at this place, in the order of their times, is the one that is asked for.
	left := int64(share * float64(h.total))
	for i, n := range &h.counts {
		if left -= n; left < 0 {
			return min(longestIn(i), h.max)
		}
	}
	return h.max
}
