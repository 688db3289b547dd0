// Package fault is the one error type of Signalbox.
//
// An error that reaches a person or a model has a stable code, a sentence that
// says what to do about it, and perhaps the field it is about. What only the log
// may see (a driver's words, a path, an address) is the cause, and is never shown
// to the caller.
//
// Make an error where the reason is known, wrap it once with what was being done, and either
// return it or log it. Programs compare codes (Is), never texts. The package imports nothing
// of ours.
package fault

import (
	"errors"
	"fmt"
)

// Error is an error that callers may see. New and Wrap make it; From turns any other error
// into one. Everything but Cause is safe to show, so nothing secret may go into Message or
// Details.
type Error struct {
	Code    Code
	Message string         // what was wrong and what a right value looks like
	Field   string         // the field it is about, as the caller spelt the path
	Details map[string]any // more for a program to read
	Cause   error          // for the log
}

// New makes an error with a code and a sentence for the caller.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap is New with a cause, which goes to the log and not to the caller.
func Wrap(cause error, code Code, format string, args ...any) *Error {
	e := New(code, format, args...)
	e.Cause = cause
	return e
}

// About names the field that the error is about.
func (e *Error) About(field string) *Error {
	e.Field = field
	return e
}

// With adds a detail for programs. Details are encoded as JSON.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[key] = value
	return e
}

// Error is the text for the log: the public sentence, then the cause.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return e.Message + " (" + e.Cause.Error() + ")"
}

// Unwrap lets errors.Is and errors.As see the cause.
func (e *Error) Unwrap() error { return e.Cause }

// From finds the public error inside err. An error without one becomes internal, with err as
// its cause: the caller learns that the mistake is ours, and the log what it was.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Wrap(err, Internal, "Something went wrong inside Signalbox. The server's log has the cause.")
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}
