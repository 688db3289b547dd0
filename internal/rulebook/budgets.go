package rulebook

import (
	"context"
	"math"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// BudgetState is a budget that is in force, and how it stands for somebody.
type BudgetState struct {
	Layer
	policy.RuledBudget
	// What was used in this hour, day, month or run, and what is reserved for calls under way beside it.
	SpentUSD       float64 `json:"spent_usd"`
	ReservedUSD    float64 `json:"reserved_usd"`
	SpentTokens    int64   `json:"spent_tokens"`
	ReservedTokens int64   `json:"reserved_tokens"`
	// Begins is when it begins anew, absent for that of a run, which does not.
	Begins *time.Time `json:"begins_anew,omitempty"`
}

// Budgets lists the budgets that are in force for what belongs to somebody: the server's first, then those of the user
// and the workspace, each in the order of its policy. of says whose they are: an agent and its workspace, and beside
// them a user, a deck or a run; budgets of what it leaves empty are left out, but for the deck, which is
// policy.DefaultDeck then. What is spent and reserved is as far as this node has counted. Callers who are confined to a
// workspace see the budgets of its layers alone, and nothing of others.
func (b *Book) Budgets(ctx context.Context, of Belongs) ([]BudgetState, error) {
	var err error
	if of.Workspace, err = roster.WorkspaceOf(ctx, of.Workspace); err != nil {
		return nil, err
	}
	b.mu.RLock()
	in := b.inForce
	b.mu.RUnlock()
	list := []BudgetState{}
	if in.recent == nil {
		return list, nil
	}
	reader := countReader{at: in.recent, of: of, now: b.now()}
	add := func(l Layer, p *policy.Policy) {
		if p == nil {
			return
		}
		for _, one := range p.Budgets() {
			if of.has(one.Per) {
				list = append(list, reader.budget(l, one))
			}
		}
	}
	if wire.Scope(ctx) == "" {
		add(Layer{}, in.policy)
	}
	if of.User != "" {
		add(Layer{of.Workspace, of.User}, in.layers[Layer{of.Workspace, of.User}].policy)
	}
	add(Layer{Workspace: of.Workspace}, in.layers[Layer{Workspace: of.Workspace}].policy)
	return list, nil
}

// has reports whether there is somebody who can have a budget of this kind.
func (b *Belongs) has(per string) bool {
	switch per {
	case "agent":
		return b.Agent != ""
	case "user":
		return b.User != "" || b.Agent != ""
	case "run":
		return b.Run != ""
	}
	return true
}

// budget is how a budget stands.
func (l *countReader) budget(of Layer, one policy.RuledBudget) BudgetState {
	s, w := BudgetState{Layer: of, RuledBudget: one}, one.Window()
	all, reserved := l.count(policy.Count{What: one.Counter("cost"), Window: w})
	s.SpentUSD, s.ReservedUSD = math.Round((all-reserved)*1e9)/1e9, reserved
	all, reserved = l.count(policy.Count{What: one.Counter("tokens"), Window: w})
	s.SpentTokens, s.ReservedTokens = int64(min(all-reserved, math.MaxInt64/2)), int64(reserved)
	if end := w.End(l.now); !end.IsZero() {
		s.Begins = &end
	}
	return s
}
