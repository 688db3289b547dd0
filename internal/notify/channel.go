package notify

import (
	"context"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Channel is one place where people are told.
type Channel interface {
	// Name is the kind of channel: slack, telegram and so on.
	Name() string
	// Target tells this one from others, such as slack:C123. It is kept in the ledger
	// and holds no secret.
	Target() string
	// Buttons reports whether the gate can be decided from here.
	Buttons(g gate.Gate) bool
	// Send shows the message, or shows it in place of the one that m.Earlier refers to.
	// It returns when ctx ends, and may be called with the same message again.
	Send(ctx context.Context, m Message) deliver.Result
}

// Personal is a channel that can also write to one person.
type Personal interface {
	// Person is the channel to whom the contact belongs.
	Person(contact string) Channel
}

// Listener is a channel that hears of presses by itself.
type Listener interface {
	// Listen hands presses to n until ctx ends.
	Listen(ctx context.Context, n *Notifier) error
}

// Called is a channel that is called when a button is pressed.
type Called interface {
	Routes(n *Notifier) []wire.Route
}

// The events that are told. The first three are the kinds of entries.
const (
	Opened    = "gate.opened"
	Escalated = "gate.escalated"
	Resolved  = "gate.resolved"
	Tested    = "notify.test"
)

// Message is what a channel is to show.
type Message struct {
	ID     string // the same on every try
	Number int64  // 1 for the first try
	At     time.Time
	Event  string
	Gate   gate.Gate // as it is now
	// Then is the gate as it was at the event, which is the same on every try.
	Then gate.Gate
	Link string // where the gate can be seen
	// Earlier refers to the message that told of the opening, or to the one before this
	// where only those who are asked are told. It is "" when there is none.
	Earlier string
	// Approve and Reject are what buttons carry, "" when there are to be none.
	Approve, Reject string
	// Asked are those whom an escalation is for.
	Asked []roster.Person
}

// Mentions are those whom the message asks and whom the channel knows, the first ten.
func (m Message) Mentions(channel string) []roster.Person {
	var known []roster.Person
	for _, p := range m.Asked {
		if p.Contacts[channel] != "" && len(known) < maxMentions {
			known = append(known, p)
		}
	}
	return known
}

const maxMentions = 10
