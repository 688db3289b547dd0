package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
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
	switch d.Action {
	case policy.Allow:
		switch {
		case d.Recorded:
		case len(d.Shadow) > 0:
			x.p.recorder.append(x.decisionEntry(d))
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

// decidedRequest is a request with its decision.
type decidedRequest struct {
	rulebook.Decision
	model string
	known bool // so is the conversation that it continues
}

// decidePrompt asks the policy about the request. A batch gets the strictest decision that one of
// its requests gets (PRX-22), and is shown under that request's model. A request in a batch that
// cannot be read is judged as model "unreadable", without tools. If rules looked at counters the decision
// is written down before anything follows from it; one that cannot be is a refusal.
func (x *exchange) decidePrompt() rulebook.Decision {
	var all []decidedRequest
	if x.kind == "batch" {
		for _, params := range x.q.batch {
			one := request{form: form.Messages, kind: x.kind, provider: x.provider, body: params}
			if err := one.read(x.rules.messages); err != nil {
				one.model = "unreadable"
			}
			all = append(all, x.decideOne(&one))
		}
	}
	if len(all) == 0 {
		all = append(all, x.decideOne(&x.q))
	}
	var worst decidedRequest
	err := rulebook.Settle(all[0].Decision, func(rulebook.Decision) error {
		worst = x.strictestOf(all)
		x.q.model = worst.model
		return x.reserveStrictest(all, &worst.Decision)
	})
	if err != nil {
		refuseUncounted(&worst.Decision, err)
	}
	return worst.Decision
}

// strictestOf is the strictest decision about the requests of a call, the first of several.
func (x *exchange) strictestOf(all []decidedRequest) (worst decidedRequest) {
	for i, one := range all {
		if one.Action == policy.Allow && !one.known && x.rules.continued != "" {
			requirePerson(&one.Decision, x.rules.continued,
				"This continues a conversation that the provider keeps and Signalbox has not seen, so the rule "+x.rules.continued+
					" cannot be checked against what came before.")
		}
		if i == 0 || severity[one.Action] > severity[worst.Action] {
			worst = one
		}
	}
	return worst
}

// reserveStrictest writes the strictest decision down if a rule has looked at counters for any of the requests. The
// decisions about all of them have to hold; with *rulebook.Stale the one that does not is put in its place.
func (x *exchange) reserveStrictest(all []decidedRequest, worst *rulebook.Decision) error {
	if !slices.ContainsFunc(all, func(one decidedRequest) bool { return one.Counted() }) {
		return nil
	}
	worst.Record.Event = x.cut(*worst.Record.Event) // before the transaction
	var exact rulebook.Decision
	at := 0
	err := x.p.core.Ledger.Write(context.WithoutCancel(x.r.Context()), func(tx *ledger.Tx) (err error) {
		for i := range all {
			if _, err := all[i].Recheck(tx); err != nil {
				at = i
				return err
			}
		}
		if exact, err = worst.Recheck(tx); err == nil {
			tx.Append(exact.Entry(x.who, x.fp, x.trace()))
		}
		return err
	})
	if stale, ok := errors.AsType[*rulebook.Stale](err); ok {
		all[at].Decision = stale.Decision
	}
	if err == nil {
		*worst = exact
		worst.Recorded = true
	}
	return err
}

// decideOne asks the policy about one request, with the tools of the conversation that it continues.
// If we have not seen that conversation, and a rule depends on what it holds, a person decides
// (PRX-23, strictestOf). How much is decoded for the event depends on what rules read.
func (x *exchange) decideOne(q *request) decidedRequest {
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
	e.User = x.user
	return decidedRequest{x.p.core.Book.Decide(x.r.Context(), x.who, e), q.model, known}
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
		e.Text = promptText(x.q.body)
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

// recordDecision writes a decision to the ledger and waits for it. It is not interrupted when the
// client goes away.
func (x *exchange) recordDecision(d rulebook.Decision) error {
	return x.p.appendNow(context.WithoutCancel(x.r.Context()), x.decisionEntry(d))
}
