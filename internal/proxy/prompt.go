package proxy

import (
	"context"
	"net/http"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/price"
	"signalbox/internal/proxy/form"
	"signalbox/internal/rulebook"
)

// askPolicy asks the policy about the request, and sends it on, refuses it or opens a gate. If it
// returns an approval, the call has to wait for that gate; else the call is answered or err says
// why not. Decisions to allow are not written down here: the record of the call names the rule.
func (x *exchange) askPolicy() (*gate.Approval, error) {
	if x.kind == "" { // fetches a reply that the provider has stored; only the reply is judged
		if x.who.Suspended {
			return nil, fault.New(fault.AgentSuspended, "This agent is suspended. An operator can resume it.")
		}
		return x.forwardRequest()
	}
	d := x.decidePrompt()
	x.record.Policy, x.record.Rule, x.record.Decided = d.Record.Policy, d.Rule, d.Recorded
	x.takeReserve(d.Record.Reserve)
	switch d.Action {
	case policy.Allow:
		switch {
		case d.Recorded:
		case len(d.Shadow) > 0:
			x.p.meter.Append(x.decisionEntry(d))
			x.record.Decided = true
		default:
			x.record.Allowed++
		}
		return x.forwardRequest()
	case policy.Gate:
		return x.openGate([]gated{{decision: d}}, x.promptOpening(d), *d.Gate, nil)
	case policy.Modify:
		d.Reason = "The rule " + d.Rule + " would change the request, which the proxy does not do. " + d.Reason
	default:
	}
	return nil, x.refuseCall(d)
}

// decidePrompt asks the policy about the request. A batch gets the strictest decision that one of
// its requests gets (PRX-22), and is shown under that request's model.
func (x *exchange) decidePrompt() rulebook.Decision {
	if x.kind != kindBatch || len(x.q.batch) == 0 {
		return x.reserveOne(x.decideOne(&x.q), func(d rulebook.Decision) rulebook.Decision { return x.ifSeen(&x.q, d) })
	}
	var all []rulebook.Decision
	var about []*request
	for _, params := range x.q.batch {
		q := x.batched(params)
		all, about = append(all, x.decideOne(q)), append(about, q)
	}
	return x.reserve(all, func(all []rulebook.Decision) (worst rulebook.Decision) {
		for i, d := range all {
			d = x.ifSeen(about[i], d)
			if i == 0 || severity[d.Action] > severity[worst.Action] {
				worst, x.q.model = d, about[i].model
			}
		}
		return worst
	})
}

// ifSeen is a decision about a request, or that a person decides: a rule depends on what the conversation holds, and we
// have not seen that.
func (x *exchange) ifSeen(q *request, d rulebook.Decision) rulebook.Decision {
	if d.Action == policy.Allow && q.thread.unknown && x.rules.continued != "" {
		requirePerson(&d, x.rules.continued, x.rules.layer,
			"This continues a conversation that the provider keeps and Signalbox has not seen, so the rule "+
				x.rules.continued+" cannot be checked against what came before.")
	}
	return d
}

// decideOne asks the policy about one request, with the tools of the conversation that it continues.
// If we have not seen that conversation, and a rule depends on what it holds, a person decides
// (PRX-23, decidePrompt). How much is decoded for the event depends on what rules read.
func (x *exchange) decideOne(q *request) rulebook.Decision {
	if q.thread.continues != "" {
		tools, known := x.p.threadTools(x.r.Context(), x.who.ID, q.thread.continues)
		if known {
			q.tools = append(q.tools, tools...)
		}
		q.thread.unknown = !known
	}
	e := policy.Event{
		Point: policy.OnPrompt, Protocol: Name, Kind: q.kind, Provider: q.provider, Model: q.model,
		Project: x.project, Run: x.run,
	}
	if x.rules.prompt {
		e = q.event(x.project, x.run)
	}
	if x.rules.text {
		e.Text = form.Prompt(q.body)
	}
	x.estimate(&e, q)
	x.named.Into(&e)
	d := x.p.core.Book.Decide(x.r.Context(), x.who, e)
	x.of = d.Record.Behalf()
	return d
}

// estimate adds to an event what the request may cost at most (PRX-56).
func (x *exchange) estimate(e *policy.Event, q *request) {
	var u price.Usage
	var c price.Cost
	switch {
	case q.kind != kindBatch:
		u, c = x.p.meter.AtMost(x.provider, q.atMost(int64(len(q.body))), "")
	case q != &x.q: // one of a batch
		u, c = x.p.meter.AtMost(x.provider, q.atMost(int64(len(q.body))), price.TierBatch)
	default:
		d, err := x.batchDue()
		if err != nil { // the file cannot be looked up, so it is taken for one that was not seen
			d = x.p.meter.Unseen(x.provider)
		}
		u, c, e.Model = d.Usage, d.Cost, d.Model
	}
	e.EstimateTokens, e.EstimateUSD, e.Unpriced = u.Tokens(), float64(c.Nanos)/1e9, c.Unpriced()
}

// takeReserve takes over what is reserved for the call, which ends with its record.
func (x *exchange) takeReserve(r *rulebook.Reservation) {
	if x.record.Reserve = ""; r != nil {
		x.record.Reserve = r.ID
	}
}

// refuseCall records a decision that is not an approval, and answers with it. The record comes first:
// a client must not know of a decision that the ledger does not (PRX-46).
func (x *exchange) refuseCall(d rulebook.Decision) error {
	if !d.Recorded {
		if err := x.recordDecision(d); err != nil {
			return err
		}
	}
	if d.Action == policy.Defer && !x.out.committed {
		f := newFailure(http.StatusTooManyRequests, d.Reason)
		f.retry = d.RetrySeconds()
		x.writeFailure(f)
		return nil
	}
	return x.answerRejected("", d.Reason)
}

// maxRecorded is how many bytes of a request the record of a decision keeps. A gate has the whole
// request as its digest.
const maxRecorded = 64 << 10

// maxCallRecorded is the same of the arguments of a tool call, which the record has as text and as data.
const maxCallRecorded = 4 << 20

// decisionEntry is the entry of a decision. A large request is cut to the beginning of its text, and
// its payload is left out. Call it while the request is in memory.
func (x *exchange) decisionEntry(d rulebook.Decision) ledger.Event {
	d.Record.Event = x.cut(*d.Record.Event)
	return d.Entry(x.who, x.fp, x.trace())
}

// cut is an event as the record of its decision keeps it.
func (x *exchange) cut(e policy.Event) *policy.Event {
	if e.Point == policy.OnPrompt && e.Text == "" {
		e.Text = form.Prompt(x.q.body)
	}
	if e.Point == policy.OnPrompt && len(x.q.body) > maxRecorded {
		e.Fill, e.Payload = nil, nil
		e.Text = strings.ToValidUTF8(e.Text[:min(len(e.Text), maxRecorded)], "")
	}
	if e.Point == policy.OnToolCall && len(e.Text) > maxCallRecorded {
		e.Fill, e.Arguments = nil, nil
		e.Text = strings.ToValidUTF8(e.Text[:maxCallRecorded], "")
	}
	e.Complete()
	return &e
}

// recordDecision writes a decision to the ledger and waits for it. It is not interrupted when the client goes away.
func (x *exchange) recordDecision(d rulebook.Decision) error {
	return x.p.appendNow(context.WithoutCancel(x.r.Context()), x.decisionEntry(d))
}
