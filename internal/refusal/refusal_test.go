package refusal_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/refusal"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// node is a ledger with a log of refusals, which sums up over the given time.
func start(t *testing.T, address string, every time.Duration) (*ledgertest.Node, *refusal.Log) {
	t.Helper()
	n := ledgertest.Open(t, address, &ledgertest.Clock{}, nil)
	l := refusal.New(n.Ledger, n.Now, slog.New(slog.DiscardHandler))
	l.Every = every
	return n, l
}

// from is a context of a call from an address.
func from(l *refusal.Log, source string) context.Context {
	return refusal.With(context.Background(), l, refusal.Call{Source: source, Name: "POST /amp/signal"})
}

var errWrongKey = refusal.Because(fault.New(fault.Unauthenticated, "This key is not known here."),
	refusal.Cause{Reason: refusal.WrongKey})

// written are the entries, and how many refusals they count.
func written(n *ledgertest.Node) (all []refusal.Entry, count int64) {
	for _, e := range n.Entries(refusal.Kind) {
		var body refusal.Entry
		n.Must(e.Decode(&body))
		all = append(all, body)
		count += body.Count
	}
	return all, count
}

func TestTheFirstIsWrittenAtOnceAndTheOthersAreSummedUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, l := start(t, address, time.Hour)
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan error, 1)
		n.Run()
		go func() { stopped <- l.Run(ctx) }()
		refusal.Note(from(l, "10.0.0.1"), errWrongKey)
		testbed.Until(t, "the first refusal", func() bool { _, count := written(n); return count == 1 })
		var noting sync.WaitGroup
		for range 10 {
			noting.Go(func() {
				for range 1000 {
					refusal.Note(from(l, "10.0.0.1"), fmt.Errorf("wrapped: %w", errWrongKey))
				}
			})
		}
		noting.Wait()
		refusal.Note(from(l, "10.0.0.2"), fault.New(fault.Unauthenticated, "Nobody is signed in."))
		for _, none := range []error{
			nil, errors.New("broken"), fault.New(fault.RateLimited, "The policy defers it."), fault.New(fault.Forbidden, "No."),
		} {
			refusal.Note(from(l, "10.0.0.3"), none)
		}
		refusal.Note(context.Background(), errWrongKey) // of no call
		testbed.Until(t, "the first of another kind", func() bool { _, count := written(n); return count == 2 })
		stop()
		n.Must(<-stopped)
		all, count := written(n)
		if len(all) != 3 || count != 10_002 {
			t.Fatalf("%d entries count %d: %+v", len(all), count, all)
		}
		if e := all[2]; e.Source != "10.0.0.1" || e.Reason != refusal.WrongKey || e.Call != "POST /amp/signal" ||
			e.Count != 10_000 || e.From > e.Until || e.From < all[0].Until {
			t.Errorf("%+v", e)
		}
		if all[1].Reason != refusal.NotAuthenticated {
			t.Errorf("%+v", all[1])
		}
	})
}

func TestAMinuteEnds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, l := start(t, address, 20*time.Millisecond)
		n.Run(l.Run)
		for range 3 {
			_, before := written(n)
			for range 100 {
				refusal.Note(from(l, "10.0.0.1"), errWrongKey)
			}
			testbed.Until(t, "all of them", func() bool { _, count := written(n); return count == before+100 })
		}
	})
}

func TestNobodyCanFillTheLedgerWithRefusals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, l := start(t, address, time.Hour)
		n.Run()
		for i := range 20_000 {
			refusal.Note(from(l, fmt.Sprintf("2001:db8::%x", i)), errWrongKey)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.Must(l.Run(ctx))
		all, count := written(n)
		if len(all) != 1001 || count != 20_000 {
			t.Errorf("%d entries count %d", len(all), count)
		}
		for _, e := range all {
			if e.Reason == refusal.Others && (e.Count != 19_000 || e.Source != "" || e.Call != "") {
				t.Errorf("%+v", e)
			}
		}
	})
}

// What cannot be written is kept, and the callers never hear of it.
func TestARefusalThatCannotBeWrittenIsKept(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, l := start(t, address, time.Millisecond)
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan error, 1)
		go func() { stopped <- l.Run(ctx) }()
		for range 100 {
			refusal.Note(from(l, "10.0.0.1"), errWrongKey)
		}
		n.Run() // until now nobody has committed
		n.Must(n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{Kind: "thing.done", Actor: "system"})
			return nil
		}))
		testbed.Until(t, "what was kept", func() bool { _, count := written(n); return count == 100 })
		stop()
		n.Must(<-stopped)
	})
}
