package ledger_test

import (
	"context"
	"sync"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestALedgerThatIsTamperedWithWhileItRunsStopsWriting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tamper func(i intruder)
		notice func(t *testing.T, n node)
	}{
		"a tile is changed": {
			func(i intruder) { i.flip(5, "ledger_tile", "hashes", "level = 1 AND n = 0") }, signNow,
		},
		"a tile is gone": {
			func(i intruder) { i.exec("DELETE FROM ledger_tile WHERE level = 1") }, signNow,
		},
		"its end is gone, and only the tiles stay": {
			func(i intruder) {
				i.exec("DELETE FROM ledger_entry WHERE seq > 400")
				i.exec("UPDATE ledger_head SET seq = 400")
				i.exec("UPDATE ledger_tree SET size = 400")
			}, signNow,
		},
		"an old backup is restored under it": {
			func(i intruder) { i.backup() }, signNow,
		},
		"entries are gone, and a follower sees the gap": {
			func(i intruder) { i.exec("DELETE FROM ledger_entry WHERE seq = 2") },
			func(t *testing.T, n node) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				ledger.ForgetRecent(n.Ledger) // what is in memory nobody can take away
				var following sync.WaitGroup
				following.Go(func() {
					for e := range n.Follow(ctx, 1) {
						t.Errorf("the follower got entry %d", e.Seq)
					}
				})
				testbed.Until(t, "the mismatch", func() bool { return n.Mismatch() != nil })
				cancel()
				following.Wait()
			},
		},
		"an old record is changed, and somebody wants it proved": {
			func(i intruder) { i.flip(20, "ledger_entry", "record", "seq = 5") }, prove5,
		},
		"a hash far back is changed, and somebody wants a proof with it": {
			func(i intruder) { i.flip(5*32, "ledger_tile", "hashes", "level = 0 AND n = 0") }, prove5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Each(t, func(t *testing.T, address string) {
				n := signed(t, address, 512)
				i := intrude(t, address)
				i.disarm()
				c.tamper(i)
				c.notice(t, n)
				wantRefused(t, n)
			})
		})
	}
}

func signNow(t *testing.T, n node) {
	t.Helper()
	sign(t, n)
}

func prove5(t *testing.T, n node) {
	t.Helper()
	if p, err := n.Prove(t.Context(), 5, 0); !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("the proof is %+v (%v)", p, err)
	}
}
