package proxy

import (
	"bytes"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
)

// forward sends the request to the provider and deals with the reply. An approval is to be
// waited for.
func (x *exchange) forward() (*gate.Approval, error) {
	x.accept()
	body := x.q.body
	x.q.body, x.sent = nil, true // a call that is held does not hold it
	if x.form == nil {
		x.header.Set("Accept-Encoding", "identity") // of a batch, which may be rewritten
	}
	res, cancel, err := x.call(bytes.NewReader(body), int64(len(body)))
	defer cancel()
	if err != nil {
		x.note.Status = http.StatusBadGateway
		x.record(form.Facts{})
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	x.note.Status = res.StatusCode
	switch {
	case res.StatusCode >= http.StatusMultipleChoices || res.StatusCode == http.StatusNoContent:
		defer x.record(form.Facts{})
		if x.out.committed { // it was held before it was sent
			x.fail(failure{kind: errorKind(res.StatusCode), message: "The provider answered with the status " + res.Status + "."})
			return nil, nil
		}
		return nil, x.copy(res)
	case x.form == nil && x.vaulted:
		defer x.record(form.Facts{})
		return nil, x.ownLinks(res)
	case x.form == nil:
		defer x.record(form.Facts{})
		return nil, x.copy(res)
	case isEvents(res.Header):
		return x.stream(res)
	}
	return x.whole(res)
}

// whole deals with a reply that is no stream. One that cannot hold a call goes on before it is
// read for what it took.
func (x *exchange) whole(res *http.Response) (*gate.Approval, error) {
	raw, err := readReply(res)
	if err != nil {
		x.record(form.Facts{})
		return nil, err
	}
	text, err := plain(res.Header, raw)
	var about form.Facts
	defer func() { x.record(about) }()
	if !x.rules.tools && (err == nil || !x.out.committed) || err == nil && isJSON(res.Header) && !x.form.MayCall(text) && form.IsWhole(text) {
		x.give(res, raw, text)
		about, _, _ = x.form.Reply(text)
		return nil, nil
	}
	var calls []form.Call
	if err == nil {
		about, calls, err = x.form.Reply(text)
	}
	if err == nil && !isJSON(res.Header) {
		err = &gatewayError{"it is no JSON"}
	}
	if err != nil {
		return nil, &gatewayError{"The provider's reply cannot be read, and so not be judged: " + fault.From(err).Message}
	}
	var said ruling
	x.judge(x.r.Context(), calls, &said)
	switch {
	case said.refusal != nil:
		return nil, x.refuse(*said.refusal)
	case len(said.gates) > 0:
		landed := x.takeOff()
		k := &kept{Status: res.StatusCode, Header: storedHeader(res.Header), Body: raw}
		return x.withhold(said.gates, k, landed)
	}
	x.give(res, raw, text)
	return nil, nil
}

// give gives a reply on. text is without its coding.
func (x *exchange) give(res *http.Response, raw, text []byte) {
	if !x.out.committed {
		x.reply(res.StatusCode, res.Header, len(raw))
	} else if res.Header.Get("Content-Encoding") != "" {
		raw = text // the status that was sent says nothing of a coding
	}
	_ = x.out.write(raw, true)
}

// withhold opens the gate of a reply.
func (x *exchange) withhold(gates []gated, k *kept, landed func()) (*gate.Approval, error) {
	defer landed()
	spec, ok := strictest(gates)
	if !ok {
		d := gates[0].decision
		d.Reason = "The rules " + gates[0].decision.Rule + " and others ask different people about this reply, and nobody may decide all of it. It is refused."
		d.Record.Then, d.Record.Reason = policy.Block, d.Reason
		d.Action = policy.Block
		return nil, x.refuse(d)
	}
	return x.openGate(policy.OnToolCall, gates, x.toolOpening(gates, k.Body[k.Withheld:]), spec, k)
}
