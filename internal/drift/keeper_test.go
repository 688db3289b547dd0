package drift_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/drift"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

// machine is a machine whose clock a test sets.
type machine struct {
	mu           sync.Mutex
	start        time.Time
	awake, wrong time.Duration
}

func (m *machine) Machine() drift.Machine {
	return drift.Machine{
		Read: func() (time.Time, time.Duration) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.start.Add(m.awake + m.wrong), m.awake
		},
		Slept: func() time.Duration { return 0 },
	}
}

// pass lets time pass, and set sets the clock.
func (m *machine) pass(d time.Duration) { m.mu.Lock(); defer m.mu.Unlock(); m.awake += d }
func (m *machine) set(d time.Duration)  { m.mu.Lock(); defer m.mu.Unlock(); m.wrong = d }

// is is the right time.
func (m *machine) is() time.Time { m.mu.Lock(); defer m.mu.Unlock(); return m.start.Add(m.awake) }

// box is a ledger with the time of a machine. begin starts it anew, as another process with this database would.
type box struct {
	*ledgertest.Node
	machine *machine
	clock   atomic.Pointer[drift.Clock]
	keeper  *drift.Keeper
	alarms  *alarm.Alarms
}

func open(t *testing.T, address string, wrong time.Duration) *box {
	b := &box{machine: &machine{start: time.Now().Round(time.Second).UTC(), wrong: wrong}}
	b.clock.Store(drift.New(b.machine.Machine()))
	parts := []ledgertest.Part{{Migrations: alarm.Migrations, Projection: alarm.Projection()}}
	b.Node = ledgertest.Open(t, address, nil, parts, func(o *ledger.Options) {
		o.Now = func() time.Time { return b.clock.Load().Now() }
	})
	b.alarms = alarm.New(b.DB, b.Ledger)
	b.Run()
	b.begin()
	return b
}

func (b *box) begin() {
	b.T.Helper()
	b.clock.Store(drift.New(b.machine.Machine()))
	b.keeper = drift.Keep(drift.Options{
		DB: b.DB, Ledger: b.Ledger, Alarms: b.alarms, Clock: b.clock.Load(), Log: slog.New(slog.DiscardHandler),
		Now:      b.clock.Load().Now,
		Database: func(context.Context) (time.Time, error) { return time.Time{}, nil },
	})
	b.Must(b.keeper.Start(b.T.Context()))
}

// look is what Run does every two seconds.
func (b *box) look() {
	b.T.Helper()
	b.machine.pass(2 * time.Second)
	b.Must(b.keeper.Look(b.T.Context()))
}

func (b *box) note() ledger.Entry {
	b.T.Helper()
	b.Append(ledger.Event{Kind: "test.noted", Actor: "system", Body: struct{}{}})
	return b.Newest("test.noted")
}

// kinds are the alarms that are open.
func (b *box) open() (kinds []string) {
	b.T.Helper()
	all, err := b.alarms.List(b.T.Context(), false)
	b.Must(err)
	for _, a := range all {
		kinds = append(kinds, a.Kind)
	}
	return kinds
}

// audited wants every time to be in order but for so many steps.
func (b *box) audited(healed int64) {
	b.T.Helper()
	var a drift.Audit
	for _, e := range b.Entries() {
		b.Must(a.Entry(&e))
	}
	if a.Healed != healed {
		b.T.Errorf("time was healed %d times, not %d", a.Healed, healed)
	}
}

func TestAClockThatWasAheadIsHealedAtTheNextStart(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		b := open(t, address, 26*time.Hour)
		before := b.note()
		b.machine.set(0)
		b.begin()
		after := b.note()
		if off := after.At.Sub(b.machine.is()); off.Abs() > time.Second {
			t.Errorf("entries are off by %s", off)
		}
		healed := b.Newest(ledger.Healed)
		if healed.Seq != before.Seq+1 || !healed.At.Before(before.At) {
			t.Errorf("entry %d was healed at %d", before.Seq, healed.Seq)
		}
		if kinds := b.open(); len(kinds) != 1 || kinds[0] != drift.Ahead {
			t.Errorf("alarms %q", kinds)
		}
		// What is asked for by time is found by order.
		for at, want := range map[time.Time]int64{
			b.machine.is().Add(-time.Hour): 0, b.machine.is().Add(time.Hour): b.Head(), before.At: b.Head(),
		} {
			if got, err := b.Ledger.SeqBefore(t.Context(), at); err != nil || got != want {
				t.Errorf("before %s is entry %d (%v), not %d", at, got, err, want)
			}
		}
		b.begin()
		b.audited(1)
		b.WantClean("alarm")
	})
}

func TestAClockThatIsSetBackMakesNoDeadlineLaterUntilAnOperatorHasSeenIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		b := open(t, address, 0)
		b.note()
		b.machine.set(-time.Hour)
		for range 3 {
			b.look()
			if e := b.note(); e.At.Sub(b.machine.is()).Abs() > time.Second {
				t.Fatalf("it is %s, and the entry has %s", b.machine.is(), e.At)
			}
		}
		if kinds := b.open(); len(kinds) != 1 || kinds[0] != drift.Back || b.keeper.State().Problem == "" {
			t.Errorf("alarms %q, and %q", kinds, b.keeper.State().Problem)
		}
		if n := len(b.Entries("clock.jumped")); n != 1 || b.keeper.Jumps() != 1 {
			t.Errorf("%d entries, %d jumps", n, b.keeper.Jumps())
		}
		b.audited(0)
		all, err := b.alarms.List(t.Context(), false)
		b.Must(err)
		_, err = b.alarms.Close(t.Context(), roster.Identity{}, all[0].ID, "the clock is right now")
		b.Must(err)
		b.look()
		if e := b.note(); e.At.Sub(b.machine.is().Add(-time.Hour)).Abs() > time.Second {
			t.Errorf("the clock was not followed: %s", e.At)
		}
		if b.keeper.State() != (drift.State{}) {
			t.Errorf("still %+v", b.keeper.State())
		}
		b.audited(1)
		b.WantClean("alarm")
	})
}

func TestAJumpForwardIsToldAndHealedWhenItIsTakenBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		b := open(t, address, 0)
		b.note()
		b.machine.set(3 * time.Hour)
		b.look()
		b.note()
		if kinds := b.open(); len(kinds) != 1 || kinds[0] != drift.Forward {
			t.Errorf("alarms %q", kinds)
		}
		b.machine.set(0)
		b.look()
		if e := b.note(); e.At.Sub(b.machine.is()).Abs() > time.Second {
			t.Errorf("entries have %s at %s", e.At, b.machine.is())
		}
		b.audited(1)
		b.WantClean("alarm")
	})
}

func TestAnAuditRefusesEveryOtherStepBack(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	was := []byte(`{"was":1763640000000000}`)
	first := ledger.Entry{Seq: 1, At: time.UnixMicro(1763640000000000).UTC(), Kind: "test.noted"}
	for name, second := range map[string]ledger.Entry{
		"another kind":      {Kind: "test.noted", Body: was},
		"another time":      {Kind: ledger.Healed, Body: []byte(`{"was":1763640000000001}`)},
		"a step forward":    {Kind: ledger.Healed, Body: was, At: at.AddDate(1, 0, 0)},
		"a body in no form": {Kind: ledger.Healed, Body: []byte(`[]`)},
	} {
		var a drift.Audit
		if err := a.Entry(&first); err != nil {
			t.Fatal(err)
		}
		second.Seq = 2
		if second.At.IsZero() {
			second.At = first.At.Add(-time.Hour)
		}
		if a.Entry(&second) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
