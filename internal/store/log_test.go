package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/store"
	"signalbox/internal/testbed"
)

// TestTheLogIsCopiedBesideTheWrites: the file grows, and the log begins anew, without a
// commit that has to do it.
func TestTheLogIsCopiedBesideTheWrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Migrate(t.Context(),
		store.Migrations{
			Package: "test",
			Steps:   []string{"CREATE TABLE thing (id {bigint} PRIMARY KEY, text {text} NOT NULL) {strict};"},
		}); err != nil {
		t.Fatal(err)
	}
	size := func(file string) int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	next := 0
	write := func() { // 12 MB, more than what is gathered
		for range 36 {
			tx, err := db.Begin(t.Context(), "thing")
			if err != nil {
				t.Fatal(err)
			}
			for range 500 {
				next++
				tx.Exec("INSERT INTO thing (id, text) VALUES ($1, $2)", next, fmt.Sprint(next, strings.Repeat(" text", 140)))
			}
			if _, err := tx.Commit(false); err != nil {
				t.Fatal(err)
			}
		}
	}
	for round := range 6 {
		write()
		testbed.Until(t, fmt.Sprintf("the log of round %d to be copied", round+1), func() bool {
			return size(path) >= int64(round+1)<<23
		})
	}
	if log := size(path + "-wal"); log > 40<<20 {
		t.Errorf("the log has %d bytes", log)
	}
}
