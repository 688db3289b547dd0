package proxy

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/rulebook"
)

// gated is a call that a person has to decide about.
type gated struct {
	form.Call
	decision rulebook.Decision
}

// ruling is what the policy says of the calls in a reply.
type ruling struct {
	refusal *rulebook.Decision // the reply is not given
	refused form.Call
	gates   []gated
}

// seen is what rules see of a call.
func (x *exchange) seen(c *form.Call) policy.Event {
	e := policy.Event{
		Point: policy.OnToolCall, Protocol: Name, Kind: c.Kind, Tool: c.Tool, Toolset: c.Toolset, Text: string(c.Arguments),
		Provider: x.provider, Model: x.q.model, Project: x.project, Run: x.run, Thread: x.q.thread.continues,
	}
	if c.Unclear == "" {
		_ = policy.DecodeData(c.Arguments, &e.Arguments) // it is an object
	}
	e.Command, e.Path, e.URL = words(e.Arguments, "command", "commands", "cmd"), words(e.Arguments, "file_path", "path"), words(e.Arguments, "url")
	if u, err := url.Parse(e.URL); err == nil {
		e.Host = u.Hostname()
	}
	return e
}

// words is the text of the first of the members that has some; a list is put together.
func words(arguments map[string]any, names ...string) string {
	for _, name := range names {
		switch v := arguments[name].(type) {
		case string:
			if v != "" {
				return v
			}
		case []any:
			var all []string
			gather(v, &all)
			if len(all) > 0 {
				return strings.Join(all, " ")
			}
		}
	}
	return ""
}

// judge asks the policy about calls that are whole. One that is refused ends it.
func (x *exchange) judge(ctx context.Context, calls []form.Call, to *ruling) {
	for _, c := range calls {
		d := x.p.core.Book.Decide(ctx, x.who, x.seen(&c))
		if c.Unclear != "" && d.Action == policy.Allow {
			ask(&d, d.Rule, "Rules cannot see what this call would do: "+c.Unclear+".")
		}
		x.note.ToolCalls++
		switch d.Action {
		case policy.Allow:
			if len(d.Shadow) > 0 {
				x.p.recorder.append(d.Entry(x.who, x.fp, x.trace()))
			}
		case policy.Gate:
			to.gates = append(to.gates, gated{c, d})
		case policy.Modify:
			d.Reason = "The rule " + d.Rule + " would change the call, which the proxy does not do. " + d.Reason
			fallthrough
		default:
			to.refusal, to.refused = &d, c
			return
		}
	}
}

// ask turns a decision into one that a person takes.
func ask(d *rulebook.Decision, rule, why string) {
	d.Verdict = policy.Verdict{
		Action: policy.Gate, Rule: rule, Reason: why, Shadow: d.Shadow,
		Gate: &policy.GateSpec{OnExpiry: policy.ExpiryReject, Approvers: []string{"operator"}, Quorum: 1, RejectNeeds: 1, Risk: "medium"},
	}
	d.Record.Then, d.Record.Rule, d.Record.Reason = d.Action, rule, why
}

var risks = []string{"low", "medium", "high"}

// strictest is a gate that asks for no less than any of the rules. false says that there is
// no such gate, since nobody may decide for all of them.
func strictest(gates []gated) (policy.GateSpec, bool) {
	all := *gates[0].decision.Gate
	for _, g := range gates[1:] {
		one := g.decision.Gate
		all.Quorum, all.RejectNeeds = max(all.Quorum, one.Quorum), min(all.RejectNeeds, one.RejectNeeds)
		all.Expires, all.Window = sooner(all.Expires, one.Expires), sooner(all.Window, one.Window)
		all.RemindAfter = sooner(all.RemindAfter, one.RemindAfter)
		all.SingleUse = all.SingleUse || one.SingleUse
		if one.OnExpiry != policy.ExpiryApprove {
			all.OnExpiry = policy.ExpiryReject
		}
		if slices.Index(risks, one.Risk) > slices.Index(risks, all.Risk) {
			all.Risk = one.Risk
		}
		if len(all.Escalation) == 0 {
			all.Escalation = one.Escalation
		}
		if all.Approvers = both(all.Approvers, one.Approvers); len(all.Approvers) == 0 {
			return all, false
		}
	}
	return all, true
}

// sooner is the shorter of two lengths of time of which zero is none.
func sooner[T cmp.Ordered](a, b T) T {
	var none T
	if a == none || b != none && b < a {
		return b
	}
	return a
}

// both are those who are among both lists of approvers. An admin may do what an operator
// may; whether somebody with a name has a role is not known here.
func both(a, b []string) (list []string) {
	has := func(of []string, who string) bool {
		return slices.Contains(of, who) || who == "admin" && slices.Contains(of, "operator")
	}
	for _, who := range slices.Concat(a, b) {
		if has(a, who) && has(b, who) && !slices.Contains(list, who) {
			list = append(list, who)
		}
	}
	return list
}
