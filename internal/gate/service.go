package gate

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Ballot is what an operator says about a gate.
type Ballot struct {
	Approve  bool
	Note     string
	Modified wire.Raw // what to do instead, where the protocol allows it
	For      string   // the operator whose vote it is, when a delegate casts it
}

// Vote records an operator's vote, and resolves the gate if that decides it.
func (g *Gates) Vote(ctx context.Context, by roster.Identity, gateID string, b Ballot) (Gate, error) {
	if len(b.Note) > maxNote {
		return Gate{}, fault.New(fault.InvalidPayload, "The note has %d bytes; the most is %d.", len(b.Note),
			maxNote).About("note")
	}
	err := g.ledger.Write(ctx, func(tx *ledger.Tx) error {
		found, err := load(tx, gateID)
		if err != nil {
			return err
		}
		if err := found.waitsFor(by); err != nil {
			return err
		}
		operator, err := voter(tx, by, b.For)
		if err != nil {
			return err
		}
		if err := found.admits(by, operator, b.Approve); err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: found.Workspace, Kind: "gate.voted", Actor: by.Actor(), Subject: gateID, Trace: found.Trace,
			Body: voted{operator.Name, by.Name, b.Approve, b.Note},
		})
		found.Votes = append(found.Votes, Vote{Operator: operator.Name, Approve: b.Approve})
		if status := found.opening.Rules.Tally(found.Votes); status != Pending {
			return g.resolve(tx, found, by.Actor(),
				Resolution{Status: status, By: operator.Name, Cause: ByVote, Note: b.Note, Modified: b.Modified})
		}
		return nil
	})
	if err != nil {
		return Gate{}, err
	}
	return g.Get(ctx, gateID)
}

const maxNote = 4000

// voter is the operator whose vote it is: the caller, or one who has delegated.
func voter(tx *ledger.Tx, by roster.Identity, name string) (roster.Person, error) {
	if name == "" || name == by.Name {
		return roster.Person{Name: by.Name, Role: by.Role}, nil
	}
	var until int64
	err := tx.QueryRow("SELECT until_at FROM delegation WHERE operator = $1 AND delegate = $2", []any{name, by.Name},
		&until)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return roster.Person{}, err
	}
	if tx.Now().UnixMicro() >= until {
		return roster.Person{},
			fault.New(fault.Forbidden, "%s has not delegated to %s, or only until a date that is past.", name, by.Name)
	}
	return roster.FindOperator(tx, name)
}

// Admits says why an operator's own vote would not be taken, nil when it would as things
// stand.
func (g *Gate) Admits(by roster.Identity, approve bool) error {
	if err := g.waitsFor(by); err != nil {
		return err
	}
	return g.admits(by, roster.Person{Name: by.Name, Role: by.Role}, approve)
}

// waitsFor checks that the gate waits, and is there for who asks.
func (g *Gate) waitsFor(by roster.Identity) error {
	if by.Workspace != "" && by.Workspace != g.Workspace {
		return noGate(g.ID)
	}
	if g.Status != Pending {
		return alreadyResolved(*g)
	}
	return nil
}

// admits says why an operator may not vote, nil when they may.
func (g *Gate) admits(by roster.Identity, operator roster.Person, approve bool) error {
	if !g.opening.Rules.MayDecide(operator) {
		return fault.New(fault.Forbidden, "%s may not decide this gate. Its rule asks for: %v.", operator.Name, g.Approvers)
	}
	if requester := g.opening.Requester; approve && (requester == by.Actor() || requester == "operator:"+operator.Name) {
		return fault.New(fault.Forbidden, "Who asked may not approve. Another operator has to decide this.")
	}
	for _, v := range g.Votes {
		if v.Operator == operator.Name {
			return fault.New(fault.Conflict, "%s has voted on this gate already. It waits for others.", operator.Name)
		}
	}
	return nil
}

// alreadyResolved tells who was first.
func alreadyResolved(g Gate) error {
	return fault.New(fault.AlreadyResolved, "This gate was %s by %s at %s. A decision is final.", g.Status, g.ResolvedBy,
		g.ResolvedAt.Format(time.RFC3339)).
		With("status", string(g.Status)).With("resolved_by", g.ResolvedBy).With("resolved_at",
		g.ResolvedAt.Format(time.RFC3339Nano)).With("note", g.Note)
}

// Settle resolves a gate by a rule, in the caller's transaction: what it held has
// become moot. A gate that is resolved already stays as it is.
func (g *Gates) Settle(tx *ledger.Tx, gateID string, status Status, actor, note string) error {
	found, err := load(tx, gateID)
	if err != nil || found.Status != Pending {
		return err
	}
	return g.resolve(tx, found, actor, Resolution{Status: status, By: "rule", Cause: ByRule, Note: note})
}

// resolve ends a gate, and lets its protocol draw the consequences.
func (g *Gates) resolve(tx *ledger.Tx, found Gate, actor string, r Resolution) error {
	r.Opened, r.OpenedAt, r.Project, r.Agent, r.Risk = found.opened, found.OpenedAt.UnixMicro(), found.Project, found.AgentID(), found.Risk
	tx.Append(ledger.Event{
		Workspace: found.Workspace, Kind: "gate.resolved", Actor: actor, Subject: found.ID,
		Trace: found.Trace, Body: r,
	})
	then := g.onResolved[found.Origin.Protocol]
	if then == nil {
		return nil
	}
	now := tx.Now()
	found.Status, found.ResolvedAt, found.ResolvedBy, found.Cause, found.Note, found.Modified = r.Status, &now, r.By, r.Cause, r.Note, r.Modified
	return then(tx, found)
}

// Handlers are what gates do when their timers are due.
func (g *Gates) Handlers() map[string]clock.Handler {
	return map[string]clock.Handler{expiryTimer: g.expire, ladderTimer: climb}
}

func (g *Gates) expire(tx *ledger.Tx, t clock.Timer) error {
	found, err := load(tx, t.Subject)
	if err != nil || found.Status != Pending {
		return err
	}
	return g.resolve(tx, found, "system",
		Resolution{Status: found.OnExpiry, By: "expiry", Cause: ByExpiry, Note: "Gate expired"})
}

// climb takes the step of the ladder that is due, and says when the next one is.
func climb(tx *ledger.Tx, t clock.Timer) error {
	found, err := load(tx, t.Subject)
	if err != nil || found.Status != Pending {
		return err
	}
	due := func(s Step) time.Time { return found.OpenedAt.Add(time.Duration(s.After) * time.Microsecond) }
	for i, step := range found.opening.Rules.Ladder {
		if due(step).Before(t.Due) {
			continue
		}
		body := escalated{Step: step}
		if next := found.opening.Rules.next(i + 1); next != nil {
			body.Next = due(*next).UnixMicro()
		}
		tx.Append(ledger.Event{
			Workspace: found.Workspace, Kind: "gate.escalated", Actor: "system", Subject: found.ID,
			Trace: found.Trace, Body: body,
		})
		return nil
	}
	return nil
}

// Delegate lets another operator cast this operator's votes until a moment.
func (g *Gates) Delegate(ctx context.Context, by roster.Identity, delegate string, until time.Time) error {
	return g.ledger.Write(ctx, func(tx *ledger.Tx) error {
		if delegate == by.Name {
			return fault.New(fault.InvalidPayload, "Name another operator; your votes are yours already.").About("delegate")
		}
		if !until.After(tx.Now()) {
			return fault.New(fault.InvalidPayload, "The delegation should end in the future, and %s is past.",
				until.Format(time.RFC3339)).About("until")
		}
		if _, err := roster.OperatorFor(tx, by, delegate); err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Kind: "delegation.granted", Actor: by.Actor(), Subject: by.Name,
			Body: delegated{delegate, until.UnixMicro()},
		})
		return nil
	})
}

// Undelegate ends a delegation at once.
func (g *Gates) Undelegate(ctx context.Context, by roster.Identity, delegate string) error {
	return g.ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Kind: "delegation.ended", Actor: by.Actor(), Subject: by.Name,
			Body: delegated{Delegate: delegate},
		})
		return nil
	})
}

// Waits reports whether a gate still waits for its decision, in the caller's transaction.
func (g *Gates) Waits(tx *ledger.Tx, gateID string) (bool, error) {
	found, err := load(tx, gateID)
	return found.Status == Pending, err
}
