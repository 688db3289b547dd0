package handoff

import (
	"context"
	"fmt"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/scope"
	"signalbox/internal/store"
)

// Opening is work to be handed on. Zero fields take over what the one who hands it on has.
type Opening struct {
	To       string        `json:"to" doc:"the agent that gets the work"`
	Scopes   []string      `json:"scopes,omitzero" doc:"what it may do; everything that you may if left out"`
	Tools    []string      `json:"tools,omitzero" doc:"the tools that it may use, as names and patterns; all if left out"`
	Budget   policy.Budget `json:"budget,omitzero" doc:"how much it may use, calls, tokens and dollars; no limit if left out"`
	Seconds  int64         `json:"seconds,omitempty" doc:"after how long it ends; a day if left out"`
	Work     string        `json:"work,omitempty" doc:"what it is for, such as the id of a task"`
	Bound    bool          `json:"bound,omitempty" doc:"only the first session that uses it can use it"`
	Subagent string        `json:"-"` // the type of a subagent that the work is for
	// Protocol is set where the server hands on because a protocol does: task, run or mail. No caller can say it.
	Protocol string `json:"-"`
	// Lasting is for work that ends the handoff itself: it lasts as long as one can, and not longer than the one above.
	Lasting bool `json:"-"`
}

// limits of an opening.
const (
	lasts     = 24 * time.Hour
	longest   = 31 * 24 * time.Hour
	maxTools  = 256
	maxWork   = 200 // bytes
	maxBudget = int64(1e15)
)

// check checks the form of what is asked for.
func (o *Opening) check() error {
	wrong := func(field, text string, args ...any) error {
		return fault.New(fault.InvalidPayload, text, args...).About(field)
	}
	switch b := o.Budget; {
	case o.To == "":
		return wrong("to", "The field \"to\" is missing. Name the agent that gets the work.")
	case len(o.Tools) > maxTools:
		return wrong("tools", "There are %d tools; the most is %d. Use patterns, such as mcp__mail__*.", len(o.Tools),
			maxTools)
	case len(o.Work) > maxWork:
		return wrong("work", "The field \"work\" has %d bytes; the most is %d.", len(o.Work), maxWork)
	case o.Seconds < 0 || o.Seconds > int64(longest/time.Second):
		return wrong("seconds", "A handoff lasts from 1 to %d seconds, and not %d.", longest/time.Second, o.Seconds)
	case b.Calls < 0 || b.Tokens < 0 || b.CostUSD < 0 || b.Calls > maxBudget || b.Tokens > maxBudget ||
		b.CostUSD > float64(maxBudget):
		return wrong("budget", "The limits of a budget are greater than 0, as in {\"calls\": 20, \"cost_usd\": 1.5}.")
	}
	for _, tool := range o.Tools {
		if err := policy.CheckTool(tool); err != nil {
			return err
		}
	}
	return scope.Check(o.Scopes)
}

// By is who hands work on: an agent, as it stands (Under), or a person or the server itself, for whom From is the name.
// A person hands work on with everything that the user of the agent may do.
type By struct {
	Who     roster.Identity
	Under   Standing
	User    *roster.User // on whose behalf, where Under has none
	Proof   roster.Proof
	Session string
}

// Open hands work on.
func (h *Handoffs) Open(ctx context.Context, by By, o Opening) (opened Handoff, err error) {
	err = h.write(ctx, func(tx *ledger.Tx) (err error) {
		opened, err = h.OpenIn(ctx, tx, by, o)
		return err
	})
	return opened, err
}

// OpenIn is Open in the caller's transaction. The cache is emptied when the ledger is followed.
func (h *Handoffs) OpenIn(ctx context.Context, tx *ledger.Tx, by By, o Opening) (Handoff, error) {
	if err := o.check(); err != nil {
		return Handoff{}, err
	}
	to, err := h.roster.ByID(ctx, by.Who.Workspace, o.To)
	if err != nil {
		return Handoff{}, err
	}
	event, err := h.prepare(tx, by, o, to)
	if err != nil {
		return Handoff{}, err
	}
	tx.Append(event)
	var opened Handoff
	entry := tx.Appended()[len(tx.Appended())-1]
	return opened, opened.follow(entry)
}

// CheckIn checks, in the caller's transaction, work that is handed on to somebody who is not known yet: OpenIn would not
// refuse it now for anything but who gets it. It returns the handoff that it would be.
func (h *Handoffs) CheckIn(tx *ledger.Tx, by By, o Opening) (would Handoff, err error) {
	o.To = by.Who.ID
	if err := o.check(); err != nil {
		return would, err
	}
	event, err := h.prepare(tx, by, o, by.Who)
	if b, ok := event.Body.(opened); ok {
		would = b.handoff()
	}
	return would, err
}

// prepare is the entry of a handoff that may be opened.
func (h *Handoffs) prepare(tx *ledger.Tx, by By, o Opening, to roster.Identity) (ledger.Event, error) {
	b := opened{
		FromName: by.Who.Actor(), To: to.ID, ToName: to.Name, Scopes: o.Scopes, Tools: o.Tools, Budget: o.Budget,
		Work: o.Work, Bound: o.Bound, Session: by.Session, Subagent: o.Subagent, Proof: by.Proof, Protocol: o.Protocol,
		Ends: tx.Now().Add(lasts).UnixMicro(),
	}
	switch {
	case o.Seconds > 0:
		b.Ends = tx.Now().Add(time.Duration(o.Seconds) * time.Second).UnixMicro()
	case o.Lasting:
		b.Ends = tx.Now().Add(longest).UnixMicro()
	}
	if by.Who.Kind == roster.HolderAgent {
		b.From, b.FromName, b.Depth = by.Who.ID, by.Who.Name, 1
	}
	if u := by.User; u != nil {
		b.User, b.UserName = u.ID, u.Name
	}
	event := ledger.Event{
		Workspace: to.Workspace, Kind: Opened, Actor: by.Who.Actor(), Subject: id.New(prefix),
	}
	event.Trace = event.Subject
	var has []string // what the one who hands on may do itself
	if by.User != nil {
		has = by.User.Scopes
	}
	has = scope.Common(has, by.Who.Scopes)
	if by.Under.ID != "" {
		now, same, err := h.Recheck(tx, by.Under)
		if err != nil {
			return ledger.Event{}, err
		}
		if !same || now.Refused {
			return ledger.Event{}, fault.New(fault.Forbidden, "%s", now.Reason).About("delegation")
		}
		parent, err := read(tx.Prover(), by.Under.ID)
		if err != nil {
			return ledger.Event{}, err
		}
		if err := b.below(&parent, o.Seconds > 0); err != nil {
			return ledger.Event{}, err
		}
		has, event.Trace = scope.Common(has, now.Scopes), parent.trace
	}
	if err := b.narrow(has); err != nil {
		return ledger.Event{}, err
	}
	event.Body = b
	return event, nil
}

// narrow checks that no scope is handed on that the one who hands it on does not have. Without a list it is theirs.
func (b *opened) narrow(has []string) error {
	if has == nil {
		return nil
	}
	if b.Scopes == nil {
		b.Scopes = has
		return nil
	}
	for _, s := range b.Scopes {
		if !scope.Has(has, s) {
			return tooWide("scopes", "the scope "+s, fmt.Sprint(has))
		}
	}
	return nil
}

// below puts a handoff under another one, and checks that it has nothing that the one above does not have.
func (b *opened) below(parent *Handoff, ends bool) error {
	b.Parent, b.User, b.UserName = parent.ID, parent.user, parent.User
	b.Depth = parent.Depth + 1
	if b.From == "" {
		b.Depth = parent.Depth
	}
	if b.Depth > MaxDepth {
		return fault.New(fault.InvalidPayload, "Work can be handed on %d times at the most.", MaxDepth)
	}
	if b.Tools == nil {
		b.Tools = parent.Tools
	} else if parent.Tools != nil {
		if tool := policy.ToolsWithin(b.Tools, parent.Tools); tool != "" {
			return tooWide("tools", "the tool "+tool, fmt.Sprint(parent.Tools))
		}
	}
	if last := parent.EndsAt.UnixMicro(); b.Ends > last {
		if ends {
			return tooWide("seconds", "an end after "+parent.EndsAt.Format(time.RFC3339), "that end")
		}
		b.Ends = last
	}
	return checkBudget(b.Budget, parent.Budget)
}

// checkBudget checks that no limit is greater than the one above. A limit that is left out is not: what is used counts
// for every hop of the chain.
func checkBudget(b, above policy.Budget) error {
	if above.Calls > 0 && b.Calls > above.Calls || above.Tokens > 0 && b.Tokens > above.Tokens ||
		above.CostUSD > 0 && b.CostUSD > above.CostUSD {
		return tooWide("budget", fmt.Sprintf("a budget of %d calls, %d tokens and %g dollars", b.Calls, b.Tokens, b.CostUSD),
			fmt.Sprintf("%d calls, %d tokens and %g dollars", above.Calls, above.Tokens, above.CostUSD))
	}
	return nil
}

// tooWide is the error for a handoff that would have more than the one above it.
func tooWide(field, what, has string) error {
	return fault.New(fault.Forbidden, "A handoff cannot have more than the one who hands on: %s is not within %s.", what,
		has).About(field)
}

// End ends a handoff, and with it all below. An agent may end those that it has handed on or has been handed; an
// operator, every one that they see. One that is over stays as it is.
func (h *Handoffs) End(ctx context.Context, by roster.Identity, handoffID, reason string) (ended Handoff, err error) {
	if len(reason) > maxWork {
		return ended, fault.New(fault.InvalidPayload, "The reason has %d bytes; the most is %d.", len(reason), maxWork).
			About("reason")
	}
	err = h.write(ctx, func(tx *ledger.Tx) error {
		found, err := h.visible(ctx, tx.Prover(), by, handoffID)
		if err == nil && found.EndedAt == nil {
			endIn(tx, by, &found, reason)
		}
		return err
	})
	if err != nil {
		return Handoff{}, err
	}
	return read(h.ledger.Prover(ctx), handoffID)
}

func endIn(tx *ledger.Tx, by roster.Identity, h *Handoff, reason string) {
	tx.Append(ledger.Event{
		Workspace: h.Workspace, Kind: Ended, Actor: by.Actor(), Subject: h.ID, Trace: h.trace, Body: ended{reason},
	})
}

// EndWork ends the handoffs of the agent's workspace that are for a piece of work, if there are any.
func (h *Handoffs) EndWork(ctx context.Context, by roster.Identity, work, reason string) error {
	open, err := store.All(h.db.Reading(ctx), store.Text,
		"SELECT id FROM handoff WHERE workspace = $1 AND work = $2 AND ended_at = 0", by.Workspace, work)
	if err != nil || len(open) == 0 {
		return err
	}
	return h.write(ctx, func(tx *ledger.Tx) error {
		return EndWorkIn(tx, by, by.Workspace, work, reason)
	})
}

// EndWorkIn ends, in the caller's transaction, the handoffs that are for a piece of work.
func EndWorkIn(tx *ledger.Tx, by roster.Identity, workspace, work, reason string) error {
	open, err := store.All(tx.Query, store.Text,
		"SELECT id FROM handoff WHERE workspace = $1 AND work = $2 AND ended_at = 0 ORDER BY id", workspace, work)
	for _, handoffID := range open {
		found, err := read(tx.Prover(), handoffID)
		if err != nil {
			return err
		}
		if found.EndedAt == nil {
			endIn(tx, by, &found, reason)
		}
	}
	return err
}
