package ledger_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func slicesOf(hashes []tlog.Hash) [][]byte {
	var out [][]byte
	for _, h := range hashes {
		out = append(out, h[:])
	}
	return out
}

// sampled are the numbers from 1 to size near the edges of tiles, and some between.
func sampled(size int) (out []int) {
	for i := 1; i <= size; i++ {
		if i <= 3 || i >= size-1 || i%97 == 0 || i%256 <= 1 || i%256 == 255 {
			out = append(out, i)
		}
	}
	return out
}

// eachTree runs fn with a signed ledger of 700 entries on every database, and the hashes of its leaves.
func eachTree(t *testing.T, fn func(t *testing.T, n node, all [][]byte)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) {
		n := signed(t, address, 700)
		fn(t, n, leaves(t, n))
	})
}

func TestInclusionProofsHoldForAnotherVerifier(t *testing.T) {
	t.Parallel()
	eachTree(t, func(t *testing.T, n node, all [][]byte) {
		for _, size := range sizes {
			root := rootOf(all[:size])
			for _, seq := range sampled(size) {
				p, err := n.Prove(t.Context(), int64(seq), int64(size))
				if err != nil {
					t.Fatalf("prove %d of %d: %v", seq, size, err)
				}
				if !bytes.Equal(p.Root[:], root) || !bytes.Equal(p.Leaf[:], all[seq-1]) || p.Seq != int64(seq) ||
					p.Size != int64(size) {
					t.Errorf("the proof of %d of %d is about something else: %+v", seq, size, p)
				}
				err = proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(seq-1), uint64(size),
					rfc6962.DefaultHasher.HashLeaf(p.Record), slicesOf(p.Hashes), root)
				if err != nil {
					t.Errorf("the proof of %d of %d: %v", seq, size, err)
				}
			}
		}
		if p, err := n.Prove(t.Context(), 3, 0); err != nil || p.Size != 700 {
			t.Errorf("without a size the proof is in a tree of %d (%v), want 700", p.Size, err)
		}
		for _, c := range []struct {
			seq, size int64
			want      fault.Code
		}{
			{5, 4, fault.InvalidRequest},
			{5, 701, fault.InvalidRequest},
			{5, -1, fault.InvalidRequest},
			{0, 0, fault.NotFound},
			{-1, 5, fault.NotFound},
			{701, 0, fault.NotFound},
		} {
			if _, err := n.Prove(t.Context(), c.seq, c.size); !fault.Is(err, c.want) {
				t.Errorf("prove %d of %d: %v, want %s", c.seq, c.size, err, c.want)
			}
		}
	})
}

func TestConsistencyProofsHoldForAnotherVerifier(t *testing.T) {
	t.Parallel()
	eachTree(t, func(t *testing.T, n node, all [][]byte) {
		for _, later := range sizes {
			for _, size := range sampled(later) {
				p, err := n.ProveConsistency(t.Context(), int64(size), int64(later))
				if err != nil {
					t.Fatalf("prove %d in %d: %v", size, later, err)
				}
				err = proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(size), uint64(later), slicesOf(p), rootOf(all[:size]),
					rootOf(all[:later]))
				if err != nil {
					t.Errorf("the proof of %d in %d: %v", size, later, err)
				}
			}
		}
		for _, c := range [][2]int64{{0, 5}, {-1, 5}, {6, 5}, {5, 701}} {
			if _, err := n.ProveConsistency(t.Context(), c[0], c[1]); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("prove %d in %d: %v", c[0], c[1], err)
			}
		}
	})
}

func TestAProofOfAnEntryThatWasJustWrittenIsThereAtOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		for i := range 10 {
			seq := write(t, n, fmt.Sprint(i))
			file, err := n.ProofFile(t.Context(), seq, false)
			if err != nil {
				t.Fatal(err)
			}
			if _, size, err := ledger.VerifyProof(file, n.Key()); err != nil || size < seq {
				t.Errorf("the proof of entry %d is in a tree of %d (%v)", seq, size, err)
			}
		}
	})
}

// otherKey is the key of another log with the same name.
func otherKey(t testing.TB) (private, public string) {
	t.Helper()
	private, public, err := note.GenerateKey(nil, "test.example/ledger")
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

func TestAProofFileVerifiesOfflineAndNoOtherDoes(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := startFilled(t, address, 300)
		for _, seq := range sampled(300) {
			file, err := n.ProofFile(t.Context(), int64(seq), false)
			if err != nil {
				t.Fatal(err)
			}
			proved, size, err := ledger.VerifyProof(file, readFile(t, n.dir, ledger.PublicKeyFile))
			if err != nil || size != 300 || !ledger.IsProof(file) {
				t.Fatalf("the proof of entry %d, in a tree of %d: %v", seq, size, err)
			}
			e, err := n.Entry(t.Context(), int64(seq))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(e.Record), string(proved.Record)); diff != "" {
				t.Errorf("the proof of entry %d is of another record:\n%s", seq, diff)
			}
			if proved.Body != nil {
				t.Errorf("the proof of entry %d gives away its body", seq)
			}
		}

		file, err := n.ProofFile(t.Context(), 200, false)
		if err != nil {
			t.Fatal(err)
		}
		neighbour, err := n.Entry(t.Context(), 201)
		if err != nil {
			t.Fatal(err)
		}
		whole := string(file)
		head, signed, _ := strings.Cut(whole, "\n\n")
		lines := strings.Split(head, "\n")
		replace := func(i int, line string) string {
			changed := append([]string{}, lines...)
			changed[i] = line
			return strings.Join(changed, "\n") + "\n\n" + signed
		}
		_, strange := otherKey(t)
		for name, c := range map[string]struct{ file, key string }{
			"the header is another": {replace(0, "c2sp.org/tlog-proof@v2"), n.Key()},
			"the record is the next one": {
				replace(1, "extra "+base64.StdEncoding.EncodeToString(neighbour.Record)),
				n.Key(),
			},
			"the record is empty":            {replace(1, "extra "), n.Key()},
			"the record is no base64":        {replace(1, lines[1]+"!"), n.Key()},
			"the record has a return in it":  {replace(1, lines[1][:20]+"\r"+lines[1][20:]), n.Key()},
			"the record is missing":          {strings.Replace(whole, lines[1]+"\n", "", 1), n.Key()},
			"the index is the next":          {replace(2, "index 200"), n.Key()},
			"the index is negative":          {replace(2, "index -1"), n.Key()},
			"the index is beyond the tree":   {replace(2, "index 300"), n.Key()},
			"the index is written otherwise": {replace(2, "index 0199"), n.Key()},
			"the index is missing":           {strings.Replace(whole, lines[2]+"\n", "", 1), n.Key()},
			"a hash is missing":              {strings.Replace(whole, lines[4]+"\n", "", 1), n.Key()},
			"a hash is there twice":          {replace(4, lines[4]+"\n"+lines[4]), n.Key()},
			"two hashes are swapped": {
				strings.Replace(whole, lines[3]+"\n"+lines[4], lines[4]+"\n"+lines[3], 1),
				n.Key(),
			},
			"the checkpoint is missing": {head + "\n\n", n.Key()},
			"the file ends early":       {head, n.Key()},
			"the file is empty":         {"", n.Key()},
			"the key is another's":      {whole, strange},
			"the key is none":           {whole, "nonsense"},
		} {
			if _, _, err := ledger.VerifyProof([]byte(c.file), c.key); !fault.Is(err, fault.VerificationFailed) &&
				!fault.Is(err, fault.InvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for i := range file {
			if i == len(file)-len("x=\n") {
				continue // the last character of the signature has two bits that say nothing
			}
			changed := bytes.Clone(file)
			changed[i] ^= 1
			if _, _, err := ledger.VerifyProof(changed, n.Key()); err == nil {
				t.Errorf("byte %d (%q in %q) was changed and the proof still verifies", i, file[i], around(whole, i))
			}
		}
	})
}

func TestAProofFileWithABodyProvesWhatTheEntrySays(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := startFilled(t, address, 20)
		if err := n.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{Kind: "thing.seen", Actor: "system", Body: map[string]string{"what": "was\tapproved"}})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		const seq = 21
		file, err := n.ProofFile(t.Context(), seq, true)
		if err != nil {
			t.Fatal(err)
		}
		e, err := n.Entry(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		proved, _, err := ledger.VerifyProof(file, n.Key())
		if err != nil || proved.Seq != seq || proved.Kind != e.Kind || !proved.At.Equal(e.At) ||
			!bytes.Equal(proved.Body, e.Body) || len(e.Body) == 0 {
			t.Fatalf("%+v, %v", proved, err)
		}
		whole := string(file)
		at := strings.Index(whole, "extra ") + len("extra ")
		end := at + strings.Index(whole[at:], "\n")
		line, err := base64.StdEncoding.DecodeString(whole[at:end])
		if err != nil {
			t.Fatal(err)
		}
		for i := range line {
			changed := bytes.Clone(line)
			changed[i] ^= 1
			text := whole[:at] + base64.StdEncoding.EncodeToString(changed) + whole[end:]
			if _, _, err := ledger.VerifyProof([]byte(text), n.Key()); err == nil {
				t.Errorf("byte %d of %q was changed and the proof still verifies", i, line)
			}
		}
		for name, other := range map[string]string{
			"no body":         string(e.Record) + "\t",
			"erased":          string(e.Record) + "\t-\t-",
			"one column more": string(line) + "\tAA==",
		} {
			text := whole[:at] + base64.StdEncoding.EncodeToString([]byte(other)) + whole[end:]
			if _, _, err := ledger.VerifyProof([]byte(text), n.Key()); !fault.Is(err, fault.VerificationFailed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := n.Erase(t.Context(), e.At.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.ProofFile(t.Context(), seq, true); !fault.Is(err, fault.Conflict) {
			t.Errorf("a body that was erased: %v", err)
		}
		if _, _, err := ledger.VerifyProof(file, n.Key()); err != nil {
			t.Errorf("the file no longer verifies after the body was erased: %v", err)
		}
	})
}

// around is the line that byte i is in.
func around(text string, i int) string {
	from := strings.LastIndex(text[:i], "\n") + 1
	line, _, _ := strings.Cut(text[from:], "\n")
	return line
}

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
