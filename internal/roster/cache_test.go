package roster_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/roster"
	"github.com/signalbox/signalbox/internal/store/storetest"
)

// follow runs the roster's cache until the test ends.
func follow(t *testing.T, r *roster.Roster) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func TestARevokedKeyIsRefusedAtOnceAlthoughKeysAreCached(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		follow(t, r)
		for i := range 20 {
			k, err := r.NewToken(t.Context(), admin, "admin")
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // the second time from the cache
				if _, err := r.Authenticate(t.Context(), k.Secret); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.RevokeKey(t.Context(), admin, k.Key.ID); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Authenticate(t.Context(), k.Secret); !fault.Is(err, fault.Unauthenticated) {
				t.Fatalf("round %d: a revoked key is taken: %v", i, err)
			}
		}
	})
}

func TestAnotherNodeHearsOfARevocation(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	a, admin, _ := start(t, address)
	b, _, _ := start(t, address)
	follow(t, b)
	for range 5 {
		k, err := a.NewToken(t.Context(), admin, "admin")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Authenticate(t.Context(), k.Secret); err != nil {
			t.Fatal(err)
		}
		if _, err := a.RevokeKey(t.Context(), admin, k.Key.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for {
			if _, err := b.Authenticate(t.Context(), k.Secret); fault.Is(err, fault.Unauthenticated) {
				break
			}
			if time.Since(began) > 3*time.Second {
				t.Fatal("the other node still takes a key that was revoked")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	r, admin, _ := start(b, storetest.SQLite(b))
	k, err := r.NewToken(b.Context(), admin, "admin")
	if err != nil {
		b.Fatal(err)
	}
	for name, cached := range map[string]bool{"read": false, "cached": true} {
		b.Run(name, func(b *testing.B) {
			if cached {
				ctx, cancel := context.WithCancel(context.Background())
				var wg sync.WaitGroup
				wg.Go(func() { _ = r.Run(ctx) })
				defer func() { cancel(); wg.Wait() }()
				time.Sleep(50 * time.Millisecond)
			}
			for b.Loop() {
				if _, err := r.Authenticate(b.Context(), k.Secret); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
