// Package failure writes errors in the form of the messaging protocol: its codes, its members, and the
// marks by which clients of every generation and other providers know a refusal (MSG-9).
//
// It knows errors and answers, and nothing of messages. Which call fails in which form is for its callers.
package failure

import (
	"net/http"
	"strconv"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Code is the protocol's word for a code of ours. Codes that it does not name are sent
// as they are: clients print them.
func Code(c fault.Code) fault.Code {
	switch c {
	case fault.Unauthenticated:
		return "unauthorized"
	case fault.InvalidPayload:
		return fault.InvalidRequest
	case fault.TooLarge:
		return "request_too_large"
	case fault.Internal, fault.UnrecordedWrite:
		return "internal_error"
	default:
		return c
	}
}

// document is the protocol's form of an error. MSG-9: suggestions and retry_after stand at the
// top and in details, since clients of different generations look in different places.
type document struct {
	Error       fault.Code     `json:"error"`
	Message     string         `json:"message"`
	Field       string         `json:"field,omitempty"`
	Details     map[string]any `json:"details,omitempty"`
	Suggestions any            `json:"suggestions,omitempty"`
	Accepted    *bool          `json:"accepted,omitempty"` // false, for other providers
	RetryAfter  any            `json:"retry_after,omitempty"`
}

// Text is the JSON text of an error in the protocol's form.
func Text(err error) []byte { return text(fault.From(err), nil) }

// text is the body of an error; accepted is nil for everybody but other providers.
func text(e *fault.Error, accepted *bool) []byte {
	// Messages may quote what a client sent, which need not be valid UTF-8.
	body := document{
		Code(e.Code), strings.ToValidUTF8(e.Message, "?"), strings.ToValidUTF8(e.Field, "?"),
		e.Details, e.Details["suggestions"], accepted, e.Details[wire.RetryAfter],
	}
	out, err := wire.Marshal(body)
	if err != nil { // a detail that is no JSON must not hide the error
		body.Details, body.Suggestions, body.RetryAfter = nil, nil, nil
		out, _ = wire.Marshal(body) // valid texts alone always can
	}
	return out
}

// Fail answers with an error in the protocol's form.
func Fail(w http.ResponseWriter, err error) { failWith(w, fault.From(err), nil) }

// failWith sets status and Retry-After as every other call does, and the body in our form.
func failWith(w http.ResponseWriter, e *fault.Error, accepted *bool) {
	if _, limited := e.Details[wire.RetryAfter]; limited ||
		e.Code.Status() == http.StatusServiceUnavailable && e.Code != fault.OutcomeUnknown {
		w.Header().Set("Retry-After", "1")
		if seconds, ok := e.Details[wire.RetryAfter].(int); ok {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
		}
	}
	_ = wire.Reply(w, e.Code.Status(), wire.Raw(text(e, accepted))) // it is JSON
}

// FailPeer is Fail with "accepted": false, by which other providers know a refusal.
func FailPeer(w http.ResponseWriter, err error) {
	no := false
	failWith(w, fault.From(err), &no)
}
