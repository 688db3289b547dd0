package deliver

import (
	"math/rand/v2"
	"time"
)

// The rules of retrying, as pure functions.

// DefaultPauses are the pauses after the first failed try, the second and so on; the last one repeats.
var DefaultPauses = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute,
	30 * time.Minute, time.Hour, 3 * time.Hour,
}

const (
	// DefaultGiveUpAfter is how long a delivery is tried before it is dead.
	DefaultGiveUpAfter = 72 * time.Hour
	// maxRetryAfter is the longest pause that a receiver can ask for.
	maxRetryAfter = 6 * time.Hour
	// clockSlack is how far the clocks of nodes may differ. A pause that began further in the future
	// than this began before the clock was set back, and counts as over.
	clockSlack = 10 * time.Minute
)

// pauseAfter is the pause after that many failed tries in a row, a fifth more or less, so that
// deliveries that failed together are not retried together. A receiver may ask for a longer pause,
// never for a shorter one.
func pauseAfter(pauses []time.Duration, tries int64, retryAfter time.Duration) time.Duration {
	// The last pause repeats.
	p := pauses[min(max(tries-1, 0), int64(len(pauses)-1))]
	p += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(p))
	return max(p, min(retryAfter, maxRetryAfter))
}

// isDue reports whether a delivery may be tried now. since is when its pause began.
func isDue(dueAt, since int64, now time.Time) bool {
	return dueAt <= now.UnixMicro() || since > now.Add(clockSlack).UnixMicro()
}

// verdictOn is the kind of entry that a result becomes, and for a failure the time of the next try. That
// is never after giveUpAt: the last try is made when the time is over, and not skipped.
func verdictOn(r Result, now time.Time, pause time.Duration, giveUpAt int64) (kind string, nextAt int64) {
	switch {
	case r.Verdict == Succeeded:
		return kindSucceeded, 0
	case r.Verdict == Hopeless || now.UnixMicro() >= giveUpAt:
		return kindGivenUp, 0
	}
	return kindFailed, min(now.Add(pause).UnixMicro(), giveUpAt)
}
