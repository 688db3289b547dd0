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

// Rejected says that an operator, or a rule of theirs, decided against it.
type Rejected struct { //nolint:errname // it is a decision, and reads as one: *client.Rejected
	GateID  string // "" when a rule decided and no gate was opened
	Message string // with what the operator wrote
}

func (e *Rejected) Error() string { return "rejected: " + e.Message }

// Error is what the server refused a call with.
type Error struct {
	Status     int    // of HTTP
	Code       string // a stable word such as invalid_payload
	Message    string // says what to do
	Field      string // the field that is wrong, if one is
	Fields     map[string]string
	RetryAfter time.Duration // 0 when the server does not say

	foreign bool // not in the server's own form: from something on the way
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

// unclear is an answer that is none.
type unclear struct{ why string }

func (e *unclear) Error() string { return e.why }

// longestRetryAfter bounds for how long a server can send us away.
const longestRetryAfter = time.Minute

// readError reads an answer that is not of a good status.
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
	e.Message = "the answer is not a Signalbox's; check the address of the server"
	if to := r.header.Get("Location"); r.code >= 300 && r.code < 400 && to != "" {
		e.Message = fmt.Sprintf("the server is elsewhere, at %.200q; use its address, the key is not sent on", to)
	}
	return e
}

// temporary reports whether the same call may bring another answer later. What the
// server itself refuses stays refused; what something on the way says may pass.
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
