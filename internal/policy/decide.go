package policy

import (
	"context"
	"fmt"

	"cel.dev/cel-go/common/types"
)

// Decide evaluates the rules of the event's control point in their order and returns the
// verdict of the first that matches, or the default. It has no side effects, never panics and
// never waits. If a rule cannot be evaluated, or ctx ends, the verdict is block with Failed
// set: nothing is allowed by accident.
func (p *Policy) Decide(ctx context.Context, in Input) (v Verdict) {
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
	if v, outside := in.delegation().outside(&in.Event); outside {
		return v
	}
	if v, missing := p.MissingScope(&in); missing {
		return v
	}
	rules := p.byPoint[in.Event.Point]
	if rules == nil {
		return byDefault
	}
	vars := newVariables(&in)
	for _, r := range rules.candidates(&in) {
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
		case holds:
			return r.verdict
		}
	}
	return byDefault
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
	recent := in.Recent
	if recent == nil {
		recent = in.Counts
	}
	return &variables{
		event:      object{eventType, &in.Event},
		agent:      object{agentType, &in.Agent},
		user:       object{userType, &in.User},
		delegation: object{delegationType, in.delegation()},
		recent:     object{recentType, recent},
		now:        types.Timestamp{Time: in.Now},
	}
}
