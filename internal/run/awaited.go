package run

import (
	"context"
	"slices"

	"signalbox/internal/address"
)

// awaited are the decisions that a run waits for.
func (s *Runs) awaited(ctx context.Context, r Run) (all []Awaited, err error) {
	if r.Status != Running {
		return nil, nil // its gates are withdrawn
	}
	gates, err := s.core.Gates.Awaited(ctx, r.Workspace, r.ID)
	for i := range gates {
		g := &gates[i]
		all = append(all, Awaited{g.ID, g.Title, g.Agent, g.OpenedAt, s.core.BaseURL + address.Gate.At(g.ID)})
	}
	return all, err
}

// others reports whether the decisions that are awaited are not those that a supervisor knows.
func others(all []Awaited, known []string) bool {
	return !slices.EqualFunc(all, known, func(a Awaited, id string) bool { return a.Gate == id })
}
