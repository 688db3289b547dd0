package amp

import "signalbox/internal/wire"

// The documents of agent messaging as /openapi.json describes them. Nothing is decoded into these types:
// ReadDraft and others read members one by one, and ignore those that other clients add.
type (
	// RouteDocument is the body of POST /v1/route: a message that an agent sends.
	RouteDocument struct {
		To             string        `json:"to" doc:"an address or a short form" example:"bob@default.signalbox.local"`
		Subject        string        `json:"subject" doc:"1 to 256 characters" example:"Task request"`
		Payload        PayloadFields `json:"payload"`
		Priority       string        `json:"priority,omitempty" doc:"low, normal, high or urgent" example:"normal"`
		InReplyTo      string        `json:"in_reply_to,omitempty" doc:"the id of the message that this answers"`
		Signature      string        `json:"signature,omitempty" doc:"Ed25519 over the canonical text, in base64"`
		ExpiresAt      string        `json:"expires_at,omitempty" doc:"RFC 3339"`
		IdempotencyKey string        `json:"idempotency_key,omitempty" doc:"the same key sends once" example:"send-1"`
	}
	// PayloadFields are the members of a message's payload. A sender may add others.
	PayloadFields struct {
		Type        string     `json:"type" doc:"such as request, response, notification" example:"request"`
		Message     string     `json:"message" doc:"1 to 65536 bytes" example:"Please run the tests."`
		Context     wire.Raw   `json:"context,omitempty" doc:"an object of at most 256 KiB"`
		Attachments []wire.Raw `json:"attachments,omitempty" doc:"what the upload calls answered"`
	}
	// AckDocument is the body that acknowledges several messages.
	AckDocument struct {
		IDs []string `json:"ids" example:"[\"msg_1706648400_abc123\"]"`
	}
	// MessageDocument is a message as one server hands it to another, and as agents fetch it.
	MessageDocument struct {
		ID              string        `json:"id,omitempty"`
		Envelope        Envelope      `json:"envelope"`
		Payload         PayloadFields `json:"payload"`
		SenderPublicKey string        `json:"sender_public_key,omitempty" doc:"PEM"`
		QueuedAt        string        `json:"queued_at,omitempty"`
		ExpiresAt       string        `json:"expires_at,omitempty"`
		Local           wire.Raw      `json:"local,omitempty" doc:"trust and warnings, as the recipient's server sees them"`
	}
	// PageDocument is the answer of the calls that list what waits for an agent.
	PageDocument struct {
		Messages   []MessageDocument `json:"messages"`
		Count      int64             `json:"count"`
		Remaining  int64             `json:"remaining"`
		NextCursor string            `json:"next_cursor"`
	}
	// MeshDocument is the body of POST /v1/mesh/route: a message from another host of the mesh.
	MeshDocument struct {
		MessageDocument
		Forwarded struct {
			OriginalTo   string `json:"original_to"`
			OriginalFrom string `json:"original_from,omitempty"`
			ForwardedBy  string `json:"forwarded_by,omitempty"`
		} `json:"_forwarded"`
	}
)
