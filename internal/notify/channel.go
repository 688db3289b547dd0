package notify

import (
	"context"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Channel is one place where people or programs hear of gates: a Slack channel, a chat, a mailbox.
// Implementations are safe for concurrent use. They know nothing of ledgers and retries: one call
// of Send is one try, and the outbox repeats it.
type Channel interface {
	// Name is the kind of channel: slack, telegram and so on.
	Name() string
	// Target tells this one from others, such as slack:C123. It is kept in the ledger
	// and holds no secret.
	Target() string
	// Buttons reports whether a gate can be decided from here, if all of it is shown. It is asked anew
	// for each gate, because channels leave out the buttons of gates of high risk.
	Buttons(g gate.Gate) bool
	// Room is how much text a message holds.
	Room() Room
	// Send shows the message, or replaces the one that m.Earlier refers to. It returns when ctx ends.
	// It may be called with the same message again, after a crash even if the first try succeeded.
	Send(ctx context.Context, m Message) deliver.Result
}

// Personal is a channel that can also write to one person.
type Personal interface {
	// Person is the channel to whom the contact belongs.
	Person(contact string) Channel
}

// Listener is a channel that has to ask, or to hold a connection, to hear of presses.
type Listener interface {
	// Listen hands presses to n until ctx ends.
	Listen(ctx context.Context, n *Notifier) error
}

// Called is a channel that is called over HTTP when a button is pressed.
type Called interface {
	Routes(n *Notifier) []wire.Route
}

// The events that are announced, and alarm.Raised. All but the last are the kinds of the ledger's entries.
const (
	Opened    = "gate.opened"
	Escalated = "gate.escalated"
	Resolved  = "gate.resolved"
	Tested    = "notify.test"
)

// Message is what a channel has to show. It is made for each try, from the gate as it then is: a
// gate that was decided while Slack was down is announced as decided, without buttons.
type Message struct {
	ID     string // the same on every try
	Number int64  // 1 for the first try
	At     time.Time
	Event  string
	Gate   gate.Gate // as it is now
	// Then is the gate as it was at the event, which is the same on every try.
	Then gate.Gate
	// Alarm is what an alarm says, nil if it is about a gate.
	Alarm *alarm.Alarm
	Link  string // where the gate can be seen, or the alarms
	// Headline says in one line what happened, and Lines the rest, within the channel's room. They
	// contain what agents wrote, so the channel has to escape them.
	Headline string
	Lines    []Line
	// Earlier refers to the message that told of the opening, or to the one before this
	// where only those who are asked are told. It is "" when there is none.
	Earlier string
	// Approve and Reject are what buttons carry, "" when there are to be none.
	Approve, Reject string
	// Asked are those whom an escalation is for.
	Asked []roster.Person
}

// Mentions are the people whom the message asks and whom the channel knows, at most ten.
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
