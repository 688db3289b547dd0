package bench

import (
	"math/bits"
	"time"
)

// histogram counts times to within one per cent, in a few kilobytes however many there
// are: whole microseconds up to 256, and 128 steps for each doubling after that.
type histogram struct {
	counts [40 << 7]int64
	total  int64
	max    time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.counts[min(step(d), len(h.counts)-1)]++
	h.total++
	h.max = max(h.max, d)
}

func step(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	shift := max(0, bits.Len64(us)-8)
	return shift<<7 + int(us>>shift)
}

// longest is the longest time of a step.
func longest(step int) time.Duration {
	shift := max(0, step>>7-1)
	return time.Duration((uint64(step-shift<<7)+1)<<shift-1) * time.Microsecond
}

func (h *histogram) merge(other *histogram) {
	for i, n := range &other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// percentile is the time within which the share of all was.
func (h *histogram) percentile(share float64) time.Duration {
	left := int64(share * float64(h.total))
	for i, n := range &h.counts {
		if left -= n; left < 0 {
			return min(longest(i), h.max)
		}
	}
	return h.max
}
