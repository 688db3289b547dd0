package roster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// pass runs a roster until it has begun, and stops it, which saves what it has seen.
func pass(t *testing.T, r *roster.Roster, begun func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	testbed.Until(t, "the roster to begin", begun)
	cancel()
	wg.Wait()
}

func always() bool { return true }

// present is what is known of an agent of the first workspace.
func present(t *testing.T, r *roster.Roster, name string) (online bool, lastSeen *time.Time) {
	t.Helper()
	a, err := r.Agent(t.Context(), "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return a.Online, a.LastSeenAt
}

func TestAnAgentIsOnlineForNinetySecondsAfterACall(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, c := start(t, address)
		_, secret := add(t, r, admin, roster.NewAgent{Name: "caller"})
		if online, seen := present(t, r, "caller"); online || seen != nil {
			t.Errorf("before the first call: %v %v", online, seen)
		}
		_ = identify(t, r, secret)
		c.Move(80 * time.Second)
		if online, seen := present(t, r, "caller"); !online || seen == nil {
			t.Errorf("after 80 seconds: %v %v", online, seen)
		}
		c.Move(11 * time.Second)
		if online, seen := present(t, r, "caller"); online || seen == nil {
			t.Errorf("after 91 seconds: %v %v", online, seen)
		}
	})
}

func TestPresenceIsCountedOverAllAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, c := start(t, address)
		_, away := add(t, r, admin, roster.NewAgent{Name: "away"})
		_ = identify(t, r, away)
		c.Move(time.Hour)
		_, here := add(t, r, admin, roster.NewAgent{Name: "here"})
		_ = identify(t, r, here)
		add(t, r, admin, roster.NewAgent{Name: "never"})
		add(t, r, admin, roster.NewAgent{Name: "suspended"})
		if _, err := r.Suspend(t.Context(), admin, "default", "suspended", "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		for workspace, want := range map[string][4]int{"": {4, 1, 2, 1}, "default": {4, 1, 2, 1}, "elsewhere": {}} {
			var got [4]int // all, online, ever seen, suspended
			err := r.EachPresence(t.Context(), workspace, func(p roster.Presence) {
				got[0]++
				for i, so := range []bool{p.Online, p.LastSeenAt != nil, p.Suspended} {
					if so {
						got[i+1]++
					}
				}
			})
			if err != nil || got != want {
				t.Errorf("in %q: %v, want %v, %v", workspace, got, want, err)
			}
		}
	})
}

func TestWhatOneNodeHasSeenOthersKnow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		o, c := options(t, address)
		a, admin := begin(t, o)
		behind := o
		behind.Now = func() time.Time { return c.Now().Add(-time.Hour) }
		b := roster.New(behind)
		_, secret := add(t, a, admin, roster.NewAgent{Name: "caller"})
		_ = identify(t, a, secret)
		_, before := present(t, a, "caller")
		if _, seen := present(t, b, "caller"); seen != nil {
			t.Errorf("before it was saved another node knows: %v", seen)
		}
		pass(t, a, always)
		if online, seen := present(t, b, "caller"); !online || !seen.Equal(*before) {
			t.Errorf("after it was saved: %v %v, want %v", online, seen, before)
		}
		// A node whose clock is behind, or that is slow to save, takes nothing back.
		_ = identify(t, b, secret)
		pass(t, b, always)
		if _, seen := present(t, a, "caller"); !seen.Equal(*before) {
			t.Errorf("%v, want %v", seen, before)
		}
	})
}

func TestAnAgentIsOnlineWhileItIsConnected(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, c := start(t, address)
		a, _ := add(t, r, admin, roster.NewAgent{Name: "connected"})
		first, second := r.Connected(a.ID), r.Connected(a.ID)
		first()
		first() // again is the same
		c.Move(time.Hour)
		if online, _ := present(t, r, "connected"); !online {
			t.Error("offline although it is connected")
		}
		second()
		c.Move(80 * time.Second)
		if online, _ := present(t, r, "connected"); !online {
			t.Error("offline right after it was connected")
		}
		c.Move(11 * time.Second)
		if online, _ := present(t, r, "connected"); online {
			t.Error("online long after it was connected")
		}
	})
}

func TestManyAgentsAreSavedAndThoseThatAreGoneForgotten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		o, _ := options(t, address)
		r, admin := begin(t, o)
		_, secret := add(t, r, admin, roster.NewAgent{Name: "real"})
		_ = identify(t, r, secret)
		for i := range 2345 {
			r.Connected(fmt.Sprintf("agent_gone_%d", i))()
		}
		rows := func() (n int) {
			if err := o.DB.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM agent_presence").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		pass(t, r, always)
		if rows() != 2346 {
			t.Errorf("%d rows", rows())
		}
		pass(t, roster.New(o), func() bool { return rows() == 1 })
		if online, _ := present(t, roster.New(o), "real"); !online {
			t.Error("the one that is there was forgotten")
		}
	})
}
