package server_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// The log as somebody outside sees it, checked with nothing but the standard
// library: RFC 6962 hashes, the C2SP checkpoint, tiles and entry bundles.

func leafHash(record []byte) [32]byte { return sha256.Sum256(append([]byte{0}, record...)) }

func treeHash(leaves [][32]byte) [32]byte {
	if len(leaves) == 1 {
		return leaves[0]
	}
	split := 1
	for split*2 < len(leaves) {
		split *= 2
	}
	left, right := treeHash(leaves[:split]), treeHash(leaves[split:])
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

// readCheckpoint verifies the signature of a checkpoint and returns what it says.
func readCheckpoint(t *testing.T, text, vkey string) (size int, root string) {
	t.Helper()
	name, rest, _ := strings.Cut(strings.TrimSpace(vkey), "+")
	id, encoded, _ := strings.Cut(rest, "+")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || key[0] != 1 || len(key) != 33 {
		t.Fatalf("the key %q is not an Ed25519 verifier key", vkey)
	}
	body, signatures, ok := strings.Cut(text, "\n\n")
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(signatures, "— "+name+" ")))
	if !ok || err != nil || hex.EncodeToString(signature[:4]) != id ||
		!ed25519.Verify(key[1:], []byte(body+"\n"), signature[4:]) {
		t.Fatalf("the checkpoint is not signed with the key:\n%s", text)
	}
	lines := strings.Split(body, "\n")
	if len(lines) != 3 || lines[0] != name {
		t.Fatalf("the checkpoint has other lines than origin, size and root:\n%s", text)
	}
	size, err = strconv.Atoi(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	return size, lines[2]
}

func TestTheLogCanBeFollowedFromOutside(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		for i := range 100 { // three entries each, so that there is a full tile
			b.ops(201, "POST /ops/agents", fmt.Sprintf(`{"name":"agent-%d"}`, i), nil)
		}
		head := int(b.head())
		get := func(path, token string) string {
			status, answer, _ := b.do(request{call: "GET " + path, token: token})
			if status != http.StatusOK {
				t.Fatalf("GET %s: %d %s", path, status, answer)
			}
			return answer
		}
		vkey := get("/ledger/key", "")
		var size int
		var root string
		testbed.Until(t, fmt.Sprintf("a checkpoint over %d entries", head), func() bool {
			size, root = readCheckpoint(t, get("/ledger/checkpoint", ""), vkey)
			return size == head
		})
		var leaves [][32]byte
		for n := 0; n*256 < size; n++ {
			path := fmt.Sprintf("%03d", n)
			if width := size - n*256; width < 256 {
				path += ".p/" + strconv.Itoa(width)
			}
			tile := get("/ledger/tile/0/"+path, "")
			for ; tile != ""; tile = tile[32:] {
				leaves = append(leaves, [32]byte([]byte(tile[:32])))
			}
			bundle := []byte(get("/ledger/tile/entries/"+path, b.token()))
			for i := n * 256; len(bundle) > 0; i++ {
				length := binary.BigEndian.Uint16(bundle)
				if leafHash(bundle[2:2+length]) != leaves[i] {
					t.Fatalf("entry %d of the bundle is not the leaf of the tile", i)
				}
				bundle = bundle[2+length:]
			}
		}
		if got := treeHash(leaves); len(leaves) != size || base64.StdEncoding.EncodeToString(got[:]) != root {
			t.Errorf("%d leaves do not have the root %s", len(leaves), root)
		}
		first := treeHash(leaves[:256])
		if level1 := get("/ledger/tile/1/000.p/1", ""); level1 != string(first[:]) {
			t.Error("the tile above is not the hash of the full one below")
		}
		if _, _, header := b.do(request{
			call:  "GET /ledger/tile/entries/000",
			token: b.token(),
		}); !strings.HasPrefix(header.Get("Cache-Control"), "private") {
			t.Errorf("records that take a token are cached for everybody: %s", header.Get("Cache-Control"))
		}
		if status, _, _ := b.do(request{call: "HEAD /ops/events", token: b.token()}); status != http.StatusOK {
			t.Errorf("HEAD of a stream: %d", status)
		}
		if status, _, _ := b.do(request{call: "GET /ledger/tile/0/099"}); status != http.StatusNotFound {
			t.Errorf("a tile beyond the end: %d", status)
		}
	})
}
