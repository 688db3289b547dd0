package bucket

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// Buckets are dropped to bound memory. Nobody may gain or lose by it.
func TestADroppedBucketIsNotMissed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 10).Draw(t, "limit")
		b := Buckets{Hours: rapid.Bool().Draw(t, "hours")}
		kept := rate.NewLimiter(rate.Limit(float64(limit)/b.span().Seconds()), limit)
		step := int(b.span().Seconds()) * 3 / 2
		now := time.Unix(1_000_000, 0)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, step).Draw(t, "seconds")) * time.Second)
			if rapid.Bool().Draw(t, "another") {
				b.Find(Name{Holder: "another", Limit: 1}, now)
			}
			if got, want := b.Find(Name{"agent", "requests", limit}, now).AllowN(now, 1), kept.AllowN(now,
				1); got != want {
				t.Fatalf("allowed %v, and would be %v had nothing been dropped", got, want)
			}
		}
	})
}

func TestIdleBucketsAreDropped(t *testing.T) {
	t.Parallel()
	var b Buckets
	now := time.Unix(1_000_000, 0)
	for i := range 1000 {
		b.Find(Name{fmt.Sprint(i), "requests", 60}, now)
	}
	for range 3 {
		now = now.Add(time.Minute)
		b.Find(Name{"busy", "requests", 60}, now)
	}
	if n := len(b.young) + len(b.old); n > 2 {
		t.Errorf("%d buckets are kept", n)
	}
}
