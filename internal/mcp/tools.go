package mcp

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// object is a JSON object.
type object = map[string]any

// outcome is what a tool answers with, as JSON.
type outcome struct {
	text    []byte
	refused bool // it says why nothing was done
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
	payload     string     // the schema whose fields it takes beside those here
	fields      object
	required    []string
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

// schema is what a tool accepts. A tool that sends a message takes the payload's own schema, made
// complete in itself, with the fields of the envelope that the agent chooses beside it. So the
// model sees the same rules that the server will apply.
func (t tool) schema() (object, error) {
	out := object{"type": "object", "properties": object{}, "additionalProperties": false}
	// The payload's schema brings properties and required of its own.
	if t.payload != "" {
		if err := readSchema(t.payload, out); err != nil {
			return nil, err
		}
		common := object{}
		if err := readSchema("common", common); err != nil {
			return nil, err
		}
		out["$defs"] = common["$defs"]
	}
	// Fields of the tool are added to those of the payload; no payload has a task_id.
	properties, _ := out["properties"].(object)
	for name, field := range t.fields {
		properties[name] = field
	}
	required, _ := out["required"].([]any)
	for _, name := range t.required {
		required = append(required, name)
	}
	if required != nil {
		out["required"] = required
	}
	// Some clients refuse schemas with $id, and the rest would only cost tokens.
	for _, name := range []string{"$schema", "$id", "title", "x-amp-error"} {
		delete(out, name)
	}
	return out, nil
}

// readSchema reads a schema of the protocol. References into common.json are made to point into
// the schema itself, where schema puts those definitions.
func readSchema(name string, into object) error {
	text, err := amp.Schema(name)
	if err != nil {
		return err
	}
	return wire.UnmarshalPart([]byte(strings.ReplaceAll(string(text), `"common.json#/`, `"#/`)), &into)
}

// read decodes the arguments, or says what is wrong with them. Only names are checked here. The
// arguments of a payload are left to the task's own layers, which explain better, with examples.
func (t tool) read(raw []byte, schema object) (args object, problem string) {
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
	if t.payload != "" {
		return args, ""
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := args[fmt.Sprint(name)]; !ok {
			return nil, fmt.Sprintf("The argument %q is missing.", name)
		}
	}
	properties, _ := schema["properties"].(object)
	for name := range args {
		if _, ok := properties[name]; !ok {
			return nil, fmt.Sprintf("The argument %.40q is not known.", name)
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

// numberOf is an argument that is a whole number, 0 if it is absent. Models also write 3.0.
func numberOf(args object, name string) (int64, error) {
	given, ok := args[name]
	if !ok {
		return 0, nil
	}
	number, _ := given.(wire.Numeral)
	n, err := number.Float64() // 3.0 is whole, too
	if err != nil || n < 0 || n > 1<<53 || n != math.Trunc(n) {
		return 0, fault.New(fault.InvalidPayload, "The argument %q should be a whole number, 0 or more.", name).About(name)
	}
	return int64(n), nil
}

// waitOf is how long a tool waits, as its arguments say, and most at the longest.
func waitOf(args object, most time.Duration) (time.Duration, error) {
	seconds, err := numberOf(args, "wait_seconds")
	return time.Duration(min(seconds, int64(most/time.Second))) * time.Second, err
}
