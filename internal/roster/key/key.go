// Package key draws the secrets of keys, and knows their forms. It owns neither keys nor their holders: what a key is
// good for is found by the roster.
package key

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Draw draws a key in the form that its protocol prescribes. Each has at least 160 bits
// of randomness, so a plain SHA-256 is enough to store it.
func Draw(kind string) string {
	switch kind {
	case "mail":
		raw := make([]byte, 32)
		_, _ = rand.Read(raw) // never fails
		return "amp_live_sk_" + hex.EncodeToString(raw)
	case "operator":
		return "sbx_op_" + Base36(40)
	case "owner":
		return "uk_" + Base36(40)
	default:
		return "rs-amp-" + Base36(32)
	}
}

// keyForms are the forms of Draw.
var keyForms = regexp.MustCompile(`rs-amp-[0-9a-z]{32}|amp_live_sk_[0-9a-f]{64}|(sbx_op|uk)_[0-9a-z]{40}`)

// In reports whether a text contains what has the form of a key.
func In(text string) bool { return keyForms.MatchString(text) }

// Base36 draws n characters of 0-9a-z, each equally likely: bytes of 252 and more, which would
// favour the first characters, are drawn again.
func Base36(n int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	out := make([]byte, 0, n)
	var raw [64]byte
	for {
		_, _ = rand.Read(raw[:]) // never fails
		for _, b := range raw {
			if len(out) == n {
				return string(out)
			}
			if int(b) < 256/36*36 {
				out = append(out, digits[int(b)%36])
			}
		}
	}
}

// Hash is how keys are stored and looked up. A slow hash is not needed: keys are random,
// not chosen by people.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// Hint is enough to recognise a key in a list: its prefix and its last four.
func Hint(secret string) string {
	i := strings.LastIndexAny(secret[:len(secret)-5], "-_")
	return secret[:i+1] + "…" + secret[len(secret)-4:]
}
