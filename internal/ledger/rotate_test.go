package ledger_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	keys "signalbox/internal/ledger/notes"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// rotate replaces the key of a ledger.
func rotate(t testing.TB, n node) keys.Succession {
	t.Helper()
	s, err := n.Rotate(t.Context(), "operator:ines")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAnExportVerifiesWithEveryKeyThatTheLedgerHasHad(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		write(t, n, "first")
		all := []string{n.Key()}
		early := export(t, n)
		checkpoint, _, err := n.Signed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"second", "third"} {
			s := rotate(t, n)
			if s.Old != all[len(all)-1] || s.New != n.Key() || !n.Signs() || n.Mismatch() != nil {
				t.Fatalf("%+v, and the key is %s, %v", s, n.Key(), n.Mismatch())
			}
			all = append(all, s.New)
			write(t, n, name)
		}
		n.stop()
		n = start(t, address, n.dir)
		if n.Key() != all[2] || !n.Signs() || n.Mismatch() != nil {
			t.Errorf("after a restart the key is %s, %v", n.Key(), n.Mismatch())
		}
		file := export(t, n)
		for i, key := range all {
			got, err := verify(file, key, &ledger.Against{Signed: checkpoint})
			if err != nil || len(got.Keys) != 3 || got.Keys[2].Text != all[2] || got.Entries != 5 {
				t.Errorf("with key %d: %+v, %v", i, got, err)
			}
		}
		if _, err := verify(early, all[0], nil); err != nil {
			t.Errorf("an export from before: %v", err)
		}
		_, strange := otherKey(t)
		for name, c := range map[string]struct{ file, key string }{
			"a stranger's key":                {file, strange},
			"a later key for an early export": {early, all[1]},
			"a succession that is cut out":    {without(file, ledger.Rotated), all[0]},
		} {
			if _, err := verify(c.file, c.key, nil); !fault.Is(err, fault.VerificationFailed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// without is an export without the first entry of a kind.
func without(file, kind string) string {
	lines := strings.SplitAfter(file, "\n")
	for i, line := range lines {
		if strings.Contains(line, `"kind":"`+kind+`"`) {
			return strings.Join(append(lines[:i:i], lines[i+1:]...), "")
		}
	}
	return file
}

func TestASuccessionThatTheKeyInForceHasNotSignedStopsTheLedger(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		write(t, n, "first")
		old := n.Key()
		mine, public, err := note.GenerateKey(rand.Reader, n.Origin())
		if err != nil {
			t.Fatal(err)
		}
		thief, err := note.NewSigner(mine)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join([]string{"signalbox ledger succession v1", n.Origin(), "2", old, public, ""}, "\n")
		forged, err := note.Sign(&note.Note{Text: text}, thief)
		if err != nil {
			t.Fatal(err)
		}
		err = n.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{Kind: ledger.Rotated, Actor: "system", Body: map[string]string{"note": string(forged)}})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		testbed.Until(t, "the ledger to refuse writes", func() bool { return n.Mismatch() != nil })
		if n.Key() != old {
			t.Errorf("the key is %s", n.Key())
		}
		n.stop()
		_, err = ledger.Open(t.Context(), ledger.Options{
			DB: storetest.Open(t, address, migrations()...), Dir: n.dir, Origin: "test.example/ledger",
			Projections: []ledger.Projection{notes},
		})
		if !fault.Is(err, fault.LedgerMismatch) {
			t.Errorf("a start: %v", err)
		}
	})
}

func TestARotationThatIsKilledIsFinishedOrForgottenByTheNextStart(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		write(t, n, "first")
		private, next := filepath.Join(n.dir, ledger.KeyFile), filepath.Join(n.dir, ledger.NextKeyFile)
		public := filepath.Join(n.dir, ledger.PublicKeyFile)
		oldPrivate, oldPublic := testbed.Read(t, private), testbed.Read(t, public)
		again := func() {
			t.Helper()
			n.stop()
			n = start(t, address, n.dir)
			if n.Mismatch() != nil || !n.Signs() {
				t.Fatalf("signs: %v, %v", n.Signs(), n.Mismatch())
			}
		}
		// Killed before the entry was committed.
		lost, err := note.NewSigner(strings.TrimSpace(string(oldPrivate)))
		if err != nil {
			t.Fatal(err)
		}
		other, _, err := note.GenerateKey(rand.Reader, lost.Name())
		if err != nil {
			t.Fatal(err)
		}
		testbed.Write(t, next, other+"\n")
		before := n.Key()
		again()
		if n.Key() != before {
			t.Fatalf("the key is %s, and its entry was never written", n.Key())
		}
		after := rotate(t, n).New
		newPrivate := testbed.Read(t, private)
		if _, err := os.Stat(next); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", next, err)
		}
		// Killed after it was committed, before the files were replaced, and in between.
		n.stop()
		testbed.Write(t, private, oldPrivate)
		testbed.Write(t, public, oldPublic)
		testbed.Write(t, next, newPrivate)
		again()
		if n.Key() != after || string(testbed.Read(t, private)) != string(newPrivate) {
			t.Errorf("the key is %s", n.Key())
		}
		n.stop()
		testbed.Write(t, public, oldPublic)
		again()
		write(t, n, "second")
		if _, err := verify(export(t, n), before, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestNodesThatDoNotHaveTheNewKeyVerifyByItAndDoNotSign(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	first := start(t, address, t.TempDir())
	write(t, first, "first")
	dir := t.TempDir()
	testbed.Write(t, filepath.Join(dir, ledger.KeyFile), testbed.Read(t, filepath.Join(first.dir, ledger.KeyFile)))
	second := start(t, address, dir)
	if !second.Signs() {
		t.Fatal("the second node does not sign")
	}
	s := rotate(t, first)
	write(t, first, "second")
	testbed.Until(t, "the second node to learn of the key", func() bool { return second.Key() == s.New })
	if second.Signs() || second.Mismatch() != nil {
		t.Errorf("signs: %v, %v", second.Signs(), second.Mismatch())
	}
	if _, err := second.Rotate(t.Context(), "operator:ines"); !fault.Is(err, fault.Conflict) {
		t.Errorf("a node without the key rotates: %v", err)
	}
	second.stop()
	second = start(t, address, dir)
	if second.Signs() || second.Mismatch() != nil {
		t.Errorf("with the old key it signs: %v, %v", second.Signs(), second.Mismatch())
	}
	second.stop()
	testbed.Write(t, filepath.Join(dir, ledger.KeyFile), testbed.Read(t, filepath.Join(first.dir, ledger.KeyFile)))
	if second = start(t, address, dir); !second.Signs() || second.Mismatch() != nil {
		t.Errorf("with the new key it signs: %v, %v", second.Signs(), second.Mismatch())
	}
}
