package run

import (
	"context"
	"slices"

	"signalbox/internal/address"
	"signalbox/internal/handoff"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// awaited are the decisions that a run waits for, and those that outlast it.
func (s *Runs) awaited(ctx context.Context, r Run) (all []Awaited, err error) {
	if r.Status != Running {
		return nil, nil // its gates are withdrawn
	}
	gates, err := s.core.Gates.Awaited(ctx, r.Workspace, r.ID)
	for i := range gates {
		g := &gates[i]
		all = append(all, Awaited{g.ID, g.Title, g.Agent, g.OpenedAt, s.core.BaseURL + address.Gate.At(g.ID), g.Origin.Outlasts})
	}
	return all, err
}

// isAgent reports whether an agent may say that what it asks is asked in a run: as the one to which the run has handed
// its work on, or whose calls of models are the run's. A run that was opened with none may be named by every agent of its
// workspace. Any other shows what the run was handed (policy.Claim.Within).
func (s *Runs) isAgent(ctx context.Context, who roster.Identity, run string) bool {
	r, err := s.Get(wire.WithScope(ctx, who.Workspace), run)
	if err != nil || r.Status != Running {
		return false
	}
	w := handoff.Work{Workspace: r.Workspace, Protocol: Name, ID: r.ID}
	handed, err := handoff.ForWork(s.core.Ledger.Prover(ctx), w)
	if err != nil {
		return false
	}
	none := r.MeterAgent == "" && handed.ID == ""
	return none || who.ID == r.MeterAgent || who.ID == handed.Receiver()
}

// others reports whether the decisions that are awaited are not those that a supervisor knows.
func others(all []Awaited, known []string) bool {
	return !slices.EqualFunc(all, known, func(a Awaited, id string) bool { return a.Gate == id })
}
