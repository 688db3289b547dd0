package store_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"signalbox/internal/store"
)

// TestAnotherProgramThatWritesIsFound: another connection stands for another program. Own commits, and
// programs that only read, are not found.
func TestAnotherProgramThatWritesIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	set := store.Migrations{Package: "x", Steps: []string{"CREATE TABLE ledger_head (id {bigint} PRIMARY KEY) {strict};"}}
	if err := db.Migrate(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	foreign := func() bool {
		t.Helper()
		found, err := db.Foreign(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if foreign() {
		t.Fatal("the first look found something")
	}
	tx, err := db.Begin(t.Context(), "ledger_head")
	if err != nil {
		t.Fatal(err)
	}
	tx.Exec("INSERT INTO ledger_head (id) VALUES (1)")
	if _, err := tx.Commit(false); err != nil {
		t.Fatal(err)
	}
	if foreign() {
		t.Error("our own commit is taken for another program's")
	}
	other, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	var n int
	if err := other.QueryRowContext(t.Context(), "SELECT count(*) FROM ledger_head").Scan(&n); err != nil || foreign() {
		t.Errorf("a reader is taken for a writer: %v", err)
	}
	if _, err := other.ExecContext(t.Context(), "INSERT INTO ledger_head (id) VALUES (2)"); err != nil {
		t.Fatal(err)
	}
	if !foreign() || foreign() {
		t.Error("another program's commit is not found, or found twice")
	}
}
