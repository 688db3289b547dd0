package run

import (
	"context"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
)

// handing is the work that a run hands on: from whoever starts it to the agent as which its hooks ask.
type handing struct {
	handoffs *handoff.Handoffs
	by       handoff.By
	to       string // the id of the agent, "" if nothing is handed on
	opened   string // the id of the handoff
}

// handing finds out who hands on what with a run. One that is started under a handoff hands on a part of that, whoever
// calls: the token says which agent it is.
func (s *Runs) handing(ctx context.Context, who roster.Identity, workspace string, n Request, of behalf.Of) (*handing,
	error,
) {
	h := &handing{handoffs: s.core.Handoffs, by: handoff.By{Who: who}}
	h.by.Who.Workspace = workspace
	if n.Delegation != "" {
		holder, under, err := s.core.Handoffs.Holder(ctx, workspace, n.Delegation, n.User)
		if err != nil {
			return nil, err
		}
		if under.Refused {
			return nil, refusal.Because(fault.New(fault.Forbidden, "%s", under.Reason).About("delegation"),
				refusal.Cause{Reason: refusal.WrongHandoff, Workspace: workspace, Agent: holder.ID})
		}
		h.by.Who, h.by.Under = holder, under
	}
	if s.HooksOf == nil || n.Recorded && n.Agent == "" {
		return h, nil
	}
	to, err := s.HooksOf(ctx, workspace, n.Agent)
	if err != nil {
		return nil, err
	}
	if to.Workspace == workspace { // the hooks of a machine are those of one workspace
		h.to = to.ID
	}
	if of.User != "" {
		h.by.User, err = s.core.Roster.KnownUser(ctx, workspace, of.User)
	}
	return h, err
}

// open opens the handoff of a run. It may run twice.
func (h *handing) open(ctx context.Context, tx *ledger.Tx, run string) error {
	if h.to == "" {
		return nil
	}
	given, err := h.handoffs.OpenIn(ctx, tx, h.by, handoff.Opening{To: h.to, Work: run, Protocol: Name, Lasting: true})
	h.opened = given.ID
	return err
}

// handed is what a run has handed on to its hooks, nil for nothing.
func (s *Runs) handed(ctx context.Context, r Run) (*handoff.Handed, error) {
	found, err := handoff.ForWork(s.core.Ledger.Prover(ctx), handoff.Work{Workspace: r.Workspace, Protocol: Name, ID: r.ID})
	return s.core.Handoffs.Give(found.ID), err
}
