// Package delegate lets agents hand work on: the policy is asked, and the handoff is opened in the transaction that
// records its decision.
//
// It owns the call and its answer, whichever protocol brings it: AHP, MCP or HTTP. What a handoff is, and what it can
// never have, is internal/handoff.
package delegate

import (
	"context"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// Tool is the name under which rules see that an agent hands work on: event.tool == "delegate".
const Tool = "delegate"

// Request is what an agent says to hand work on.
type Request struct {
	handoff.Opening

	User       string `json:"user,omitempty" doc:"on whose behalf; that of the handoff above, or the owner, if left out"`
	Delegation string `json:"delegation,omitempty" doc:"the token of the handoff under which the agent itself acts"`
	Session    string `json:"session,omitempty" doc:"the session in which it is handed on"`
}

// Given is a handoff with the token for the agent that gets it. The token is shown to the one who hands on.
type Given struct {
	Handoff handoff.Handoff `json:"handoff"`
	Token   string          `json:"token" doc:"for the agent that gets the work, beside its own key"`
}

// Desk opens handoffs for agents. It is safe for concurrent use.
type Desk struct {
	ledger   *ledger.Ledger
	book     *rulebook.Book
	handoffs *handoff.Handoffs
}

// New makes a desk.
func New(l *ledger.Ledger, b *rulebook.Book, h *handoff.Handoffs) *Desk { return &Desk{l, b, h} }

// Give asks the policy whether the agent may hand work on, and opens the handoff.
// claim is what the call says of the handoff that it is under, beside the token.
func (d *Desk) Give(ctx context.Context, who roster.Identity, protocol string, claim policy.Claim, r Request) (
	given Given, err error,
) {
	claim.Token = r.Delegation
	event := policy.Event{
		Point: policy.OnAction, Protocol: protocol, Kind: Tool, Tool: Tool, To: r.To, Session: r.Session, User: r.User,
		Arguments: r.arguments(), Claim: claim,
	}
	first := d.book.Decide(ctx, who, event)
	err = rulebook.Settle(first, func(decided rulebook.Decision) error {
		given, err = d.give(ctx, who, r, decided)
		return err
	})
	return given, err
}

// give records a decision, with the handoff if it allows one. A refusal is recorded before it is told.
func (d *Desk) give(ctx context.Context, who roster.Identity, r Request, decided rulebook.Decision) (given Given,
	err error,
) {
	var refused error
	err = d.ledger.Write(ctx, func(tx *ledger.Tx) error {
		exact, err := decided.Recheck(tx)
		if err != nil {
			return err
		}
		if refused = refusal(exact); refused == nil {
			given.Handoff, err = d.handoffs.OpenIn(ctx, tx, exact.By(who, r.Session), r.Opening)
			if refused = err; err != nil && !fault.Is(err, fault.Forbidden) {
				return err
			}
		}
		// What no rule has refused is more than the agent has, or for somebody for whom it does not act.
		if refused != nil && (exact.Action == policy.Allow || exact.Action == policy.Modify) {
			exact = exact.Outside(fault.From(refused).Message)
		}
		tx.Append(exact.Entry(who, r.To, ""))
		return nil
	})
	if err != nil || refused != nil {
		if err == nil {
			err = refused
		}
		return Given{}, err
	}
	d.handoffs.Forget()
	given.Token = d.handoffs.Token(given.Handoff.ID)
	return given, nil
}

// refusal is the error for an agent that may not hand work on, nil if it may.
func refusal(d rulebook.Decision) error {
	switch d.Action {
	case policy.Allow, policy.Modify:
	case policy.Defer:
		return d.Deferred("the same call")
	case policy.Gate:
		return fault.New(fault.Forbidden, "The rule %q asks a person before work is handed on, which this call cannot wait "+
			"for: %s Ask an operator for a rule that allows it.", d.Rule, d.Reason)
	default:
		return fault.New(fault.Forbidden, "%s", d.Reason).With("rule", d.Rule)
	}
	if d.Record.Event.User != "" && !d.Record.User.Verified {
		return fault.New(fault.Forbidden, "You do not act for %.80q, so you cannot hand on work for them. Leave the user out.",
			d.Record.Event.User).About("user")
	}
	return nil
}

// arguments are what rules see of the call.
func (r *Request) arguments() map[string]any {
	all := map[string]any{"to": r.To}
	list := func(name string, values []string) {
		if values == nil {
			return
		}
		items := make([]any, len(values))
		for i, v := range values {
			items[i] = v
		}
		all[name] = items
	}
	list("scopes", r.Scopes)
	list("tools", r.Tools)
	if r.Work != "" {
		all["work"] = r.Work
	}
	return all
}

// Routes is the call of agents that speak no protocol in which work is handed on.
func (d *Desk) Routes() []wire.Route {
	return []wire.Route{{
		Method: "POST", Path: "/v1/handoffs", Summary: "Hand work on to another agent, with a part of what you may do",
		Auth: wire.Agent, Request: Request{}, Answer: Given{}, Status: http.StatusCreated,
		Handle: wire.Take(http.StatusCreated, handoff.MaxBody, d.post),
	}}
}

func (d *Desk) post(r *http.Request, in Request) (Given, error) {
	return d.Give(r.Context(), roster.From(r.Context()), "http", policy.Claim{}, in)
}
