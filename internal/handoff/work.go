package handoff

import (
	"context"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// Handed is a handoff as the agent gets it that may use it: beside the work, never in what somebody has signed.
type Handed struct {
	ID    string `json:"id"`
	Token string `json:"token" doc:"shown beside your own key with what you do for this work"`
}

// Give is a handoff with its token, nil for no handoff.
func (h *Handoffs) Give(handoffID string) *Handed {
	if handoffID == "" {
		return nil
	}
	return &Handed{ID: handoffID, Token: h.Token(handoffID)}
}

// Work is a piece of work that a protocol has handed on to an agent.
type Work struct {
	Workspace, Protocol, ID string
	To                      string // the id of the agent, "" for whoever has it
}

// ForWork is the handoff that a protocol has opened for a piece of work and that nobody has ended, without an id if there
// is none. One that an agent has opened by itself for the same work does not count, whatever it says.
func ForWork(p ledger.Prover, w Work) (Handoff, error) {
	open, err := store.All(p.Query, store.Text,
		"SELECT id FROM handoff WHERE workspace = $1 AND work = $2 AND ended_at = 0 ORDER BY id DESC", w.Workspace, w.ID)
	if err != nil {
		return Handoff{}, err
	}
	for _, handoffID := range open {
		found, err := read(p, handoffID)
		if err != nil {
			return Handoff{}, err
		}
		if found.Protocol == w.Protocol && (w.To == "" || found.to == w.To) && found.Work == w.ID && found.Workspace == w.Workspace &&
			found.EndedAt == nil {
			return found, nil
		}
	}
	return Handoff{}, nil
}

// Receiver is the id of the agent that has the handoff.
func (h *Handoff) Receiver() string { return h.to }

// Goes reports whether a handoff can stay in place of another one of the same work: it gives the same, and not for much
// shorter.
func (h *Handoff) Goes(instead *Handoff) bool {
	none := func(a, b []string) bool { return (a == nil) == (b == nil) }
	return h.ID != "" && h.from == instead.from && h.user == instead.user && h.Parent == instead.Parent &&
		none(h.Scopes, instead.Scopes) && slices.Equal(h.Scopes, instead.Scopes) &&
		none(h.Tools, instead.Tools) && slices.Equal(h.Tools, instead.Tools) && h.Budget == instead.Budget &&
		instead.EndsAt.Sub(h.EndsAt) < longest/2
}

// Holder is the agent of a workspace that has the handoff whose token this is, as it stands under it. user is whom the
// call names, "" for nobody. A token that is not valid is Refused, and then the agent may be unknown.
func (h *Handoffs) Holder(ctx context.Context, workspace, token, user string) (roster.Identity, Standing, error) {
	who := roster.Identity{Kind: roster.HolderAgent, Workspace: workspace}
	if handoffID := h.idIn(token); handoffID != "" {
		found, err := read(h.ledger.Prover(ctx), handoffID)
		if err == nil && found.Workspace == workspace {
			who, err = h.roster.ByID(ctx, workspace, found.to)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return who, Standing{}, err
		}
	}
	s, err := h.Under(ctx, who, policy.Claim{Token: token}, "", user)
	return who, s, err
}
