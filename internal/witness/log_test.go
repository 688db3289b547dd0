package witness_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// history is a log of somebody: its leaves, and the key that signs it.
type history struct {
	t      testing.TB
	key    note.Signer
	vkey   string
	hashes []tlog.Hash
	size   int64
}

func newHistory(t testing.TB, origin string) *history {
	private, public, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	key, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return &history{t: t, key: key, vkey: public}
}

// ReadHashes is tlog.HashReader.
func (h *history) ReadHashes(indexes []int64) (out []tlog.Hash, _ error) {
	for _, i := range indexes {
		out = append(out, h.hashes[i])
	}
	return out, nil
}

func (h *history) grow(leaves ...string) {
	for _, text := range leaves {
		more, err := tlog.StoredHashes(h.size, []byte(text), h)
		if err != nil {
			h.t.Fatal(err)
		}
		h.hashes, h.size = append(h.hashes, more...), h.size+1
	}
}

// fork is another history with the same key and the same leaves so far.
func (h *history) fork() *history {
	other := *h
	other.hashes = append([]tlog.Hash{}, h.hashes...)
	return &other
}

func (h *history) text() string {
	root := tlog.Hash(sha256.Sum256(nil))
	if h.size > 0 {
		var err error
		if root, err = tlog.TreeHash(h.size, h); err != nil {
			h.t.Fatal(err)
		}
	}
	return fmt.Sprintf("%s\n%d\n%s\n", h.key.Name(), h.size, root)
}

func (h *history) sign(text string) string {
	signed, err := note.Sign(&note.Note{Text: text}, h.key)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(signed)
}

// addition is a body of add-checkpoint, put together by the letter of the specification.
func (h *history) addition(old int64) string {
	body := fmt.Sprintf("old %d\n", old)
	if old > 0 && old < h.size {
		proof, err := tlog.ProveTree(h.size, old, h)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, hash := range proof {
			body += base64.StdEncoding.EncodeToString(hash[:]) + "\n"
		}
	}
	return body + "\n" + h.sign(h.text())
}

// cosignatureHolds checks a line by the letter of C2SP tlog-cosignature, with the standard library alone.
func cosignatureHolds(t testing.TB, line, vkey, text string) bool {
	t.Helper()
	parts := strings.SplitN(strings.TrimSpace(vkey), "+", 3)
	key, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(key) != 33 || key[0] != 4 {
		t.Fatalf("the key %q", vkey)
	}
	sum := sha256.Sum256(append([]byte(parts[0]+"\n\x04"), key[1:]...))
	if hex.EncodeToString(sum[:4]) != parts[1] {
		t.Fatalf("the id of the key %q", vkey)
	}
	rest, ok := strings.CutPrefix(line, "— "+parts[0]+" ")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(rest, "\n"))
	if !ok || err != nil || len(raw) != 4+8+64 || !strings.HasSuffix(line, "\n") || hex.EncodeToString(raw[:4]) != parts[1] {
		return false
	}
	at := binary.BigEndian.Uint64(raw[4:12])
	message := "cosignature/v1\ntime " + strconv.FormatUint(at, 10) + "\n" + text
	return at > 0 && ed25519.Verify(key[1:], []byte(message), raw[12:])
}

// strange is a witness written from the specification, with nothing of ours. A test says how it misbehaves.
type strange struct {
	*httptest.Server
	name string
	key  ed25519.PrivateKey

	mu   sync.Mutex
	size int64
	note string
	// answer, if it is set, takes the place of what the witness would answer to add-checkpoint.
	answer func(w http.ResponseWriter)
	asked  int
}

func newStrange(t testing.TB, name string) *strange {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &strange{name: name, key: key}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *strange) public() []byte { return append([]byte{4}, s.key.Public().(ed25519.PublicKey)...) }

func (s *strange) id() []byte {
	sum := sha256.Sum256(append([]byte(s.name+"\n"), s.public()...))
	return sum[:4]
}

func (s *strange) vkey() string {
	return s.name + "+" + hex.EncodeToString(s.id()) + "+" + base64.StdEncoding.EncodeToString(s.public())
}

// does makes the witness answer so from now on; nil makes it honest.
func (s *strange) does(answer func(w http.ResponseWriter)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// shows makes it show a checkpoint as the one that it has seen last.
func (s *strange) shows(signed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = signed
}

func (s *strange) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *strange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, s.note)
		return
	}
	s.asked++
	body, _ := io.ReadAll(r.Body)
	if s.answer != nil {
		s.answer(w)
		return
	}
	head, signed, _ := strings.Cut(string(body), "\n\n")
	text, _, _ := strings.Cut(signed, "\n\n")
	old, _ := strconv.ParseInt(strings.TrimPrefix(strings.SplitN(head, "\n", 2)[0], "old "), 10, 64)
	if old != s.size {
		w.Header().Set("Content-Type", "text/x.tlog.size")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, "%d\n", s.size)
		return
	}
	s.size, _ = strconv.ParseInt(strings.Split(text, "\n")[1], 10, 64)
	const at = 1_800_000_000
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", at, text)
	raw := binary.BigEndian.AppendUint64(s.id(), at)
	raw = append(raw, ed25519.Sign(s.key, []byte(message))...)
	line := "— " + s.name + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
	s.note = signed + line
	_, _ = io.WriteString(w, line)
}
