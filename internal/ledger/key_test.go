package ledger_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestTheKeyOfALedger(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		n := start(t, address, dir)
		write(t, n, "first")
		n.stop()
		public, private := filepath.Join(dir, ledger.PublicKeyFile), filepath.Join(dir, ledger.KeyFile)
		open := func(dir string) (*ledger.Ledger, error) {
			db := storetest.Open(t, address, migrations()...)
			return ledger.Open(t.Context(),
				ledger.Options{DB: db, Dir: dir, Origin: "test.example/other", Projections: []ledger.Projection{notes}})
		}

		t.Run("the public key follows from the private one", func(t *testing.T) {
			want := testbed.Read(t, public)
			if err := os.Remove(public); err != nil {
				t.Fatal(err)
			}
			l, err := open(dir)
			if err != nil || !l.Signs() {
				t.Fatalf("a crash before the public key was written is not repaired: %v", err)
			}
			if got := testbed.Read(t, public); !bytes.Equal(got, want) {
				t.Errorf("the public key is %q, was %q", got, want)
			}
		})
		t.Run("a folder without keys joins and does not sign", func(t *testing.T) {
			l, err := open(t.TempDir())
			if err != nil || l.Signs() || l.Key() != n.Key() {
				t.Errorf("signs: %v, %v", l.Signs(), err)
			}
		})
		t.Run("a folder of another ledger is refused", func(t *testing.T) {
			other := start(t, storetest.SQLite(t), t.TempDir())
			other.stop()
			if _, err := open(other.dir); !fault.Is(err, fault.LedgerMismatch) {
				t.Errorf("got %v", err)
			}
		})
		t.Run("a new database is not signed by nobody", func(t *testing.T) {
			lost := t.TempDir()
			testbed.Write(t, filepath.Join(lost, ledger.PublicKeyFile), testbed.Read(t, public))
			db := storetest.Open(t, storetest.SQLite(t), migrations()...)
			if _, err := ledger.Open(t.Context(), ledger.Options{DB: db, Dir: lost, Origin: "test.example/x"}); !fault.Is(err,
				fault.LedgerMismatch) {
				t.Errorf("got %v", err)
			}
		})
		t.Run("a key with an empty database begins no second ledger", func(t *testing.T) {
			lost := t.TempDir()
			testbed.Write(t, filepath.Join(lost, ledger.KeyFile), testbed.Read(t, private))
			for range 2 {
				db := storetest.Open(t, storetest.SQLite(t), migrations()...)
				_, err := ledger.Open(t.Context(), ledger.Options{DB: db, Dir: lost, Origin: "test.example/x"})
				if !fault.Is(err, fault.LedgerMismatch) || !strings.Contains(err.Error(), "signalbox restore") ||
					!strings.Contains(err.Error(), "signalbox migrate") || !strings.Contains(err.Error(), "begin a new one") {
					t.Errorf("got %v", err)
				}
				// Nor does it with the public key, as a folder has it whose ledger is lost.
				testbed.Write(t, filepath.Join(lost, ledger.PublicKeyFile), testbed.Read(t, public))
			}
		})
		t.Run("a first start that was killed is gone on with", func(t *testing.T) {
			killed := t.TempDir()
			other := start(t, storetest.SQLite(t), killed)
			other.stop()
			key := testbed.Read(t, filepath.Join(killed, ledger.KeyFile))
			for _, name := range []string{ledger.KeyFile, ledger.PublicKeyFile} {
				if err := os.Remove(filepath.Join(killed, name)); err != nil {
					t.Fatal(err)
				}
			}
			testbed.Write(t, filepath.Join(killed, ledger.KeyFile+".new"), key)
			db := storetest.Open(t, storetest.SQLite(t), migrations()...)
			l, err := ledger.Open(t.Context(), ledger.Options{DB: db, Dir: killed, Origin: "test.example/x"})
			if err != nil || !l.Signs() {
				t.Fatalf("before the database knew the key: %v", err)
			}
			// Killed once more, after the database knew it.
			if err := os.Rename(filepath.Join(killed, ledger.KeyFile), filepath.Join(killed, ledger.KeyFile+".new")); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(killed, ledger.PublicKeyFile)); err != nil {
				t.Fatal(err)
			}
			if l, err = ledger.Open(t.Context(), ledger.Options{DB: db, Dir: killed, Origin: "test.example/x"}); err != nil ||
				!l.Signs() {
				t.Fatalf("after the database knew the key: %v", err)
			}
			if got := testbed.Read(t, filepath.Join(killed, ledger.KeyFile)); !bytes.Equal(got, key) {
				t.Error("the key is another")
			}
		})
		t.Run("a key of a first start that another was faster than signs nothing", func(t *testing.T) {
			late := t.TempDir()
			other := start(t, storetest.SQLite(t), t.TempDir())
			other.stop()
			testbed.Write(t, filepath.Join(late, ledger.KeyFile+".new"), testbed.Read(t, filepath.Join(other.dir, ledger.KeyFile)))
			l, err := open(late)
			if err != nil || l.Signs() || l.Key() != n.Key() {
				t.Errorf("signs: %v", err)
			}
		})
		t.Run("the private key is for its owner alone", func(t *testing.T) {
			if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info.Mode(), err)
			}
		})
	})
}

func TestNodesThatStartTogetherAgreeOnOneKey(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	const nodes = 4
	all := make([]*ledger.Ledger, nodes)
	var wg sync.WaitGroup
	for i := range nodes {
		db, dir := storetest.Open(t, address, migrations()...), t.TempDir()
		wg.Go(func() {
			l, err := ledger.Open(t.Context(), ledger.Options{DB: db, Dir: dir, Origin: "test.example/together"})
			if err != nil {
				t.Error(err)
				return
			}
			all[i] = l
		})
	}
	wg.Wait()
	signers := 0
	for _, l := range all {
		if l == nil {
			t.Fatal("a node did not start")
		}
		if l.Key() != all[0].Key() {
			t.Errorf("keys differ: %s and %s", l.Key(), all[0].Key())
		}
		if l.Signs() {
			signers++
		}
	}
	if signers != 1 {
		t.Errorf("%d nodes sign, want 1", signers)
	}
}
