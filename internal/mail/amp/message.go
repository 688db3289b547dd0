package amp

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strconv"
	"time"

	"signalbox/internal/wire"
)

// Version is the version of the protocol in envelopes and documents (MSG-4).
const Version = "amp/0.1"

// Envelope is the part of a message beside its payload. The server makes it, and it never changes.
// MSG-30: it has exactly these members. From, To, Subject, Priority and InReplyTo are signed.
type Envelope struct {
	Version   string `json:"version"`
	ID        string `json:"id"`
	From      string `json:"from"`
	To        string `json:"to"`
	Subject   string `json:"subject"`
	Priority  string `json:"priority"`
	Timestamp string `json:"timestamp"`
	Signature string `json:"signature"` // "" for none, never null (MSG-31)
	ThreadID  string `json:"thread_id"`
	InReplyTo string `json:"in_reply_to,omitzero"` // absent for none, never null (MSG-30)
	ExpiresAt string `json:"expires_at,omitzero"`
}

// Message is a message with the public key of its sender, as webhooks and other servers get it.
// Payload is copied byte for byte.
type Message struct {
	Envelope  Envelope
	Payload   wire.Raw
	SenderKey string // PEM, "" for none
}

// JSON is the body of a call to a webhook or another provider.
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

// IDForm is the form of message ids that we accept (MSG-33). It is checked before an id is looked
// up or becomes part of a path.
var IDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{3,127}$`)

// NewID makes an id in the form that every client accepts (MSG-33): prefix, unix seconds, hex
// digits. The first 20 bits of the digits are the microseconds, so that ids that follow one
// another are neighbours in every index; 52 bits are random.
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

// Stamp writes a time without a fraction (MSG-8).
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
