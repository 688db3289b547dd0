package store_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

// notes are tables for the tests; head is the one that is locked.
var notes = store.Migrations{Package: "notes", Steps: []string{`
CREATE TABLE head (id {bigint} PRIMARY KEY, n {bigint} NOT NULL) {strict};
INSERT INTO head (id, n) VALUES (1, 0);
CREATE TABLE note (
  id {bigint} PRIMARY KEY,
  name {text} NOT NULL UNIQUE,
  data {blob},
  done {bool},
  extra {text}
) {strict};`}}

// each opens an empty database with the tables of the tests, one of each kind.
func each(t *testing.T, fn func(t *testing.T, db *store.DB)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) { fn(t, storetest.Open(t, address, notes)) })
}

func begin(t *testing.T, db *store.DB) *store.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context(), "head")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Rollback)
	return tx
}

const insertNote = "INSERT INTO note (id, name) VALUES ($1, $2)"

func commit(t *testing.T, tx *store.Tx) {
	t.Helper()
	if unknown, err := tx.Commit(false); unknown || err != nil {
		t.Fatalf("commit: unknown %v, %v", unknown, err)
	}
}

// names are the notes that a reader outside of any transaction sees.
func names(t *testing.T, db *store.DB) string {
	t.Helper()
	return strings.Join(storetest.Strings(t, db, "SELECT name FROM note ORDER BY id"), " ")
}

func wantNames(t *testing.T, db *store.DB, want string) {
	t.Helper()
	if diff := cmp.Diff(want, names(t, db)); diff != "" {
		t.Errorf("the notes (-want +got):\n%s", diff)
	}
}
