package ledger_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// bySubject wakes those that wait for a note of that name.
func bySubject(e *ledger.Entry) string {
	if e.Kind == "note.written" {
		return e.Subject
	}
	return ""
}

func TestWaitersAreWokenByEntriesThatConcernThem(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		waiters := n.Waiters(bySubject)
		ctx := testbed.Context(t)
		const each = 20
		var waiting, done sync.WaitGroup
		for _, name := range []string{"first", "second"} {
			for range each {
				waiting.Add(1)
				done.Go(func() {
					looked := 0
					err := waiters.Await(ctx, name, func(ctx context.Context) (bool, error) {
						looked++
						if looked == 1 {
							waiting.Done()
						}
						entries, err := n.Entries(ctx, ledger.Query{Subject: name})
						return len(entries) > 0, err
					})
					if err != nil || ctx.Err() != nil {
						t.Errorf("%s is not seen: %v", name, err)
					}
					if looked > 3 { // the first, one at the start of the ledger, and the last
						t.Errorf("%s was looked for %d times", name, looked)
					}
				})
			}
		}
		waiting.Wait()
		write(t, n, "other")
		write(t, n, "first")
		write(t, n, "second")
		done.Wait()
	})
}

func TestAWaitEndsWithItsContextAndWithAnError(t *testing.T) {
	n := start(t, storetest.SQLite(t), t.TempDir())
	waiters := n.Waiters(bySubject)
	ctx, cancel := context.WithCancel(t.Context())
	err := waiters.Await(ctx, "x", func(look context.Context) (bool, error) {
		cancel()
		return false, look.Err() // the look itself goes on
	})
	if err != nil {
		t.Errorf("a wait that is over is an error: %v", err)
	}
	broken := errors.New("broken")
	if err := waiters.Await(t.Context(), "x", func(context.Context) (bool, error) {
		return false, broken
	}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestAPauseEndsWithNewsTheTimeOrTheContext(t *testing.T) {
	news := make(chan struct{})
	close(news)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if ledger.Pause(t.Context(), news, time.Hour) || ledger.Pause(t.Context(), nil, time.Millisecond) ||
		ledger.Pause(t.Context(), nil, -time.Second) {
		t.Error("the context has not ended")
	}
	if !ledger.Pause(ended, nil, time.Hour) || !ledger.Pause(ended, nil, 0) {
		t.Error("the context has ended")
	}
}
