package ledger_test

import (
	"context"
	"fmt"
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
