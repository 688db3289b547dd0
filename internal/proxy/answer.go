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

// failure is an error of ours, to be written in the provider's form. status counts only if none was
// sent yet.
type failure struct {
	status  int
	kind    string // the error type; see form.ErrorKind
	message string
	gate    string // the id of the gate that the call waits for, or that has ended it; "" for none
	retry   int    // seconds after which to try again; 0 for never
}

// newFailure is a failure with the error type of its status.
func newFailure(status int, message string) failure {
	return failure{status: status, kind: form.ErrorKind(status), message: message}
}

// failureOf makes a failure of any error. The text of an error that is not meant for callers is
// replaced (fault.From).
func failureOf(err error) failure {
	if b, ok := errors.AsType[*gatewayError](err); ok {
		return failure{status: http.StatusBadGateway, kind: "api_error", message: b.text}
	}
	e := fault.From(err)
	f := newFailure(e.Code.Status(), e.Message)
	if seconds, ok := e.Details[wire.RetryAfter].(int); ok {
		f.retry = seconds
	}
	return f
}

// write answers with the failure. SDKs retry several statuses by themselves; a refusal says that it
// will not change (PRX-51).
func (f failure) write(w http.ResponseWriter, provider string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch {
	case f.retry > 0:
		h.Set("Retry-After", strconv.Itoa(f.retry))
		h.Set("X-Should-Retry", "true")
	case f.status < http.StatusInternalServerError || f.gate != "":
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

// answerAccepted answers an async call as the document has it: 202 with the gate (PRX-37).
func (x *exchange) answerAccepted(gateID string) {
	x.out.committed = true
	x.pendingHeader(gateID)
	h := x.w.Header()
	h.Set("Retry-After", "30")
	h.Set("Content-Type", "application/json")
	x.w.WriteHeader(http.StatusAccepted)
	_, _ = x.w.Write(form.JSON(form.Object{"status": gate.Pending, "gate_id": gateID, "message": gate.Awaiting}))
}

// pendingHeader sets the headers of an answer that is not the final one (PRX-33).
func (x *exchange) pendingHeader(gateID string) {
	h := x.w.Header()
	h.Set("X-Amp-Gate-Id", gateID)
	h.Set("X-Amp-Status", string(gate.Pending))
	h.Set("Location", x.p.core.BaseURL+"/amp/gates/"+gateID)
	h.Del("Content-Length")
	h.Del("Content-Encoding")
}

// answerPending answers a call that cannot be held any longer with an error that its SDK answers by
// sending it again after the pause, which joins the same gate (PRX-33).
func (x *exchange) answerPending(gateID string, pause int) {
	f := newFailure(http.StatusServiceUnavailable,
		gate.Awaiting+" ("+gateID+"). Send the same request again to wait for the decision.")
	f.gate, f.retry = gateID, pause
	if !x.out.committed {
		x.pendingHeader(gateID)
	}
	x.writeFailure(f)
}

// answerRefused answers a call whose gate has ended without an approval: nobody decided in time, or a
// person has rejected it (PRX-34).
func (x *exchange) answerRefused(g *gate.Gate) error {
	if g.Cause == gate.ByExpiry {
		f := newFailure(http.StatusGatewayTimeout, g.Outcome())
		f.gate = g.ID
		x.writeFailure(f)
		return nil
	}
	return x.answerRejected(g.ID, g.Outcome())
}

// answerRejected answers a call that a rule or a person has refused: with an error or, if the agent's
// settings say so, with a message (PRX-34, PRX-35). gateID is "" if a rule decided.
func (x *exchange) answerRejected(gateID, why string) error {
	if !x.set.SoftReject || x.form == nil {
		f := newFailure(http.StatusForbidden, why)
		f.gate = gateID
		x.writeFailure(f)
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
	return x.writeMessage(why, gateID)
}

// writeMessage answers with a text of ours as a message in the provider's form, or ends a stream with
// it. The message has an id of its own. If the provider keeps the conversation and the stream has
// already shown the provider's id, it ends with an error instead: under that id the provider knows
// another reply, and the client would continue from there (PRX-36).
func (x *exchange) writeMessage(text, gateID string) error {
	begun := x.out.committed
	// PRX-36. A stream shows its id in its first event, before any call, so a known id is out.
	if begun && x.q.thread.kept && x.out.machine != nil && x.out.machine.Facts().ID != "" {
		x.writeFailure(failure{kind: form.ErrorKind(http.StatusForbidden), message: text})
		return nil
	}
	var body []byte
	switch {
	// A stream that has begun is continued; one that has not is made as a whole.
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
		x.w.WriteHeader(http.StatusOK)
	}
	_ = x.out.write(body, true)
	return nil
}

// writeFailure answers with an error of ours, or ends a stream with it. JSON whose status is out has
// no form for an error; its connection is broken off, which SDKs report (PRX-13).
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
