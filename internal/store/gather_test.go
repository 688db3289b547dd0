package store_test

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

// Whatever is queued, in whatever order: the tables are as if it had been sent one by
// one.
func TestGatheredInsertsAreTheSameAsOneByOne(t *testing.T) {
	tables := store.Migrations{Package: "gather", Steps: []string{`
CREATE TABLE lock_row (id {bigint} PRIMARY KEY) {strict};
INSERT INTO lock_row (id) VALUES (1);
CREATE TABLE one (id {bigint} PRIMARY KEY, name {text} NOT NULL, word {text} NOT NULL, again {bigint} NOT NULL) {strict};
CREATE TABLE two (id {bigint} PRIMARY KEY, kind {text} NOT NULL, data {blob}, yes {bool} NOT NULL) {strict};
`}}
	storetest.Each(t, func(t *testing.T, address string) {
		db := storetest.Open(t, address, tables)
		rapid.Check(t, func(t *rapid.T) {
			tx, err := db.Begin(t.Context(), "lock_row")
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback() // so that a failure keeps the lock from nobody
			tx.Exec("DELETE FROM one")
			tx.Exec("DELETE FROM two")
			one, two := map[int64]string{}, map[int64]string{}
			var next int64
			for range rapid.IntRange(0, 120).Draw(t, "writes") {
				next++
				switch rapid.IntRange(0, 20).Draw(t, "what") {
				case 0:
					tx.Exec("UPDATE one SET name = $1 WHERE id < $2", "changed", next/2)
					for id := range one {
						if id < next/2 {
							one[id] = fmt.Sprint("changed const ", id)
						}
					}
				case 1:
					var n int
					if err := tx.QueryRow("SELECT count(*) FROM one", nil, &n); err != nil || n != len(one) {
						t.Fatalf("%d rows instead of %d: %v", n, len(one), err)
					}
				case 2:
					mark := tx.Mark()
					tx.Exec("INSERT INTO one (id, name, word, again) VALUES ($1, $2, 'const', $1)", -next, "undone")
					tx.Undo(mark)
				case 3, 4, 5, 6:
					data := rapid.SampledFrom([]any{[]byte{7, byte(next)}, []byte(nil), nil}).Draw(t, "data")
					tx.Exec("INSERT INTO two (id, kind, data, yes) VALUES ($1, $2, $3, $4)", int(next), word("k"), data, next%2 == 0)
					bytes, _ := data.([]byte)
					two[next] = fmt.Sprintf("k %x %t", bytes, next%2 == 0)
				default:
					tx.Exec("INSERT INTO one (id, name, word, again) VALUES ($1, $2, 'const', $1)", next, "n$2")
					one[next] = fmt.Sprint("n$2 const ", next)
				}
			}
			if _, err := tx.Commit(false); err != nil {
				t.Fatal(err)
			}
			same(t, db, one, "SELECT id, name, word, again FROM one", func(scan store.Scan) (id int64, row string, err error) {
				var again int64
				var name, word string
				err = scan(&id, &name, &word, &again)
				return id, fmt.Sprint(name, " ", word, " ", again), err
			})
			same(t, db, two, "SELECT id, kind, data, yes FROM two", func(scan store.Scan) (id int64, row string, err error) {
				var kind string
				var data []byte
				var yes bool
				err = scan(&id, &kind, &data, &yes)
				return id, fmt.Sprintf("%s %x %t", kind, data, yes), err
			})
		})
	})
}

// word is text of a type of its own.
type word string

// same compares what a query selects with what there should be.
func same(t *rapid.T, db *store.DB, want map[int64]string, query string, read func(store.Scan) (int64, string, error)) {
	t.Helper()
	got := map[int64]string{}
	err := store.Each(db.Reading(t.Context()), func(scan store.Scan) error {
		id, row, err := read(scan)
		got[id] = row
		return err
	}, query)
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("%s: %v instead of %v (%v)", query, got, want, err)
	}
}
