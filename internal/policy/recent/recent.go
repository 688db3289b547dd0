// Package recent has the counters that rules read: what an agent did in a window, and how much of that is reserved for
// calls under way.
//
// It has the forms in which they are read and kept. It must not know who counts.
package recent

import (
	"math"

	"signalbox/internal/policy/window"
)

// Recent counts what the agent did in a window.
type Recent interface {
	// Count is called with the name of a counter and one of the windows that
	// Policy.Counts lists. It must be safe for concurrent use and should not block.
	Count(what string, w window.Window) float64
}

// Counts are counters that were read before, by name and window as in
// {"actions": {"10m": 12}}.
type Counts map[string]map[string]float64

// Count implements Recent.
func (c Counts) Count(what string, w window.Window) float64 {
	count, _ := c.Find(what, w)
	return count
}

// Find is a counter, and whether it was read.
func (c Counts) Find(what string, w window.Window) (float64, bool) {
	if count, ok := c[what][w.String()]; ok {
		return count, true
	}
	for text, count := range c[what] { // written otherwise, as 600s for 10m
		if d, ok := window.Parse(text); ok && d == w {
			return count, true
		}
	}
	return 0, false
}

// Set notes what a counter was.
func (c Counts) Set(what string, w window.Window, count float64) {
	if c[what] == nil {
		c[what] = map[string]float64{}
	}
	c[what][w.String()] = count
}

// Reserving is a Recent part of which is reserved for calls under way: what they may cost at most counts until it is
// known what they did cost.
type Reserving interface {
	Recent
	// Reserved is how much of a counter is reserved. Like Count, it may be called with any counter that
	// Policy.Counts lists.
	Reserved(what string, w window.Window) float64
	// AnyReserved reports whether something is reserved in the counters that were read so far.
	AnyReserved() bool
}

// Stored is what is on record of counters, and of what was reserved of them.
type Stored struct {
	Counts
	Held Counts
}

// Reserved implements Reserving.
func (s Stored) Reserved(what string, w window.Window) float64 { return s.Held.Count(what, w) }

// AnyReserved implements Reserving.
func (s Stored) AnyReserved() bool { return len(s.Held) > 0 }

// Settled is what recent counts without what is reserved.
type Settled struct{ Reserving }

// Count implements Recent.
func (s Settled) Count(what string, w window.Window) float64 {
	return Less(s.Reserving.Count(what, w), s.Reserved(what, w))
}

// Less is a number without a part of it. Money is counted in billionths of a dollar, so that is how exact it is:
// without rounding 1.2 - 0.2 would be less than 1.
func Less(n, part float64) float64 { return math.Round((n-part)*1e9) / 1e9 }
