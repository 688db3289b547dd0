package mail

import (
	"strconv"
	"strings"
	"time"

	"signalbox/internal/handoff"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/injection"
	"signalbox/internal/wire"
)

// Accepted is the answer to another provider whose message was stored.
type Accepted struct {
	Accepted  bool   `json:"accepted"`
	ID        string `json:"id"`
	Delivered bool   `json:"delivered"`
	Method    string `json:"method"`
}

// Security is what a recipient should know before it believes a message. MSG-47: it stands
// beside the message, never in it, since the payload is signed. Wrapped is always false.
type Security struct {
	Trust          Trust    `json:"trust"`
	InjectionFlags []string `json:"injection_flags"`
	// InjectionPlaces say where each flag was found.
	InjectionPlaces []injection.Mark `json:"injection_places,omitempty"`
	// Attachments are what we know about the files of the message; what the payload says is the sender's word.
	Attachments []amp.Attachment `json:"attachments,omitempty"`
	Wrapped     bool             `json:"wrapped"`
	VerifiedAt  string           `json:"verified_at,omitzero"`
}

// Pending is a message in a queue, as its recipient gets it. Reading one changes nothing; it is
// removed by its id (Ack).
type Pending struct {
	amp.Message

	ID        string
	QueuedAt  time.Time
	ExpiresAt time.Time
	Security  Security
	Handoff   *handoff.Handed // what it hands on to the recipient, nil for nothing

	place, seq int64    // its place in the queue, and its entry
	sender     string   // the sender's agent id, "" if it is not an agent of ours
	receipt    bool     // the sender asked for a receipt of the delivery
	recipient  string   // whose queue it belongs into
	held       bool     // until a gate was approved
	hands      bool     // work on
	ours       []string // the ids of attachments that we have
}

// Unknown stands for the sender of a message in what models read, if nobody knows who that is.
const Unknown = "unknown@unverified"

// Sender is the address of the sender as a model may be told it: Unknown for an unsigned message from another server,
// which need not come from that agent. An agent of ours was known by its key, and names with "_" are our own.
func (p *Pending) Sender() string {
	// An address that cannot be parsed could contain anything, a quote that ends an attribute too.
	from, err := amp.Domains{}.Parse(p.Envelope.From)
	if err != nil || p.Security.Trust == Untrusted && p.sender == "" && !strings.HasPrefix(from.Name, "_") {
		return Unknown
	}
	return p.Envelope.From
}

// json is the message as a poll or a socket delivers it, with the payload byte for byte.
func (p *Pending) json() ([]byte, error) {
	// Only our own members are encoded; the payload is spliced in behind them, byte for byte.
	head, err := wire.Marshal(struct {
		ID       string       `json:"id"`
		Envelope amp.Envelope `json:"envelope"`
	}{p.ID, p.Envelope})
	if err != nil {
		return nil, err
	}
	local, err := p.local(p.Handoff)
	if err != nil {
		return nil, err
	}
	return wire.Splice(head,
		wire.Member{Name: "payload", Value: p.Payload},
		wire.Member{Name: "sender_public_key", Value: wire.AppendText(nil, p.SenderKey)},
		wire.Member{Name: "queued_at", Value: wire.AppendText(nil, amp.Stamp(p.QueuedAt))},
		wire.Member{Name: "expires_at", Value: wire.AppendText(nil, amp.Stamp(p.ExpiresAt))},
		wire.Member{Name: "local", Value: local},
	), nil
}

// local is what we say about the message, beside what is signed.
func (p *Pending) local(handed *handoff.Handed) ([]byte, error) {
	return wire.Marshal(struct {
		Security Security        `json:"security"`
		Handoff  *handoff.Handed `json:"handoff,omitempty"`
	}{p.Security, handed})
}

// call is the message as the recipient's webhook gets it. What it hands on is in a header.
func (p *Pending) call() ([]byte, error) {
	body, err := p.JSON()
	if err != nil {
		return nil, err
	}
	local, err := p.local(nil)
	return wire.Splice(body, wire.Member{Name: "local", Value: local}), err
}

// Page is one page of an agent's queue, oldest first.
type Page struct {
	Messages  []Pending
	Remaining int64 // messages after this page
	Next      int64 // the place of the last message, which the next page begins after
}

// JSON is the answer to a poll. It is put together by hand, since payloads must not be encoded
// again.
func (p *Page) JSON() ([]byte, error) {
	out := []byte(`{"messages":[`)
	for i := range p.Messages {
		if i > 0 {
			out = append(out, ',')
		}
		text, err := p.Messages[i].json()
		if err != nil {
			return nil, err
		}
		out = append(out, text...)
	}
	out = append(out, `],"count":`...)
	out = strconv.AppendInt(out, int64(len(p.Messages)), 10)
	out = append(out, `,"remaining":`...)
	out = strconv.AppendInt(out, p.Remaining, 10)
	out = append(out, `,"next_cursor":"`...)
	return append(strconv.AppendInt(out, p.Next, 10), `"}`...), nil
}
