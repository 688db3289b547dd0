package policy

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/policy/document"
)

// roles that may approve, the least first. Anything else names an operator.
var roles = []string{"operator", "admin"}

// GateKeys are the keys of gate. docs/policy.md explains them. The last two are older words: window is
// good_for with any number of uses, single_use is uses: 1.
var GateKeys = []string{
	"expires", "on_expiry", "approvers", "quorum", "reject_needs", "remind_after",
	"escalation", "even_if_undeclared", "uses", "good_for", "risk", "presence", "window", "single_use",
}

// maxUses is far above what anybody has counted on when they approved.
const maxUses = 1000

// maxQuorum is far above any number of people who would be asked.
const maxQuorum = 100

// allApprovers lists whom a gate asks, at first and by escalation, for checking that the names
// exist. A nil GateSpec asks nobody.
func (g *GateSpec) allApprovers() []string {
	if g == nil {
		return nil
	}
	all := slices.Clone(g.Approvers)
	for _, step := range g.Escalation {
		all = append(all, step.To...)
	}
	return all
}

// gate reads how a person is asked. Without anything written, any operator may decide,
// whenever they come to it.
func (r *reader) gate(n *yaml.Node, points []Point) *GateSpec {
	g := DefaultGate()
	if n == nil {
		return g
	}
	f, ok := r.Mapping(n, "gate", GateKeys...)
	if !ok {
		return g
	}
	for name, read := range map[string]func(*yaml.Node){
		"expires":            func(n *yaml.Node) { g.Expires = r.Duration(n, "expires") },
		"on_expiry":          func(n *yaml.Node) { g.OnExpiry = r.OneOf(n, "on_expiry", ExpiryReject, ExpiryApprove) },
		"approvers":          func(n *yaml.Node) { g.Approvers = r.approvers(n, "approvers") },
		"quorum":             func(n *yaml.Node) { g.Quorum = r.Number(n, "quorum", maxQuorum) },
		"reject_needs":       func(n *yaml.Node) { g.RejectNeeds = r.Number(n, "reject_needs", maxQuorum) },
		"remind_after":       func(n *yaml.Node) { g.RemindAfter = r.Duration(n, "remind_after") },
		"escalation":         func(n *yaml.Node) { g.Escalation = r.escalation(n) },
		"even_if_undeclared": func(n *yaml.Node) { g.EvenIfUndeclared = r.Bool(n, "even_if_undeclared") },
		"uses":               func(n *yaml.Node) { g.Uses = r.uses(n) },
		"good_for":           func(n *yaml.Node) { g.GoodFor = r.Duration(n, "good_for") },
		"risk":               func(n *yaml.Node) { g.Risk = r.OneOf(n, "risk", "low", "medium", "high") },
		"presence":           func(n *yaml.Node) { g.Presence = r.OneOf(n, "presence", PresencePasskey) },
	} {
		if n := f[name]; n != nil {
			read(n)
		}
	}
	if n := f["window"]; n != nil {
		g.GoodFor, g.Uses = r.Duration(n, "window"), AnyUses
	}
	if n := f["single_use"]; n != nil && r.Bool(n, "single_use") {
		g.Uses = 1
	}
	r.checkGate(g, f, points)
	return g
}

// checkGate refuses a gate that could not work as written: one that more people have to
// approve than may vote, or a reminder after the expiry. A mistake found here is one that
// would otherwise be found by an agent that waits for ever.
func (r *reader) checkGate(g *GateSpec, f document.Fields, points []Point) {
	if n := f["on_expiry"]; n != nil && f["expires"] == nil {
		r.Add(document.At(n), "Add expires, as in expires: 30m.", "A gate that does not expire has no %q.", "on_expiry")
	}
	if n := f["presence"]; n != nil && g.OnExpiry == ExpiryApprove {
		r.Add(document.At(n), "Write on_expiry: reject, or leave presence out.",
			"A gate that asks for a person cannot approve itself.")
	}
	if n := f["even_if_undeclared"]; n != nil && !OnSignal.in(points) {
		r.Add(document.At(n), "It is for rules on signal, where agents declare gates. Leave it out.",
			"%q has no effect here.", "even_if_undeclared")
	}
	if n := f["uses"]; n != nil && g.Uses == AnyUses && g.GoodFor == 0 {
		r.Add(document.At(n), "Add good_for, as in good_for: 1h.", "An approval for any number of uses would never end.")
	}
	once := func(p Point) bool { return p == OnSignal || p == OnMessage || p == OnTask }
	if n := f["uses"]; n != nil && g.Uses != 1 && !slices.ContainsFunc(points, func(p Point) bool { return !once(p) }) {
		r.Add(document.At(n), "An approval of a signal, a message or a task is of that one. Leave it out.",
			"%q has no effect here.", "uses")
	}
	for _, old := range []string{"window", "single_use"} {
		if n := f[old]; n != nil && (f["uses"] != nil || f["good_for"] != nil) {
			r.Add(
				document.At(n),
				"Write uses and good_for, and leave it out.",
				"%q is an older word for what stands beside it.",
				old,
			)
		}
	}
	byName := !slices.ContainsFunc(g.Approvers, func(a string) bool { return slices.Contains(roles, a) })
	for field, needed := range map[string]int{"quorum": g.Quorum, "reject_needs": g.RejectNeeds} {
		if n := f[field]; n != nil && byName && len(g.Approvers) > 0 && needed > len(g.Approvers) {
			r.Add(document.At(n), "Name more approvers, or a role.", "%q is %d, and only %d may vote.", field, needed,
				len(g.Approvers))
		}
	}
	if n := f["remind_after"]; n != nil && g.Expires > 0 && g.RemindAfter >= g.Expires {
		r.Add(document.At(n), "Choose a shorter time.", "The reminder would come when the gate has expired, after %s.",
			document.FormatDuration(g.Expires))
	}
	if last := len(g.Escalation) - 1; last >= 0 && g.Expires > 0 && g.Escalation[last].After >= g.Expires {
		r.Add(document.At(f["escalation"]), "Choose a shorter time.",
			"The last step would come when the gate has expired, after %s.", document.FormatDuration(g.Expires))
	}
}

// uses reads how often an approval can be used.
func (r *reader) uses(n *yaml.Node) int {
	if n.Kind == yaml.ScalarNode && n.Value == "any" {
		return AnyUses
	}
	return r.Number(n, "uses", maxUses)
}

// approvers reads roles and names of operators. Whether the names exist is not known here;
// rulebook warns about those that do not.
func (r *reader) approvers(n *yaml.Node, name string) []string {
	const form = "Write a list of roles (operator, admin) or names of operators, as in [admin, ann]."
	var list []string
	for _, item := range r.List(n, name, form) {
		who := r.Text(item, name, form)
		switch {
		case who == "":
		case who == "viewer":
			r.Add(document.At(item), "Name operator or admin, or an operator.", "A viewer may look and not decide.")
		case slices.Contains(list, who):
			r.Add(document.At(item), "Name each once.", "Duplicate name %q.", who)
		default:
			list = append(list, who)
		}
	}
	return list
}

// escalation reads who is asked next, and when.
func (r *reader) escalation(n *yaml.Node) []EscalationStep {
	const form = "Write a list of steps, as in [{after: 10m, to: [admin]}]."
	var steps []EscalationStep
	for _, item := range r.List(n, "escalation", form) {
		f, ok := r.Mapping(item, "A step of escalation", "after", "to")
		if !ok {
			continue
		}
		if f["after"] == nil || f["to"] == nil {
			r.Add(document.At(item), form, "A step of escalation needs %q and %q.", "after", "to")
			continue
		}
		step := EscalationStep{r.Duration(f["after"], "after"), r.approvers(f["to"], "to")}
		if len(steps) > 0 && step.After > 0 && step.After <= steps[len(steps)-1].After {
			r.Add(document.At(f["after"]), "Order the steps by time.", "This step comes no later than the one before it.")
		}
		steps = append(steps, step)
	}
	return steps
}
