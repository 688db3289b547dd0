package mcp

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// outcome is what a tool answers with, as JSON.
type outcome struct {
	text    []byte
	refused bool // it says why nothing was done, or why it came to nothing
}

// answer is the outcome of a call of a service that succeeded.
func answer(v any, err error) (outcome, error) {
	if err != nil {
		return outcome{}, err
	}
	text, err := wire.Marshal(v)
	return outcome{text: text}, err
}

// tool is one thing that an agent can do. An empty roles list means every agent; a rate of 0 means
// the agent's own limit alone; fail, if set, gives errors the form of the tool's protocol.
type tool struct {
	name, about string
	roles       []amp.Role // nobody else has it; everybody when empty
	reads       bool       // changes nothing
	rate        int        // calls a minute that the protocol allows, 0 for any number
	document    bool       // its arguments are a document's, whose own rules explain better what is wrong with them
	fields      object
	required    []string
	output      object             // the fields of its answer, nil where they are not described
	waits       bool               // for somebody, so it says that it still does
	fail        func(error) []byte // the protocol's form of an error, wire.ErrorText when nil
	do          func(ctx context.Context, args object) (outcome, error)
}

// errorText is an error in the form of the tool's protocol.
func (t tool) errorText(err error) []byte {
	if t.fail != nil {
		return t.fail(err)
	}
	return wire.ErrorText(err)
}

// read decodes the arguments, or says what is wrong with them. Only names, and words out of a list, are checked here.
func (t tool) read(raw []byte) (args object, problem string) {
	args = object{}
	if len(raw) > 0 {
		data, err := wire.Data(raw)
		if err != nil {
			return nil, "The arguments should be a JSON object. " + fault.From(err).Message
		}
		given, ok := data.(object)
		if !ok {
			return nil, "The arguments should be a JSON object."
		}
		args = given
	}
	known := "It takes " + strings.Join(slices.Sorted(maps.Keys(t.fields)), ", ") + "."
	for _, name := range t.required {
		if _, ok := args[name]; !ok && (!t.document || name == "task_id") {
			return nil, fmt.Sprintf("The argument %q of %s is missing. %s", name, t.name, known)
		}
	}
	if t.document {
		return args, ""
	}
	for name, value := range args {
		field, ok := t.fields[name].(object)
		if !ok {
			return nil, fmt.Sprintf("The argument %.40q of %s is not known. %s", name, t.name, known)
		}
		if words, ok := field["enum"].([]string); ok && !slices.Contains(words, fmt.Sprint(value)) {
			return nil, fmt.Sprintf("The argument %q of %s should be one of %s, and is %.40q.", name, t.name,
				strings.Join(words, ", "), fmt.Sprint(value))
		}
	}
	return args, ""
}

// textOf is an argument that is text, "" if it is absent.
func textOf(args object, name string) (string, error) {
	text, ok := args[name].(string)
	if _, given := args[name]; given && !ok {
		return "", fault.New(fault.InvalidPayload, "The argument %q should be text.", name).About(name)
	}
	return text, nil
}

// textsOf are arguments that are text, in the order of their names.
func textsOf(args object, names ...string) ([]string, error) {
	out := make([]string, len(names))
	for i, name := range names {
		var err error
		if out[i], err = textOf(args, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// numberOf is an argument that is a whole number, or the default if it is absent. Models also write 3.0.
func numberOf(args object, name string, absent int64) (int64, error) {
	given, ok := args[name]
	if !ok {
		return absent, nil
	}
	number, _ := given.(wire.Numeral)
	n, err := number.Float64() // 3.0 is whole, too
	if err != nil || n < 0 || n > 1<<53 || n != math.Trunc(n) {
		return 0, fault.New(fault.InvalidPayload, "The argument %q should be a whole number, 0 or more.", name).About(name)
	}
	return int64(n), nil
}

// waitOf is how long a tool waits, as its arguments say, and most at the longest.
func waitOf(args object, absent, most time.Duration) (time.Duration, error) {
	seconds, err := numberOf(args, "wait_seconds", int64(absent/time.Second))
	return time.Duration(min(seconds, int64(most/time.Second))) * time.Second, err
}
