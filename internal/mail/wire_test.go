package mail

import (
	"testing"
	"time"
)

func TestExpiry(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for wanted, want := range map[time.Time]time.Time{
		{}: now.Add(TTL), now.Add(time.Hour): now.Add(time.Hour),
		now.Add(30 * 24 * time.Hour): now.Add(TTL),
	} {
		if got := expiry(now, wanted); !got.Equal(want) {
			t.Errorf("%s: %s", wanted, got)
		}
	}
}
