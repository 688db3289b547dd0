package roster_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
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
		testbed.Until(t, "the other node to refuse a key that was revoked", func() bool {
			_, err := b.Authenticate(t.Context(), k.Secret)
			return fault.Is(err, fault.Unauthenticated)
		})
	}
}

// everyChange is each kind of change that a key or its holder can undergo, by name.
func everyChange(admin roster.Identity, keyID string) map[string]func(*testing.T, *roster.Roster) error {
	change := func(c roster.AgentChange) func(*testing.T, *roster.Roster) error {
		return func(t *testing.T, r *roster.Roster) error {
			_, err := r.ChangeAgent(t.Context(), admin, "default", "subject", c)
			return err
		}
	}
	trust, yes, no := "untrusted", true, false
	return map[string]func(*testing.T, *roster.Roster) error{
		"another trust":   change(roster.AgentChange{Trust: &trust}),
		"other labels":    change(roster.AgentChange{Labels: &map[string]string{"team": "law"}}),
		"a limit":         change(roster.AgentChange{RateLimit: wire.Raw("7")}),
		"the limit again": change(roster.AgentChange{RateLimit: wire.Raw(`"default"`)}),
		"suspended":       change(roster.AgentChange{Suspended: &yes}),
		"resumed":         change(roster.AgentChange{Suspended: &no}),
		"a key is rotated": func(t *testing.T, r *roster.Roster) error {
			_, err := r.RotateKey(t.Context(), admin, keyID)
			return err
		},
		"a key is revoked": func(t *testing.T, r *roster.Roster) error {
			_, err := r.RevokeKey(t.Context(), admin, keyID)
			return err
		},
		"the owner goes": func(t *testing.T, r *roster.Roster) error {
			return r.RemoveUser(t.Context(), admin, "default", "finance")
		},
		"the operator goes": func(t *testing.T, r *roster.Roster) error {
			return r.RemoveOperator(t.Context(), admin, "ines")
		},
		"the agent goes": func(t *testing.T, r *roster.Roster) error {
			return r.RemoveAgent(t.Context(), admin, "default", "subject")
		},
	}
}

func TestTheCacheStaysTrueWhateverChangesAndWhoeverChangesIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		o, _ := options(t, address)
		cached, admin := begin(t, o)
		plain := roster.New(o) // does not run, and so does not cache
		follow(t, cached)
		for name := range everyChange(admin, "") {
			for _, writer := range []*roster.Roster{cached, plain} {
				_, owner, err := plain.AddUser(t.Context(), admin, roster.NewUser{Name: "finance"})
				if err != nil {
					t.Fatal(err)
				}
				_, operator, err := plain.AddOperator(t.Context(), admin, "ines", "viewer", "")
				if err != nil {
					t.Fatal(err)
				}
				_, keys, err := plain.AddAgent(t.Context(), admin, roster.NewAgent{Name: "subject", Owner: "finance"})
				if err != nil {
					t.Fatal(err)
				}
				all := slices.Concat(keys, []roster.Issued{owner, operator})
				same := func() string {
					var diffs string
					for _, k := range all {
						want, wantErr := plain.Authenticate(t.Context(), k.Secret)
						got, gotErr := cached.Authenticate(t.Context(), k.Secret)
						if diffs += cmp.Diff(want, got); (wantErr == nil) != (gotErr == nil) {
							diffs += fmt.Sprintf("%v, cached %v\n", wantErr, gotErr)
						}
					}
					return diffs
				}
				for range 3 {
					_ = same() // fills the cache
				}
				if err := everyChange(admin, keys[0].Key.ID)[name](t, writer); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				// What the node itself changed it knows at once, else within a moment.
				if writer == plain {
					testbed.Until(t, name+" to be known", func() bool { return same() == "" })
				} else if diff := same(); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
				_ = plain.RemoveAgent(t.Context(), admin, "default", "subject")
				_ = plain.RemoveUser(t.Context(), admin, "default", "finance")
				_ = plain.RemoveOperator(t.Context(), admin, "ines")
			}
		}
	})
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
			}
			for b.Loop() {
				if _, err := r.Authenticate(b.Context(), k.Secret); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
