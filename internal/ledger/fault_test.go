package ledger_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// times counts the entries and the rows of state with that name.
func times(t testing.TB, n node, name string) (entries, rows int) {
	t.Helper()
	for query, into := range map[string]*int{
		"SELECT count(*) FROM ledger_entry WHERE subject = $1": &entries,
		"SELECT count(*) FROM note WHERE name = $1":            &rows,
	} {
		if err := n.db.Read.QueryRowContext(context.Background(), query, name).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	return entries, rows
}

// wantTold checks that a caller was told the truth: nil means there exactly once,
// an error means not there.
func wantTold(t testing.TB, n node, name string, err error) {
	t.Helper()
	want := 0
	if err == nil {
		want = 1
	}
	if entries, rows := times(t, n, name); entries != want || rows != want {
		t.Errorf("%s is there %d times, its row %d times, and the caller heard %v", name, entries, rows, err)
	}
}

// eventually writes until a write succeeds.
func eventually(t testing.TB, n node, name string) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < testbed.Patience; {
		if err = n.Write(context.Background(), func(tx *ledger.Tx) error {
			tx.Append(written(name, ""))
			return nil
		}); err == nil {
			return
		}
		if !fault.Is(err, fault.StoreUnavailable) && !fault.Is(err, fault.OutcomeUnknown) && !fault.Is(err, fault.StoreFull) {
			t.Errorf("while the database comes back a caller hears %v", err)
		}
	}
	t.Fatalf("writes do not work again: %v", err)
}

func TestAConnectionThatBreaksDuringACommit(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]accident{
		"before any of it arrives":                loseAll,
		"before COMMIT arrives":                   loseCommit,
		"after COMMIT and before its answer":      loseAnswer,
		"and what was sent arrives when all over": delay,
	} {
		for _, reads := range []bool{false, true} {
			testbed.Parallel(t, fmt.Sprintf("%s, reading %v", name, reads), func(t *testing.T) {
				p := newProxy(t)
				n := start(t, p.address, t.TempDir())
				for i := range 3 { // by now the head is guessed and statements are prepared
					write(t, n, fmt.Sprint("before ", i))
				}
				p.strike(a)
				errs := together(n, 8, func(tx *ledger.Tx, name string) error {
					if reads {
						var c int
						if err := tx.QueryRow("SELECT count(*) FROM note", nil, &c); err != nil {
							return err
						}
					}
					tx.Append(written(name, ""))
					return nil
				})
				p.deliver()
				for name, err := range errs {
					if a == loseAnswer && err != nil {
						t.Errorf("%s was committed, and its caller heard %v", name, err)
					}
					if err != nil && !fault.Is(err, fault.StoreUnavailable) {
						t.Errorf("%s: %v", name, err)
					}
				}
				eventually(t, n, "after")
				for name, err := range errs {
					wantTold(t, n, name, err)
				}
				wantSame(t, n)
				if _, err := verify(export(t, n), n.Key(), nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// together runs a function for many callers in one batch, and returns what each
// heard, by the name it was given.
func together(n node, callers int, fn func(tx *ledger.Tx, name string) error) map[string]error {
	holding, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = n.Write(context.Background(), func(*ledger.Tx) error {
			once.Do(func() { close(holding) })
			<-release
			return nil
		})
	})
	<-holding
	var mu sync.Mutex
	errs := map[string]error{}
	for i := range callers {
		wg.Go(func() {
			name := fmt.Sprint("caller ", i)
			err := n.Write(context.Background(), func(tx *ledger.Tx) error { return fn(tx, name) })
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	testbed.Until(n.t, "all callers to wait", func() bool { return n.Stats().Queue == callers })
	close(release)
	wg.Wait()
	return errs
}

func TestAnErrorThatReadsLikeTheDatabasesHarmsNoNeighbour(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		own := []error{
			context.DeadlineExceeded, fault.New(fault.StoreUnavailable, "The store for attachments is away."),
			fault.New(fault.StoreFull, "It is full."),
		}
		errs := together(n, 12, func(tx *ledger.Tx, name string) error {
			tx.Append(written(name, ""))
			var i, c int
			if _, err := fmt.Sscanf(name, "caller %d", &i); err != nil {
				return err
			}
			// Reading sends what was appended to the database.
			if err := tx.QueryRow("SELECT\n\tcount(*) FROM note", nil, &c); err != nil || i >= len(own) {
				return err
			}
			return own[i]
		})
		for i := range 12 {
			name, want := fmt.Sprint("caller ", i), error(nil)
			if i < len(own) {
				want = own[i]
			}
			if !errors.Is(errs[name], want) {
				t.Errorf("%s heard %v, want %v", name, errs[name], want)
			}
			wantTold(t, n, name, errs[name])
		}
	})
}

func TestADatabaseThatGoesAwayDuringACommitAndStaysAway(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]accident{
		"without having committed": loseAllGone,
		"having committed":         loseAnswerGone,
		"saying nothing":           freeze,
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			p := newProxy(t)
			n := start(t, p.address, t.TempDir())
			for i := range 3 {
				write(t, n, fmt.Sprint("before ", i))
			}
			n.Patience(2*time.Second, 500*time.Millisecond)
			p.strike(a)
			err := n.Write(t.Context(), func(tx *ledger.Tx) error { tx.Append(written("lost", "")); return nil })
			if !fault.Is(err, fault.OutcomeUnknown) {
				t.Fatalf("the caller heard %v", err)
			}
			if a != freeze {
				err := n.Write(t.Context(), func(tx *ledger.Tx) error { tx.Append(written("later", "")); return nil })
				if !fault.Is(err, fault.StoreUnavailable) {
					t.Errorf("the next caller heard %v", err)
				}
			}
			p.back()
			eventually(t, n, "after")

			// What the caller was told is enough to find out.
			details := fault.From(err).Details
			e, err := n.Entry(t.Context(), details["seq"].(int64))
			if err != nil {
				t.Fatal(err)
			}
			saved := base64.StdEncoding.EncodeToString(rfc6962.DefaultHasher.HashLeaf(e.Record)) == details["leaf_hash"]
			entries, rows := times(t, n, "lost")
			if saved != (entries == 1) || entries != rows || entries > 1 || (a == loseAnswerGone) != saved && a != freeze {
				t.Errorf("the details say that it was saved: %v; it is there %d times", saved, entries)
			}
			if entries, _ := times(t, n, "later"); entries != 0 {
				t.Error("a write that was refused is there")
			}
			wantSame(t, n)
		})
	}
}

func TestADatabaseThatIsAwayIsWaitedForByFollowers(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	n := start(t, p.address, t.TempDir())
	write(t, n, "before")
	ctx := testbed.Context(t)
	got := make(chan string)
	go func() {
		defer close(got)
		for e := range n.Follow(ctx, 0) {
			got <- e.Subject
			if e.Subject == "after" {
				return
			}
		}
	}()
	if first := <-got; first != "before" {
		t.Errorf("followed %s", first)
	}
	p.leave()
	err := n.Write(t.Context(), func(tx *ledger.Tx) error { tx.Append(written("refused", "")); return nil })
	if !fault.Is(err, fault.StoreUnavailable) && !fault.Is(err, fault.OutcomeUnknown) {
		t.Errorf("a caller heard %v", err)
	}
	p.back()
	eventually(t, n, "after")
	if next := <-got; next != "after" {
		t.Errorf("followed %s", next)
	}
	<-got
}

func TestCallersThatGiveUpAreToldTheTruth(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		const callers = 200
		errs := make([]error, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20_000))*time.Microsecond)
				defer cancel()
				errs[i] = n.Write(ctx, func(tx *ledger.Tx) error {
					tx.Append(written(fmt.Sprint("caller ", i), ""))
					return nil
				})
			})
		}
		wg.Wait()
		heard := map[string]int{}
		for i, err := range errs {
			if err != nil && (!fault.Is(err, fault.Cancelled) || !errors.Is(err, context.DeadlineExceeded)) {
				t.Errorf("caller %d heard %v", i, err)
			}
			heard[fmt.Sprint(err == nil)]++
			wantTold(t, n, fmt.Sprint("caller ", i), err)
		}
		t.Logf("heard nil or not: %v", heard)
		wantGapless(t, n, heard["true"])
		wantSame(t, n)
	})
}
