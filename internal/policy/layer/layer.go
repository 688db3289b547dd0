package layer

import (
	"context"
	"slices"
	"strings"
	"time"

	"signalbox/internal/policy"
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
	if v.Rule != policy.DefaultRule || v.Failed {
		return v
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
	return v
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
	v, byServer := s.Decide(ctx, in), x.Rule != policy.DefaultRule
	x.Then, x.Rule, x.Reason, x.Layer = v.Action, v.Rule, v.Reason, v.Layer
	if byServer || isCheck(v) {
		return x
	}
	for _, l := range s.Narrower {
		one := l.Policy.Explain(ctx, l.sees(in))
		for _, r := range one.Rules {
			r.Layer = l.Name
			x.Rules = append(x.Rules, r)
		}
		if one.Rule != policy.DefaultRule {
			break
		}
	}
	return x
}

// sees is the input as the rules of the layer see it: recent.by_rule counts the rules of their own layer.
func (l *Narrower) sees(in policy.Input) policy.Input {
	if in.Recent == nil {
		in.Recent = in.Counts
	}
	in.Recent = own{in.Recent, l.Of}
	return in
}

type own struct {
	policy.Recent
	of string
}

// Count implements policy.Recent.
func (o own) Count(what string, window time.Duration) float64 {
	return o.Recent.Count(Counter(o.of, what), window)
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
