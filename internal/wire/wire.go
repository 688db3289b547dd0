// Package wire is the edge: strict JSON in, plain JSON out, and the one error
// form that every HTTP path without a form of its own answers with. It also has what all
// routes share: pages and cursors, waiting, streams, scopes and secrets.
//
// # Which function reads what
//
// Unmarshal and ReadJSON read what agents and operators send us: unknown and duplicate
// fields are errors. UnmarshalPart reads JSON that we wrote ourselves. UnmarshalForeign reads
// what other programs wrote for others. Data and ForeignData read into maps, with the digits
// of numbers kept. Members and Fields read a document member by member, for protocols that
// report every mistake at once.
//
// It knows HTTP and JSON and nothing of agents, ledgers or policies. Received bytes are
// passed on unchanged; nothing here re-serialises them, since somebody may have signed them.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/internal/fault"
)

// Handler answers a request or returns the error to answer with, never both.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Raw is JSON that is passed through byte for byte.
type Raw = jsontext.Value

// Read returns the body, which may not be larger than limit bytes. Once it has arrived the
// listener's read timeout is lifted, since answering may take longer.
func Read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidPayload, "The body ended before it was complete. Send it again.")
	}
	return body, nil
}

// Fits refuses a body that did not come through Read and is larger than limit bytes.
func Fits(body []byte, limit int64) error {
	if int64(len(body)) > limit {
		return tooLarge(limit)
	}
	return nil
}

func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, "The body is larger than %d bytes, which is the most this call takes.", limit)
}

// IsJSON refuses a body that is not sent as JSON.
func IsJSON(r *http.Request) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return fault.New(fault.UnsupportedMedia, "Send the body as JSON, with the header Content-Type: application/json.")
	}
	return nil
}

// ReadJSON reads one JSON object from the request into v, which is a pointer to a
// struct. Unknown and repeated fields, wrong types and broken UTF-8 are errors
// that say where they are.
func ReadJSON(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	if err := IsJSON(r); err != nil {
		return err
	}
	body, err := Read(w, r, limit)
	if err != nil {
		return err
	}
	return Unmarshal(body, v)
}

// Unmarshal decodes strictly and explains what is wrong in terms of v's fields. A
// field that is null counts as absent. Texts with a NUL are refused.
func Unmarshal(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fault.New(fault.InvalidPayload, "The body is empty. Send a JSON object%s.", withFields(v))
	}
	if err := json.Unmarshal(data, v, json.RejectUnknownMembers(true)); err != nil {
		return explain(err, v)
	}
	// null decodes into a struct as if it were {}.
	if kind := jsontext.Value(data).Kind(); kind == 'n' && pointedTo(reflect.TypeOf(v)).Kind() == reflect.Struct {
		return notObject(v, kind)
	}
	return RefuseNUL(data, v)
}

// UnmarshalPart decodes those members that v has fields for, and ignores the others. It is for
// JSON that we wrote ourselves, also an older or a newer version of us. What others send is
// read with Unmarshal.
func UnmarshalPart(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return explain(err, v)
	}
	return nil
}

// Marshal encodes v as JSON in a fixed order: fields as declared, map keys sorted.
func Marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true))
}

// AppendText appends text as a JSON string. What is not UTF-8 in it is replaced.
func AppendText(dst []byte, text string) []byte {
	quoted, _ := jsontext.AppendQuote(dst, text) // the error is that something was replaced
	return quoted
}

// Same reports whether two texts are the same JSON value, however they are written.
// Whole numbers are the same if all of their digits are.
func Same(a, b Raw) bool {
	if bytes.Equal(a, b) {
		return true
	}
	a, b = a.Clone(), b.Clone()
	digits := jsontext.CanonicalizeRawInts(false)
	return a.Canonicalize(digits) == nil && b.Canonicalize(digits) == nil && bytes.Equal(a, b)
}

// Canonical is a JSON value in the one form that it has however it was written: members
// in order, no white space. Numbers keep all of their digits.
func Canonical(raw Raw) Raw {
	out := raw.Clone()
	if out.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) != nil {
		return raw
	}
	return out
}

// Reply answers with JSON.
func Reply(w http.ResponseWriter, status int, v any) error {
	body, err := Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	send(w, status, body)
	return nil
}

// ErrorBody is the one error form.
type ErrorBody struct {
	Error   fault.Code     `json:"error"`
	Message string         `json:"message"`
	Field   string         `json:"field,omitempty"`
	Details map[string]any `json:"details,omitempty"`
}

// RetryAfter is the detail of an error that says after how many seconds the call may
// be made again.
const RetryAfter = "retry_after"

// retryAfter is the value of the Retry-After header: what the error says, or a second.
func retryAfter(e *fault.Error) string {
	if seconds, ok := e.Details[RetryAfter]; ok {
		return fmt.Sprint(seconds)
	}
	return "1"
}

// Fail answers with the public part of err. The cause is never sent; the server logs it.
func Fail(w http.ResponseWriter, err error) {
	e := fault.From(err)
	switch e.Code {
	case fault.StoreUnavailable, fault.StoreFull, fault.Stopping, fault.Overloaded, fault.RateLimited:
		// Only where nothing was changed and a retry may help: a client that retries a call
		// whose outcome is unknown may do it twice.
		w.Header().Set("Retry-After", retryAfter(e))
	default:
	}
	send(w, e.Code.Status(), ErrorText(e))
}

// ErrorText is the public part of err in the one error form.
func ErrorText(err error) []byte {
	e := fault.From(err)
	answer := ErrorBody{e.Code, e.Message, e.Field, e.Details}
	// What the caller sent may be repeated in the message, broken UTF-8 and all.
	text, err := json.Marshal(answer, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		answer.Details = nil
		text, _ = json.Marshal(answer, jsontext.AllowInvalidUTF8(true)) // three strings
	}
	return text
}

// send writes an answer with a line break at its end, for people who use curl.
func send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away gets nothing; what it asked for is done and
	// recorded, and it can ask again.
	_, _ = w.Write(append(body, '\n'))
}
