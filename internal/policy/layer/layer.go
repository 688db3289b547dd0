package layer

import (
	"context"
	"slices"
	"strings"

	"signalbox/internal/policy"
	"signalbox/internal/policy/recent"
	"signalbox/internal/policy/window"
)

// The names of the narrower layers, as verdicts and records have them. The server's is "".
const (
	User      = "user"
	Workspace = "workspace"
)

// Narrower is a layer beside the server's.
type Narrower struct {
	Name   string // User or Workspace
	Of     string // whose it is: a word that no other layer has under which something of the same agent is counted
	Policy *policy.Policy
}

// Stack is what decides about one call: the server's policy, and the layers that are narrower, in the order in which
// they are tried. None of its policies is nil.
type Stack struct {
	Server   *policy.Policy
	Narrower []Narrower
}

// strictness orders actions: what is allowed happens, what is modified happens otherwise, what is gated may happen,
// what is deferred or blocked does not.
var strictness = map[policy.Action]int{
	policy.Allow: 0, policy.Modify: 1, policy.Gate: 2, policy.Defer: 3, policy.Block: 4,
}

// Decide is the verdict of all layers together. It is as pure as policy.Decide.
func (s Stack) Decide(ctx context.Context, in policy.Input) policy.Verdict {
	if len(s.Narrower) == 0 {
		return s.Server.Decide(ctx, in)
	}
	return s.decideAll(ctx, in)
}

// decideAll is Decide with several layers. It is apart, so that one layer alone costs what a policy does.
func (s Stack) decideAll(ctx context.Context, in policy.Input) policy.Verdict {
	in.Event.Read() // once for all of them
	v := s.Server.Decide(ctx, in)
	if isCheck(v) {
		return v
	}
	// Scopes are checked before any rule.
	for _, l := range s.Narrower {
		if missing, ok := l.Policy.MissingScope(&in); ok {
			missing.Layer = l.Name
			return missing
		}
	}
	over := s.over(ctx, in)
	if v.Rule != policy.DefaultRule || v.Failed {
		return within(over, v)
	}
	floor, shadows := v, v.Shadow
	v = s.Default(in.Event.Point)
	for _, l := range s.Narrower {
		one := l.Policy.Decide(ctx, l.sees(in))
		for _, sh := range one.Shadow {
			sh.Layer = l.Name
			shadows = append(slices.Clip(shadows), sh)
		}
		if one.Rule != policy.DefaultRule || one.Failed {
			one.Layer = l.Name
			v = noLooser(unwritten(one, in.Event.Point), floor)
			break
		}
	}
	v.Shadow = shadows
	return within(over, v)
}

// over is the strictest verdict of the narrower layers' budgets, the narrowest layer's among equals. It has no action
// if none is used up. As scopes, the budgets of every layer hold, whatever rules of other layers say.
func (s Stack) over(ctx context.Context, in policy.Input) (strictest policy.Verdict) {
	for _, l := range s.Narrower {
		one, ok := l.Policy.Over(ctx, l.sees(in))
		if ok && (strictest.Action == "" || strictness[one.Action] > strictness[strictest.Action]) {
			strictest, strictest.Layer = one, l.Name
		}
	}
	return strictest
}

// within is the verdict of all rules, or that of a budget if it is stricter. A person who is asked for the budget is
// asked about what the rules would change.
func within(over, v policy.Verdict) policy.Verdict {
	if over.Action == "" || strictness[v.Action] >= strictness[over.Action] {
		return v
	}
	over.Shadow = v.Shadow
	if over.Action == policy.Gate {
		over.Changes = v.Changes
	}
	return over
}

// Default is the verdict where no rule of any layer matches: the strictest of the server's default and of those that
// the other layers name, the widest layer's among equals.
func (s Stack) Default(point policy.Point) policy.Verdict {
	v, _ := s.Server.Default(point)
	for _, l := range slices.Backward(s.Narrower) {
		if one, given := l.Policy.Default(point); given && strictness[one.Action] > strictness[v.Action] {
			v = one
			v.Layer = l.Name
		}
	}
	return v
}

// Policies are those of all layers, in the order in which they are tried.
func (s Stack) Policies() []*policy.Policy {
	all := []*policy.Policy{s.Server}
	for _, l := range s.Narrower {
		all = append(all, l.Policy)
	}
	return all
}

// isCheck reports whether a verdict is of a check that comes before the rules.
func isCheck(v policy.Verdict) bool {
	return v.Rule == policy.ScopesRule || v.Rule == policy.UnreadableRule || v.Rule == policy.HandoffRule
}

// unwritten is a block in the place of a verdict after which the agent would go on with what a narrower layer wrote:
// the server's rules have not seen that. Such a policy is not applied as a narrower layer, so this is for one that was
// put into force in another way.
func unwritten(v policy.Verdict, at policy.Point) policy.Verdict {
	if (at != policy.OnAction && at != policy.OnPrompt) || !v.Rewrites() {
		return v
	}
	return policy.Verdict{
		Action: policy.Block, Rule: v.Rule, Layer: v.Layer, Failed: true,
		Reason: "The rule " + v.Rule + " would change what the agent does, which only the server's layer of the policy may.",
	}
}

// noLooser is the verdict of a narrower layer's rule, or the server's default if that is stricter. Where the server's
// default asks a person, a person is asked, and no less is asked for than the default does.
func noLooser(v, floor policy.Verdict) policy.Verdict {
	if strictness[v.Action] > strictness[floor.Action] || floor.Action == policy.Allow {
		return v
	}
	switch {
	case floor.Action == policy.Gate && v.Action == policy.Modify: // the person is asked about what was changed
		v.Action, v.Gate = policy.Gate, floor.Gate
		return v
	case floor.Action == policy.Gate && v.Action == policy.Gate:
		v.Gate = tighter(v.Gate, floor.Gate)
		return v
	case floor.Action == v.Action:
		return v
	}
	return floor
}

// tighter is a gate that is no easier to pass than another. Whom the narrower layer names approves: those are operators
// of the workspace in any case.
func tighter(g, than *policy.GateSpec) *policy.GateSpec {
	t, _ := StrictestGate(g, than)
	t.Approvers = g.Approvers
	return &t
}

// Explain decides as Decide does, and says why.
func (s Stack) Explain(ctx context.Context, in policy.Input) policy.Explanation {
	x := s.Server.Explain(ctx, in)
	if len(s.Narrower) == 0 {
		return x
	}
	v, decided := s.Decide(ctx, in), x.Rule != policy.DefaultRule
	x.Then, x.Rule, x.Reason, x.Layer = v.Action, v.Rule, v.Reason, v.Layer
	if isCheck(v) {
		return x
	}
	for _, l := range s.Narrower {
		one := l.Policy.Explain(ctx, l.sees(in))
		for _, r := range one.Rules {
			if decided && !r.Budget {
				continue // the rules were not tried
			}
			r.Layer = l.Name
			x.Rules = append(x.Rules, r)
		}
		decided = decided || one.Rule != policy.DefaultRule
	}
	return x
}

// sees is the input as the rules of the layer see it: recent.by_rule counts the rules of their own layer.
func (l *Narrower) sees(in policy.Input) policy.Input {
	in.Recent = own{in.AllRecent(), l.Of}
	return in
}

type own struct {
	policy.Recent
	of string
}

// Count implements policy.Recent.
func (o own) Count(what string, w window.Window) float64 {
	return o.Recent.Count(Counter(o.of, what), w)
}

// Reserved implements recent.Reserving.
func (o own) Reserved(what string, w window.Window) float64 {
	if r, ok := o.Recent.(recent.Reserving); ok {
		return r.Reserved(Counter(o.of, what), w)
	}
	return 0
}

// AnyReserved implements recent.Reserving.
func (o own) AnyReserved() bool {
	r, ok := o.Recent.(recent.Reserving)
	return ok && r.AnyReserved()
}

// Counter is the name under which a counter is kept that a rule of a layer reads. Rules of another layer may have the
// same name, and must not count for those that read by_rule: whoever edits one layer would change what another says.
func Counter(of, what string) string {
	rule, isRule := strings.CutPrefix(what, policy.RuleCount(""))
	if of == "" || !isRule {
		return what
	}
	return policy.RuleCount(of + "/" + rule)
}

// Counts lists the counters of the layer, by the names under which they are kept.
func (l *Narrower) Counts() []policy.Count {
	all := l.Policy.Counts()
	for i := range all {
		all[i].What = Counter(l.Of, all[i].What)
	}
	return all
}
