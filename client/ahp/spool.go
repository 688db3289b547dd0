package ahp

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json" // the client brings a WebSocket and nothing else beside the standard library
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/client/internal/strict"
)

// Limits of a spool. One that is full allows nothing.
const (
	maxSpool = 64 << 20 // bytes of all lines
	// maxStep is the longest line, in bytes. Six times as many, as which JSON may write them inside of a text, fit into a
	// POST.
	maxStep = 256 << 10
	// maxKeptEvent is the longest event that a line holds. A longer one is refused, and the line says how long it was.
	maxKeptEvent = maxStep - 16<<10
	// lockTime is how long another process may have the spool. Beyond, nothing is allowed.
	lockTime = 5 * time.Second
)

// Spool is what a client keeps while its harness cannot be reached: a folder with a key, the list of tools that the
// server allows in that time, and the steps that were answered without it. Several processes may use one folder.
//
// A step is a line of JSON: its number, the SHA-256 of the line before, the event and the answer, signed as a whole. It
// is on disk before the answer is given. When the harness answers again, a client sends the lines in their order and
// forgets them once they are recorded. docs/protocols/harness.md has the form.
//
// The key is in the reach of whoever may read the folder. An agent that runs as the same user can sign what it likes;
// what it cannot do is make a list of its own, since that is signed by the server.
type Spool struct {
	folder string
	server ed25519.PublicKey // of lists; nil trusts none
	now    func() time.Time
}

// The files of a spool.
const (
	keyFile   = "key"   // the seed of the key that signs lines
	linesFile = "steps" // the last line that was sent, and those after it
	listFile  = "list"
	lockFile  = "lock"
)

// OpenSpool opens the spool in a folder, and makes it if there is none. serverKey is the key of the server whose lists
// are taken, as [Harness.SpoolKey] says it; it belongs where the agent cannot change it. Without it everything is
// refused, and kept.
func OpenSpool(folder, serverKey string) (*Spool, error) {
	s := &Spool{folder: folder, now: time.Now}
	if serverKey != "" {
		if s.server = decodeKey(serverKey); s.server == nil {
			return nil, errors.New("ahp: the key of a server is 43 letters of base64url, as a handshake with a spool tells it")
		}
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("ahp: %w", err)
	}
	if err := checkFolder(folder); err != nil {
		return nil, fmt.Errorf("ahp: %w", err)
	}
	return s, s.locked(func() error {
		_, err := s.key()
		return err
	})
}

func decodeKey(text string) ed25519.PublicKey {
	key, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil
	}
	return key
}

// locked calls do while no other process uses the spool.
func (s *Spool) locked(do func() error) error {
	f, err := openFile(s.file(lockFile), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("ahp: %w", err)
	}
	defer func() { _ = f.Close() }() // which gives the lock back
	for end := time.Now().Add(lockTime); ; {
		got, err := tryLock(f)
		if err != nil {
			return fmt.Errorf("ahp: %w", err)
		}
		if got {
			return do()
		}
		if time.Now().After(end) {
			return errors.New("ahp: another process keeps the spool")
		}
		time.Sleep(5 * time.Millisecond) // the kernel has no lock with a time limit
	}
}

func (s *Spool) file(name string) string { return filepath.Join(s.folder, name) }

// key is the key that signs lines. The first call makes it, together with the file of lines: a key without that file
// is a spool that somebody has removed.
func (s *Spool) key() (ed25519.PrivateKey, error) {
	text, err := s.read(keyFile, 1<<10)
	if errors.Is(err, os.ErrNotExist) {
		return s.renew()
	}
	if err != nil {
		return nil, err
	}
	seed, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errSpoolChanged
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// renew begins a spool anew, with another key. The server then has it as another spool.
func (s *Spool) renew() (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails
	key := ed25519.NewKeyFromSeed(seed)
	_ = os.Remove(s.file(listFile)) // it is for the spool before
	// Steps whose key is gone can be sent by nobody. They are kept for people.
	_ = os.Rename(s.file(linesFile), s.file(linesFile+"."+s.now().UTC().Format("20060102T150405.000000000")))
	first := sealed(key, linePurpose, spooled{
		Spool: nameOf(key), At: s.now().UTC().Format(time.RFC3339Nano), Decision: "opened",
	})
	if err := s.replace(linesFile, append(first, '\n')); err != nil {
		return nil, err
	}
	return key, s.replace(keyFile, []byte(base64.RawURLEncoding.EncodeToString(seed)+"\n"))
}

// nameOf is the public key of a spool, which is its name.
func nameOf(key ed25519.PrivateKey) string {
	return base64.RawURLEncoding.EncodeToString(key[ed25519.SeedSize:])
}

// read reads a file of the spool.
func (s *Spool) read(name string, most int64) ([]byte, error) {
	f, err := openFile(s.file(name), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = errSpoolChanged
	}
	return text, err
}

// replace writes a file of the spool whole or not at all, and returns when it is on disk.
func (s *Spool) replace(name string, text []byte) error {
	f, err := os.CreateTemp(s.folder, name+".new*") // mode 0600
	if err != nil {
		return fmt.Errorf("ahp: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // if it was not renamed
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if failed := f.Close(); err == nil {
		err = failed
	}
	if err == nil {
		err = os.Rename(f.Name(), s.file(name))
	}
	if err == nil {
		err = syncFolder(s.folder)
	}
	if err != nil {
		return fmt.Errorf("ahp: %w", err)
	}
	return nil
}

// spooled is a line of a spool.
type spooled struct {
	Spool    string          `json:"spool"`
	Number   int64           `json:"n"`
	Prev     string          `json:"prev"`
	At       string          `json:"at"`
	Decision string          `json:"decision"`
	Reason   string          `json:"reason,omitempty"`
	Policy   int64           `json:"policy,omitempty"`
	ListFrom string          `json:"list_from,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"`
}

// A text with a signature is an object whose last member is sig. What is signed is the purpose and the text before
// that member, byte for byte.
const (
	sigBegin, sigEnd = `,"sig":"`, `"}`
	sigLength        = len(sigBegin) + 86 + len(sigEnd)

	linePurpose = "signalbox spool line\n"
	listPurpose = "signalbox offline list\n"
)

// sealed is a value as JSON with a signature.
func sealed(key ed25519.PrivateKey, purpose string, v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // texts, numbers, and JSON that was read
	text := bytes.TrimSuffix(bytes.TrimSuffix(out.Bytes(), []byte("\n")), []byte("}"))
	sig := ed25519.Sign(key, append([]byte(purpose), text...))
	return append(text, sigBegin+base64.RawURLEncoding.EncodeToString(sig)+sigEnd...)
}

// isSealed reports whether a text has a good signature.
func isSealed(key ed25519.PublicKey, purpose string, text []byte) bool {
	if len(text) <= sigLength || key == nil {
		return false
	}
	cut := len(text) - sigLength
	rest, ok := bytes.CutPrefix(text[cut:], []byte(sigBegin))
	if !ok || !bytes.HasSuffix(rest, []byte(sigEnd)) {
		return false
	}
	sig, err := base64.RawURLEncoding.Strict().DecodeString(string(rest[:len(rest)-len(sigEnd)]))
	return err == nil && ed25519.Verify(key, append([]byte(purpose), text[:cut]...), sig)
}

// errSpoolChanged is why nothing can be added to a spool.
var errSpoolChanged = errors.New("ahp: somebody has changed or removed the spool")

// add appends a step and returns when it is on disk.
func (s *Spool) add(key ed25519.PrivateKey, step spooled) error {
	f, err := openFile(s.file(linesFile), os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return errSpoolChanged
	}
	if err != nil {
		return fmt.Errorf("ahp: %w", err)
	}
	defer func() { _ = f.Close() }()
	last, end, err := lastLine(f)
	if err != nil {
		return err
	}
	var before spooled
	if !isSealed(key.Public().(ed25519.PublicKey), linePurpose, last) || json.Unmarshal(last, &before) != nil {
		return errSpoolChanged
	}
	step.Spool, step.Number, step.Prev = nameOf(key), before.Number+1, digest(last)
	if before.Number == 0 { // so that the server need not know the line that only begins the file
		step.Prev = digest([]byte(step.Spool))
	}
	text := append(sealed(key, linePurpose, step), '\n')
	switch {
	case len(text) > maxStep:
		return fmt.Errorf("ahp: a step of %d bytes does not fit into the spool", len(text))
	case end+int64(len(text)) > maxSpool:
		return errors.New("ahp: the spool is full")
	}
	// What stands after the last line break is of a process that was killed while it wrote: nobody was answered.
	if err := f.Truncate(end); err != nil {
		return fmt.Errorf("ahp: %w", err)
	}
	if _, err := f.WriteAt(text, end); err != nil {
		return fmt.Errorf("ahp: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("ahp: %w", err)
	}
	return nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// lastLine is the last whole line of a file, and where it ends.
func lastLine(f *os.File) (line []byte, end int64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, fmt.Errorf("ahp: %w", err)
	}
	// A whole line, and half of one after it.
	from := max(0, size-2*maxStep)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("ahp: %w", err)
	}
	cut := bytes.LastIndexByte(tail, '\n')
	if cut < 0 {
		return nil, 0, errSpoolChanged
	}
	return tail[bytes.LastIndexByte(tail[:cut], '\n')+1 : cut], from + int64(cut) + 1, nil
}

// offlineList is what the server allows while it cannot be reached.
type offlineList struct {
	Spool  string   `json:"spool"`
	Tools  []string `json:"tools"`
	Policy int64    `json:"policy"`
	From   string   `json:"from"`
	Until  string   `json:"until"`
}

// readList reads a list. One that the server did not sign, that is for another spool, or that does not hold now, is an
// error.
func (s *Spool) readList(text []byte, name string) (l offlineList, err error) {
	text = bytes.TrimSpace(text)
	if s.server == nil || !isSealed(s.server, listPurpose, text) {
		return l, errors.New("ahp: the list of tools is not signed by the server")
	}
	if _, err := strict.Object(text); err != nil {
		return l, fmt.Errorf("ahp: the list of tools cannot be read: %w", err)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("ahp: the list of tools cannot be read: %w", err)
	}
	from, wrongFrom := time.Parse(time.RFC3339, l.From)
	until, wrongUntil := time.Parse(time.RFC3339, l.Until)
	now := s.now()
	switch {
	case l.Spool != name:
		return l, errors.New("ahp: the list of tools is for another spool")
	case wrongFrom != nil || wrongUntil != nil || now.Before(from.Add(-5*time.Minute)):
		return l, errors.New("ahp: the list of tools does not hold yet")
	case !now.Before(until):
		return l, errors.New("ahp: the list of tools has ended at " + l.Until)
	}
	return l, nil
}
