package proxy

import (
	"cmp"
	"fmt"
	"strings"

	"signalbox/internal/gate"
	"signalbox/internal/proxy/form"
	"signalbox/internal/proxy/meter"
	"signalbox/internal/rulebook"
)

// toolOpening is the gate for the tool calls of a reply: each with its arguments and the rule that asks
// for a person. The digest covers all withheld bytes.
func (x *exchange) toolOpening(gates []gated, k *kept) gate.Opening {
	o := gate.Opening{Digest: digest(k.Body[k.Withheld:]), Context: x.context(k)}
	x.q.listed, x.beside = nil, nil // a call that is held does not keep them in memory
	var titles []string
	for _, g := range gates {
		name, title := x.titleOf(&g.Call)
		o.Shown.Facts = append(o.Shown.Facts, gate.Fact{
			Name: "call", Value: clean(name + " " + g.ID + ", by the rule " + g.decision.Rule),
		})
		o.Attach(name, g.Arguments)
		titles = append(titles, title)
	}
	first := gates[0].decision
	o.Of = first.Record.Behalf()
	o.Shown.Facts = append(gate.OnBehalf(&first.Record, x.named.User), o.Shown.Facts...)
	o.Shown.Title = gate.Title(clean(titles[0]))
	if len(gates) > 1 {
		o.Shown.Title = fmt.Sprintf("%d calls: %s", len(gates), o.Shown.Title)
	}
	o.Shown.ProposedAction = gate.Excerpt(clean(strings.Join(titles, "\n")))
	o.Shown.Summary = "The model " + clean(x.q.model) + " wants this done. Approve or reject all of it."
	o.Shown.Rule, o.Shown.Reason = first.Rule, clean(first.Reason)
	return o
}

// titleOf is the name of a call's tool, and the call in a line: with the command, address or path that it
// is about.
func (x *exchange) titleOf(c *form.Call) (name, title string) {
	e := x.policyEvent(c)
	e.Read()
	name = c.Tool
	if c.Toolset != "" {
		name = c.Toolset + "/" + c.Tool
	}
	if about := cmp.Or(e.Command, e.URL, e.Path); about != "" {
		return name, name + ": " + about
	}
	return name, name
}

// context is what led to a gate: what the person asked last, what the model says in the reply, and the
// calls beside those that wait. reply is nil if the gate is about the request. What of it is in the
// conversation is only as true as the client that sends it.
func (x *exchange) context(reply *kept) []gate.Fact {
	all := []gate.Fact{{Name: "last message of the person", Value: form.Asked(x.q.listed)}}
	if reply == nil {
		return all
	}
	if text, err := x.whole(reply); err == nil { // it was read before
		all = append(all, gate.Fact{Name: "words of the model", Value: form.Words(text)})
	}
	var beside []string
	for _, g := range x.beside {
		_, title := x.titleOf(&g.Call)
		beside = append(beside, gate.Title(title)+" (allowed by the rule "+g.rule+")")
	}
	return append(all, gate.Fact{Name: "calls beside it", Value: strings.Join(beside, "\n")})
}

// promptOpening is the gate for a request. The digest covers the whole body.
func (x *exchange) promptOpening(d rulebook.Decision) gate.Opening {
	o := gate.Opening{Digest: digest(x.q.body), Context: x.context(nil), Of: d.Record.Behalf()}
	o.Shown.Title = gate.Title(clean("Ask " + x.q.model + ": " + form.LastLine(x.q.body)))
	o.Shown.Summary = "A request is about to reach the provider " + x.provider + "."
	o.Shown.ProposedAction = "Send " + x.kind + " to " + clean(x.q.model)
	o.Shown.Facts = append(gate.OnBehalf(&d.Record, x.named.User), []gate.Fact{
		{Name: "model", Value: clean(x.q.model)},
		{Name: "tools", Value: clean(strings.Join(x.q.tools, ", "))},
		{Name: "bytes", Value: fmt.Sprint(len(x.q.body))},
	}...)
	o.Attach("request", x.q.body)
	o.Shown.Rule, o.Shown.Reason = d.Rule, clean(d.Reason)
	return o
}

// clean is meter.Clean, which texts of agents and models go through before they are recorded.
func clean(text string) string { return meter.Clean(text) }
