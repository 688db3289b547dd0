package policy

import (
	"context"
	"strings"

	"signalbox/internal/facts"
)

// Explanation says why a decision came out as it did: the rules that were tried, and the facts that
// they saw.
type Explanation struct {
	Then   Action      `json:"then"`
	Rule   string      `json:"rule"`
	Layer  string      `json:"layer,omitzero"` // the layer that the rule is of, absent for the server's
	Reason string      `json:"reason,omitzero"`
	Rules  []TriedRule `json:"rules"`
	Facts  *Known      `json:"facts,omitzero"`          // of a tool call
	Why    []string    `json:"opaque_because,omitzero"` // why it cannot be known what runs, in words
}

// Known is what rules see of a tool call beyond what was sent.
type Known struct {
	*facts.Facts
	Secrets []string `json:"secrets,omitzero"`
}

// Lines are the facts for people: names, and what there is under each.
func (k *Known) Lines() (all []KnownLine) {
	add := func(name string, values ...string) {
		if len(values) > 0 {
			all = append(all, KnownLine{name, values})
		}
	}
	add("does", string(k.Does))
	var runs []string
	for _, c := range k.Commands {
		runs = append(runs, strings.TrimSpace(c.Name+" "+strings.Join(c.Args, " ")))
	}
	add("runs", runs...)
	add("reads", k.Reads...)
	add("writes", k.Writes...)
	add("deletes", k.Deletes...)
	add("paths", k.Paths...)
	add("hosts", k.Hosts...)
	add("secrets", k.Secrets...)
	return all
}

// KnownLine is one fact for people.
type KnownLine struct {
	Name   string
	Values []string
}

// TriedRule is a rule at the control point, up to the one that decided.
type TriedRule struct {
	Name   string `json:"name"`
	Line   int    `json:"line"`
	Result string `json:"result"`          // one of the Tried constants
	Error  string `json:"error,omitzero"`  // why it could not be evaluated
	Shadow bool   `json:"shadow,omitzero"` // it is on trial and decides nothing
	Layer  string `json:"layer,omitzero"`  // the layer that it is of, absent for the server's
	Budget bool   `json:"budget,omitzero"` // it is one of the section budgets
}

// The results of a rule.
const (
	TriedMatches = "matches"
	TriedNo      = "does not match"
	TriedFailed  = "failed"
)

// Explain decides as Decide does, and says why.
func (p *Policy) Explain(ctx context.Context, in Input) Explanation {
	v := p.Decide(ctx, in)
	e := Explanation{Then: v.Action, Rule: v.Rule, Reason: v.Reason, Rules: []TriedRule{}}
	if in.Event.Point == OnAction || in.Event.Point == OnToolCall {
		e.Facts = &Known{in.Event.Facts(), in.Event.Secrets()}
		for _, reason := range in.Event.Facts().Opaque {
			e.Why = append(e.Why, facts.Reasons[reason])
		}
	}
	vars := newVariables(&in)
	for _, r := range p.rules {
		if !in.Event.Point.in(r.points) {
			continue
		}
		tried := TriedRule{Name: r.name, Line: r.line, Result: TriedNo, Shadow: r.shadow, Budget: r.budget != nil}
		holds, err := r.when.holds(ctx, vars)
		switch {
		case err != nil:
			tried.Result, tried.Error = TriedFailed, err.Error()
		case holds:
			tried.Result = TriedMatches
		}
		e.Rules = append(e.Rules, tried)
		if r.name == v.Rule {
			break
		}
	}
	return e
}
