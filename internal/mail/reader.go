package mail

import (
	"signalbox/internal/behalf"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// Readers are how the rulebook finds the decisions in entries of mail, to count and replay them.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{kindRouted: readDecision, kindBlocked: readBlocked}
}

// readBlocked reads the decision about a refused message, none if the body was erased.
func readBlocked(e *ledger.Entry) (rulebook.Reading, error) {
	if e.Body == nil { // erased
		return rulebook.Reading{}, nil
	}
	return rulebook.ReadDecision(e)
}

// readDecision reads the decision in message.routed. The event that was decided upon is not
// stored twice: it is made again from the message, in the same way as when it was sent.
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
		Message string   `json:"message"`
		Context wire.Raw `json:"context"`
	}
	if err := wire.UnmarshalPart(b.Payload, &payload); err != nil {
		return reading, err
	}
	// Only the fields that event reads.
	l := letter{
		Draft: &amp.Draft{
			Kind: b.Meta.Kind, Subject: b.Meta.Envelope.Subject, Text: payload.Message,
			Priority: b.Meta.Envelope.Priority, Payload: b.Payload, Named: behalf.In(payload.Context),
		},
		sender: roster.Identity{Address: b.Meta.SenderAddress}, trust: b.Meta.Trust, flags: b.Meta.Flags, meta: b.Meta,
	}
	if b.Meta.Sender == "" {
		l.sender.ID = "remote:" + b.Meta.SenderAddress
	}
	var d amp.Domains // no own domain: rules compare only whether the providers are equal
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
