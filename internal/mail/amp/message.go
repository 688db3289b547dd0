package amp

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strconv"
	"time"

	"signalbox/internal/wire"
)

// Version is the protocol's, as it stands in envelopes.
const Version = "amp/0.1"

// Envelope is what a message carries around its payload, with exactly these members.
type Envelope struct {
	Version   string `json:"version"`
	ID        string `json:"id"`
	From      string `json:"from"`
	To        string `json:"to"`
	Subject   string `json:"subject"`
	Priority  string `json:"priority"`
	Timestamp string `json:"timestamp"`
	Signature string `json:"signature"` // "" for none, never null
	ThreadID  string `json:"thread_id"`
	InReplyTo string `json:"in_reply_to,omitzero"` // absent for none: a null breaks verifiers
	ExpiresAt string `json:"expires_at,omitzero"`
}

// Message is a message as one server hands it to another. Payload is copied byte for byte.
type Message struct {
	Envelope  Envelope
	Payload   wire.Raw
	SenderKey string // PEM, "" for none
}

// JSON is the message as webhooks and other providers are called with it.
func (m *Message) JSON() ([]byte, error) {
	envelope, err := wire.Marshal(m.Envelope)
	if err != nil {
		return nil, err
	}
	return wire.Splice([]byte("{}"),
		wire.Member{Name: "envelope", Value: envelope},
		wire.Member{Name: "payload", Value: m.Payload},
		wire.Member{Name: "sender_public_key", Value: wire.AppendText(nil, m.SenderKey)},
	), nil
}

// IDForm is what a message id may be; it is checked before anything is looked up.
var IDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{3,127}$`)

// NewID makes an id of the form that every client takes: prefix, seconds, hex digits. The
// first digits are the fraction of the second: ids that follow one another lie beside one
// another in every index, where chance would spread them.
func NewID(prefix string, now time.Time) string {
	id := make([]byte, 0, 48)
	id = append(append(id, prefix...), '_')
	id = append(strconv.AppendInt(id, now.Unix(), 10), '_')
	raw := make([]byte, 9)    // 20 bits of microseconds, 52 of chance
	_, _ = rand.Read(raw[2:]) // never fails
	micros := uint32(now.Nanosecond() / 1000)
	raw[0], raw[1], raw[2] = byte(micros>>12), byte(micros>>4), byte(micros<<4)|raw[2]&0x0f
	return string(hex.AppendEncode(id, raw))
}

// Stamp writes a time without a fraction, which is all that some clients can read.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
