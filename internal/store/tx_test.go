package store_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

func TestAQueuedWriteIsSeenByTheNextQueryAndByOthersAfterTheCommit(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		tx.Exec(insertNote, 1, "a")
		tx.Exec(insertNote, 2, "b")
		var n int
		if err := tx.QueryRow("SELECT count(*) FROM note", nil, &n); err != nil || n != 2 {
			t.Fatalf("the query sees %d, %v", n, err)
		}
		tx.Exec(insertNote, 3, "c")
		wantNames(t, db, "")
		commit(t, tx)
		wantNames(t, db, "a b c")
	})
}

func TestRollbackUndoesWhatWasSentAndWhatWasQueued(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		tx.Exec(insertNote, 1, "a")
		if err := tx.QueryRow("SELECT name FROM note WHERE id = $1", []any{1}, new(string)); err != nil {
			t.Fatal(err)
		}
		tx.Exec(insertNote, 2, "b")
		tx.Rollback()
		wantNames(t, db, "")
		begin(t, db).Rollback()
	})
}

func TestATransactionThatIsOverDoesNothingMore(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		first := begin(t, db)
		first.Exec(insertNote, 1, "a")
		commit(t, first)
		second := begin(t, db)
		second.Exec(insertNote, 2, "b")
		if err := second.QueryRow("SELECT id FROM note WHERE id = 2", nil, new(int)); err != nil {
			t.Fatal(err)
		}
		first.Rollback() // must not roll back the second
		first.Exec(insertNote, 3, "c")
		if _, err := first.Commit(false); err == nil {
			t.Error("a second commit is accepted")
		}
		if _, err := first.Query("SELECT 1"); err == nil {
			t.Error("a query after the commit is accepted")
		}
		commit(t, second)
		second.Rollback()
		wantNames(t, db, "a b")
	})
}

func TestUndoDropsWhatWasQueuedSinceTheMark(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		tx.Exec(insertNote, 1, "a")
		mark := tx.Mark()
		tx.Exec(insertNote, 2, "b")
		tx.Exec(insertNote, 3, "c")
		if !tx.Undo(mark) {
			t.Fatal("could not undo")
		}
		tx.Exec(insertNote, 4, "d")
		commit(t, tx)
		wantNames(t, db, "a d")
	})
}

func TestUndoReportsFalseOnlyWhenSomethingSinceTheMarkWasSent(t *testing.T) {
	count := func(t *testing.T, tx *store.Tx) {
		t.Helper()
		if err := tx.QueryRow("SELECT count(*) FROM note", nil, new(int)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		fn   func(t *testing.T, tx *store.Tx) (mark int)
		want bool
	}{
		{"a write after the mark was sent", func(t *testing.T, tx *store.Tx) int {
			mark := tx.Mark()
			tx.Exec(insertNote, 1, "a")
			count(t, tx)
			return mark
		}, false},
		{"only writes before the mark were sent", func(t *testing.T, tx *store.Tx) int {
			tx.Exec(insertNote, 1, "a")
			mark := tx.Mark()
			count(t, tx)
			tx.Exec(insertNote, 2, "b")
			return mark
		}, true},
		{"a later mark does not hide what was sent before it", func(t *testing.T, tx *store.Tx) int {
			tx.Exec(insertNote, 1, "a")
			mark := tx.Mark()
			tx.Exec(insertNote, 2, "b")
			count(t, tx)
			tx.Mark()
			return mark
		}, false},
		{"a query that writes counts as sent", func(t *testing.T, tx *store.Tx) int {
			mark := tx.Mark()
			if err := tx.QueryRow(insertNote+" RETURNING id", []any{1, "a"}, new(int)); err != nil {
				t.Fatal(err)
			}
			return mark
		}, false},
		{"nothing happened since the mark", func(_ *testing.T, tx *store.Tx) int { return tx.Mark() }, true},
		{"an earlier mark was undone already", func(_ *testing.T, tx *store.Tx) int {
			first := tx.Mark()
			tx.Exec(insertNote, 1, "a")
			second := tx.Mark()
			tx.Undo(first)
			return second
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, db *store.DB) {
				tx := begin(t, db)
				if got := tx.Undo(c.fn(t, tx)); got != c.want {
					t.Errorf("Undo is %v", got)
				}
				if c.want {
					count(t, tx)
				}
			})
		})
	}
}

func TestAnErrorMakesTheTransactionUseless(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   func(tx *store.Tx) error
	}{
		{"a queued write that fails", func(tx *store.Tx) error {
			tx.Exec(insertNote, 1, "b")
			return tx.QueryRow("SELECT 1", nil, new(int))
		}},
		{"a query that fails", func(tx *store.Tx) error {
			_, err := tx.Query("SELECT nothing FROM nowhere")
			return err
		}},
		{"a query that writes and fails", func(tx *store.Tx) error {
			return tx.QueryRow("INSERT INTO note (id, name) VALUES (1, 'x') RETURNING id", nil, new(int))
		}},
		{"a value that does not fit its variable", func(tx *store.Tx) error {
			return tx.QueryRow("SELECT name FROM note WHERE id = 1", nil, new(int))
		}},
		{"an argument that no database takes", func(tx *store.Tx) error {
			tx.Exec(insertNote, make(chan int), "x")
			return tx.QueryRow("SELECT 1", nil, new(int))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, db *store.DB) {
				tx := begin(t, db)
				tx.Exec(insertNote, 1, "a")
				commit(t, tx)

				tx = begin(t, db)
				tx.Exec(insertNote, 2, "lost")
				err := c.fn(tx)
				if err == nil {
					t.Fatal("no error")
				}
				if !errors.Is(tx.Err(), err) {
					t.Errorf("Err is %v, the error was %v", tx.Err(), err)
				}
				if _, again := tx.Query("SELECT 1"); !errors.Is(again, err) {
					t.Errorf("the next query says %v, the error was %v", again, err)
				}
				if tx.Undo(tx.Mark()) {
					t.Error("Undo claims to help")
				}
				if unknown, again := tx.Commit(false); unknown || !errors.Is(again, err) {
					t.Errorf("the commit says %v, %v", unknown, again)
				}
				tx = begin(t, db)
				tx.Exec(insertNote, 3, "c")
				commit(t, tx)
				wantNames(t, db, "a c")
			})
		})
	}
}

func TestAQueuedWriteThatFailsInTheCommitIsKnownNotToBeThere(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		tx.Exec(insertNote, 1, "a")
		tx.Exec(insertNote, 1, "b")
		unknown, err := tx.Commit(true)
		if unknown || !store.IsUnique(err) {
			t.Errorf("unknown %v, %v", unknown, err)
		}
		wantNames(t, db, "")
	})
}

func TestNoRowIsNotAnErrorOfTheTransaction(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		if err := tx.QueryRow("SELECT id FROM note WHERE id = 9", nil, new(int)); !errors.Is(err, sql.ErrNoRows) {
			t.Fatalf("got %v", err)
		}
		tx.Exec(insertNote, 1, "a")
		commit(t, tx)
		wantNames(t, db, "a")
	})
}

func TestACommitOutlivesTheProcess(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		db := storetest.Open(t, address, notes)
		tx := begin(t, db)
		tx.Exec(insertNote, 1, "a")
		commit(t, tx)
		db.Close()
		wantNames(t, storetest.Open(t, address, notes), "a")
	})
}

func TestAClosedDatabaseSaysSoAndClosesTwice(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		db.Close()
		db.Close()
		if _, err := db.Begin(context.Background(), "head"); err == nil {
			t.Error("a transaction begins")
		}
	})
}

func TestConditionsFindTheRowsThatMeetAllOfThem(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		for i, name := range []string{"a", "b", "c", "d"} {
			tx.Exec(insertNote, i+1, name)
		}
		commit(t, tx)
		for _, c := range []struct {
			name string
			and  func(w *store.Where)
			want []string
		}{
			{"no condition selects everything", func(*store.Where) {}, []string{"a", "b", "c", "d"}},
			{"one value", func(w *store.Where) { w.And("id > %s", 2) }, []string{"c", "d"}},
			{"two values", func(w *store.Where) { w.And("(id > %s AND id < %s)", 1, 4) }, []string{"b", "c"}},
			{"a value that is used twice", func(w *store.Where) {
				w.And("(name = %[1]s OR name < %[1]s)", "b")
			}, []string{"a", "b"}},
			{"a condition without a value", func(w *store.Where) { w.And("name <> 'a'") }, []string{"b", "c", "d"}},
			{"an empty text selects everything", func(w *store.Where) { w.Equal("name", "") }, []string{"a", "b", "c", "d"}},
			{"a text", func(w *store.Where) { w.Equal("name", "c") }, []string{"c"}},
			{"a list after a value", func(w *store.Where) {
				w.And("id < %s", 4)
				w.In("name", []string{"b", "d", "c"})
			}, []string{"b", "c"}},
			{"an empty list selects nothing", func(w *store.Where) { w.In("name", nil) }, []string{}},
			{"a percent sign in a condition without a value", func(w *store.Where) { w.And("id % 2 = 0") }, []string{"b", "d"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				var w store.Where
				c.and(&w)
				got, err := store.All(db.Reading(t.Context()), store.Text,
					"SELECT name FROM note WHERE "+w.String()+" ORDER BY id LIMIT "+w.Mark(10), w.Args()...)
				if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
					t.Errorf("%s: %v\n%s", w.String(), err, diff)
				}
			})
		}
	})
}

func TestPlaceholdersAreNumberedThrough(t *testing.T) {
	for got, want := range map[string]string{
		store.Marks(1, 1): "$1", store.Marks(9, 3): "$9, $10, $11", store.Marks(5, 0): "",
		store.RowMarks(1, 2): "($1, $2)", store.RowMarks(2, 3): "($1, $2, $3), ($4, $5, $6)",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
