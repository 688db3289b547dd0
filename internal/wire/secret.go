package wire

import (
	"fmt"
	"io"
	"unique"
)

// Secret is text that must not reach a log, a page or an error: a key, a password,
// an address that contains one. It prints as [redacted]; Reveal gives the text.
type Secret struct {
	// fmt cannot call methods of a Secret in an unexported field and prints what is
	// inside instead; a handle prints as an address, and can be compared.
	text unique.Handle[string]
}

// redacted is what is printed in place of a secret.
const redacted = "[redacted]"

// NewSecret wraps text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{unique.Make(text)}
}

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s == (Secret{}) {
		return ""
	}
	return s.text.Value()
}

// String is "" for an empty secret, so that one can see that it is missing.
func (s Secret) String() string {
	if s == (Secret{}) {
		return ""
	}
	return redacted
}

// Format is what fmt prints, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText is what encoders and slog write.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
