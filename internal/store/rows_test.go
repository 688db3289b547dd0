package store_test

import (
	"testing"

	"signalbox/internal/store"
)

func TestRowsThatNobodyClosedDoNotHoldUpTheTransaction(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, tx *store.Tx){
		"commit":   commit,
		"rollback": func(_ *testing.T, tx *store.Tx) { tx.Rollback() },
		"query and commit": func(t *testing.T, tx *store.Tx) {
			tx.Exec(insertNote, 3, "c")
			var n int
			if err := tx.QueryRow("SELECT count(*) FROM note", nil, &n); err != nil || n != 3 {
				t.Errorf("the next query sees %d, %v", n, err)
			}
			commit(t, tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, db *store.DB) {
				tx, rows := twoNotes(t, db)
				end(t, tx) // with a row still to read, as after a panic
				tx = begin(t, db)
				tx.Exec(insertNote, 9, "z")
				commit(t, tx)
				if err := rows.Close(); err != nil {
					t.Errorf("closing late: %v", err)
				}
			})
		})
	}
}

func TestReadingOnInRowsAfterTheNextQueryIsAnError(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx, rows := twoNotes(t, db)
		if err := tx.QueryRow("SELECT count(*) FROM note", nil, new(int)); err != nil {
			t.Fatal(err)
		}
		if rows.Next() {
			t.Error("there is another row")
		}
		if rows.Err() == nil || tx.Err() == nil {
			t.Errorf("the reader is not told: %v, %v", rows.Err(), tx.Err())
		}
		if _, err := tx.Commit(false); err == nil {
			t.Error("half of the rows were read, and it is committed")
		}
	})
}

func TestRowsThatWereReadToTheEndAreClosed(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		tx.Exec(insertNote, 1, "a")
		rows, err := tx.Query("SELECT name FROM note")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			n++
		}
		if err := tx.QueryRow("SELECT 1", nil, new(int)); err != nil {
			t.Error(err)
		}
		if rows.Next() || rows.Err() != nil || rows.Close() != nil || rows.Close() != nil || tx.Err() != nil || n != 1 {
			t.Errorf("%d rows, %v, %v", n, rows.Err(), tx.Err())
		}
		commit(t, tx)
	})
}

// twoNotes is a transaction that has written two notes and read the first of them.
func twoNotes(t *testing.T, db *store.DB) (*store.Tx, store.Rows) {
	t.Helper()
	tx := begin(t, db)
	tx.Exec(insertNote, 1, "a")
	tx.Exec(insertNote, 2, "b")
	rows, err := tx.Query("SELECT name FROM note ORDER BY id")
	if err != nil || !rows.Next() {
		t.Fatalf("no rows: %v", err)
	}
	return tx, rows
}
