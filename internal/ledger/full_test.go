package ledger_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// smallDisk is a folder on a disk of three megabytes.
func smallDisk(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("only root can mount a small disk")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount a small disk: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmount the small disk: %v: %s", err, out)
		}
	})
	return dir
}

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	n := start(t, filepath.Join(dir, "signalbox.db"), dir)
	text := fmt.Sprintf("%01000d", 0)
	acknowledged := 0
	put := func() error {
		err := n.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(written(fmt.Sprint("note ", acknowledged+1), text))
			return nil
		})
		if err == nil {
			acknowledged++
		}
		return err
	}
	for range 20 {
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		filler := filepath.Join(dir, "filler")
		_ = os.WriteFile(filler, make([]byte, 4<<20), 0o600) // as much of it as there is room
		var err error
		for range 10_000 { // what room there is inside of the files is used first
			if err = put(); err != nil {
				break
			}
		}
		for range 3 {
			if !fault.Is(err, fault.StoreFull) {
				t.Fatalf("round %d: with a full disk a caller heard %v", round, err)
			}
			err = put()
		}
		_ = n.Checkpoint(t.Context()) // fails, and must do no harm
		wantGapless(t, n, acknowledged)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatalf("round %d: there is room again, and a caller heard %v", round, err)
		}
	}
	wantGapless(t, n, acknowledged)
	wantSame(t, n)
	if got, err := verify(export(t, n), n.Key(), nil); err != nil || got.Entries != int64(acknowledged) {
		t.Errorf("the export has %d entries (%v), want %d", got.Entries, err, acknowledged)
	}
	n.stop()
	if err := start(t, filepath.Join(dir, "signalbox.db"), dir).Mismatch(); err != nil {
		t.Error(err)
	}
}
