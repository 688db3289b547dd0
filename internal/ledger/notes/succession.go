package notes

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"signalbox/internal/fault"
)

// succession is the first line of what is signed. It is no origin that a log has, so that no succession can be taken
// for a checkpoint.
const succession = "signalbox ledger succession v1"

// Succession says that a key of a log takes over from another: checkpoints over From entries and more are signed by
// New. Both keys have signed it.
type Succession struct {
	Origin   string
	From     int64
	Old, New string // verifier keys
	Note     []byte
}

func (s Succession) text() string {
	return fmt.Sprintf("%s\n%s\n%d\n%s\n%s\n", succession, s.Origin, s.From, s.Old, s.New)
}

// Succeed has both keys sign that the new one takes over.
func Succeed(from int64, old, new note.Signer, oldKey, newKey string) (Succession, error) {
	s := Succession{Origin: old.Name(), From: from, Old: oldKey, New: newKey}
	var err error
	if s.Note, err = note.Sign(&note.Note{Text: s.text()}, old, new); err != nil {
		return s, fmt.Errorf("sign the succession of a key: %w", err)
	}
	return OpenSuccession(s.Note)
}

// OpenSuccession reads a succession that both of its keys have signed. Whether one of them is to be believed is for
// the caller to know; see Chain.
func OpenSuccession(signed []byte) (Succession, error) {
	bad := func(what string) (Succession, error) {
		return Succession{}, fault.New(fault.VerificationFailed, "The succession of a key does not hold: %s.", what)
	}
	text, _, _ := strings.Cut(string(signed), "\n\n")
	lines := strings.Split(text, "\n")
	if len(lines) != 5 || lines[0] != succession {
		return bad("it is not in its form")
	}
	s := Succession{Origin: lines[1], Old: lines[3], New: lines[4], Note: signed}
	var err error
	if s.From, err = strconv.ParseInt(lines[2], 10, 64); err != nil || s.From < 1 || s.text() != text+"\n" {
		return bad("it is not in its form")
	}
	if s.Old == s.New {
		return bad("it is from a key to itself")
	}
	for _, vkey := range []string{s.Old, s.New} {
		v, err := note.NewVerifier(vkey)
		if err != nil || v.Name() != s.Origin {
			return bad("a key is not one of " + s.Origin)
		}
		if _, err := note.Open(signed, note.VerifierList(v)); err != nil {
			return bad("one of its two keys has not signed it")
		}
	}
	return s, nil
}

// Key is a key of a log, and the number of the entry from which on it signs.
type Key struct {
	Text     string
	From     int64
	Verifier note.Verifier
}

// Chain is the keys of a log, the first one first. It is never empty, and never changes.
type Chain struct{ keys []Key }

// NewChain is a chain of the one key that a log begins with, or of which nobody knows what was before it.
func NewChain(vkey string) (Chain, error) {
	vkey = strings.TrimSpace(vkey)
	v, err := Verifier(vkey)
	return Chain{[]Key{{Text: vkey, Verifier: v}}}, err
}

// Link makes the chain of successions that follow each other, or of vkey alone if there are none. vkey has to be one
// of its keys: that is what makes the others believed.
func Link(vkey string, all []Succession) (Chain, error) {
	vkey = strings.TrimSpace(vkey)
	if len(all) == 0 {
		return NewChain(vkey)
	}
	c, err := NewChain(all[0].Old)
	for _, s := range all {
		if err == nil {
			c, err = c.With(s)
		}
	}
	if err == nil && !c.Has(vkey) {
		if _, err = Verifier(vkey); err == nil {
			err = fault.New(fault.VerificationFailed, "The key is none of those that have signed this ledger.")
		}
	}
	return c, err
}

// With is the chain with one more key. The last one has to be what the succession takes over from.
func (c Chain) With(s Succession) (Chain, error) {
	last := c.Last()
	if s.Old != last.Text || s.From <= last.From || c.Has(s.New) {
		return c, fault.New(fault.VerificationFailed,
			"Entry %d says that a key takes over which is not the one in force, or that one comes back.", s.From)
	}
	v, err := Verifier(s.New)
	return Chain{append(slices.Clone(c.keys), Key{s.New, s.From, v})}, err
}

// Keys are the keys, in their order.
func (c Chain) Keys() []Key { return slices.Clone(c.keys) }

// Last is the key in force.
func (c Chain) Last() Key { return c.keys[len(c.keys)-1] }

// Has reports whether a verifier key is one of the chain.
func (c Chain) Has(vkey string) bool {
	return slices.ContainsFunc(c.keys, func(k Key) bool { return k.Text == strings.TrimSpace(vkey) })
}

// At is the key that signs a checkpoint over size entries (LED-37).
func (c Chain) At(size int64) Key {
	for _, k := range slices.Backward(c.keys) {
		if k.From <= size {
			return k
		}
	}
	return c.keys[0]
}

// Open checks that a checkpoint is signed by the key that was in force, and reads it.
func (c Chain) Open(signed []byte) (Checkpoint, error) {
	is, err := Unverified(signed)
	if err != nil {
		return is, err
	}
	return Open(signed, c.At(is.Size).Verifier)
}

// PublicOf makes the verifier key of a signing key, which ends in the base64 of a
// byte for the algorithm and the seed. ok is false for what is no Ed25519 signing key.
func PublicOf(private string) (vkey string, ok bool) {
	parts := strings.SplitN(private, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(parts) != 5 || len(raw) != 1+ed25519.SeedSize {
		return "", false
	}
	public, _ := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	vkey, err = note.NewEd25519VerifierKey(parts[2], public)
	return vkey, err == nil
}
