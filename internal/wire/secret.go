package wire

// Secret is text that must not reach a log, a page or an error: a key, a password,
// an address that contains one. It prints as [redacted]; Reveal gives the text.
type Secret struct{ text string }

const redacted = "[redacted]"

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

// String is what fmt and slog print.
func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return redacted
}

// GoString is what %#v prints.
func (s Secret) GoString() string { return redacted }

// MarshalText is what encoders write.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
