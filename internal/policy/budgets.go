package policy

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/policy/budget"
	"signalbox/internal/policy/document"
)

// budgeted are the points where budgets are looked at: what costs money, or leads to it.
var budgeted = []Point{OnPrompt, OnToolCall, OnAction}

// budgets reads the section budgets. Each becomes a rule; lines has the names that are taken.
func (r *reader) budgets(n *yaml.Node, lang *language, lines map[string]int) (rules []*rule) {
	if n == nil || n.Tag == "!!null" || (n.Kind == yaml.SequenceNode && len(n.Content) == 0) {
		return nil
	}
	for _, item := range r.List(n, "budgets", "Write a list of budgets, each beginning with \"- name: …\".") {
		if one, f := r.budget(item, lang); one != nil {
			r.unique(one, f, item, lines)
			rules = append(rules, one)
		}
	}
	return rules
}

// budget reads one budget, nil when the item is not even a mapping.
func (r *reader) budget(n *yaml.Node, lang *language) (*rule, document.Fields) {
	f, ok := r.Mapping(n, "A budget", budget.Keys...)
	if !ok {
		return nil, nil
	}
	before := r.Found()
	b := budget.Read(&r.Reader, n, f)
	one := &rule{line: n.Line, points: slices.Clone(budgeted), budget: &b}
	if f["name"] == nil {
		r.Add(document.At(n), "Every decision names its rule. Write name: day-of-a-deck.", "The budget has no %q.", "name")
	} else {
		one.name = r.ruleName(f["name"])
	}
	if only := f["only"]; only != nil {
		var found *condition
		if b.Only, found = r.condition(only, "only", lang, one.points); found != nil {
			r.findings(only, found)
		}
	}
	if mode := f["mode"]; mode != nil {
		one.shadow = r.OneOf(mode, "mode", modeEnforce, modeShadow) == modeShadow
	}
	b.Name = one.name
	one.verdict = Verdict{Action: Block, Rule: one.name}
	if f["then"] != nil {
		one.verdict.Action = Action(r.OneOf(f["then"], "then", string(Block), string(Gate)))
	}
	switch {
	case one.verdict.Action == Gate:
		one.verdict.Gate = r.gate(f["gate"], one.points)
	case f["gate"] != nil:
		r.Add(document.At(f["gate"]), "It goes with then: gate.", "%q has no effect with then: block.", "gate")
	}
	if f["reason"] != nil {
		one.verdict.Reason = r.Text(f["reason"], "reason", "Write a sentence for whoever must act on it.")
	}
	if r.Found() > before {
		return one, f // what is wrong was said
	}
	var issues []issue
	one.text = b.Condition()
	one.when, issues = lang.compile(one.text, one.points)
	for _, i := range issues {
		r.Add(document.At(n), i.hint, "%s", i.message)
	}
	return one, f
}

// used is the verdict of a budget that is used up.
func (r *rule) used(in *Input, recent Recent) Verdict {
	v := r.verdict
	if v.Reason == "" {
		v.Reason = r.budget.Reason(in.owner(r.budget.Per), recent.Count, in.Now)
	}
	return v
}

// owner is who has a budget, in words.
func (in *Input) owner(per string) string {
	name := in.Agent.Name
	switch per {
	case "user":
		if name = in.User.Name; name == "" { // an agent that is nobody's counts for itself
			per, name = "agent", in.Agent.Name
		}
	case "run":
		name = shorten(in.Event.Run)
	case "deck":
		if name = in.Event.Project; name == "" {
			name = DefaultDeck
		}
	case "workspace":
		name = in.Agent.Workspace
	}
	return fmt.Sprintf("the %s %q", per, name)
}

// DefaultDeck is the deck of events that name no project. It is counter.DefaultDeck.
const DefaultDeck = "default"

// withBudget is a verdict of the rules for a call that a budget leaves to a person: they are asked, unless the rules
// say something stricter. So no budget lets anything pass that a rule stops.
func withBudget(over *Verdict, v Verdict) Verdict {
	switch {
	case over == nil || v.Action == Block || v.Action == Defer:
		return v
	case v.Action == Gate: // the rule says who is asked
		v.Reason += " " + over.Reason
		return v
	}
	asked := *over
	asked.Changes = v.Changes
	return asked
}

// Budgets lists the budgets in the order of the source.
func (p *Policy) Budgets() (all []RuledBudget) {
	for i, one := range p.Rules() {
		if b := p.rules[i].budget; b != nil {
			all = append(all, RuledBudget{*b, one.Then, one.Mode, one.Line})
		}
	}
	return all
}

// RuledBudget is a budget with what becomes of a call when it is used up.
type RuledBudget struct {
	budget.Budget
	Then Action `json:"then"`
	Mode string `json:"mode"`
	Line int    `json:"line"`
}
