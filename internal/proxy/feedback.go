package proxy

import (
	"context"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
)

// told is the body of proxy.told: the model hears that its calls were rejected. Its subject is the gate.
type told struct {
	Call   string `json:"call"`   // the fingerprint
	Digest string `json:"digest"` // of the request that says so
}

// mostTold is how often the model hears of a rejection in one call. After that the client does.
const mostTold = 5

// tellModel gives the rejection of a reply's calls to the model, as their error results, and passes on
// what the model says then (PRX-52). It is false if that cannot be done, so that the client is told:
// the agent's settings do not say so, the gate was about the request, the policy does not simply
// allow the request, or the calls have no form for a result. The reply may need a gate again, which
// takes the place of this one.
func (x *exchange) tellModel(g *gate.Gate) (next *gate.Approval, done bool, err error) {
	if !x.set.Feedback || x.form == nil || x.asked == nil || x.told == mostTold || x.out.committed ||
		g.ActionDigest == digest(x.asked) {
		return nil, false, nil
	}
	body, err := x.followUp(g)
	if err != nil {
		return nil, false, nil //nolint:nilerr // the client is told instead
	}
	x.q = request{form: x.form, kind: x.kind, provider: x.provider, body: body}
	if err := x.q.read(x.rules.messages); err != nil {
		return nil, true, err // cannot be: we have written it
	}
	x.asked, x.past = body, g.ID
	x.told++
	x.record.ToolCalls, x.record.ToolsDecided, x.record.Allowed = 0, 0, 0
	d := x.decidePrompt()
	if d.Action != policy.Allow {
		return nil, false, nil
	}
	x.takeReserve(d.Record.Reserve)
	if x.record.Decided = d.Recorded; !d.Recorded {
		x.record.Allowed++
	}
	err = x.p.appendNow(context.WithoutCancel(x.r.Context()), ledger.Event{
		Workspace: x.who.Workspace, Kind: kindTold, Actor: "system", Subject: g.ID, Trace: x.trace(),
		Body: told{x.fp, digest(body)},
	})
	if err != nil {
		x.recordUnsent()
		return nil, true, err
	}
	next, err = x.forwardRequest()
	return next, true, err
}

// followUp is the request that tells the model.
func (x *exchange) followUp(g *gate.Gate) ([]byte, error) {
	k, err := x.keptReply(g)
	if err != nil {
		return nil, err
	}
	reply, err := x.whole(k)
	if err != nil {
		return nil, err
	}
	return x.form.Follow(x.asked, reply, g.Outcome())
}

// whole is a kept reply as one that is no stream, and not compressed.
func (x *exchange) whole(k *kept) ([]byte, error) {
	reply, err := decompress(k.Header, k.Body)
	if err == nil && form.IsEvents(k.Header) {
		reply, err = x.form.Whole(reply)
	}
	return reply, err
}
