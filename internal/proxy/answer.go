package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/proxy/form"
	"signalbox/internal/wire"
)

// errorKinds are the providers' words for a status.
var errorKinds = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error",
	http.StatusForbidden: "permission_error",
	http.StatusNotFound:  "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:      "rate_limit_error",
	http.StatusUnsupportedMediaType: "invalid_request_error", http.StatusMethodNotAllowed: "invalid_request_error",
}

func errorKind(status int) string {
	if kind := errorKinds[status]; kind != "" {
		return kind
	}
	return "api_error"
}

// failure is a reply of ours that is an error, in the provider's form.
type failure struct {
	status  int
	kind    string
	message string
	gate    string
	retry   int // seconds after which to try again; 0 for never
}

// failureOf is an error of ours as a failure.
func failureOf(err error) failure {
	if b, ok := errors.AsType[*gatewayError](err); ok {
		return failure{status: http.StatusBadGateway, kind: "api_error", message: b.text}
	}
	e := fault.From(err)
	f := failure{status: e.Code.Status(), message: e.Message}
	f.kind = errorKind(f.status)
	if seconds, ok := e.Details[wire.RetryAfter].(int); ok {
		f.retry = seconds
	}
	return f
}

// write answers with the failure.
func (f failure) write(w http.ResponseWriter, provider string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch {
	case f.retry > 0:
		h.Set("Retry-After", strconv.Itoa(f.retry))
	case f.status < http.StatusInternalServerError:
		h.Set("X-Should-Retry", "false")
	}
	body := form.Object{"error": form.OpenAIError(f.kind, f.message)}
	if provider == Anthropic {
		body = form.Object{
			"type": "error", "error": form.Object{"type": f.kind, "message": f.message},
			"request_id": h.Get("X-Request-Id"),
		}
	}
	if f.gate != "" {
		h.Set("X-Amp-Gate-Id", f.gate)
		body["gate_id"] = f.gate
	}
	text := form.JSON(body)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(f.status)
	_, _ = w.Write(text)
}

// sendStatusEarly sends the status 200 before there is a decision, so that the connection stays
// open. The output is locked.
func (x *exchange) sendStatusEarly(gateID string) error {
	x.out.committed = true
	h := x.w.Header()
	h.Set("X-Amp-Gate-Id", gateID)
	h.Set("X-Amp-Status", "pending")
	if x.q.stream && x.form != nil {
		x.out.machine = x.form.Machine()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
	} else {
		h.Set("Content-Type", "application/json")
	}
	x.w.WriteHeader(http.StatusOK)
	return x.out.writeLocked(nil, true)
}

// answerAccepted answers an asynchronous call: 202 with the gate.
func (x *exchange) answerAccepted(gateID string) {
	x.out.committed = true
	x.pendingHeader(gateID)
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	x.w.WriteHeader(http.StatusAccepted)
	_, _ = x.w.Write(form.JSON(form.Object{"status": gate.Pending, "gate_id": gateID, "message": gate.Awaiting}))
}

func (x *exchange) pendingHeader(gateID string) {
	h := x.w.Header()
	h.Set("X-Amp-Gate-Id", gateID)
	h.Set("X-Amp-Status", string(gate.Pending))
	h.Set("Location", x.p.core.BaseURL+"/amp/gates/"+gateID)
	h.Set("Retry-After", "30")
	h.Del("Content-Length")
	h.Del("Content-Encoding")
}

// answerPending answers a call that cannot be held any longer.
func (x *exchange) answerPending(gateID string) error {
	text := gate.Awaiting + " (" + gateID + "). Send the same request again to wait for the decision."
	if !x.out.committed {
		x.pendingHeader(gateID)
	}
	return x.writeMessage(http.StatusAccepted, text, gateID)
}

// answerRejected answers a call that was refused: with an error, or softly with a message.
func (x *exchange) answerRejected(gateID, why string) error {
	hard := failure{status: http.StatusForbidden, kind: errorKind(http.StatusForbidden), message: why, gate: gateID}
	json := x.out.committed && x.out.machine == nil
	if !x.set.SoftReject && !json || x.form == nil {
		x.writeFailure(hard)
		return nil
	}
	if !x.out.committed {
		h := x.w.Header()
		h.Del("Content-Length")
		h.Del("Content-Encoding")
		h.Set("X-Amp-Status", string(gate.Rejected))
		if gateID != "" {
			h.Set("X-Amp-Gate-Id", gateID)
		}
	}
	return x.writeMessage(http.StatusOK, why, gateID)
}

// writeMessage answers with a text of ours as a message in the provider's form, or ends a stream
// with it. If the provider keeps the conversation and the stream has shown the id of a reply, it
// ends with an error instead: under that id the provider knows another reply.
func (x *exchange) writeMessage(status int, text, gateID string) error {
	begun := x.out.committed
	if x.form == nil {
		x.writeFailure(failure{
			status: http.StatusConflict, kind: errorKind(http.StatusBadRequest), message: text, gate: gateID,
			retry: 30,
		})
		return nil
	}
	if begun && x.q.thread.kept && x.out.machine != nil && x.out.machine.Facts().ID != "" {
		x.writeFailure(failure{kind: errorKind(http.StatusForbidden), message: text})
		return nil
	}
	var body []byte
	switch {
	case x.out.machine != nil:
		body = x.out.machine.Ending(text, x.q.model, gateID)
	case x.q.stream:
		body = x.form.Machine().Ending(text, x.q.model, gateID)
	default:
		body = x.form.Message(text, x.q.model, gateID)
	}
	if !begun {
		h := x.w.Header()
		if x.q.stream {
			h.Set("Content-Type", "text/event-stream")
			h.Set("Cache-Control", "no-cache")
		} else {
			h.Set("Content-Type", "application/json")
			h.Set("Content-Length", fmt.Sprint(len(body)))
		}
		x.out.committed = true
		x.w.WriteHeader(status)
	}
	_ = x.out.write(body, true)
	return nil
}

// writeFailure answers with an error of ours, or ends a stream with it. A reply without a form
// for errors, whose status was sent, is broken off.
func (x *exchange) writeFailure(f failure) {
	switch {
	case !x.out.committed:
		x.out.committed = true
		h := x.w.Header()
		h.Del("Content-Length")
		h.Del("Content-Encoding")
		f.write(x.w, x.provider)
	case x.out.machine != nil:
		_ = x.out.write(x.out.machine.Failing(f.kind, f.message), true)
	default:
		panic(http.ErrAbortHandler)
	}
}
