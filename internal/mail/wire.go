package mail

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/mail/amp"
	"signalbox/internal/wire"
)

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
