package store_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox/signalbox/internal/store"
	"github.com/signalbox/signalbox/internal/store/storetest"
)

// Whatever is queued, in whatever order: the tables are as if it had been sent one by
// one.
func TestGatheredInsertsAreTheSameAsOneByOne(t *testing.T) {
	tables := store.Migrations{Package: "gather", Steps: []string{`
CREATE TABLE lock_row (id {bigint} PRIMARY KEY) {strict};
INSERT INTO lock_row (id) VALUES (1);
CREATE TABLE one (id {bigint} PRIMARY KEY, name {text} NOT NULL, word {text} NOT NULL, again {bigint} NOT NULL) {strict};
CREATE TABLE two (id {bigint} PRIMARY KEY, data {blob}, yes {bool} NOT NULL) {strict};
`}}
	storetest.Each(t, func(t *testing.T, address string) {
		db := storetest.Open(t, address, tables)
		rapid.Check(t, func(t *rapid.T) {
			tx, err := db.Begin(t.Context(), "lock_row")
			if err != nil {
				t.Fatal(err)
			}
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
					tx.Exec("INSERT INTO two (id, data, yes) VALUES ($1, $2, $3)", next, []byte{byte(next)}, next%2 == 0)
					two[next] = fmt.Sprint(byte(next), next%2 == 0)
				default:
					tx.Exec("INSERT INTO one (id, name, word, again) VALUES ($1, $2, 'const', $1)", next, "n$2")
					one[next] = fmt.Sprint("n$2 const ", next)
				}
			}
			if _, err := tx.Commit(false); err != nil {
				t.Fatal(err)
			}
			got := map[int64]string{}
			rows, err := db.Read.QueryContext(t.Context(), "SELECT id, name, word, again FROM one")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var id, again int64
				var name, word string
				if err := rows.Scan(&id, &name, &word, &again); err != nil {
					t.Fatal(err)
				}
				got[id] = fmt.Sprint(name, " ", word, " ", again)
			}
			if err := rows.Err(); err != nil || fmt.Sprint(got) != fmt.Sprint(one) {
				t.Fatalf("one: %v instead of %v (%v)", got, one, err)
			}
			var n int
			if err := db.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM two").Scan(&n); err != nil || n != len(two) {
				t.Fatalf("two: %d instead of %d rows: %v", n, len(two), err)
			}
		})
	})
}
