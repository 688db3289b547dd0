package proxy

import (
	"context"
	"net/http"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/rulebook"
)

// askPolicy asks the policy about the request, and sends it on or refuses it. If it returns an
// approval, the call waits for its gate.
func (x *exchange) askPolicy() (*gate.Approval, error) {
	if x.kind == "" { // a reply that the provider has stored is only fetched
		if x.who.Suspended {
			return nil, fault.New(fault.AgentSuspended, "This agent is suspended. An operator can resume it.")
		}
		return x.forwardRequest()
	}
	d := x.decidePrompt()
	x.note.Policy, x.note.Rule = d.Record.Policy, d.Rule
	switch d.Action {
	case policy.Allow:
		if len(d.Shadow) > 0 {
			x.p.recorder.append(x.decisionEntry(d))
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
// its calls gets.
func (x *exchange) decidePrompt() rulebook.Decision {
	if x.kind != "batch" {
		return x.decideOne(&x.q)
	}
	var worst rulebook.Decision
	for i, params := range x.q.batch {
		one := request{form: form.Messages, kind: x.kind, provider: x.provider, body: params}
		if err := one.read(x.rules.said); err != nil {
			one.model = "unreadable"
		}
		x.q.model = one.model
		d := x.decideOne(&one)
		if i == 0 || severity[d.Action] > severity[worst.Action] {
			worst = d
		}
	}
	if len(x.q.batch) == 0 {
		return x.decideOne(&x.q)
	}
	return worst
}

// decideOne asks the policy about one request. If it continues a conversation that we have not
// seen, and a rule depends on what came before, a person decides.
func (x *exchange) decideOne(q *request) rulebook.Decision {
	known := true
	if q.thread.continues != "" {
		var tools []string
		if tools, known = x.p.threadTools(x.r.Context(), x.who.ID, q.thread.continues); known {
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
		e.Text = promptText(q.body)
	}
	d := x.p.core.Book.Decide(x.r.Context(), x.who, e)
	if d.Action == policy.Allow && !known && x.rules.continued != "" {
		requirePerson(&d, x.rules.continued,
			"This continues a conversation that the provider keeps and Signalbox has not seen, so the rule "+x.rules.continued+
				" cannot be checked against what came before.")
	}
	return d
}

// refuseCall records a decision that is not a yes, and answers with it.
func (x *exchange) refuseCall(d rulebook.Decision) error {
	if err := x.recordDecision(d); err != nil {
		return err
	}
	if d.Action == policy.Defer && !x.out.committed {
		x.writeFailure(failure{
			status: http.StatusTooManyRequests, kind: errorKind(http.StatusTooManyRequests), message: d.Reason,
			retry: d.RetrySeconds(),
		})
		return nil
	}
	return x.answerRejected("", d.Reason)
}

// maxRecorded is how much of a request is kept in the record of a decision about it.
const maxRecorded = 64 << 10

// decisionEntry is the entry of a decision, without what is too large to be kept twice.
func (x *exchange) decisionEntry(d rulebook.Decision) ledger.Event {
	e := d.Record.Event
	if e.Point == policy.OnPrompt && e.Text == "" {
		e.Text = promptText(x.q.body)
	}
	if e.Point == policy.OnPrompt && len(x.q.body) > maxRecorded {
		e.Fill, e.Payload = nil, nil
		e.Text = strings.ToValidUTF8(e.Text[:min(len(e.Text), maxRecorded)], "")
	}
	e.Complete() // while the request is still in memory
	return d.Entry(x.who, x.fp, x.trace())
}

// recordDecision writes a decision down.
func (x *exchange) recordDecision(d rulebook.Decision) error {
	return x.p.appendNow(context.WithoutCancel(x.r.Context()), x.decisionEntry(d))
}
