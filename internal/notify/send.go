package notify

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/signalbox/signalbox/internal/deliver"
	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/gate"
	"github.com/signalbox/signalbox/internal/roster"
	"github.com/signalbox/signalbox/internal/wire"
)

// sender makes a message of a notice and has its channel show it.
type sender struct{ n *Notifier }

// Send makes one try.
func (s sender) Send(ctx context.Context, a deliver.Attempt) deliver.Result {
	c := s.n.byTarget[a.Target]
	if c == nil {
		// Not hopeless: another node may have been started with it already.
		return deliver.Result{Class: "no_channel", Text: "This channel is not configured here, or no longer. Configure it, or leave this until it is given up."}
	}
	m, err := s.n.message(ctx, c, a)
	if err != nil {
		s.n.Log.Warn("cannot make a message", "delivery", a.ID, "error", err.Error())
		return deliver.Result{Class: "internal", Text: "The gate could not be read. The server's log has the cause."}
	}
	if m.Event == Escalated && m.Gate.Status != gate.Pending && c.Name() != webhookName {
		// Nobody is reminded of what is decided. Programs hear of everything.
		return deliver.Result{Verdict: deliver.Succeeded, Class: "moot"}
	}
	return c.Send(ctx, m)
}

func (n *Notifier) message(ctx context.Context, c Channel, a deliver.Attempt) (Message, error) {
	var p payload
	if err := wire.Unmarshal(a.Payload, &p); err != nil {
		return Message{}, err
	}
	g, err := n.Gates.Get(ctx, p.Gate)
	if err != nil {
		return Message{}, err
	}
	m := Message{ID: a.ID, Number: a.Number, At: a.At, Event: p.Event, Gate: g, Then: g, Link: n.link(g.ID)}
	switch p.Event {
	case Opened:
		if g.Status == gate.Pending && c.Buttons(g) {
			m.Approve, m.Reject = n.button(approveAction, g), n.button(rejectAction, g)
		}
	case Escalated, Resolved:
		if m.Earlier, err = n.earlier(ctx, g.ID, c.Target()); err != nil {
			return m, err
		}
	}
	if p.Event == Resolved {
		return m, nil
	}
	return m, n.lookBack(ctx, &m, p.Entry)
}

// lookBack fills in what only the entry knows.
func (n *Notifier) lookBack(ctx context.Context, m *Message, seq int64) error {
	e, err := n.Ledger.Entry(ctx, seq)
	if err != nil {
		return err
	}
	m.Then = asOf(m.Gate, e.At)
	if m.Event != Escalated {
		return nil
	}
	var body struct {
		Step gate.Step `json:"step"`
	}
	if err := wire.UnmarshalPart(e.Body, &body); err != nil {
		return err
	}
	people, err := n.Roster.Operators(ctx, "")
	if err != nil {
		return err
	}
	m.Asked = asked(people, body.Step, m.Gate)
	return nil
}

// asked are those whom a step is for, and who may see the gate.
func asked(people []roster.Person, step gate.Step, g gate.Gate) []roster.Person {
	whom := step.Whom
	if len(whom) == 0 && step.Do == gate.Remind {
		whom = g.Approvers
	}
	if len(whom) == 0 {
		return nil
	}
	rules := gate.Rules{Approvers: whom}
	var found []roster.Person
	for _, p := range people {
		if (p.Workspace == "" || p.Workspace == g.Workspace) && rules.MayDecide(p) {
			found = append(found, p)
		}
	}
	return found
}

// asOf is a gate as it was before it was resolved.
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

// earlier refers to the message by which a channel was told of the opening. It has been
// sent or given up by now, since a channel's deliveries go out in order.
func (n *Notifier) earlier(ctx context.Context, gateID, target string) (string, error) {
	var delivery string
	err := n.DB.Read.QueryRowContext(ctx, "SELECT delivery FROM notice WHERE gate = $1 AND channel = $2 AND event = 'gate.opened'", gateID, target).Scan(&delivery)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	reference, err := n.Outbox.Reference(ctx, delivery)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	return reference, err
}

func (n *Notifier) link(gateID string) string { return n.Base + "/ui/gates/" + gateID }
