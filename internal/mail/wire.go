package mail

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/wire"
)

// The limits of a message.
const (
	maxPayload = 512 << 10 // of a message
	maxSubject = 256       // characters
	maxMessage = 64 << 10  // bytes
	maxContext = 256 << 10 // bytes
	maxType    = 64
	maxIDs     = 1000 // of one acknowledgement
)

// priorities are the values of priority.
var priorities = []string{"low", "normal", "high", "urgent"}

// outgoing is a message that an agent wants routed, right in itself.
type outgoing struct {
	from, to   string // as sent
	subject    string
	priority   string
	payload    []byte // as it came
	kind       string // payload.type
	message    string // payload.message
	attached   bool   // it has attachments
	inReplyTo  string
	threadHint string
	signature  string
	idem       string
	receipt    bool
	expiresAt  time.Time
	clientID   string // the id that the client made up
	request    string // SHA-256 of the request, in hex
}

// parseRoute reads either of the two shapes of a route request: flat, or an envelope
// beside a payload.
func parseRoute(body []byte) (*outgoing, error) {
	outer, err := amp.ReadFields(body, "payload")
	if err != nil {
		return nil, err
	}
	f := outer
	if envelope := outer.Object("envelope"); envelope != nil {
		f = envelope
	}
	sum := sha256.Sum256(body)
	o := &outgoing{
		to:        f.Required("to", amp.MaxAddress, "an address, such as \"bob@acme.signalbox.local\""),
		from:      f.Text("from", amp.MaxAddress),
		subject:   f.Required("subject", maxSubject, "1 to 256 characters, such as \"Task request\""),
		inReplyTo: f.Text("in_reply_to", 128), threadHint: f.Text("thread_id", 128), signature: f.Text("signature", 256),
		expiresAt: f.Time("expires_at"), clientID: f.Text("id", 128), request: hex.EncodeToString(sum[:]),
	}
	if o.priority = f.Text("priority", 16); o.priority == "" {
		o.priority = "normal"
	} else if !slices.Contains(priorities, o.priority) {
		f.Fail("priority", "should be one of %s, and is %.40q.", strings.Join(priorities, ", "), o.priority)
	}
	if o.inReplyTo != "" && !amp.IDForm.MatchString(o.inReplyTo) {
		f.Fail("in_reply_to", "should be the id of a message, such as \"msg_1706648400_abc123\", and is %.80q.", o.inReplyTo)
	}
	outer.Join(f)
	o.idem = outer.Text("idempotency_key", 128)
	if options := outer.Object("options"); options != nil {
		if receipt := options.Flag("receipt"); receipt != nil {
			o.receipt = *receipt
		}
		outer.Join(options)
	}
	o.readPayload(outer)
	return o, outer.Err
}

func (o *outgoing) readPayload(f *amp.Fields) {
	raw, there := f.Get("payload")
	if !there {
		f.Missing("payload", `an object such as {"type": "request", "message": "Please …"}`)
		return
	}
	p := f.Object("payload")
	if p == nil {
		return
	}
	o.payload = raw
	o.kind = p.Required("type", maxType, "a word such as \"request\", \"response\", \"notification\" or \"update\"")
	o.message = p.Required("message", maxMessage, "text of 1 to 65536 bytes")
	if len(o.message) > maxMessage {
		p.FailLong("message", maxMessage, "should have at most %d bytes, and has %d.", maxMessage, len(o.message))
	}
	if context, ok := p.Get("context"); ok {
		switch {
		case context.Kind() != '{':
			p.Fail("context", "should be an object.")
		case len(context) > maxContext:
			p.FailLong("context", maxContext, "should have at most %d bytes, and has %d.", maxContext, len(context))
		}
	}
	if list, ok := p.Get("attachments"); ok {
		o.attached = true
		if list.Kind() != '[' {
			p.Fail("attachments", "should be a list.")
		}
	}
	f.Join(p)
	if f.Err == nil && len(raw) > maxPayload {
		f.Err = fault.New(fault.TooLarge, "The payload has %d bytes; the most is %d. Send what is large as an attachment.",
			len(raw), maxPayload)
	}
}

// Answer is what a sender hears about a message.
type Answer struct {
	ID           string   `json:"id"`
	Status       string   `json:"status"` // delivered, queued, failed or quarantined
	Method       string   `json:"method"` // websocket, webhook, relay or mesh
	DeliveredAt  string   `json:"delivered_at,omitzero"`
	QueuedAt     string   `json:"queued_at,omitzero"`
	RemoteHost   string   `json:"remote_host,omitzero"` // of the mesh
	QuarantineID string   `json:"quarantine_id,omitzero"`
	GateID       string   `json:"gate_id,omitzero"`
	Warnings     []string `json:"warnings,omitempty"`
}

// Accepted is the answer to another provider.
type Accepted struct {
	Accepted  bool   `json:"accepted"`
	ID        string `json:"id"`
	Delivered bool   `json:"delivered"`
	Method    string `json:"method"`
}

// Security is what a recipient should know of a message before it believes it. It stands
// beside the message, never in it: the payload is as it was signed.
type Security struct {
	Trust          Trust    `json:"trust"`
	InjectionFlags []string `json:"injection_flags"`
	Wrapped        bool     `json:"wrapped"`
	VerifiedAt     string   `json:"verified_at,omitzero"`
}

// Pending is a message as its recipient gets it.
type Pending struct {
	amp.Message

	ID        string
	QueuedAt  time.Time
	ExpiresAt time.Time
	Security  Security

	place, seq int64
	sender     string // the agent's id
	receipt    bool   // the sender wants to hear of the delivery
}

// json is the message as the recipient's calls are answered with it.
func (p *Pending) json() ([]byte, error) {
	head, err := wire.Marshal(struct {
		ID       string       `json:"id"`
		Envelope amp.Envelope `json:"envelope"`
	}{p.ID, p.Envelope})
	if err != nil {
		return nil, err
	}
	local, err := wire.Marshal(map[string]any{"security": p.Security})
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

// Page is what waits for an agent, the oldest first.
type Page struct {
	Messages  []Pending
	Remaining int64 // how many wait after these
	Next      int64 // where the next page begins
}

// JSON is the answer of the pending call, with every message as it came.
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

// firstLine is a text cut to one line of at most so many characters.
func firstLine(text string, most int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if utf8.RuneCountInString(line) > most {
		line = string([]rune(line)[:most]) + "…"
	}
	return line
}
