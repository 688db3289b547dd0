package store

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"signalbox/internal/testbed"
)

// A killed process does not show whether a commit has reached the disk; these
// settings are what makes it so.
func TestACommitIsOnDiskBeforeItIsAnswered(t *testing.T) {
	testbed.Parallel(t, "sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		db, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		tx, err := db.Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var synchronous int
		var journal string
		if err := tx.QueryRow("PRAGMA synchronous", nil, &synchronous); err != nil || synchronous != 2 {
			t.Errorf("synchronous is %d (%v), want 2, which is FULL", synchronous, err)
		}
		if err := tx.QueryRow("PRAGMA journal_mode", nil, &journal); err != nil || journal != "wal" {
			t.Errorf("journal_mode is %s (%v)", journal, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file is for others too: %v %v", info.Mode(), err)
		}
	})
	testbed.Parallel(t, "postgres", func(t *testing.T) {
		address, err := url.Parse(os.Getenv("SIGNALBOX_TEST_POSTGRES"))
		if err != nil || address.Host == "" {
			testbed.Missing(t, "there is no PostgreSQL; run the tests with make test")
		}
		q := address.Query()
		q.Set("synchronous_commit", "off") // whatever the address asks for
		address.RawQuery = q.Encode()
		db, err := Open(t.Context(), address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for setting, want := range map[string]string{
			"synchronous_commit": "on",
			// A node that freezes while it holds the ledger's lock is cut off.
			"idle_in_transaction_session_timeout": "10s", "lock_timeout": "15s",
		} {
			var got string
			if err := db.Read.QueryRowContext(t.Context(), "SHOW "+setting).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %s (%v), want %s", setting, got, err, want)
			}
		}
	})
}
