package proxy

import (
	"bytes"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/proxy/form"
)

// forwardRequest sends the request to the provider and deals with the reply. An approval is to be
// waited for.
func (x *exchange) forwardRequest() (*gate.Approval, error) {
	x.setAcceptEncoding()
	body := x.q.body
	x.q.body, x.sent = nil, true // a call that is held does not hold it
	if x.form == nil {
		x.header.Set("Accept-Encoding", "identity") // of a batch, which may be rewritten
	}
	res, cancel, err := x.callProvider(bytes.NewReader(body), int64(len(body)))
	defer cancel()
	if err != nil {
		x.note.Status = http.StatusBadGateway
		x.recordCall(form.Facts{})
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	x.note.Status = res.StatusCode
	switch {
	case res.StatusCode >= http.StatusMultipleChoices || res.StatusCode == http.StatusNoContent:
		defer x.recordCall(form.Facts{})
		if x.out.committed { // it was held before it was sent
			x.writeFailure(failure{kind: errorKind(res.StatusCode), message: "The provider answered with the status " + res.Status + "."})
			return nil, nil
		}
		return nil, x.copyReply(res)
	case x.form == nil && x.vaulted:
		defer x.recordCall(form.Facts{})
		return nil, x.rewriteLinks(res)
	case x.form == nil:
		defer x.recordCall(form.Facts{})
		return nil, x.copyReply(res)
	case isEvents(res.Header):
		return x.relayStream(res)
	}
	return x.judgeReply(res)
}

// judgeReply deals with a reply that is no stream. One that cannot hold a call goes on before it is
// read for what it took.
func (x *exchange) judgeReply(res *http.Response) (*gate.Approval, error) {
	raw, err := readReply(res)
	if err != nil {
		x.recordCall(form.Facts{})
		return nil, err
	}
	text, err := plain(res.Header, raw)
	var about form.Facts
	defer func() { x.recordCall(about) }()
	if !x.rules.tools && (err == nil || !x.out.committed) || err == nil && isJSON(res.Header) && !x.form.MayCall(text) && form.IsWhole(text) {
		x.passReply(res, raw, text)
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
	x.judgeCalls(x.r.Context(), calls, &said)
	switch {
	case said.refusal != nil:
		return nil, x.refuseCall(*said.refusal)
	case len(said.gates) > 0:
		opened := x.announceGate()
		k := &kept{Status: res.StatusCode, Header: storedHeader(res.Header), Body: raw}
		return x.withholdReply(said.gates, k, opened)
	}
	x.passReply(res, raw, text)
	return nil, nil
}

// passReply gives a reply on. text is without its coding.
func (x *exchange) passReply(res *http.Response, raw, text []byte) {
	if !x.out.committed {
		x.writeHeader(res.StatusCode, res.Header, len(raw))
	} else if res.Header.Get("Content-Encoding") != "" {
		raw = text // the status that was sent says nothing of a coding
	}
	_ = x.out.write(raw, true)
}
