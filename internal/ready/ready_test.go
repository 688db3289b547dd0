package ready_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/ready"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// problem is what a node says now, "" if it is ready.
func problem(t *testing.T, n *ready.Node) string {
	t.Helper()
	if err := n.Problem(t.Context()); err != nil {
		return err.Error()
	}
	return ""
}

// TestEntriesThatNobodySignsMakeANodeUnready: it has no key, and the node that has it is away. They are forgiven for a
// while, and forgotten when that node is back.
func TestEntriesThatNobodySignsMakeANodeUnready(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		signer, keys := &ledgertest.Clock{}, t.TempDir()
		first := ledgertest.Open(t, address, signer, nil, ledgertest.Dir(keys))
		first.Run()
		first.Append(ledger.Event{Kind: "note.written", Actor: "system"})
		first.Stop() // which signs

		second := ledgertest.Open(t, address, signer, nil)
		second.Run()
		node := ready.New(ready.Options{DB: second.DB, Ledger: second.Ledger, Dir: t.TempDir(), Now: signer.Now})
		if text := problem(t, node); text != "" {
			t.Errorf("with everything signed: %s", text)
		}
		second.Append(ledger.Event{Kind: "note.written", Actor: "system"})
		if text := problem(t, node); text != "" {
			t.Errorf("right after an entry: %s", text)
		}
		signer.Move(2 * time.Minute)
		testbed.Until(t, "the node to say that nobody signs", func() bool {
			text := problem(t, node)
			return strings.Contains(text, "Nobody has signed") && strings.Contains(text, ledger.KeyFile)
		})

		back := ledgertest.Open(t, address, signer, nil, ledgertest.Dir(keys))
		back.Run()
		testbed.Until(t, "the node to be ready again", func() bool { return problem(t, node) == "" })
	})
}

// smallDisk is a folder on a disk of some megabytes.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		testbed.Missing(t, "mounting a small disk takes root")
	}
	dir := t.TempDir()
	mount := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "umount", "-l", dir).Run() })
	return dir
}

// TestADiskThatIsNearlyFullMakesANodeUnready before a write fails, and only as long as that is so. A small disk is not
// unready for being small.
func TestADiskThatIsNearlyFullMakesANodeUnready(t *testing.T) {
	t.Parallel()
	n := ledgertest.Open(t, storetest.SQLite(t), nil, nil)
	n.Run()
	dir := smallDisk(t)
	node := ready.New(ready.Options{DB: n.DB, Ledger: n.Ledger, Dir: dir, Now: n.Now})
	if text := problem(t, node); text != "" {
		t.Errorf("an empty disk: %s", text)
	}
	filler := filepath.Join(dir, "filler")
	testbed.Write(t, filler, strings.Repeat("x", 8<<20-200<<10)) // 200 KB are left, of 400 that are kept
	err := node.Problem(t.Context())
	if !fault.Is(err, fault.StoreFull) || !strings.Contains(err.Error(), "Free some space") {
		t.Errorf("a disk that is nearly full: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if text := problem(t, node); text != "" {
		t.Errorf("a disk with room again: %s", text)
	}
	if err := os.Mkdir(filepath.Join(dir, "gone"), 0o700); err != nil {
		t.Fatal(err)
	}
	gone := ready.New(ready.Options{DB: n.DB, Ledger: n.Ledger, Dir: filepath.Join(dir, "away"), Now: n.Now})
	if text := problem(t, gone); !strings.Contains(text, "still there") {
		t.Errorf("a folder that is gone: %s", text)
	}
}

// TestAWriteThatFailedIsTriedAgain although nobody else writes: a node that gets no calls finds out that its database
// takes writes again.
func TestAWriteThatFailedIsTriedAgain(t *testing.T) {
	t.Parallel()
	cluster := storetest.NewCluster(t)
	n := ledgertest.Open(t, cluster.Address, nil, nil)
	n.Run()
	node := ready.New(ready.Options{DB: n.DB, Ledger: n.Ledger, Dir: t.TempDir(), Now: n.Now})
	n.Append(ledger.Event{Kind: "note.written", Actor: "system"})
	if text := problem(t, node); text != "" {
		t.Errorf("after a write: %s", text)
	}
	cluster.Kill()
	err := n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Kind: "note.written", Actor: "system"})
		return nil
	})
	if err == nil {
		t.Fatal("a write without a database is acknowledged")
	}
	if err := node.Problem(t.Context()); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("after a write that failed: %v", err)
	}
	cluster.Start(t)
	testbed.Until(t, "the node to find out that writes succeed", func() bool { return problem(t, node) == "" })
}
