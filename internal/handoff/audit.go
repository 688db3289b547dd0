package handoff

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/scope"
	"signalbox/internal/wire"
)

// Audit checks the handoffs in the entries of a ledger, with nothing but those entries: each one is within the one
// above it, which was open and had been given to the agent that handed on; and each decision that was made under one was made
// for the agent that had it, while the whole chain was open. It is for an export, whose entries VerifyExport proves.
//
// What the server asks beside it follows from no entry of a handoff, and is not checked here: whether an agent of the
// chain was suspended or removed, and how much of a budget was used.
type Audit struct {
	Handoffs  int64 // that were opened
	Decisions int64 // that were made under one
	Erased    int64 // handoffs of which nothing can be said, since a body was erased

	known map[string]*audited
}

// audited is a handoff as the entries so far have it.
type audited struct {
	Handoff
	chain  []*audited // all above it and itself, the first one first
	erased bool       // its body, or that of one above it
}

// NewAudit begins with an empty ledger.
func NewAudit() *Audit { return &Audit{known: map[string]*audited{}} }

// clockSlack is by how much the time of an entry may be after the moment at which a node found a handoff open: an entry
// is never older than the one before it, and the clocks of nodes differ.
const clockSlack = time.Minute

// Entry takes the next entry of the ledger. What does not fit to the handoffs before it is an error that names the
// entry.
func (a *Audit) Entry(e *ledger.Entry) (err error) {
	switch e.Kind {
	case Opened:
		err = a.open(e)
	case Taken, Ended:
		err = a.change(e)
	default:
		err = a.decision(e)
	}
	if err != nil {
		return fault.Wrap(err, fault.VerificationFailed, "Entry %d (%s) does not fit to the handoffs before it.", e.Seq,
			e.Kind)
	}
	return nil
}

func misfit(text string, args ...any) error {
	return fault.New(fault.VerificationFailed, text, args...)
}

// open checks a handoff against the one above it.
func (a *Audit) open(e *ledger.Entry) error {
	if a.known[e.Subject] != nil {
		return misfit("The handoff %s was opened before.", e.Subject)
	}
	a.Handoffs++
	if e.Body == nil {
		a.Erased++
		a.known[e.Subject] = &audited{erased: true}
		return nil
	}
	now := &audited{}
	if err := now.follow(e); err != nil {
		return err
	}
	now.chain = []*audited{now}
	if now.Parent == "" {
		depth := int64(0) // a person or the server has handed it on
		if now.from != "" {
			depth = 1
		}
		if now.Depth != depth {
			return misfit("The handoff %s is the first of its chain, and says that its depth is %d.", now.ID, now.Depth)
		}
		a.known[now.ID] = now
		return nil
	}
	above := a.known[now.Parent]
	switch {
	case above == nil:
		return misfit("The handoff %s is under %s, which was not opened.", now.ID, now.Parent)
	case above.erased:
		a.Erased++
		a.known[now.ID] = &audited{erased: true}
		return nil
	}
	now.chain = append(slices.Clone(above.chain), now)
	if why := above.closed(e.At); why != "" {
		return misfit("The handoff %s was opened under %s, which was over: %s.", now.ID, above.ID, why)
	}
	if wider := now.beyond(&above.Handoff); wider != "" {
		return misfit("The handoff %s is not within %s above it: %s.", now.ID, above.ID, wider)
	}
	a.known[now.ID] = now
	return nil
}

// closed says why a handoff or one above it was over when an entry was written, "" if all were open.
func (h *audited) closed(at time.Time) string {
	for _, hop := range h.chain {
		if why := hop.over(at.Add(-clockSlack)); why != "" {
			if hop != h {
				return hop.ID + " above it: " + why
			}
			return why
		}
	}
	return ""
}

// beyond says what a handoff has that the one above it does not have, "" for nothing.
func (h *Handoff) beyond(above *Handoff) string {
	depth := above.Depth + 1
	if h.from == "" {
		depth = above.Depth // the server has handed it on, for the agent that has the one above
	}
	switch {
	case h.Workspace != above.Workspace:
		return "the workspace " + h.Workspace
	case h.from != "" && h.from != above.to:
		return fmt.Sprintf("it was handed on by %s, and the one above was given to %s", h.From, above.To)
	case h.user != above.user:
		return fmt.Sprintf("it is for %s, and the one above for %s", orNobody(h.User), orNobody(above.User))
	case h.Depth != depth:
		return fmt.Sprintf("its depth is %d, and should be %d", h.Depth, depth)
	case h.Depth > MaxDepth:
		return fmt.Sprintf("its depth is %d, and the most is %d", h.Depth, MaxDepth)
	case h.EndsAt.After(above.EndsAt):
		return "it ends at " + h.EndsAt.Format(time.RFC3339) + ", and the one above at " + above.EndsAt.Format(time.RFC3339)
	case checkBudget(h.Budget, above.Budget) != nil:
		return "its budget is greater"
	case above.Tools != nil && h.Tools == nil:
		return "it has every tool"
	case above.Scopes != nil && h.Scopes == nil:
		return "it has every scope"
	}
	if above.Tools != nil {
		if tool := policy.ToolsWithin(h.Tools, above.Tools); tool != "" {
			return "it has the tool " + tool
		}
	}
	if s := notWithin(h.Scopes, above.Scopes); s != "" {
		return "it has the scope " + s
	}
	return ""
}

// notWithin is the first scope of a list that the other list does not include, of which nil has everything.
func notWithin(scopes, others []string) string {
	for _, s := range scopes {
		if others != nil && !scope.Has(others, s) {
			return s
		}
	}
	return ""
}

// change follows what becomes of a handoff.
func (a *Audit) change(e *ledger.Entry) error {
	h := a.known[e.Subject]
	switch {
	case h == nil:
		return misfit("The handoff %s was not opened.", e.Subject)
	case h.erased:
		return nil
	case e.Body == nil && e.Kind == Ended:
		at := e.At
		h.EndedAt, h.EndedBy = &at, e.Actor
		return nil
	case e.Body == nil:
		return nil
	}
	was := h.Session
	if err := h.follow(e); err != nil || e.Kind == Ended {
		return err
	}
	if why := h.closed(e.At); why != "" {
		return misfit("A session has taken the handoff %s, which was over: %s.", h.ID, why)
	}
	if !h.Bound || was != "" {
		return misfit("A session has taken the handoff %s, which was not to be had.", h.ID)
	}
	return nil
}

// made is the part of a decision's record that says under which handoff it was made.
type made struct {
	Then  policy.Action `json:"then"`
	Agent string        `json:"agent_id"`
	User  struct {
		ID string `json:"id"`
	} `json:"user"`
	Now        int64             `json:"now"`
	Delegation policy.Delegation `json:"delegation"`
}

// under reads under which handoff the decision in an entry was made. ok is false if there is no decision, or it names
// no handoff.
func under(e *ledger.Entry) (d made, ok bool, err error) {
	// Most entries are about no handoff, and some are large.
	if !bytes.Contains(e.Body, []byte(`"delegation"`)) {
		return d, false, nil
	}
	var body struct {
		Decision wire.Raw `json:"decision"`
	}
	if err := wire.UnmarshalPart(e.Body, &body); err != nil || body.Decision.Kind() != '{' {
		return d, false, err
	}
	err = wire.UnmarshalPart(body.Decision, &d)
	return d, d.Delegation.Verified || d.Delegation.Refused, err
}

// decision checks the handoff that a decision names.
func (a *Audit) decision(e *ledger.Entry) error {
	d, ok, err := under(e)
	if err != nil || !ok {
		return err
	}
	if d.Delegation.Refused {
		if d.Then != policy.Block {
			return misfit("The token of the call was refused, and the call was not.")
		}
		return nil
	}
	a.Decisions++
	h := a.known[d.Delegation.ID]
	switch {
	case h == nil:
		return misfit("The decision names the handoff %.80q, which was not opened.", d.Delegation.ID)
	case h.erased:
		return nil
	case h.Workspace != e.Workspace || h.to != d.Agent:
		return misfit("The handoff %s was given to the agent %s (%s), and the decision is about %s.", h.ID, h.To, h.to,
			d.Agent)
	case h.user != d.User.ID:
		return misfit("The handoff %s is for %s, and the decision for another user.", h.ID, orNobody(h.User))
	}
	if why := h.closed(e.At); why != "" {
		return misfit("The decision was made under the handoff %s, which was over: %s.", h.ID, why)
	}
	for _, hop := range h.chain {
		if made := time.UnixMicro(d.Now); !made.Before(hop.EndsAt) {
			return misfit("The decision was made at %s under the handoff %s, which was over at %s.",
				made.UTC().Format(time.RFC3339), hop.ID, hop.EndsAt.Format(time.RFC3339))
		}
	}
	if differs := h.differs(&d.Delegation); differs != "" {
		return misfit("The decision has another %s than the handoff %s.", differs, h.ID)
	}
	return nil
}

// differs says what of a chain a decision has otherwise than its entries, "" for nothing.
func (h *audited) differs(d *policy.Delegation) string {
	sameHop := func(hop policy.Hop, of *audited) bool {
		return hop.ID == of.ID && hop.From == of.From && hop.To == of.To && hop.Budget == of.Budget
	}
	switch {
	case !slices.EqualFunc(d.Hops, h.chain, sameHop):
		return "chain"
	case d.Depth != h.Depth:
		return "depth"
	case d.From != h.From || d.Root != h.chain[0].From:
		return "sender"
	case d.Work != h.Work:
		return "work"
	case (d.Tools == nil) != (h.Tools == nil) || !slices.Equal(d.Tools, h.Tools):
		return "list of tools"
	case h.Scopes != nil && d.Scopes == nil || notWithin(d.Scopes, h.Scopes) != "":
		return "and wider list of scopes"
	}
	return ""
}
