package proxy

import (
	"bytes"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/proxy/form"
)

// forwardRequest sends the request to the provider and passes the reply on, judged if a tool call
// can be in it. If it returns an approval, the reply was withheld and the call has to wait for
// that gate. Every call that was sent is recorded, also if it failed.
func (x *exchange) forwardRequest() (*gate.Approval, error) {
	x.setAcceptEncoding()
	body := x.q.body
	x.q.body, x.sent = nil, true // a call that is held does not keep it in memory
	if x.form == nil {
		x.header.Set("Accept-Encoding", "identity") // a batch, whose links may be rewritten
	}
	res, cancel, err := x.callProvider(bytes.NewReader(body), int64(len(body)))
	defer cancel()
	if err != nil {
		x.record.Status = http.StatusBadGateway
		x.recordCall(form.Facts{})
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	x.record.Status = res.StatusCode
	if isRetried(res.StatusCode) {
		x.returnUse()
	}
	switch {
	// An error of the provider holds no tool call and is passed on as it is, in its own form.
	case res.StatusCode >= http.StatusMultipleChoices || res.StatusCode == http.StatusNoContent:
		defer x.recordCall(form.Facts{})
		return nil, x.copyReply(res)
	// A batch: there is nothing to judge in the answer, but perhaps an address to change.
	case x.form == nil && x.vaulted:
		defer x.recordCall(form.Facts{})
		return nil, x.rewriteLinks(res)
	case x.form == nil:
		defer x.recordCall(form.Facts{})
		return nil, x.copyReply(res)
	case form.IsEvents(res.Header):
		return x.relayStream(res)
	}
	return x.judgeReply(res)
}

// judgeReply judges a reply that is not a stream. A reply that cannot hold a tool call, or that no
// rule looks at, is passed on before its usage is read. A reply that may hold one and cannot be
// read is an error (PRX-19).
//
// A reply without the words of a tool call still has to be complete JSON to be passed on unread:
// of two objects in a row, a client might read the second.
func (x *exchange) judgeReply(res *http.Response) (*gate.Approval, error) {
	raw, err := readReply(res)
	if err != nil {
		x.recordCall(form.Facts{})
		return nil, err
	}
	text, err := decompress(res.Header, raw)
	var about form.Facts
	defer func() { x.recordCall(about) }()
	if !x.rules.tools || err == nil && form.IsJSON(res.Header) && !x.form.MayCall(text) && form.IsCompleteObject(text) {
		x.passReply(res, raw)
		about, _, _ = x.form.Reply(text)
		return nil, nil
	}
	var calls []form.Call
	if err == nil {
		about, calls, err = x.form.Reply(text)
	}
	if err == nil && !form.IsJSON(res.Header) {
		err = &gatewayError{"it is not JSON"}
	}
	if err != nil {
		return nil, &gatewayError{
			"The provider's reply cannot be judged, because it cannot be read: " + fault.From(err).Message,
		}
	}
	var verdict ruling
	x.judgeCalls(x.r.Context(), calls, &verdict)
	switch {
	case verdict.refusal != nil:
		return nil, x.refuseCall(*verdict.refusal)
	case len(verdict.gates) > 0 && len(raw) > maxKept:
		return nil, &gatewayError{"The provider's reply needs a person, and is too large to be kept for one."}
	case len(verdict.gates) > 0:
		opened := x.announceGate()
		k := &kept{Status: res.StatusCode, Header: storedHeader(res.Header), Body: raw}
		return x.withholdReply(verdict.gates, k, opened)
	}
	x.passReply(res, raw)
	return nil, nil
}

// passReply passes a reply on as it arrived.
func (x *exchange) passReply(res *http.Response, raw []byte) {
	x.writeHeader(res.StatusCode, res.Header, len(raw))
	_ = x.out.write(raw, true)
}
