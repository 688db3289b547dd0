package mail

import (
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// Readers find the decisions in messages.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{kindRouted: readDecision, kindBlocked: readBlocked}
}

func readBlocked(e *ledger.Entry) (rulebook.Reading, error) {
	if e.Body == nil { // erased
		return rulebook.Reading{}, nil
	}
	return rulebook.ReadDecision(e)
}

// readDecision finds the decision in message.routed, with the event that the message
// amounts to.
func readDecision(e *ledger.Entry) (rulebook.Reading, error) {
	if e.Body == nil { // erased
		return rulebook.Reading{}, nil
	}
	reading, err := rulebook.ReadDecision(e)
	if err != nil || reading.Decision == nil {
		return reading, err
	}
	var b struct {
		Meta    Meta     `json:"meta"`
		Payload wire.Raw `json:"payload"`
	}
	if err := wire.UnmarshalPart(e.Body, &b); err != nil {
		return reading, err
	}
	var payload struct {
		Message string `json:"message"`
	}
	if err := wire.UnmarshalPart(b.Payload, &payload); err != nil {
		return reading, err
	}
	l := letter{
		outgoing: &outgoing{
			kind: b.Meta.Kind, subject: b.Meta.Envelope.Subject, message: payload.Message,
			priority: b.Meta.Envelope.Priority, payload: b.Payload,
		},
		sender: roster.Identity{Address: b.Meta.SenderAddress}, trust: b.Meta.Trust, flags: b.Meta.Flags, meta: b.Meta,
	}
	if b.Meta.Sender == "" {
		l.sender.ID = "remote:" + b.Meta.SenderAddress
	}
	var d amp.Domains // of no provider: both addresses are read by the same rule
	if l.from, err = d.Parse(b.Meta.SenderAddress); err != nil {
		return reading, err
	}
	if l.to, err = d.Parse(b.Meta.RecipientAddress); err != nil {
		return reading, err
	}
	event := l.event()
	reading.Decision.Event = &event
	return reading, nil
}
