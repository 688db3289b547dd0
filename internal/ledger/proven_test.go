package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestAnEntryIsProvedBeforeItCounts(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		const entries = 600 // two full tiles, and a part of one
		n := startFilled(t, address, entries)
		n.stop()
		n = start(t, address, n.dir) // knows nothing of what it has not written itself
		all, err := n.Prover(t.Context()).Entries(ledger.Query{})
		if err != nil || len(all) != entries {
			t.Fatalf("%d entries: %v", len(all), err)
		}
		if _, err := n.Prover(t.Context()).At(entries + 1); !fault.Is(err, fault.LedgerMismatch) {
			t.Errorf("an entry that there is not: %v", err)
		}
		// A transaction sees what it has appended, and proves what others have.
		err = n.Write(context.Background(), func(tx *ledger.Tx) error {
			tx.Append(written("one more", "text"))
			found, err := tx.Prover().Entries(ledger.Query{Subjects: []string{"one more", "note 1"}})
			if err == nil && len(found) != 2 {
				err = fmt.Errorf("%d entries", len(found))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The column that finds an entry is not part of it, and the record is. Both have to be what they were, and so does the
// tree.
func TestAnEntryThatWasChangedIsNotProved(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"another column": "UPDATE ledger_entry SET subject = 'note 4' WHERE seq = 30",
		"another record": "UPDATE ledger_entry SET record = (SELECT record FROM ledger_entry WHERE seq = 31), " +
			"salt = (SELECT salt FROM ledger_entry WHERE seq = 31), body = (SELECT body FROM ledger_entry WHERE seq = 31), " +
			"subject = 'note 4' WHERE seq = 30",
		"another tile": "UPDATE ledger_tile SET hashes = (SELECT hashes FROM ledger_tile WHERE level = 0 AND n = 1) " +
			"WHERE level = 0 AND n = 0",
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				n := startFilled(t, address, 600)
				n.stop()
				n = start(t, address, n.dir)
				tamper(t, address, statement)
				_, err := n.Prover(t.Context()).Entries(ledger.Query{Subject: "note 4"})
				if !fault.Is(err, fault.LedgerMismatch) || n.Mismatch() == nil {
					t.Errorf("%v, and writes are refused: %v", err, n.Mismatch())
				}
			})
		})
	}
}

// The first write of a process may be refused, and then the process does not know where the ledger ends.
func TestEntriesAreProvedAfterTheFirstWriteFailed(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := startFilled(t, address, 10)
		n.stop()
		n = start(t, address, n.dir, func(o *ledger.Options) { o.Alone = true })
		refused := errors.New("refused")
		if err := n.Write(t.Context(), func(*ledger.Tx) error { return refused }); !errors.Is(err, refused) {
			t.Fatal(err)
		}
		err := n.Write(t.Context(), func(tx *ledger.Tx) error {
			for _, name := range []string{"one", "two", "three"} {
				tx.Append(written(name, "text"))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if all, err := n.Prover(t.Context()).Entries(ledger.Query{}); err != nil || len(all) != 13 {
			t.Errorf("%d entries: %v", len(all), err)
		}
	})
}

func TestAContradictionIsRecordedOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		for range 3 {
			err := n.Contradicts("note", strings.Repeat("é", 400), "%s is not there", "it")
			if !fault.Is(err, fault.StateMismatch) || !strings.Contains(err.Error(), "it is not there") {
				t.Error(err)
			}
		}
		_ = n.Contradicts("note", "other", "it is not there")
		testbed.Until(t, "both to be recorded", func() bool {
			told, err := n.Entries(t.Context(), ledger.Query{Kinds: []string{"table.contradicted"}})
			return err == nil && len(told) == 2
		})
	})
}

// TestStateIsNotBuiltFromAForgedLedger changes one thing at a time in the database,
// in an entry that is older than what is compared at start.
func TestStateIsNotBuiltFromAForgedLedger(t *testing.T) {
	for name, forge := range map[string]string{
		"a body": `UPDATE ledger_entry SET body = (SELECT body FROM ledger_entry WHERE seq = 2) ` +
			`WHERE seq = 1`,
		"a body that was erased": `UPDATE ledger_entry SET salt = NULL WHERE seq = 1`,
		"a record": `UPDATE ledger_entry SET record = (SELECT record FROM ledger_entry WHERE seq = 2), ` +
			`salt = (SELECT salt FROM ledger_entry WHERE seq = 2), body = (SELECT body FROM ledger_entry WHERE seq = 2) ` +
			`WHERE seq = 1`,
		"a column for looking up": `UPDATE ledger_entry SET kind = 'note.removed' WHERE seq = 1`,
		"the head":                `UPDATE ledger_head SET seq = seq + 10`,
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				n := start(t, address, t.TempDir())
				for i := range 300 {
					write(t, n, string(rune('a'+i%26))+strings.Repeat("x", i/26))
				}
				n.stop()
				tamper(t, address, forge)
				wantNotRebuilt(t, n)
				if err := ledger.Compare(t.Context(), n.db, n.dir); name == "the head" && !fault.Is(err, fault.LedgerMismatch) {
					t.Errorf("Compare: %v", err)
				}
			})
		})
	}
}

func TestAnEntryWithAnotherBodyIsNotShown(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		write(t, n, "one")
		write(t, n, "two")
		tamper(t, address, `UPDATE ledger_entry SET body = (SELECT body FROM ledger_entry WHERE seq = 2) WHERE seq = 1`)
		if e, err := n.Entry(t.Context(), 1); !fault.Is(err, fault.LedgerMismatch) {
			t.Errorf("%s %v", e.Body, err)
		}
	})
}

func TestALostCheckpointFileDoesNotHideAChange(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		write(t, n, "one")
		write(t, n, "two")
		n.stop()
		if err := os.Remove(filepath.Join(n.dir, ledger.CheckpointFile)); err != nil {
			t.Fatal(err)
		}
		again := start(t, address, n.dir)
		if err := again.Mismatch(); err != nil {
			t.Fatalf("a lost file alone is no harm: %v", err)
		}
		again.stop()
		if err := os.Remove(filepath.Join(n.dir, ledger.CheckpointFile)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		tamper(t, address, "DELETE FROM ledger_tile")
		if err := start(t, address, n.dir).Mismatch(); !fault.Is(err, fault.LedgerMismatch) {
			t.Errorf("the tree is gone, and the file too: %v", err)
		}
	})
}

// tamper changes the database behind the ledger's back.
func tamper(t testing.TB, address, statement string) {
	t.Helper()
	i := intrude(t, address)
	i.disarm()
	i.exec(statement)
}
