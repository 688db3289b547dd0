package store_test

import (
	"bytes"
	"database/sql"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

// note is a row, with everything that may be null as a pointer or a slice.
type note struct {
	Name  string
	Data  []byte
	Done  *bool
	Extra *string
}

func TestValuesComeBackAsTheyWentIn(t *testing.T) {
	yes, no, empty, text := true, false, "", "a'b\"c\\ ä 𝄞 \n\t"
	for name, want := range map[string]note{
		"everything":     {"a", []byte{0, 1, 255, 0}, &yes, &text},
		"false":          {"a", []byte{1}, &no, &text},
		"empty":          {"", nil, &no, &empty},
		"null":           {"a", nil, nil, nil},
		"a longer blob":  {"a", bytes.Repeat([]byte{0, 7}, 2000), nil, nil},
		"SQL in a value": {"'); DROP TABLE note; --", nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, db *store.DB) {
				const read = "SELECT name, data, done, extra FROM note WHERE id = 1"
				tx := begin(t, db)
				tx.Exec("INSERT INTO note (id, name, data, done, extra) VALUES ($1, $2, $3, $4, $5)", 1, want.Name, want.Data,
					want.Done, want.Extra)
				var inside note
				if err := tx.QueryRow(read, nil, &inside.Name, &inside.Data, &inside.Done, &inside.Extra); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, inside); diff != "" {
					t.Errorf("inside of the transaction (-want +got):\n%s", diff)
				}
				commit(t, tx)
				var outside note
				if err := db.Read.QueryRowContext(t.Context(), read).Scan(&outside.Name, &outside.Data, &outside.Done,
					&outside.Extra); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, outside); diff != "" {
					t.Errorf("outside (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAnEmptyBlobIsNotNullThoughSQLiteReadsItAsNil(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		tx.Exec("INSERT INTO note (id, name, data) VALUES (1, 'a', $1)", []byte{})
		var (
			data []byte
			null bool
		)
		if err := tx.QueryRow("SELECT data, data IS NULL FROM note", nil, &data, &null); err != nil {
			t.Fatal(err)
		}
		if null || len(data) != 0 {
			t.Errorf("null %v, data %v", null, data)
		}
	})
}

func TestPlainVariablesAndNullVariablesAreRead(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		tx.Exec("INSERT INTO note (id, name, done) VALUES ($1, $2, $3)", int64(1), "a", true)
		var (
			id    int64
			done  bool
			extra sql.NullString
			n     int
		)
		if err := tx.QueryRow("SELECT id, done, extra, 7 FROM note", nil, &id, &done, &extra, &n); err != nil {
			t.Fatal(err)
		}
		if id != 1 || !done || extra.Valid || n != 7 {
			t.Errorf("got %d %v %v %d", id, done, extra, n)
		}
		if err := tx.QueryRow("SELECT extra FROM note", nil, new(string)); err == nil {
			t.Error("null is read into a string")
		}
	})
}

func TestPlaceholdersGoByNumber(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		const query = "SELECT name, extra FROM note WHERE id = $2 AND (name = $1 OR extra = $1) AND id = $2"
		tx := begin(t, db)
		tx.Exec("INSERT INTO note (extra, name, id) VALUES ($2, $2, $1)", 5, "x")
		var name, extra string
		if err := tx.QueryRow(query, []any{"x", 5}, &name, &extra); err != nil || name != "x" || extra != "x" {
			t.Errorf("inside: %q %q %v", name, extra, err)
		}
		commit(t, tx)
		if err := db.Read.QueryRowContext(t.Context(), query, "x", 5).Scan(&name, &extra); err != nil {
			t.Errorf("outside: %v", err)
		}
	})
}

func TestTextSortsByItsBytes(t *testing.T) {
	each(t, func(t *testing.T, db *store.DB) {
		tx := begin(t, db)
		for i, name := range []string{"ä", "a", "B", "_", "Z", "aa", "é", "𝄞", "a b", "1"} {
			tx.Exec("INSERT INTO note (id, name) VALUES ($1, $2)", i, name)
		}
		got, err := store.All(tx.Query, func(scan store.Scan) (name string, err error) {
			err = scan(&name)
			return name, err
		}, "SELECT name FROM note ORDER BY name")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"1", "B", "Z", "_", "a", "a b", "aa", "ä", "é", "𝄞"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		var n int
		if err := tx.QueryRow("SELECT count(*) FROM note WHERE name > $1", []any{"a"}, &n); err != nil || n != 5 {
			t.Errorf("%d are greater than a, %v", n, err)
		}
	})
}

func TestIsUniqueTellsATakenValueFromOtherErrors(t *testing.T) {
	tables := store.Migrations{Package: "unique", Steps: []string{`
CREATE TABLE by_text (name {text} PRIMARY KEY) {strict};
CREATE TABLE by_two (a {text} NOT NULL, b {bigint} NOT NULL CHECK (b > 0), PRIMARY KEY (a, b)) {strict};
CREATE TABLE by_index (a {text}) {strict};
CREATE UNIQUE INDEX by_index_a ON by_index (a) WHERE a <> '';`}}
	storetest.Each(t, func(t *testing.T, address string) {
		db := storetest.Open(t, address, notes, tables)
		for _, c := range []struct {
			name, write string
			want        bool
		}{
			{"a number that is the key", "INSERT INTO note (id, name) VALUES (1, 'a'), (1, 'b')", true},
			{"a unique column", "INSERT INTO note (id, name) VALUES (1, 'a'), (2, 'a')", true},
			{"a text that is the key", "INSERT INTO by_text (name) VALUES ('a'), ('a')", true},
			{"a key of two columns", "INSERT INTO by_two (a, b) VALUES ('a', 1), ('a', 1)", true},
			{"a unique index", "INSERT INTO by_index (a) VALUES ('a'), ('a')", true},
			{"null where it may not be", "INSERT INTO note (id) VALUES (1)", false},
			{"a check", "INSERT INTO by_two (a, b) VALUES ('a', 0)", false},
			{"no such table", "INSERT INTO nowhere (a) VALUES (1)", false},
		} {
			tx := begin(t, db)
			tx.Exec(c.write)
			_, err := tx.Commit(false)
			if err == nil || store.IsUnique(err) != c.want {
				t.Errorf("%s: %v, IsUnique is %v", c.name, err, store.IsUnique(err))
			}
		}
	})
	if store.IsUnique(nil) || store.IsUnique(sql.ErrNoRows) {
		t.Error("other errors are unique violations")
	}
}
