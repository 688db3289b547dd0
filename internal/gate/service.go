package gate

import (
	"context"
	"strings"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Ballot is an operator's vote as it is sent.
type Ballot struct {
	Approve  bool
	Note     string   // why; a rejection needs one
	Modified wire.Raw // what to do instead, where the protocol allows it
	For      string   // the operator whose vote it is, when a delegate casts it
	// Digest is that of what the operator was shown (Gate.ShownDigest), or its beginning. If the gate
	// is something else, the vote is refused. Only programs leave it out.
	Digest string
	// Unseen is how many bytes of what is decided the operator was not shown, as Gate.Unseen counts them.
	Unseen int64
	// Assertion is the caster's signature over all of this, where presence asks for one.
	Assertion *passkey.Assertion
}

// CheckReason refuses a rejection without a reason, which is all that the agent learns from.
func (b Ballot) CheckReason() error {
	if b.Approve || strings.TrimSpace(b.Note) != "" {
		return nil
	}
	return fault.New(fault.InvalidPayload,
		"Say why in a few words: the agent reads the reason, and does better next time.").About("note")
}

// Vote records an operator's vote, and resolves the gate if that decides it. Votes are taken
// one after another under the ledger's lock, each seeing those before it: of two votes that
// would both decide, the second gets already_resolved with the name of the first.
func (g *Gates) Vote(ctx context.Context, by roster.Identity, gateID string, b Ballot) (Gate, error) {
	if len(b.Note) > maxNote {
		return Gate{}, fault.New(fault.InvalidPayload, "The note has %d bytes; the most is %d.", len(b.Note),
			maxNote).About("note")
	}
	err := g.ledger.Write(ctx, func(tx *ledger.Tx) error {
		_, err := g.Cast(tx, by, gateID, b)
		return err
	})
	if err := passkey.Recorded(ctx, g.ledger, by, "a vote at "+gateID, err); err != nil {
		return Gate{}, err
	}
	return g.digested(g.Get(ctx, gateID))
}

// admit checks what a vote says: its reason, what its caster was shown, and its change, which it
// returns as the decision carries it.
func (g *Gate) admit(b Ballot) (modified wire.Raw, err error) {
	if err := b.CheckReason(); err != nil {
		return nil, err
	}
	if err := g.CheckSeen(b.Digest); err != nil {
		return nil, err
	}
	if err := g.checkUnseen(b); err != nil {
		return nil, err
	}
	return b.join(g.Votes)
}

// digested fills in the digest of what is shown, for who votes next.
func (*Gates) digested(found Gate, err error) (Gate, error) {
	if err == nil {
		found.Digest = found.ShownDigest()
	}
	return found, err
}

// Cast is Vote in the caller's transaction, for a protocol in which an operator can answer in
// another way than at the gate: that is a vote like any other. It returns how the gate then stands.
func (g *Gates) Cast(tx *ledger.Tx, by roster.Identity, gateID string, b Ballot) (Status, error) {
	found, operator, vote, err := g.read(tx, by, gateID, b)
	if err == nil {
		err = g.checkPresence(tx, &found, by, operator, &vote)
	}
	if err != nil {
		return found.Status, err
	}
	tx.Append(ledger.Event{
		Workspace: found.Workspace, Kind: "gate.voted", Actor: by.Actor(), Subject: gateID, Trace: found.Trace, Body: vote,
	})
	found.Votes = append(found.Votes, Vote{Operator: operator.Name, CastBy: by.Name, Approve: b.Approve})
	status := found.opening.Rules.Tally(found.Votes)
	if status == Pending {
		return status, nil
	}
	return status, g.resolve(tx, found, by.Actor(),
		Resolution{Status: status, By: operator.Name, Cause: ByVote, Note: b.Note, Modified: vote.Modified})
}

// read checks a ballot as far as that takes no signature, and returns the vote that it is.
func (g *Gates) read(tx *ledger.Tx, by roster.Identity, gateID string, b Ballot,
) (found Gate, operator roster.Person, v voted, err error) {
	if found, err = load(tx, gateID); err != nil {
		return Gate{Status: Pending}, operator, v, err
	}
	if err := found.checkPending(by); err != nil {
		return found, operator, v, err
	}
	if operator, err = voter(tx, by, b.For); err != nil {
		return found, operator, v, err
	}
	if err := found.checkVoter(by, operator, b.Approve); err != nil {
		return found, operator, v, err
	}
	modified, err := found.admit(b)
	return found, operator, voted{found.Of, operator.Name, by.Name, b.Approve, b.Note, modified, b.Digest, b.Unseen, b.Assertion}, err
}

// maxNote is the longest note, in bytes; it is shown to agents and in chats.
const maxNote = 4000

// voter is the operator whose vote it is: the caller, or one who has delegated to the caller
// until a time that is not over. The delegate votes with the role of the other.
func voter(tx *ledger.Tx, by roster.Identity, name string) (roster.Person, error) {
	if name == "" || name == by.Name {
		return roster.Person{ID: by.ID, Name: by.Name, Role: by.Role}, nil
	}
	until, err := delegatedUntil(tx.Prover(), name, by.Name)
	if err != nil {
		return roster.Person{}, err
	}
	if tx.Now().UnixMicro() >= until {
		return roster.Person{},
			fault.New(fault.Forbidden, "%s has no valid delegation to %s.", name, by.Name)
	}
	return roster.FindOperator(tx, name)
}

// delegatedUntil is until when one operator may cast the votes of another, as the entries say; 0 for never.
func delegatedUntil(p ledger.Prover, operator, delegate string) (until int64, err error) {
	rows, err := store.All(p.Query, func(scan store.Scan) (until int64, err error) {
		err = scan(&until)
		return until, err
	}, "SELECT until_at FROM delegation WHERE operator = $1 AND delegate = $2", operator, delegate)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	entries, err := p.Entries(ledger.Query{Subject: operator, Kinds: []string{kindDelegated, kindUndelegated}})
	for i := 0; i < len(entries) && err == nil; i++ {
		var b *delegated
		if b, err = ledger.Read[delegated](&entries[i]); err == nil && b.Delegate == delegate {
			until = b.Until // 0 where it ended
		}
	}
	if err == nil && until != rows[0] {
		err = p.Contradicts("delegation", operator+" "+delegate, "the ledger has no such delegation of %s to %s", operator,
			delegate)
	}
	return until, err
}

// Admits says why an operator's own vote would be refused, nil if it would be accepted at
// this moment. It is for showing buttons; Vote checks again.
func (g *Gate) Admits(by roster.Identity, approve bool) error {
	if err := g.checkPending(by); err != nil {
		return err
	}
	return g.checkVoter(by, roster.Person{Name: by.Name, Role: by.Role}, approve)
}

// checkPending checks that the gate is pending and visible to the caller. A gate of another
// workspace does not exist for an operator who is confined to one.
func (g *Gate) checkPending(by roster.Identity) error {
	if by.Workspace != "" && by.Workspace != g.Workspace {
		return noGate(g.ID)
	}
	if g.Status != Pending {
		return alreadyResolved(*g)
	}
	return nil
}

// checkVoter says why an operator may not vote, nil if they may. by is who casts the vote,
// operator whose vote it is: neither of them may be the requester who approves.
func (g *Gate) checkVoter(by roster.Identity, operator roster.Person, approve bool) error {
	if !g.opening.Rules.MayDecide(operator) {
		return fault.New(fault.Forbidden, "%s may not decide this gate. Its rule asks for: %v.", operator.Name, g.Approvers)
	}
	if requester := g.opening.Requester; approve && (requester == by.Actor() || requester == "operator:"+operator.Name) {
		return fault.New(fault.Forbidden, "The requester may not approve. Another operator has to decide this.")
	}
	for _, v := range g.Votes {
		if v.Operator == operator.Name {
			return fault.New(fault.Conflict, "%s has voted on this gate already. It waits for others.", operator.Name)
		}
		// It would count for nothing, and the other could no longer cast it.
		if v.CastBy == by.Name {
			return fault.New(fault.Conflict, "%s has voted on this gate already, for %s. A quorum counts people, so it waits "+
				"for others.", by.Name, v.Operator)
		}
	}
	return nil
}

// alreadyResolved is the error for a vote that came too late, with who decided and how.
func alreadyResolved(g Gate) error {
	return fault.New(fault.AlreadyResolved, "This gate was %s by %s at %s. A decision is final.", g.Status, g.ResolvedBy,
		g.ResolvedAt.Format(time.RFC3339)).
		With("status", string(g.Status)).With("resolved_by", g.ResolvedBy).With("resolved_at",
		g.ResolvedAt.Format(time.RFC3339Nano)).With("note", g.Note)
}

// Settle resolves a gate by a rule, in the caller's transaction, because what it held has
// become moot. It does nothing to a gate that is resolved already.
func (g *Gates) Settle(tx *ledger.Tx, gateID string, status Status, actor, note string) error {
	found, err := load(tx, gateID)
	if err != nil || found.Status != Pending {
		return err
	}
	return g.resolve(tx, found, actor, Resolution{Status: status, By: "rule", Cause: ByRule, Note: note})
}

// Withdraw ends the gates that a run waits for, in the transaction that ends the run: nobody would take
// their approval.
func (g *Gates) Withdraw(tx *ledger.Tx, workspace, run string) error {
	ids, err := waitingFor(tx.Query, workspace, run)
	for _, id := range ids {
		found, err := load(tx, id)
		if err == nil && (found.Status != Pending || found.Origin.Outlasts) {
			continue
		}
		if err == nil {
			err = g.resolve(tx, found, "system", Resolution{
				Status: Rejected, By: "run " + run, Cause: ByEnd, Note: "The run that asked has ended.",
			})
		}
		if err != nil {
			return err
		}
	}
	return err
}

// resolve ends a gate, and calls the protocol's function in the same transaction. The caller
// has checked that the gate is pending.
func (g *Gates) resolve(tx *ledger.Tx, found Gate, actor string, r Resolution) error {
	r.Opened, r.OpenedAt = found.opened, found.OpenedAt.UnixMicro()
	r.Project, r.Agent, r.Risk, r.Of = found.Project, found.AgentID(), found.Risk, found.Of
	r.Protocol, r.Rule = found.Origin.Protocol, found.Rule
	tx.Append(ledger.Event{
		Workspace: found.Workspace, Kind: "gate.resolved", Actor: actor, Subject: found.ID,
		Trace: found.Trace, Body: r,
	})
	then := g.onResolved[found.Origin.Protocol]
	if then == nil {
		return nil
	}
	now := tx.Now()
	found.Status, found.Cause, found.ResolvedAt, found.ResolvedBy = r.Status, r.Cause, &now, r.By
	found.Note, found.Modified = r.Note, r.Modified
	return then(tx, found)
}

// Handlers are what gates do when their timers are due.
func (g *Gates) Handlers() map[string]clock.Handler {
	return map[string]clock.Handler{expiryTimer: g.expire, ladderTimer: escalate}
}

// expire resolves a gate whose time is over. A vote may have been faster: then it does
// nothing.
func (g *Gates) expire(tx *ledger.Tx, t clock.Timer) error {
	found, err := load(tx, t.Subject)
	if err != nil || found.Status != Pending {
		return err
	}
	if found.ExpiresAt == nil || tx.Now().Before(*found.ExpiresAt) {
		return g.ledger.Contradicts("timer", t.Kind+" "+t.Subject, "the gate %s does not expire yet", t.Subject)
	}
	return g.resolve(tx, found, "system",
		Resolution{Status: found.OnExpiry, By: "expiry", Cause: ByExpiry, Note: "Gate expired"})
}

// escalate records the step of the ladder that is due, with the time of the next one, from which
// the projection sets the timer. Telling people is the business of notify, which follows.
func escalate(tx *ledger.Tx, t clock.Timer) error {
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
			Kind: kindDelegated, Actor: by.Actor(), Subject: by.Name,
			Body: delegated{delegate, until.UnixMicro()},
		})
		return nil
	})
}

// Undelegate ends a delegation at once.
func (g *Gates) Undelegate(ctx context.Context, by roster.Identity, delegate string) error {
	return g.ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Kind: kindUndelegated, Actor: by.Actor(), Subject: by.Name,
			Body: delegated{Delegate: delegate},
		})
		return nil
	})
}

// In reads one gate in the caller's transaction.
func (g *Gates) In(tx *ledger.Tx, gateID string) (Gate, error) { return load(tx, gateID) }

// Waits reports whether a gate still waits for its decision, in the caller's transaction.
func (g *Gates) Waits(tx *ledger.Tx, gateID string) (bool, error) {
	found, err := load(tx, gateID)
	return found.Status == Pending, err
}
