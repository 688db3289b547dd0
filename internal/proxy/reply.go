package proxy

import (
	"bytes"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/proxy/form"
)

// forwardRequest sends the request to the provider and passes the reply on. If it returns an
// approval, the reply waits for its gate.
func (x *exchange) forwardRequest() (*gate.Approval, error) {
	x.setAcceptEncoding()
	body := x.q.body
	x.q.body, x.sent = nil, true // a call that is held does not keep it in memory
	if x.form == nil {
		x.header.Set("Accept-Encoding", "identity") // of a batch, whose links may be rewritten
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
		if x.out.committed { // a status was sent while the call was held
			x.writeFailure(failure{
				kind:    errorKind(res.StatusCode),
				message: "The provider answered with the status " + res.Status + ".",
			})
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

// judgeReply judges a reply that is not a stream. If it cannot hold a tool call, it is passed on
// before its usage is read.
func (x *exchange) judgeReply(res *http.Response) (*gate.Approval, error) {
	raw, err := readReply(res)
	if err != nil {
		x.recordCall(form.Facts{})
		return nil, err
	}
	text, err := plain(res.Header, raw)
	var about form.Facts
	defer func() { x.recordCall(about) }()
	if !x.rules.tools && (err == nil || !x.out.committed) ||
		err == nil && isJSON(res.Header) && !x.form.MayCall(text) && form.IsWhole(text) {
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

// passReply passes a reply on. text is the decoded body.
func (x *exchange) passReply(res *http.Response, raw, text []byte) {
	if !x.out.committed {
		x.writeHeader(res.StatusCode, res.Header, len(raw))
	} else if res.Header.Get("Content-Encoding") != "" {
		raw = text // the header that was sent names no encoding
	}
	_ = x.out.write(raw, true)
}
