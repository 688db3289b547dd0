package mail

import (
	"signalbox/internal/mail/amp"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// The kinds of entries. The subject of those about a message is its id.
const (
	kindRouted    = "message.routed"
	kindReleased  = "message.released"  // from quarantine into the queue
	kindRejected  = "message.rejected"  // by a person
	kindDelivered = "message.delivered" // pushed
	kindAcked     = "message.acknowledged"
	kindRead      = "message.read"
	kindExpired   = "message.expired"
	kindFailed    = "message.failed" // another provider refuses it
	kindErased    = "message.erased"
	kindBlocked   = "message.blocked" // refused, and not kept
)

// Meta is what is known of a message beside its payload. It outlives the payload.
type Meta struct {
	Envelope           amp.Envelope `json:"envelope"`
	Sender             string       `json:"sender,omitzero"` // the agent's id, "" for one of another provider
	SenderAddress      string       `json:"sender_address"`  // as registered
	SenderKey          []byte       `json:"sender_key,omitzero"`
	Recipient          string       `json:"recipient"`
	RecipientWorkspace string       `json:"recipient_workspace"`
	RecipientAddress   string       `json:"recipient_address"`
	Kind               string       `json:"kind"`
	Trust              Trust        `json:"trust"`
	Flags              []string     `json:"flags,omitempty"`
	Alias              string       `json:"alias,omitzero"` // the id that the client made up
	Idem               string       `json:"idempotency_key,omitzero"`
	Request            string       `json:"request_sha256,omitzero"`
	Receipt            bool         `json:"receipt,omitzero"`
	ExpiresAt          int64        `json:"expires_at"` // microseconds
	Quarantine         string       `json:"quarantine,omitzero"`
	Gate               string       `json:"gate,omitzero"`
	PayloadSHA256      string       `json:"payload_sha256"`
	Attachments        []string     `json:"attachments,omitempty"`
	AttachedUntil      int64        `json:"attached_until,omitzero"` // microseconds
	Pin                string       `json:"pin,omitzero"`            // the key of another provider's agent
	Unpin              string       `json:"unpin,omitzero"`          // the one that it replaces
	At                 int64        `json:"at,omitzero"`             // microseconds, with Pin
}

// routed is the body of message.routed. The payload is last, and as it came.
type routed struct {
	Meta     Meta             `json:"meta"`
	Decision *rulebook.Record `json:"decision"`
	Payload  wire.Raw         `json:"payload,omitzero"` // see encode

	text string // payload.message, while this process has it in memory
}

type (
	// about is the body of what happens to one message.
	about struct {
		Seq    int64  `json:"seq"`            // the entry of the message
		Agent  string `json:"agent,omitzero"` // whose queue it is in
		Place  int64  `json:"place,omitzero"` // and where
		Until  int64  `json:"until,omitzero"` // when it leaves the queue, for released
		Via    string `json:"via,omitzero"`   // how it reached the recipient, or was acknowledged
		Sender string `json:"sender,omitzero"`
		To     string `json:"to,omitzero"`
		Note   string `json:"note,omitzero"`
	}
	erased struct {
		Messages []erasedMessage `json:"messages"`
	}
	erasedMessage struct {
		Seq     int64  `json:"seq"`
		Status  string `json:"status"`
		EndedAt int64  `json:"ended_at"` // microseconds
		Meta    Meta   `json:"meta"`
	}
	// blocked is about what the sender, who is the subject, was refused.
	blocked struct {
		To       string           `json:"to"`
		Subject  string           `json:"message_subject"`
		Flags    []string         `json:"flags,omitempty"`
		Decision *rulebook.Record `json:"decision,omitempty"`
	}
)
