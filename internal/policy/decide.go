package policy

import (
	"context"
	"fmt"
	"time"

	"cel.dev/cel-go/common/types"
)

// Decide evaluates the budgets and then the rules of the event's control point in their order, and returns the
// verdict of the first that matches, or the default. It has no side effects, never panics and
// never waits. If a rule cannot be evaluated, or ctx ends, the verdict is block with Failed
// set: nothing is allowed by accident.
//
// What would be blocked or held only because of what is reserved for calls under way is deferred: when they are over,
// there may be enough left.
func (p *Policy) Decide(ctx context.Context, in Input) Verdict { return p.settle(ctx, &in, false) }

// Over is the verdict of the budgets alone, ok if one of them is used up. It is for layers: no rule of another layer
// loosens a budget. Budgets on trial are left out.
func (p *Policy) Over(ctx context.Context, in Input) (v Verdict, ok bool) {
	if !p.hasBudgets {
		return v, false
	}
	v = p.settle(ctx, &in, true)
	v.Shadow = nil
	return v, v.Action != ""
}

// settle decides, and once more without what is reserved if that may make a difference.
func (p *Policy) settle(ctx context.Context, in *Input, budgetsAlone bool) Verdict {
	v := p.decide(ctx, in, budgetsAlone)
	if v.Action != Block && v.Action != Gate || v.Failed || !in.reserves() {
		return v
	}
	settled := *in
	settled.settled = true
	if w := p.decide(ctx, &settled, budgetsAlone); w.Action == Block || w.Action == Gate && v.Action == Gate {
		return v
	}
	return Verdict{
		Action: Defer, Rule: v.Rule, RetryAfter: retryReserved, Shadow: v.Shadow,
		Reason: fmt.Sprintf("What is left of the budget is reserved for calls under way, so %q lets nothing else pass now. "+
			"Ask again in %d seconds.", v.Rule, retryReserved/time.Second),
	}
}

// retryReserved is how long whoever is put off for calls under way waits.
const retryReserved = 5 * time.Second

// decide is Decide, with what is reserved or without it. With budgetsAlone the verdict has no action unless one is
// used up.
func (p *Policy) decide(ctx context.Context, in *Input, budgetsAlone bool) (v Verdict) {
	deciding := DefaultRule
	var shadows []Shadow
	defer func() {
		if cause := recover(); cause != nil {
			v = failure(deciding, fmt.Errorf("internal error: %v", cause))
		}
		v.Shadow = shadows
	}()
	if err := ctx.Err(); err != nil {
		return failure(deciding, err)
	}
	byDefault, known := p.defaults[in.Event.Point]
	if !known {
		return failure(deciding, fmt.Errorf("there is no control point %q", in.Event.Point))
	}
	in.Event.Read()
	if in.Event.facts != nil && in.Event.facts.Unreadable != "" {
		return Verdict{Action: Block, Rule: UnreadableRule, Reason: in.Event.facts.Unreadable}
	}
	if v, outside := in.delegation().outside(in.Event, in.settled); outside {
		return v
	}
	if v, missing := p.MissingScope(in); missing {
		return v
	}
	if budgetsAlone {
		byDefault = Verdict{}
	}
	rules := p.byPoint[in.Event.Point]
	if rules == nil {
		return byDefault
	}
	candidates := rules.candidates(in)
	if len(candidates) == 0 {
		return byDefault
	}
	vars := newVariables(in)
	var over *Verdict // of the first budget that leaves it to a person
	for _, r := range candidates {
		if budgetsAlone && r.budget == nil {
			break // budgets come first
		}
		deciding = r.name
		if err := ctx.Err(); err != nil { // thousands of rules and much text take a while
			return failure(deciding, err)
		}
		holds, err := r.when.holds(ctx, vars)
		switch {
		case r.shadow && err != nil:
			shadows = append(shadows, Shadow{Rule: r.name, Action: Block, Failed: true})
		case r.shadow && holds:
			shadows = append(shadows, Shadow{Rule: r.name, Action: r.verdict.Action})
		case r.shadow:
		case err != nil:
			return failure(r.name, err)
		case holds && r.budget != nil:
			if v := r.used(in, in.recent()); v.Action == Block {
				return v
			} else if over == nil {
				over = &v
			}
		case holds:
			return withBudget(over, r.verdict)
		}
	}
	return withBudget(over, byDefault)
}

// failure is the verdict of a rule that could not be evaluated.
func failure(rule string, err error) Verdict {
	return Verdict{
		Action: Block, Rule: rule, Failed: true,
		Reason: fmt.Sprintf("This is blocked because the rule %q could not be evaluated: %s.", rule, err),
	}
}

// newVariables makes what an expression sees. It points into in, so that data which no rule
// reads is never decoded (Event.Fill).
func newVariables(in *Input) *variables {
	return &variables{
		event:      object{eventType, in.Event},
		agent:      object{agentType, &in.Agent},
		user:       object{userType, &in.User},
		delegation: object{delegationType, in.delegation()},
		recent:     object{recentType, in.recent()},
		now:        types.Timestamp{Time: in.Now},
	}
}
