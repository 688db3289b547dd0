package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestTwoNodesWithOneCursorHandleEveryEntryOnce(t *testing.T) {
	t.Parallel()
	nodes := several(t, storetest.Postgres(t), 2)
	var mu sync.Mutex
	var seen []int64
	by := map[int]int{}
	changed := make(chan struct{}, 1000)
	cancel := make([]context.CancelFunc, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		ctx, stop := context.WithCancel(testbed.Context(t))
		cancel[i] = stop
		wg.Go(func() {
			_ = n.Consume(ctx, "shared", everything, func(_ context.Context, entries []ledger.Entry) error {
				mu.Lock()
				defer mu.Unlock()
				for _, e := range entries {
					seen = append(seen, e.Seq)
					by[i]++
				}
				changed <- struct{}{}
				return nil
			})
		})
	}
	wait := func(want int) {
		t.Helper()
		for have := 0; have < want; {
			testbed.Receive(t, fmt.Sprintf("%d entries; %d were handled", want, have), changed)
			mu.Lock()
			have = len(seen)
			mu.Unlock()
		}
	}
	for i := range 40 {
		write(t, nodes[i%2], fmt.Sprint("first ", i))
	}
	wait(40)
	mu.Lock()
	holder := 0
	if by[1] > 0 {
		holder = 1
	}
	if by[0] > 0 && by[1] > 0 {
		t.Errorf("both nodes held the cursor: %v", by)
	}
	mu.Unlock()
	cancel[holder]() // the other goes on
	for i := range 40 {
		write(t, nodes[i%2], fmt.Sprint("then ", i))
	}
	wait(80)
	cancel[1-holder]()
	wg.Wait()
	for i, seq := range seen {
		if seq != int64(i)+1 {
			t.Fatalf("entry %d was handled as number %d", i+1, seq)
		}
	}
	if by[1-holder] != 40 {
		t.Errorf("handled by node: %v", by)
	}
}

func TestACursorMayBeginLaterAndThenStaysWhereItIs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		l := several(t, address, 1)[0]
		for i := range 3 {
			write(t, l, fmt.Sprint("before ", i))
		}
		for _, at := range []int64{3, 1} { // the second comes too late
			if err := l.BeginAt(t.Context(), "late", at); err != nil {
				t.Fatal(err)
			}
		}
		write(t, l, "after")
		ctx, stop := context.WithCancel(testbed.Context(t))
		defer stop()
		var seen []int64
		_ = l.Consume(ctx, "late", everything, func(_ context.Context, entries []ledger.Entry) error {
			for _, e := range entries {
				seen = append(seen, e.Seq)
			}
			stop()
			return nil
		})
		if len(seen) != 1 || seen[0] != 4 {
			t.Errorf("it was handed %v", seen)
		}
	})
}

func everything(string) bool { return true }

func TestWhatIsNotWantedIsPassedOver(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		l := several(t, address, 1)[0]
		appendOf := func(kind string) {
			t.Helper()
			if err := l.Write(t.Context(), func(tx *ledger.Tx) error {
				tx.Append(ledger.Event{Kind: kind, Body: "x"})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		var seen []int64
		// consume goes on until the entry was looked at, which is wanted or not.
		consume := func(last int64) {
			t.Helper()
			ctx, stop := context.WithCancel(testbed.Context(t))
			defer stop()
			n := int64(len(seen))
			_ = l.Consume(ctx, "choosy", func(kind string) bool {
				n++
				if n == last {
					stop()
				}
				return kind == "thing.wanted"
			}, func(_ context.Context, entries []ledger.Entry) error {
				for _, e := range entries {
					seen = append(seen, e.Seq)
				}
				return nil
			})
		}
		for _, kind := range []string{"thing.passed", "thing.wanted", "thing.passed", "thing.passed"} {
			appendOf(kind)
		}
		consume(4)
		if at, err := l.Cursor(t.Context(), "choosy"); err != nil || at != 4 {
			t.Errorf("the cursor is at %d: %v", at, err)
		}
		appendOf("thing.passed")
		consume(int64(len(seen)) + 1)
		if at, err := l.Cursor(t.Context(), "choosy"); err != nil || at != 5 {
			t.Errorf("what was passed over last is stored with the lease: %d %v", at, err)
		}
		appendOf("thing.wanted")
		consume(int64(len(seen)) + 1)
		if len(seen) != 2 || seen[0] != 2 || seen[1] != 6 {
			t.Errorf("it was handed %v", seen)
		}
	})
}

// What is written beside a cursor is there if and only if the cursor has moved: after a failure, and when another process
// has taken the cursor over in the meantime.
func TestACursorMovesTogetherWithWhatIsWritten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := several(t, address, 1)[0]
		indexed := store.Migrations{
			Package: "index", Steps: []string{"CREATE TABLE indexed (seq {bigint} PRIMARY KEY) {strict};"},
		}
		if err := n.db.Migrate(t.Context(), append(migrations(), indexed)...); err != nil {
			t.Fatal(err)
		}
		want := func(when string, at, rows int64) {
			t.Helper()
			var found int64
			if err := n.db.QueryRow(t.Context(), "SELECT count(*) FROM indexed", nil, &found); err != nil {
				t.Fatal(err)
			}
			if is, err := n.Cursor(t.Context(), "index"); err != nil || is != at || found != rows {
				t.Errorf("%s: the cursor is at %d with %d rows, want %d and %d: %v", when, is, found, at, rows, err)
			}
		}
		for i := range 5 {
			write(t, n, fmt.Sprint(i))
		}
		ctx, stop := context.WithCancel(testbed.Context(t))
		defer stop()
		calls := 0
		fn := func(ctx context.Context, entries []ledger.Entry, move func(*store.Tx) error) error {
			calls++
			tx, err := n.db.Begin(ctx, ledger.CursorLock)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			for _, e := range entries {
				tx.Exec("INSERT INTO indexed (seq) VALUES ($1)", e.Seq)
			}
			moved := move(tx)
			switch calls {
			case 1:
				return errors.New("not yet")
			case 3:
				if moved == nil {
					t.Error("a cursor that another process has was moved")
				}
				stop()
				return moved
			}
			if moved != nil {
				return moved
			}
			if _, err := tx.Commit(false); err != nil {
				return err
			}
			want("once it is committed", 5, 5)
			if err := n.db.Bookkeep(ctx, ledger.CursorLock, func(tx *store.Tx) error {
				tx.Exec("UPDATE ledger_cursor SET holder = 'another process'")
				return nil
			}); err != nil {
				return err
			}
			write(t, n, "one more")
			return nil
		}
		if err := n.ConsumeTogether(ctx, "index", everything, fn); err != nil {
			t.Error(err)
		}
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
		want("at the end", 5, 5)
	})
}

// followers are the ways to hold a lease.
var followers = map[string]func(ctx context.Context, l *ledger.Ledger, begun chan<- struct{}) error{
	"a follower": func(ctx context.Context, l *ledger.Ledger, begun chan<- struct{}) error {
		return l.Consume(ctx, "lease", everything, func(context.Context, []ledger.Entry) error {
			begun <- struct{}{}
			return nil
		})
	},
	"one who holds": func(ctx context.Context, l *ledger.Ledger, begun chan<- struct{}) error {
		return l.Hold(ctx, "lease", func(ctx context.Context) error {
			begun <- struct{}{}
			<-ctx.Done()
			return nil
		})
	},
}

func TestALeaseIsFreeAtOnceWhenItsHolderStops(t *testing.T) {
	for name, follow := range followers {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				nodes := several(t, address, 2)
				write(t, nodes[0], "something to follow")
				for i, n := range nodes { // the second has nothing but the first one's end to wait for
					ctx, stop := context.WithCancel(t.Context())
					begun, done := make(chan struct{}, 1), make(chan error, 1)
					go func() { done <- follow(ctx, n.Ledger, begun) }()
					testbed.Receive(t, "the lease", begun)
					stop()
					if err := testbed.Receive(t, "the holder's end", done); err != nil {
						t.Error(err)
					}
					wantFree(t, n)
					write(t, n, fmt.Sprint("after node ", i))
				}
			})
		})
	}
}

func TestALeaseIsFreeWhenItsHolderStopsWhileItClaims(t *testing.T) {
	for name, follow := range followers {
		testbed.Parallel(t, name, func(t *testing.T) {
			address := storetest.Postgres(t)
			l := several(t, address, 1)[0]
			commit := storetest.HoldCommits(t, address, "ledger_cursor")
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- follow(ctx, l.Ledger, make(chan struct{}, 1)) }()
			commit.Reached()
			stop()
			commit.Release()
			if err := testbed.Receive(t, "the holder's end", done); err != nil {
				t.Error(err)
			}
			wantFree(t, l)
		})
	}
}

// wantFree wants nobody to hold a lease.
func wantFree(t *testing.T, n node) {
	t.Helper()
	var held int
	if err := n.db.QueryRow(t.Context(), "SELECT count(*) FROM ledger_cursor WHERE held_until <> 0", nil,
		&held); err != nil {
		t.Fatal(err)
	}
	if held != 0 {
		t.Error("its lease is still held")
	}
}
