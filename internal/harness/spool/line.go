package spool

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"signalbox/internal/wire"
)

// A text with a signature is an object whose last member is sig. What is signed is the purpose, a line break, and the
// text before that member, byte for byte.
const (
	sigBegin, sigEnd = `,"sig":"`, `"}`
	sigLength        = len(sigBegin) + 86 + len(sigEnd)

	// The purposes keep a signature from being used for something else.
	linePurpose = "signalbox spool line\n"
	listPurpose = "signalbox offline list\n"
)

// signed adds a signature to an object.
func signed(key ed25519.PrivateKey, purpose string, object []byte) string {
	text := strings.TrimSuffix(string(object), "}")
	sig := ed25519.Sign(key, []byte(purpose+text))
	return text + sigBegin + base64.RawURLEncoding.EncodeToString(sig) + sigEnd
}

// isSigned reports whether a text has a good signature by the key.
func isSigned(key ed25519.PublicKey, purpose, text string) bool {
	if len(text) <= sigLength {
		return false
	}
	cut := len(text) - sigLength
	rest, ok := strings.CutPrefix(text[cut:], sigBegin)
	if !ok || !strings.HasSuffix(rest, sigEnd) {
		return false
	}
	sig, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimSuffix(rest, sigEnd))
	return err == nil && ed25519.Verify(key, []byte(purpose+text[:cut]), sig)
}

// keyOf reads a public key, nil if it is none.
func keyOf(text string) ed25519.PublicKey {
	key, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil
	}
	return key
}

// line is one line of a spool. Line 0 only begins the file, and is not recorded.
type line struct {
	Spool    string   `json:"spool"`
	Number   int64    `json:"n"`
	Prev     string   `json:"prev"` // the digest of the line before; of the spool's name for line 1
	At       string   `json:"at"`
	Decision string   `json:"decision"`
	Reason   string   `json:"reason"`
	Policy   int64    `json:"policy"`    // the version whose list allowed it, 0 for none
	ListFrom string   `json:"list_from"` // when that list was given
	Event    wire.Raw `json:"event"`
}

// What a client decided.
const (
	allowed = "allow"
	refused = "refused"
)

// digestOf is the SHA-256 of a line or a name, in hexadecimal.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// readLine reads a line of the spool with the key. ok is false if the spool did not write it.
func readLine(name string, key ed25519.PublicKey, text string) (l line, ok bool) {
	ok = isSigned(key, linePurpose, text) && wire.UnmarshalPart([]byte(text), &l) == nil && l.Spool == name &&
		l.Number >= 0
	return l, ok
}
