package proxy

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/proxy/form"
)

// forwardRequest sends the request to the provider and passes the reply on, judged if a tool call
// can be in it. If it returns an approval, the reply was withheld and the call has to wait for
// that gate. Every call that was sent is recorded, also if it failed.
func (x *exchange) forwardRequest() (*gate.Approval, error) {
	x.setAcceptEncoding()
	if x.form == nil {
		x.header.Set("Accept-Encoding", "identity") // a batch, whose links may be rewritten
	}
	if err := x.prepare(); err != nil {
		x.recordUnsent()
		return nil, err
	}
	body := x.q.body
	x.q.body, x.q.batch, x.sent = nil, nil, true // a call that is held does not keep it in memory
	res, cancel, err := x.askProvider(body)
	defer cancel()
	if err != nil {
		x.record.Status, x.broke = http.StatusBadGateway, true
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
		x.free = true
		defer x.recordCall(form.Facts{})
		return nil, x.copyReply(res)
	case x.kind == kindEmbeddings:
		return nil, x.passEmbeddings(res)
	// A batch: there is nothing to judge in the answer, but perhaps an address to change.
	case x.form == nil:
		return nil, x.passBatch(res)
	case form.IsEvents(res.Header):
		return x.relayStream(res)
	}
	return x.judgeReply(res)
}

// prepare does what has to be done before a request is sent: what a batch may cost is worked out while it is in
// memory, and that a run is counted here is on disk.
func (x *exchange) prepare() error {
	x.bytes, x.sentAt, x.free, x.broke = int64(len(x.q.body)), time.Now(), false, false
	if x.kind == kindBatch && !x.passesBatch() {
		if _, err := x.batchDue(); err != nil {
			return err
		}
	}
	if x.run == "" || x.kind == "" {
		return nil
	}
	return x.p.meter.Begin(x.r.Context(), x.who, x.run, x.trace())
}

// silentFor is how long a provider is not asked for usage that has refused to be (PRX-53).
const silentFor = time.Hour

// askProvider sends a request. The usage of a chat completion that is streamed comes only if it is asked for, so it is
// (PRX-53). A provider that refuses that gets the request as it was, and is remembered.
func (x *exchange) askProvider(body []byte) (*http.Response, context.CancelFunc, error) {
	asked := body
	if x.strip = false; x.form == form.Chat && x.kind != "" && !x.p.isSilent(x.provider) {
		asked, x.strip = form.AskForUsage(body)
	}
	res, end, err := x.callProvider(bytes.NewReader(asked), int64(len(asked)))
	if err != nil || !x.strip || res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusUnprocessableEntity {
		return res, end, err
	}
	_ = res.Body.Close()
	end()
	x.strip = false
	res, end, err = x.callProvider(bytes.NewReader(body), int64(len(body)))
	if err == nil && res.StatusCode < http.StatusMultipleChoices {
		x.p.mu.Lock()
		x.p.silent[x.provider] = x.p.core.Now().Add(silentFor)
		x.p.mu.Unlock()
	}
	return res, end, err
}

// isSilent reports whether a provider is not to be asked for usage.
func (p *Proxy) isSilent(provider string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	until, known := p.silent[provider]
	return known && p.core.Now().Before(until)
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
		x.broke = true
		x.recordCall(form.Facts{})
		return nil, err
	}
	text, err := decompress(res.Header, raw)
	var about form.Facts
	defer func() {
		if about.Text == 0 { // it cannot be read
			about.Text = int64(len(raw))
		}
		x.recordCall(about)
	}()
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
