package ledger_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// testdata holds a real export and a real proof of it, with their key, so that the
// fuzzers' seeds and what they find mean the same in every run. A test with
// SIGNALBOX_UPDATE set makes them again.
const (
	exportSeed = "export.txt"
	proofSeed  = "proof.txt"
	keySeed    = "ledger.pub"
)

func TestTheFuzzersSeedsVerify(t *testing.T) {
	t.Parallel()
	if os.Getenv("SIGNALBOX_UPDATE") != "" {
		makeSeeds(t)
	}
	key := readFile(t, "testdata", keySeed)
	if _, err := verify(readFile(t, "testdata", exportSeed), key, nil); err != nil {
		t.Error(err)
	}
	if _, _, err := ledger.VerifyProof([]byte(readFile(t, "testdata", proofSeed)), key); err != nil {
		t.Error(err)
	}
}

func makeSeeds(t *testing.T) {
	t.Helper()
	n := start(t, storetest.SQLite(t), t.TempDir())
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		write(t, n, name)
	}
	text := export(t, n)
	proof, err := n.ProofFile(t.Context(), 3, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{exportSeed: text, proofSeed: string(proof), keySeed: n.Key() + "\n"} {
		testbed.Write(t, filepath.Join("testdata", name), content)
	}
}

// sameButErased reports whether two exports hold the same entries. A body that is
// replaced by "-" counts as erased, which a verifier reports and lets pass.
func sameButErased(got, want string) bool {
	a, b := split(got).entries, split(want).entries
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		rec, _, _ := strings.Cut(b[i], "\t")
		if a[i] != b[i] && a[i] != rec+"\t-\t-" {
			return false
		}
	}
	return true
}

// splice puts other bytes in the place of some. What a fuzzer makes up from nothing
// never gets past the signature; this leaves most of the text as it was.
func splice(text string, from, to uint16, insert []byte) []byte {
	a := min(int(from), len(text))
	z := max(a, min(int(to), len(text)))
	return []byte(text[:a] + string(insert) + text[z:])
}

func FuzzVerifyExport(f *testing.F) {
	whole, key := readFile(f, "testdata", exportSeed), readFile(f, "testdata", keySeed)
	signed := []byte(strings.Join(split(whole).signed, "\n") + "\n")
	all := uint16(len(whole))
	f.Add(uint16(0), uint16(0), []byte{})
	f.Add(uint16(0), all, []byte(strings.ReplaceAll(whole, "\n", "\r\n")))
	f.Add(all/2, all, []byte{})
	for _, at := range []int{
		strings.Index(whole, "\n---\n"), strings.Index(whole, "{"), strings.Index(whole, "\t"),
		strings.LastIndex(whole, "\t"), len(whole) - 1,
	} {
		f.Add(uint16(at), uint16(at), []byte("\r"))
		f.Add(uint16(at), uint16(at+1), []byte("A"))
	}
	p := split(whole)
	p.entries[1] = moveSalt(p.entries[1])
	f.Add(uint16(0), all, []byte(p.String()))
	f.Fuzz(func(t *testing.T, from, to uint16, insert []byte) {
		text := splice(whole, from, to, insert)
		out, err := ledger.VerifyExport(bytes.NewReader(text), key, &ledger.Against{Signed: signed}, ledger.Watch{})
		if err == nil && (!sameButErased(string(text), whole) || out.Entries != 5) {
			t.Errorf("verified, and is not what was exported: %q", text)
		}
	})
}

func FuzzVerifyProof(f *testing.F) {
	whole, key := readFile(f, "testdata", proofSeed), readFile(f, "testdata", keySeed)
	// Signatures of others may stand beside ours, and the last character of ours has
	// bits that say nothing; what comes before is as it was.
	before, _, _ := strings.Cut(whole, "\n— ")
	f.Add(uint16(0), uint16(0), []byte{})
	f.Add(uint16(0), uint16(len(whole)), []byte(strings.ReplaceAll(whole, "\n", "\r\n")))
	at := 0
	for line := range strings.Lines(whole) {
		at += len(line) - 2
		f.Add(uint16(at), uint16(at), []byte("\r"))
		f.Add(uint16(at), uint16(at+1), []byte("B"))
		at += 2
	}
	f.Fuzz(func(t *testing.T, from, to uint16, insert []byte) {
		file := splice(whole, from, to, insert)
		if _, _, err := ledger.VerifyProof(file, key); err == nil && !strings.HasPrefix(string(file), before+"\n— ") {
			t.Errorf("verified, and is not the proof that was made: %q", file)
		}
	})
}
