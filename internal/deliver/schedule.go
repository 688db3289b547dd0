package deliver

import (
	"math/rand/v2"
	"time"
)

// The rules of trying again, as functions of what they are given.

// DefaultPauses are how long to wait after the first try, the second and so on; the
// last one repeats.
var DefaultPauses = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute,
	30 * time.Minute, time.Hour, 3 * time.Hour,
}

const (
	// DefaultGiveUpAfter is how long a delivery is tried.
	DefaultGiveUpAfter = 72 * time.Hour
	// maxRetryAfter is the longest pause that a receiver may ask for.
	maxRetryAfter = 6 * time.Hour
	// clockSlack is how far the clocks of nodes may differ. A pause that began later
	// than this from now began before the clock went back, and is over.
	clockSlack = 10 * time.Minute
)

// pauseAfter is how long to wait after that many tries in a row, a fifth more or
// less so that those that failed together do not come again together. A receiver may
// ask for a longer pause, never for a shorter one.
func pauseAfter(pauses []time.Duration, tries int64, retryAfter time.Duration) time.Duration {
	p := pauses[min(max(tries-1, 0), int64(len(pauses)-1))]
	p += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(p))
	return max(p, min(retryAfter, maxRetryAfter))
}

// isDue reports whether a delivery may be tried.
func isDue(dueAt, since int64, now time.Time) bool {
	return dueAt <= now.UnixMicro() || since > now.Add(clockSlack).UnixMicro()
}

// verdictOn is the entry that follows from a try: its kind, and for a failure when
// the next one is. The last try comes when the time is over, not before.
func verdictOn(r Result, now time.Time, pause time.Duration, giveUpAt int64) (kind string, nextAt int64) {
	switch {
	case r.Verdict == Succeeded:
		return kindSucceeded, 0
	case r.Verdict == Hopeless || now.UnixMicro() >= giveUpAt:
		return kindGivenUp, 0
	}
	return kindFailed, min(now.Add(pause).UnixMicro(), giveUpAt)
}
