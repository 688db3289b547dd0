package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/store"
)

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
