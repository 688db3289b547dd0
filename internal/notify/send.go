package notify

import (
	"context"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/alarm"
	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// sender makes a message of a notice and has its channel show it. The outbox calls it.
type sender struct{ n *Notifier }

// Send makes one try. Whoever is no longer an operator, or has changed address, is told nothing
// more: contacts are checked at every try.
func (s sender) Send(ctx context.Context, a deliver.Attempt) deliver.Result {
	var p payload
	if err := wire.Unmarshal(a.Payload, &p); err != nil {
		return s.broken(a, err)
	}
	c := s.n.byTarget[a.Target]
	if p.Contact != "" {
		kind, _, _ := strings.Cut(a.Target, ":")
		c = s.n.person(kind, p.Contact)
		// Whoever is no longer an operator, or has changed address, is told nothing more.
		if _, err := s.n.roster.ByContact(ctx, kind, p.Contact); fault.Is(err, fault.NotFound) {
			return moot
		} else if err != nil {
			return s.broken(a, err)
		}
	}
	if c == nil {
		// Not hopeless: another node may have been started with it already.
		return deliver.Result{
			Class: "no_channel",
			Text:  "This channel is not configured here, or no longer. Configure it, or leave this until it is given up.",
		}
	}
	m, err := s.n.message(ctx, c, a, p)
	if err != nil {
		return s.broken(a, err)
	}
	if m.Alarm != nil && m.Alarm.ClosedAt != nil && c.Name() != webhookName {
		return moot // somebody has looked at it
	}
	if m.Event == Escalated && m.Gate.Status != gate.Pending && c.Name() != webhookName {
		return moot // nobody is reminded of what is decided; programs hear of everything
	}
	if m.Event == Resolved && p.Contact != "" && m.Earlier == "" {
		return moot // they were never told that it waits
	}
	return c.Send(ctx, m)
}

// moot is the result for what need not be said any more. It counts as delivered.
var moot = deliver.Result{Verdict: deliver.Succeeded, Class: "moot"}

// broken is the result for a message that could not be made. It is tried again, since the database
// may be away for a moment.
func (s sender) broken(a deliver.Attempt, err error) deliver.Result {
	s.n.log.Warn("cannot make a message", "delivery", a.ID, "error", err.Error())
	return deliver.Result{Class: "internal", Text: "What it is about could not be read. The server's log has the cause."}
}

// message makes the message for one try. Only an opening has buttons: a reminder refers to it. Where
// there might be buttons and are none, the message says why.
func (n *Notifier) message(ctx context.Context, c Channel, a deliver.Attempt, p payload) (Message, error) {
	if p.Event == alarm.Raised {
		raised, err := n.alarms.Get(ctx, p.Gate)
		m := Message{
			ID: a.ID, Number: a.Number, At: a.At, Event: p.Event, Alarm: &raised, Link: n.base + address.Alarms.At(),
		}
		m.write(c.Room())
		return m, err
	}
	g, err := n.gates.Get(ctx, p.Gate)
	if err != nil {
		return Message{}, err
	}
	g.Digest = g.ShownDigest()
	m := Message{ID: a.ID, Number: a.Number, At: a.At, Event: p.Event, Gate: g, Then: g, Link: n.link(g.ID)}
	if p.Event != Opened {
		if m.Earlier, err = n.earlier(ctx, p, c.Target()); err != nil {
			return m, err
		}
	}
	if p.Event != Resolved {
		if err := n.fillFromEntry(ctx, &m, p.Entry); err != nil {
			return m, err
		}
	}
	missing := m.write(c.Room())
	if p.Event != Opened || g.Status != gate.Pending {
		return m, nil
	}
	why := undecidable(c, g)
	if why == "" {
		m.Approve, m.Reject = n.button(approveAction, g), n.button(rejectAction, g)
	} else if missing != "" || c.Buttons(gate.Gate{}) {
		m.Lines = append(m.Lines, Line{"No buttons", why + ". Open the gate to see all of it and to decide."})
	}
	return m, nil
}

// Tell shows an alarm in every channel, once and at once, without the ledger: for what is found when nothing can be
// recorded any more. What a channel does not take is logged.
func (n *Notifier) Tell(ctx context.Context, one alarm.Alarm) {
	for _, c := range n.Channels {
		m := Message{
			ID: one.Kind, Number: 1, At: one.RaisedAt, Event: alarm.Raised, Alarm: &one, Link: n.base + address.Alarms.At(),
		}
		m.write(c.Room())
		if r := c.Send(ctx, m); r.Verdict != deliver.Succeeded {
			n.log.Error("cannot tell a channel of an alarm", "channel", c.Target(), "alarm", one.Title, "error", r.Text)
		}
	}
}

// fillFromEntry fills in what only the entry knows: how the gate was at that moment, and whom a
// step of the ladder asks.
func (n *Notifier) fillFromEntry(ctx context.Context, m *Message, seq int64) error {
	e, err := n.ledger.Entry(ctx, seq)
	if err != nil {
		return err
	}
	m.Then = asOf(m.Gate, e.At)
	if m.Event != Escalated {
		return nil
	}
	people, err := n.roster.Operators(ctx, "")
	if err != nil {
		return err
	}
	m.Asked, err = peopleAsked(people, &e, m.Gate)
	return err
}

// asOf is a gate as it was before it was resolved, with the votes up to a moment. Programs that
// receive webhooks get events in order and must not see the outcome in the opening.
func asOf(g gate.Gate, at time.Time) gate.Gate {
	g.Status, g.ResolvedAt, g.ResolvedBy, g.Cause, g.Note, g.Modified = gate.Pending, nil, "", "", "", nil
	votes := []gate.Vote{}
	for _, v := range g.Votes {
		if !v.At.After(at) {
			votes = append(votes, v)
		}
	}
	g.Votes = votes
	return g
}

// earlier refers to the message by which a channel was told of the opening, or to the last by
// which a person was told that the gate waits, "" if there is none. It has been sent or given up
// by now, since the deliveries of a channel go out in order.
func (n *Notifier) earlier(ctx context.Context, p payload, target string) (string, error) {
	query, args := "SELECT delivery FROM notice WHERE gate = $1 AND channel = $2 AND event = 'gate.opened'", []any{
		p.Gate,
		target,
	}
	if p.Contact != "" {
		query = "SELECT delivery FROM notice WHERE gate = $1 AND channel = $2 AND contact " +
			"<> '' AND entry < $3 ORDER BY entry DESC"
		args = append(args, p.Entry)
	}
	deliveries, err := n.list(ctx, query, args...)
	for _, delivery := range deliveries {
		reference, err := n.outbox.Reference(ctx, delivery)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return "", err
		}
		if reference != "" { // one that was given up, or was moot, has none
			return reference, nil
		}
	}
	return "", err
}

// list reads one column of text.
func (n *Notifier) list(ctx context.Context, query string, args ...any) ([]string, error) {
	return store.All(n.db.Reading(ctx), store.Text, query, args...)
}

// link is the address of a gate's page, for people.
func (n *Notifier) link(gateID string) string { return n.base + address.Gate.At(gateID) }
