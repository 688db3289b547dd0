package proxy

import (
	"context"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/rulebook"
)

// gated is a tool call that a person has to decide, with the decision of the policy that says so. For
// a request that needs a person, Call is zero.
type gated struct {
	form.Call
	decision rulebook.Decision
}

// allowed is a tool call that goes on, with the rule that lets it.
type allowed struct {
	form.Call
	rule string
}

// ruling is what the policy says of the calls in a reply. One refusal refuses the whole reply, so
// gates are of no use then.
type ruling struct {
	refusal *rulebook.Decision // nil unless the reply is refused
	refused form.Call          // the call that it is about
	gates   []gated            // in the order of the calls
}

// policyEvent is what rules see of a tool call.
func (x *exchange) policyEvent(c *form.Call) policy.Event {
	e := policy.Event{
		Point: policy.OnToolCall, Protocol: Name, Kind: c.Kind, Tool: c.Tool, Toolset: c.Toolset, Text: string(c.Arguments),
		Provider: x.provider, Model: x.q.model, Project: x.project, Run: x.run, Thread: x.q.thread.continues,
		CWD: x.q.cwd, User: x.named.User, Claim: x.named.Claim, Reserve: x.record.Reserve,
	}
	if e.Arguments = c.Object; c.Unclear == "" && c.Object == nil { // then form has checked that it is an object
		var object map[string]any // apart, so that the event need not be on the heap
		_ = policy.DecodeData(c.Arguments, &object)
		e.Arguments = object
	}
	return e
}

// judgeCalls asks the policy about complete calls, in order, until one is refused, and adds what it
// says to the ruling. A call whose arguments rules cannot see needs a person even if it would be
// allowed (PRX-20). A rule that would change the call blocks it (PRX-21).
func (x *exchange) judgeCalls(ctx context.Context, calls []form.Call, to *ruling) {
	for i := range calls {
		c := calls[i]
		d := x.decideCall(ctx, &calls[i])
		x.record.ToolCalls++
		if d.Recorded {
			x.record.ToolsDecided++
		}
		switch d.Action {
		case policy.Allow:
			x.beside = append(x.beside, allowed{c, d.Rule})
			// An allowed call is counted with the record of the reply; what shadow rules would have
			// done is only in the decision.
			switch {
			case d.Recorded:
			case len(d.Shadow) > 0:
				x.p.meter.Append(d.Entry(x.who, x.fp, x.trace()))
				x.record.ToolsDecided++
			default:
				x.record.Allowed++
			}
		case policy.Gate:
			to.gates = append(to.gates, gated{c, d})
		case policy.Modify:
			d.Reason = "The rule " + d.Rule + " would change the call, which the proxy does not do. " + d.Reason
			fallthrough
		default:
			refusal := d // only this takes memory
			to.refusal, to.refused = &refusal, c
			return
		}
	}
}

// decideCall asks the policy about a call.
func (x *exchange) decideCall(ctx context.Context, c *form.Call) rulebook.Decision {
	return x.reserveOne(x.p.core.Book.Decide(ctx, x.who, x.policyEvent(c)), func(d rulebook.Decision) rulebook.Decision {
		if c.Unclear != "" && d.Action == policy.Allow {
			requirePerson(&d, d.Rule, d.Layer, "Rules cannot see what this call would do: "+c.Unclear+".")
		}
		return d
	})
}

// reserveOne is reserve of one decision. Most look at no counter, and nothing is made of them but what choose makes.
func (x *exchange) reserveOne(d rulebook.Decision, choose func(rulebook.Decision) rulebook.Decision) rulebook.Decision {
	if !d.Counted() {
		return choose(d)
	}
	return x.reserve([]rulebook.Decision{d}, func(all []rulebook.Decision) rulebook.Decision { return choose(all[0]) })
}

// reserve writes the decision that choose takes before anything follows from it, if rules looked at counters, so that
// it counts for every decision after it. One that cannot be written is a refusal.
func (x *exchange) reserve(all []rulebook.Decision, choose func([]rulebook.Decision) rulebook.Decision) (
	d rulebook.Decision,
) {
	d, err := rulebook.Reserve(x.p.core.Ledger, all, func(all []rulebook.Decision) rulebook.Decision {
		d := choose(all)
		if rulebook.Counted(all) { // it will be written
			d.Record.Event = x.cut(*d.Record.Event)
		}
		return d
	}, func(d rulebook.Decision) ledger.Event { return d.Entry(x.who, x.fp, x.trace()) })
	if err != nil {
		why := "A rule counts such calls, and this one could not be counted: " + fault.From(err).Message
		d.Verdict = policy.Verdict{Action: policy.Block, Rule: d.Rule, Reason: why, Shadow: d.Shadow}
		d.Record.Then, d.Record.Reason = d.Action, d.Reason
	}
	return d
}
