package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// maxError bounds how much of an error is read. Real ones are a few kilobytes.
const maxError = 1 << 20

// readError turns an answer with a bad status into an error. It knows the two error
// forms of Signalbox; anything else comes from a proxy in between, or from another
// program at that address.
func readError(res *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxError))
	var e wire.ErrorBody
	if err := wire.Unmarshal(data, &e); err == nil && e.Message != "" {
		return &fault.Error{Code: e.Error, Message: e.Message, Field: e.Field, Details: e.Details}
	}
	if refused := taskRefusal(data); refused != nil {
		return refused
	}
	return fault.New(fault.Internal, "The server answered %s, and not as a Signalbox does. Check the address.", res.Status)
}

// taskRefusal reads the error form of AMP/1.0 tasks, nil for another.
func taskRefusal(data []byte) error {
	var e task.ErrorRecord
	if err := wire.UnmarshalPart(data, &e); err != nil || e.Record != "error" || len(e.Errors) == 0 {
		return nil //nolint:nilerr // it is another form, or none
	}
	var text strings.Builder
	for _, p := range e.Errors {
		_, _ = fmt.Fprintf(&text, "\n  %s", ProblemText(p))
	}
	return fault.New(fault.Code(e.Errors[0].Code), "Refused by the layer %s:%s", e.Layer, text.String())
}

// ProblemText is a problem of a document of tasks in one sentence or three.
func ProblemText(p amp.Problem) string {
	text := fmt.Sprintf("%s at %q: %s", p.Code, p.Pointer, p.Detail)
	if p.Expected != "" {
		text += " Expected: " + p.Expected + "."
	}
	if p.Example != nil {
		example, _ := wire.Marshal(p.Example) // it came as JSON, or is ours
		text += " For example: " + string(example)
	}
	return text
}
