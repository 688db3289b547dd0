// Package errand is the work that messages ask for: what a message hands on to its recipient, and when that ends.
//
// A message of the type task or handoff hands on what its sender has, and any other one what options.handoff says. The
// terms are the server's: they are in the request beside what is signed, and the token is delivered beside the message.
// A response of the recipient to the message ends the handoff.
//
// It knows messages by their ids and the handoffs of the core; queues and delivery are those of package mail.
package errand

import (
	"context"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// Protocol is the name of mail in handoffs. It is stored.
const Protocol = "mail"

// Terms are what a message hands on, as its entry has them and as a sender writes them. They are stored for ever:
// members are only added.
type Terms struct {
	Scopes  []string      `json:"scopes,omitzero"` // nil is everything that the sender has, and an empty list nothing
	Tools   []string      `json:"tools,omitzero"`  // likewise
	Budget  policy.Budget `json:"budget,omitzero"`
	Seconds int64         `json:"seconds,omitzero"` // a day if 0
}

// kinds are the types of messages that ask for work. A request asks a question as a rule, so it hands on nothing unless
// its sender says so.
var kinds = []string{"task", "handoff"}

// response is the type of a message that ends what the message hands on that it answers.
const response = "response"

// field is where senders write the terms.
const field = "options.handoff"

// Read reads the terms of a message of a type, nil if it hands on nothing. sent is options.handoff, nil if there is none.
// near says that the recipient is an agent of the sender's workspace, which alone work can be handed to.
func Read(kind string, sent wire.Raw, near bool) (*Terms, error) {
	switch {
	case sent == nil && near && slices.Contains(kinds, kind):
		return &Terms{}, nil
	case sent == nil:
		return nil, nil
	case !near:
		return nil, fault.New(fault.InvalidField, "The field %q is for a recipient of your own workspace: work cannot be "+
			"handed on to another. Leave it out.", field).About(field)
	}
	t := new(Terms)
	if err := wire.Unmarshal(sent, t); err != nil {
		return nil, fault.Wrap(err, fault.InvalidField, "The field %q should be an object such as {\"scopes\": [\"repo.read\"], "+
			"\"tools\": [\"Read\"], \"budget\": {\"calls\": 20}, \"seconds\": 3600}; %s", field, fault.From(err).Message).
			About(field)
	}
	return t, nil
}

// Message is what matters here of a message that gets into the queue of its recipient.
type Message struct {
	ID, Kind, InReplyTo string
	Sender              roster.Identity
	Recipient           string // its id
	Terms               *Terms
}

// answers reports whether a message may end the handoff of the one that it answers.
func (m *Message) answers() bool { return m.Kind == response && m.InReplyTo != "" }

// Concerns reports whether Take may open or end a handoff for the message, which most messages do not.
func (m *Message) Concerns() bool { return m.Terms != nil || m.answers() }

// Take opens, in the transaction in which a message gets into the queue, the handoff to its recipient, and ends the one
// that the message answers.
func Take(ctx context.Context, core *protocol.Core, tx *ledger.Tx, m Message, by handoff.By) error {
	if m.answers() {
		work := handoff.Work{Workspace: m.Sender.Workspace, Protocol: Protocol, ID: m.InReplyTo, To: m.Sender.ID}
		open, err := handoff.ForWork(tx.Prover(), work)
		if err == nil && open.ID != "" {
			err = handoff.EndWorkIn(tx, m.Sender, work.Workspace, work.ID, "the message was answered with "+m.ID)
		}
		if err != nil {
			return err
		}
	}
	if m.Terms == nil {
		return nil
	}
	_, err := core.Handoffs.OpenIn(ctx, tx, by, handoff.Opening{
		To: m.Recipient, Work: m.ID, Protocol: Protocol, Scopes: m.Terms.Scopes, Tools: m.Terms.Tools, Budget: m.Terms.Budget,
		Seconds: m.Terms.Seconds,
	})
	return about(err)
}

// about names the field of the request that an error is about.
func about(err error) error {
	f := fault.From(err)
	if err == nil || !slices.Contains([]string{"scopes", "tools", "budget", "seconds"}, f.Field) {
		return err
	}
	return f.About(field + "." + f.Field)
}

// Released is Take for a message that was held until a person approved it: its sender hands on as it stands now. What it
// may not hand on any more is not, and the message is delivered all the same.
func Released(ctx context.Context, core *protocol.Core, tx *ledger.Tx, m Message, decided *rulebook.Record) error {
	var by handoff.By
	sender, err := core.Roster.ByID(ctx, m.Sender.Workspace, m.Sender.ID)
	if err == nil && decided != nil {
		m.Sender = sender
		claim := policy.Claim{}
		if decided.Delegation.Verified {
			claim.Token = core.Handoffs.Token(decided.Delegation.ID)
		}
		var found roster.Behalf
		var under handoff.Standing
		if found, under, err = core.Book.Behalf(ctx, sender, claim, decided.User.ID); err == nil {
			by = handoff.By{Who: sender, Under: under, User: found.User, Proof: found.Proof}
			err = Take(ctx, core, tx, m, by)
		}
	}
	if fault.Is(err, fault.Forbidden) || fault.Is(err, fault.NotFound) || fault.Is(err, fault.InvalidPayload) {
		return nil
	}
	return err
}

// Handed is what a message in a queue hands on to its recipient, nil for nothing, and for what is over.
func Handed(core *protocol.Core, p ledger.Prover, workspace, messageID, recipient string) (*handoff.Handed, error) {
	open, err := handoff.ForWork(p, handoff.Work{Workspace: workspace, Protocol: Protocol, ID: messageID, To: recipient})
	if err != nil || open.ID == "" || !core.Now().Before(open.EndsAt) {
		return nil, err
	}
	return core.Handoffs.Give(open.ID), nil
}
