package amp

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// The limits of a message, in bytes unless they say otherwise.
const (
	MaxPayload = 512 << 10 // of a message
	MaxSubject = 256       // characters
	MaxText    = 64 << 10  // bytes
	maxContext = 256 << 10 // bytes
	maxType    = 64
	maxToken   = 512
)

// priorities are the values of priority.
var priorities = []string{"low", "normal", "high", "urgent"}

// Draft is a message that an agent wants to send, as read from its request. ReadDraft makes it;
// its form is right, and nothing else is known: addresses are not looked up, the signature is not
// verified, and From is only what the client wrote.
type Draft struct {
	From, To   string // as sent
	Subject    string
	Priority   string
	Payload    wire.Raw // byte for byte as sent (MSG-32)
	Kind       string   // payload.type
	Text       string   // payload.message
	Attached   bool     // it has attachments
	Nonce      bool     // the payload has a nonce, which makes its signature unique
	InReplyTo  string
	ThreadHint string
	Signature  string
	Idem       string // the idempotency key
	Receipt    bool   // the sender asks for a receipt of the delivery
	ExpiresAt  time.Time
	ClientID   string // the id that the client made (MSG-27)
	Request    string // SHA-256 of the request, in hex
	// Named is for whom the sender says it writes: payload.context.user, which is signed and delivered, and
	// options.delegation, which is the server's alone.
	Named behalf.Named
	// Handoff is what the message hands on to its recipient, options.handoff, which is the server's too; nil if absent.
	Handoff wire.Raw
}

// ReadDraft reads a request to route a message in either of its two shapes (MSG-26): flat, or an
// envelope beside a payload. idempotency_key and options are beside the envelope in both.
func ReadDraft(body []byte) (*Draft, error) {
	outer, err := ReadFields(body, "payload")
	if err != nil {
		return nil, err
	}
	f := outer
	// MSG-26: the members are the same, one level deeper.
	if envelope := outer.Object("envelope"); envelope != nil {
		f = envelope
	}
	sum := sha256.Sum256(body)
	o := &Draft{
		To:        f.Required("to", MaxAddress, "an address, such as \"bob@acme.signalbox.local\""),
		From:      f.Text("from", MaxAddress),
		Subject:   f.Required("subject", MaxSubject, "1 to 256 characters, such as \"Task request\""),
		InReplyTo: f.Text("in_reply_to", 128), ThreadHint: f.Text("thread_id", 128), Signature: f.Text("signature", 256),
		ExpiresAt: f.Time("expires_at"), ClientID: f.Text("id", 128), Request: hex.EncodeToString(sum[:]),
	}
	// The default is part of what is signed (MSG-37).
	if o.Priority = f.Text("priority", 16); o.Priority == "" {
		o.Priority = "normal"
	} else if !slices.Contains(priorities, o.Priority) {
		f.Fail("priority", "should be one of %s, and is %.40q.", strings.Join(priorities, ", "), o.Priority)
	}
	if o.InReplyTo != "" && !IDForm.MatchString(o.InReplyTo) {
		f.Fail("in_reply_to", "should be the id of a message, such as \"msg_1706648400_abc123\", and is %.80q.", o.InReplyTo)
	}
	outer.Join(f)
	o.Idem = outer.Text("idempotency_key", 128)
	if options := outer.Object("options"); options != nil {
		if receipt := options.Flag("receipt"); receipt != nil {
			o.Receipt = *receipt
		}
		o.Named.Claim.Token = options.Text("delegation", maxToken)
		if handoff, there := options.Get("handoff"); there {
			o.Handoff = handoff
		}
		outer.Join(options)
	}
	o.readPayload(outer)
	return o, outer.Err
}

// readPayload checks the members of the payload that the protocol names, and keeps its bytes.
func (o *Draft) readPayload(f *Fields) {
	raw, there := f.Get("payload")
	if !there {
		f.Missing("payload", `an object such as {"type": "request", "message": "Please …"}`)
		return
	}
	p := f.Object("payload")
	if p == nil {
		return
	}
	o.Payload = raw
	o.Kind = p.Required("type", maxType, "a word such as \"request\", \"response\", \"notification\" or \"update\"")
	o.Text = p.Required("message", MaxText, "text of 1 to 65536 bytes")
	if len(o.Text) > MaxText {
		p.FailLong("message", MaxText, "should have at most %d bytes, and has %d.", MaxText, len(o.Text))
	}
	_, o.Nonce = p.Get("nonce")
	// null, which the bash clients always send, is no value (MSG-5).
	if context, ok := p.Get("context"); ok {
		switch {
		case context.Kind() != '{':
			p.Fail("context", "should be an object.")
		case len(context) > maxContext:
			p.FailLong("context", maxContext, "should have at most %d bytes, and has %d.", maxContext, len(context))
		default:
			o.Named = o.Named.Or(behalf.In(context))
		}
	}
	if list, ok := p.Get("attachments"); ok {
		o.Attached = true
		if list.Kind() != '[' {
			p.Fail("attachments", "should be a list.")
		}
	}
	// A payload is delivered and stored byte for byte, so that a token in it would be known to others.
	if behalf.HasToken(raw) {
		p.Fail("context", "should not hold the token of a handoff, which the recipient would see. Send it as options.delegation.")
	}
	f.Join(p)
	if f.Err == nil && len(raw) > MaxPayload {
		f.Err = fault.New(fault.TooLarge, "The payload has %d bytes; the limit is %d. Send large content as an attachment.",
			len(raw), MaxPayload)
	}
}
