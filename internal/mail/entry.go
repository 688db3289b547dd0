package mail

import (
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/errand"
	"signalbox/internal/mail/injection"
	"signalbox/internal/mail/once"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// The kinds of entries. The subject is the id of the message, but for message.blocked, whose
// subject is the sender, and message.erased, which is about many. Kinds are stored: they never
// change their meaning.
const (
	kindRouted    = "message.routed"
	kindReleased  = "message.released"     // approved: from quarantine into the queue
	kindRejected  = "message.rejected"     // by a person, or because the recipient is gone
	kindDelivered = "message.delivered"    // written to a socket; the queue still has it
	kindAcked     = "message.acknowledged" // the recipient, its webhook or the other server has it
	kindRead      = "message.read"
	kindExpired   = "message.expired"
	kindFailed    = "message.failed"  // another provider refuses it
	kindErased    = "message.erased"  // payloads are gone, the rest is repeated
	kindBlocked   = "message.blocked" // refused by the policy or the scan; the text is not kept
)

// Meta is everything about a message but its payload. It is made once, when the message is
// accepted, and is never changed: what happens to the message later is entries of its own. It
// outlives the payload, since message.erased repeats it.
type Meta struct {
	Envelope      amp.Envelope `json:"envelope"`
	Sender        string       `json:"sender,omitzero"` // the agent's id, "" if it is no agent of ours
	SenderAddress string       `json:"sender_address"`  // as registered
	// SenderKey is the public key at the time of sending: the recipient verifies with it even after
	// a rotation.
	SenderKey          []byte   `json:"sender_key,omitzero"`
	Recipient          string   `json:"recipient"`
	RecipientWorkspace string   `json:"recipient_workspace"`
	RecipientAddress   string   `json:"recipient_address"`
	Kind               string   `json:"kind"`
	Trust              Trust    `json:"trust"`
	Flags              []string `json:"flags,omitempty"`
	// Marks say where each flag was found.
	Marks []injection.Mark `json:"marks,omitempty"`
	Alias string           `json:"alias,omitzero"` // the id of the client (MSG-27)
	// Idem and Request recognise a repeated request (MSG-35). They stay for as long as the message.
	Idem      string `json:"idempotency_key,omitzero"`
	Request   string `json:"request_sha256,omitzero"`
	Receipt   bool   `json:"receipt,omitzero"`
	ExpiresAt int64  `json:"expires_at"` // microseconds
	// Quarantine and Gate are set for a message that is stored outside the queue, behind a gate.
	Quarantine string `json:"quarantine,omitzero"`
	Gate       string `json:"gate,omitzero"`
	// PayloadSHA256 proves what the payload was after it has been erased.
	PayloadSHA256 string   `json:"payload_sha256"`
	Attachments   []string `json:"attachments,omitempty"` // that we have
	// Files are all of them as we know them, without their URLs; erased with the payload.
	Files         []amp.Attachment `json:"files,omitempty"`
	AttachedUntil int64            `json:"attached_until,omitzero"` // microseconds
	Pin           string           `json:"pin,omitzero"`            // fingerprint of a foreign sender's key (MSG-82)
	Unpin         string           `json:"unpin,omitzero"`          // the fingerprint that it replaces
	At            int64            `json:"at,omitzero"`             // microseconds, with Pin
	// Rotations prove that the sender itself went from Unpin to Pin (MSG-98).
	Rotations []amp.Rotation `json:"rotations,omitempty"`
	// Away says which host of the mesh has the attachments, nil for none.
	Away  *attachment.Away `json:"attachments_away,omitempty"`
	Hands *errand.Terms    `json:"hands_on,omitzero"` // to the recipient, nil for nothing
	Once  once.Use         `json:"once,omitzero"`     // of its signature, if that is good once (MSG-111)
}

// errand is what the message asks for.
func (m *Meta) errand(sender roster.Identity) errand.Message {
	return errand.Message{
		ID: m.Envelope.ID, Kind: m.Kind, InReplyTo: m.Envelope.InReplyTo, Sender: sender, Recipient: m.Recipient,
		Terms: m.Hands,
	}
}

// routed is the body of message.routed. The payload is last and is spliced in byte for byte
// (encode): it is never decoded and written again, or signatures would break (MSG-32).
type routed struct {
	Meta     Meta            `json:"meta"`
	Decision *rulebook.Plain `json:"decision"`         // without its event, see readDecision
	Payload  wire.Raw        `json:"payload,omitzero"` // see encode

	text string // payload.message, while this process has it in memory
}

type (
	// transition is the body of every entry about one message after message.routed. It says where
	// the message is in which queue, so that applying it needs no look-up.
	transition struct {
		Seq    int64  `json:"seq"`            // the entry of the message
		Agent  string `json:"agent,omitzero"` // whose queue it is in
		Place  int64  `json:"place,omitzero"` // its place in that queue, 0 for none
		Until  int64  `json:"until,omitzero"` // microseconds: when a released message expires
		Via    string `json:"via,omitzero"`   // how it reached the recipient, or was acknowledged
		Sender string `json:"sender,omitzero"`
		To     string `json:"to,omitzero"`
		Note   string `json:"note,omitzero"`
		Held   bool   `json:"held,omitzero"` // of message.acknowledged: by another server, for a person
	}
	// erased is the body of message.erased.
	erased struct {
		Messages []erasedMessage `json:"messages"`
	}
	// erasedMessage is one message without its payload, with how and when it ended.
	erasedMessage struct {
		Seq     int64  `json:"seq"`
		Status  string `json:"status"`
		EndedAt int64  `json:"ended_at"` // microseconds
		Meta    Meta   `json:"meta"`
	}
	// blocked is the body of message.blocked. It has no text: what was refused is not kept.
	blocked struct {
		To       string           `json:"to"`
		Subject  string           `json:"message_subject"`
		Flags    []string         `json:"flags,omitempty"`
		Marks    []injection.Mark `json:"marks,omitempty"`
		Decision *rulebook.Record `json:"decision,omitempty"`
	}
)
