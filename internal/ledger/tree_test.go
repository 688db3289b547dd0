package ledger_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// sizes are trees on both sides of where tiles and subtrees become full.
var sizes = []int{1, 2, 3, 255, 256, 257, 700}

// fill appends until the ledger has the wanted number of entries.
func fill(t testing.TB, n node, want int) {
	t.Helper()
	err := n.Write(context.Background(), func(tx *ledger.Tx) error {
		head, err := n.Head(context.Background())
		for i := int(head); i < want; i++ {
			tx.Append(written(fmt.Sprintf("note %d", i+1), "text"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// startFilled starts a ledger in a folder of its own, with so many entries.
func startFilled(t testing.TB, address string, entries int) node {
	t.Helper()
	n := start(t, address, t.TempDir())
	fill(t, n, entries)
	return n
}

// signed is a ledger with so many entries and a checkpoint over them.
func signed(t testing.TB, address string, entries int) node {
	t.Helper()
	n := startFilled(t, address, entries)
	sign(t, n)
	return n
}

// sign makes the checkpoint that would come by itself within a second.
func sign(t testing.TB, n node) {
	t.Helper()
	if err := n.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// leaves hashes every record with a library that is not the one under test.
func leaves(t testing.TB, n node) [][]byte {
	t.Helper()
	entries, err := n.Entries(t.Context(), ledger.Query{Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, e := range entries {
		out = append(out, rfc6962.DefaultHasher.HashLeaf(e.Record))
	}
	return out
}

// rootOf is RFC 6962's definition of the tree hash, word for word.
func rootOf(leaves [][]byte) []byte {
	switch len(leaves) {
	case 0:
		return rfc6962.DefaultHasher.EmptyRoot()
	case 1:
		return leaves[0]
	}
	k := 1
	for k*2 < len(leaves) {
		k *= 2
	}
	return rfc6962.DefaultHasher.HashChildren(rootOf(leaves[:k]), rootOf(leaves[k:]))
}

// tileOf is what a tile must hold: the roots of 256^level leaves each.
func tileOf(leaves [][]byte, level, n, width int) []byte {
	span := 1
	for range level {
		span *= 256
	}
	var out []byte
	for i := n * 256; i < n*256+width; i++ {
		out = append(out, rootOf(leaves[i*span:(i+1)*span])...)
	}
	return out
}

func readFile(t testing.TB, path ...string) string {
	t.Helper()
	text := testbed.Read(t, filepath.Join(path...))
	return string(text)
}

// openNote checks a checkpoint with the public key file alone, as an auditor would.
func openNote(t testing.TB, n node, signed string) (text string) {
	t.Helper()
	v, err := note.NewVerifier(strings.TrimSpace(readFile(t, n.dir, ledger.PublicKeyFile)))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := note.Open([]byte(signed), note.VerifierList(v))
	if err != nil {
		t.Fatalf("the checkpoint does not verify: %v\n%s", err, signed)
	}
	return opened.Text
}

func TestACheckpointIsThreeLinesUnderTheLedgersKey(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		for _, size := range sizes {
			fill(t, n, size)
			sign(t, n)
			want := fmt.Sprintf("test.example/ledger\n%d\n%s\n", size, base64.StdEncoding.EncodeToString(rootOf(leaves(t, n))))
			if diff := cmp.Diff(want, openNote(t, n, readFile(t, n.dir, ledger.CheckpointFile))); diff != "" {
				t.Errorf("the file at size %d (-want +got):\n%s", size, diff)
			}
			signed, got, err := n.Signed(t.Context())
			if err != nil || got != int64(size) {
				t.Fatalf("the newest checkpoint is over %d entries (%v), want %d", got, err, size)
			}
			if diff := cmp.Diff(want, openNote(t, n, string(signed))); diff != "" {
				t.Errorf("the database at size %d (-want +got):\n%s", size, diff)
			}
		}
	})
}

func TestACheckpointIsSignedWithoutAnyoneAsking(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		for want := 1; want <= 3; want++ {
			fill(t, n, want)
			prefix := fmt.Sprintf("test.example/ledger\n%d\n", want)
			testbed.Until(t, fmt.Sprintf("a checkpoint over %d entries", want), func() bool {
				return strings.HasPrefix(testbed.ReadAny(filepath.Join(n.dir, ledger.CheckpointFile)), prefix)
			})
		}
	})
}

func TestANodeWithoutTheKeyTakesOverCheckpoints(t *testing.T) {
	t.Parallel()
	nodes := several(t, storetest.Postgres(t), 2)
	if !nodes[0].Signs() || nodes[1].Signs() {
		t.Fatal("the first node signs and the second does not")
	}
	fill(t, nodes[1], 5)
	sign(t, nodes[0])
	sign(t, nodes[1])
	if diff := cmp.Diff(readFile(t, nodes[0].dir, ledger.CheckpointFile),
		readFile(t, nodes[1].dir, ledger.CheckpointFile)); diff != "" {
		t.Errorf("the nodes keep different checkpoints:\n%s", diff)
	}
	if nodes[0].Key() != nodes[1].Key() {
		t.Errorf("the nodes know different keys: %s and %s", nodes[0].Key(), nodes[1].Key())
	}
}

func TestTiles(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		for _, size := range sizes { // grown in steps, so that partial tiles are replaced
			fill(t, n, size)
			sign(t, n)
		}
		all := leaves(t, n)

		for path, want := range map[string][]byte{
			"tile/0/000":      tileOf(all, 0, 0, 256),
			"tile/0/001":      tileOf(all, 0, 1, 256),
			"tile/0/002.p/1":  tileOf(all, 0, 2, 1),
			"tile/0/002.p/99": tileOf(all, 0, 2, 99),
			"tile/0/000.p/5":  tileOf(all, 0, 0, 5), // of a tile that has become full since
			"tile/1/000.p/2":  tileOf(all, 1, 0, 2),
			"tile/1/000.p/1":  tileOf(all, 1, 0, 1),
		} {
			got, err := n.Tile(t.Context(), path)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes (%v), want %d others", path, len(got), err, len(want))
			}
		}

		for _, path := range []string{
			// There is no such tile yet, or not that much of it.
			"tile/0/002", "tile/0/002.p/189", "tile/0/003.p/1", "tile/0/999", "tile/1/000", "tile/1/000.p/3", "tile/1/001.p/1",
			"tile/2/000.p/1", "tile/63/000.p/1",
			"tile/entries/002", "tile/entries/003.p/1",
			// Numbers that come out small again when they are multiplied by 256.
			"tile/0/x072/x057/x594/x037/x927/936", "tile/0/x072/x057/x594/x037/x927/936.p/1",
			"tile/entries/x072/x057/x594/x037/x927/936",
			"tile/0/x009/x223/x372/x036/x854/x775/807", "tile/7/x072/x057/x594/x037/x927/936.p/1",
			// These are no paths of tiles.
			"", "tile", "tile/", "tile/0", "tile/0/", "tile/0/0", "tile/0/00", "tile/0/0000", "tile/0/x000", "tile/0/x000/000",
			"tile/00/000", "tile/-1/000", "tile/+0/000",
			"tile/0/000.p", "tile/0/000.p/", "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/05", "tile/0/000.p/-1",
			"tile/0/000 ", "tile/0/000 x", "tile/0/000\n", "tile/ 0/000", " tile/0/000", "/tile/0/000", "tile/0/000/",
			"tile/0/../0/000", "tile/8/0/000", "tile/0/000\x00",
			"tile/data/000", "tile/entries", "tile/entries/", "tile/entries/0", "tile/entries/entries/000",
			"tile/0/000;DROP TABLE ledger_tile", "tiles/0/000", "TILE/0/000",
		} {
			if got, err := n.Tile(t.Context(), path); !fault.Is(err, fault.NotFound) {
				t.Errorf("%q: %d bytes and %v, want not found", path, len(got), err)
			}
		}
	})
}

func TestEntryBundlesHashToTheirTile(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		// Every character that JSON writes longer than it is, in every field.
		long := strings.Repeat("\"\\\x01<é", 85) // 510 bytes, 512 is the most
		err := n.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{
				Workspace: long, Kind: "long.named", Actor: long, Subject: long, Trace: long,
				Body: []byte("x"),
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, n, 700)
		sign(t, n)
		for entries, hashes := range map[string]string{
			"tile/entries/000":       "tile/0/000",
			"tile/entries/001":       "tile/0/001",
			"tile/entries/002.p/188": "tile/0/002.p/188",
			"tile/entries/000.p/1":   "tile/0/000.p/1",
		} {
			bundle, err := n.Tile(t.Context(), entries)
			if err != nil {
				t.Fatalf("%s: %v", entries, err)
			}
			var got []byte
			for _, rec := range parseBundle(t, bundle) {
				got = append(got, rfc6962.DefaultHasher.HashLeaf(rec)...)
			}
			want, err := n.Tile(t.Context(), hashes)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s does not hash to %s (%v)", entries, hashes, err)
			}
		}
	})
}

func parseBundle(t testing.TB, bundle []byte) (records [][]byte) {
	t.Helper()
	for len(bundle) > 0 {
		if len(bundle) < 2 || len(bundle) < 2+int(binary.BigEndian.Uint16(bundle)) {
			t.Fatalf("the bundle ends inside of record %d", len(records)+1)
		}
		length := int(binary.BigEndian.Uint16(bundle))
		records = append(records, slices.Clone(bundle[2:2+length]))
		bundle = bundle[2+length:]
	}
	return records
}
