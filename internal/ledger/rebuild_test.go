package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
)

func check(t testing.TB, n node) ledger.Check {
	t.Helper()
	got, err := ledger.CheckRebuild(context.Background(), n.db, migrations(), []ledger.Projection{notes}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wantSame(t testing.TB, n node) {
	t.Helper()
	if got := check(t, n); len(got.Differences) > 0 || got.Tables != 1 {
		t.Errorf("the state is not what the ledger says: %+v", got)
	}
}

func TestStateIsAlwaysWhatTheEntriesSay(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		var mu sync.Mutex
		run := 0
		rapid.Check(t, func(rt *rapid.T) {
			mu.Lock()
			run++
			prefix := fmt.Sprintf("run %d ", run)
			mu.Unlock()
			want := map[string]bool{}
			for range rapid.IntRange(1, 8).Draw(rt, "writes") {
				// A function that means to put a note twice, or to remove one that is
				// not there, changes its mind: nothing of it may stay.
				changes := rapid.SliceOfN(rapid.IntRange(-4, 4), 1, 5).Draw(rt, "changes")
				after := maps.Clone(want)
				err := n.Write(context.Background(), func(tx *ledger.Tx) error {
					after = maps.Clone(want) // it may run again
					for _, c := range changes {
						name := prefix + fmt.Sprint(max(c, -c))
						if after[name] == (c >= 0) {
							return errors.New("no")
						}
						after[name] = c >= 0
						if c >= 0 {
							tx.Append(written(name, "text"))
						} else {
							tx.Append(ledger.Event{Kind: "note.removed", Actor: "system", Subject: name})
						}
					}
					return nil
				})
				if err == nil {
					want = after
				}
			}
			maps.DeleteFunc(want, func(_ string, there bool) bool { return !there })
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), names(t, n, prefix),
				cmp.Transformer("nil", func(s []string) string {
					return fmt.Sprint(s)
				})); diff != "" {
				rt.Fatalf("the notes (-want +got):\n%s", diff)
			}
			if got := check(t, n); len(got.Differences) > 0 {
				rt.Fatalf("the state is not what the ledger says: %+v", got)
			}
		})
	})
}

// names are the notes that begin with the prefix.
func names(t testing.TB, n node, prefix string) []string {
	t.Helper()
	return storetest.Strings(t, n.db, "SELECT name FROM note WHERE name >= $1 AND name < $2 ORDER BY name", prefix,
		prefix+"~")
}

func TestAChangeBesideTheLedgerIsFoundAndRepaired(t *testing.T) {
	t.Parallel()
	row := func(i int, text string) string { return fmt.Sprintf(`name="note %d" text=%q seq=%d`, i, text, i) }
	for name, c := range map[string]struct {
		statement string
		want      []ledger.Difference
	}{
		"a row is changed": {
			"UPDATE note SET text = 'other' WHERE name = 'note 2'",
			[]ledger.Difference{{Table: "note", Live: row(2, "other"), Built: row(2, "text")}},
		},
		"a number is changed": {
			"UPDATE note SET seq = 7 WHERE name = 'note 2'",
			[]ledger.Difference{{Table: "note", Live: `name="note 2" text="text" seq=7`, Built: row(2, "text")}},
		},
		"a row is missing": {
			"DELETE FROM note WHERE name = 'note 1'",
			[]ledger.Difference{{Table: "note", Built: row(1, "text")}},
		},
		"the last is missing": {
			"DELETE FROM note WHERE name = 'note 3'",
			[]ledger.Difference{{Table: "note", Built: row(3, "text")}},
		},
		"all are missing": {
			"DELETE FROM note",
			[]ledger.Difference{
				{Table: "note", Built: row(1, "text")},
				{Table: "note", Built: row(2, "text")},
				{Table: "note", Built: row(3, "text")},
			},
		},
		"a row too many": {
			"INSERT INTO note (name, text, seq) VALUES ('extra', '', 9)",
			[]ledger.Difference{{Table: "note", Live: `name="extra" text="" seq=9`}},
		},
		"a last row too many": {
			"INSERT INTO note (name, text, seq) VALUES ('zebra', '', 9)",
			[]ledger.Difference{{Table: "note", Live: `name="zebra" text="" seq=9`}},
		},
		"a row has a new name": {
			"UPDATE note SET name = 'a' WHERE name = 'note 2'",
			[]ledger.Difference{{Table: "note", Live: `name="a" text="text" seq=2`}, {Table: "note", Built: row(2, "text")}},
		},
		"nothing is changed": {"UPDATE note SET text = text", []ledger.Difference{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Each(t, func(t *testing.T, address string) {
				n := startFilled(t, address, 3)
				intrude(t, address).exec(c.statement)
				got := check(t, n)
				if diff := cmp.Diff(c.want, got.Differences); diff != "" || got.Entries != 3 {
					t.Errorf("the check of %d entries found (-want +got):\n%s", got.Entries, diff)
				}

				entries, err := ledger.Rebuild(t.Context(), n.db, []ledger.Projection{notes}, nil)
				if err != nil || entries != 3 {
					t.Fatalf("rebuilt from %d entries (%v), want 3", entries, err)
				}
				wantSame(t, n)
				last, err := n.Entry(t.Context(), 4)
				if err != nil || last.Kind != "state.rebuilt" || string(last.Body) != `{"entries":3,"tables":1}` {
					t.Errorf("the ledger says %s %s (%v)", last.Kind, last.Body, err)
				}
				// The node has not seen the head move.
				if seq := write(t, n, "after"); seq != 5 {
					t.Errorf("the next entry is number %d", seq)
				}
				wantSame(t, n)
			})
		})
	}
}

// A text that reads like the next column must not hide a change.
func TestRowsAreComparedByValueAndNotByHowTheyPrint(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		err := n.Write(t.Context(), func(tx *ledger.Tx) error { tx.Append(written("a", "1 seq=1")); return nil })
		if err != nil {
			t.Fatal(err)
		}
		intrude(t, address).exec(`UPDATE note SET text = '1" seq=1 "'`)
		if got := check(t, n); len(got.Differences) != 1 {
			t.Errorf("found %+v", got.Differences)
		}
	})
}

func TestALargeStateIsRebuiltInPages(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := startFilled(t, address, 1100)
		intrude(t, address).exec("DELETE FROM note WHERE seq % 2 = 0")
		if got := check(t, n); len(got.Differences) != 100 || got.Entries != 1100 || got.Rows != 550 {
			t.Errorf("%d differences, %d entries, %d rows; want the first 100, 1100 and 550", len(got.Differences), got.Entries,
				got.Rows)
		}
		var done []int64
		_, err := ledger.Rebuild(t.Context(), n.db, []ledger.Projection{notes}, func(d, _ int64) { done = append(done, d) })
		if diff := cmp.Diff([]int64{500, 1000, 1100}, done); diff != "" || err != nil {
			t.Errorf("%v; progress (-want +got):\n%s", err, diff)
		}
		wantSame(t, n)
	})
}

// wantNotRebuilt checks that no state is built from the ledger.
func wantNotRebuilt(t *testing.T, n node) {
	t.Helper()
	all := []ledger.Projection{notes}
	if _, err := ledger.CheckRebuild(t.Context(), n.db, migrations(), all, nil); !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("CheckRebuild: %v", err)
	}
	if _, err := ledger.Rebuild(t.Context(), n.db, all, nil); !fault.Is(err, fault.LedgerMismatch) {
		t.Errorf("Rebuild: %v", err)
	}
}

func TestStateIsNotRebuiltFromALedgerWithHoles(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{
		"an entry": "seq = 2", "the last entries": "seq > 1",
		"all entries": "seq > 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Each(t, func(t *testing.T, address string) {
				n := startFilled(t, address, 3)
				tamper(t, address, "DELETE FROM ledger_entry WHERE "+where)
				wantNotRebuilt(t, n)
				if c := count(t, n, "note"); c != 3 {
					t.Errorf("the state has %d rows, had 3", c)
				}
			})
		})
	}
}

func TestTheCheckRunsWhileOthersWrite(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := startFilled(t, address, 100)
		done := make(chan struct{})
		var wg sync.WaitGroup
		for c := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
						write(t, n, fmt.Sprintf("writer %d/%d", c, i))
					}
				}
			})
		}
		var seen []int64
		for range 5 {
			got := check(t, n)
			if len(got.Differences) > 0 {
				t.Errorf("the state is not what the ledger says: %+v", got)
			}
			seen = append(seen, got.Entries)
		}
		close(done)
		wg.Wait()
		if !slices.IsSorted(seen) || seen[4] <= seen[0] {
			t.Errorf("the checks saw %v entries, while others wrote", seen)
		}
	})
}
