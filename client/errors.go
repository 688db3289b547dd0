package client

import (
	"encoding/json" // the client imports the standard library alone
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Rejected is the decision of an operator, or of one of their rules, against an action. It is final: ask
// again only with another proposal, under a new run or request.
type Rejected struct { //nolint:errname // it is a decision, and reads as one: *client.Rejected
	GateID  string // "" when a rule decided and no gate was opened
	Message string // with the operator's note, or the rule's reason
}

func (e *Rejected) Error() string { return "rejected: " + e.Message }

// Error is a refusal of the server, or of something on the way to it. Nothing was changed. Code is
// stable and may be switched on; Message is for people.
type Error struct {
	Status     int               // of HTTP
	Code       string            // a stable word such as invalid_payload
	Message    string            // says what to do
	Field      string            // the field that is wrong, if one is
	Fields     map[string]string // what is wrong with each field, if several are
	RetryAfter time.Duration     // 0 when the server does not say

	foreign bool // not in the server's error form, so perhaps from a proxy
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
	if len(e.Fields) > 1 {
		for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
			text += "\n  " + name + ": " + e.Fields[name]
		}
	}
	return text
}

// unreadableError is the error of an answer that cannot be understood. It counts as no answer and is retried.
type unreadableError struct{ why string }

func (e *unreadableError) Error() string { return e.why }

// longestRetryAfter limits the pause that a server can ask for.
const longestRetryAfter = time.Minute

// readError reads an answer that is neither 200 nor 202.
func readError(r reply) *Error {
	e := &Error{Status: r.code}
	if seconds, err := strconv.Atoi(r.header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = min(time.Duration(min(seconds, 3600))*time.Second, longestRetryAfter)
	}
	var form struct {
		Error   string `json:"error"`
		Message string `json:"message"`
		Field   string `json:"field"`
		Details struct {
			Fields map[string]string `json:"fields"`
		} `json:"details"`
	}
	if json.Unmarshal(r.body, &form) == nil && form.Error != "" && form.Message != "" {
		e.Code, e.Message, e.Field, e.Fields = form.Error, form.Message, form.Field, form.Details.Fields
		return e
	}
	e.foreign, e.Code = true, "not_understood"
	e.Message = "this is not an answer of a Signalbox server; check the address"
	if to := r.header.Get("Location"); r.code >= 300 && r.code < 400 && to != "" {
		e.Message = fmt.Sprintf("the server redirects to %.200q; use that address, "+
			"since the key is not sent to another host", to)
	}
	return e
}

// temporary reports whether the same call may be answered differently later. What the server itself
// refuses stays refused; an error from something on the way may pass, except that of a wrong key.
func temporary(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return true
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		return false
	}
	return e.Status >= 500 || e.Status >= 400 && e.foreign
}
