package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
)

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
