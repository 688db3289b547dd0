package testbed

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// PerSecond calls fn from many callers for a while, and returns how often that went in a
// second.
func PerSecond(b *testing.B, callers int, during time.Duration, fn func() error) float64 {
	b.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(began) < during {
				if err := fn(); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

// ReportLatency reports the median and the 99th percentile of the times that were
// measured.
func ReportLatency(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// ProcessorTime is what this process has computed for so far. On a machine that others use too it says more than the
// time that has passed.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of ourselves it is always there
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
