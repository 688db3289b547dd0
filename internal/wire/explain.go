package wire

import (
	"encoding"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/internal/fault"
)

// Errors of the JSON library name Go types. The callers here know JSON, so what is wrong is
// said in terms of the fields that they sent.

// explain says in terms of v's fields why the data did not decode.
func explain(err error, v any) error {
	if s, ok := errors.AsType[*json.SemanticError](err); ok {
		return explainValue(s, v)
	}
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			field := dotted(slices.Collect(s.JSONPointer.Tokens()))
			return fault.New(fault.InvalidPayload, "Duplicate field %q. Send it once.", field).About(field)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fault.New(fault.InvalidPayload, "The JSON stops in the middle, at byte %d.", s.ByteOffset)
		}
		return fault.Wrap(err, fault.InvalidPayload, "The body is not valid JSON at byte %d: %s.", s.ByteOffset, s.Err)
	}
	return fault.Wrap(err, fault.InvalidPayload, "The body is not the JSON object that this call takes%s.", withFields(v))
}

// explainValue is about JSON that is well formed but does not fit the fields of v.
func explainValue(s *json.SemanticError, v any) error {
	path := slices.Collect(s.JSONPointer.Tokens())
	field := dotted(path)
	if len(path) > 0 && errors.Is(s, json.ErrUnknownName) {
		last := len(path) - 1
		known := FieldNames(typeAt(reflect.TypeOf(v), path[:last]))
		return fault.New(fault.InvalidPayload, "The field %q is not known here. %s", field,
			fault.DidYouMean(path[last], known)).About(field)
	}
	if own, ok := errors.AsType[*fault.Error](s.Err); ok {
		// A type that decodes itself knows best what is wrong.
		return fault.New(own.Code, "%s", own.Message).About(field)
	}
	if s.GoType == nil || len(path) == 0 {
		return notObject(v, s.JSONKind)
	}
	if s.JSONKind == '"' && takesString(s.GoType) {
		return fault.Wrap(s, fault.InvalidPayload, "The field %q should be %s, and its text is not.", field,
			typeName(s.GoType)).About(field)
	}
	return fault.New(fault.InvalidPayload, "The field %q should be %s, and is %s.", field, typeName(s.GoType),
		kindName(s.JSONKind, s.GoType)).About(field)
}

func notObject(v any, kind jsontext.Kind) error {
	return fault.New(fault.InvalidPayload, "The body should be a JSON object%s, and is %s.", withFields(v),
		kindName(kind, nil))
}

// maxShown is how much of a path a message repeats; a name may be a megabyte.
const maxShown = 200

// dotted writes a path as people do, cut short if it is very long.
func dotted(path []string) string {
	field := strings.Join(path, ".")
	if len(field) > maxShown {
		field = strings.ToValidUTF8(field[:maxShown], "") + "…"
	}
	return field
}

// withFields lists the fields of a call, for an error about a body that has none of them.
func withFields(v any) string {
	names := FieldNames(reflect.TypeOf(v))
	if len(names) == 0 {
		return ""
	}
	return " with the fields " + strings.Join(names, ", ")
}

// FieldNames lists the JSON names of a struct type's fields.
func FieldNames(t reflect.Type) []string {
	var names []string
	for name := range fields(t) {
		names = append(names, name)
	}
	return names
}

// fields yields the JSON name and the type of every field of a struct type,
// among them those of structs that are embedded in it.
func fields(t reflect.Type) func(yield func(string, reflect.Type) bool) {
	return func(yield func(string, reflect.Type) bool) {
		t := pointedTo(t)
		if t == nil || t.Kind() != reflect.Struct {
			return
		}
		for f := range t.Fields() {
			name, embedded := jsonName(f)
			if embedded {
				for n, ft := range fields(f.Type) {
					if !yield(n, ft) {
						return
					}
				}
			}
			if name != "" && !yield(name, f.Type) {
				return
			}
		}
	}
}

// jsonName is the name that a field has in JSON, "" for one that has none.
func jsonName(f reflect.StructField) (name string, embedded bool) {
	tag := f.Tag.Get("json")
	name, options, _ := strings.Cut(tag, ",")
	switch {
	case tag == "-":
		return "", false
	case name != "":
		return name, false
	case strings.Contains(options, "inline"), strings.Contains(options, "unknown"), f.Anonymous:
		return "", true
	case f.IsExported():
		return f.Name, false
	}
	return "", false
}

// typeAt follows a path of names, indexes and keys into a type. It is nil where
// the type does not say what stands there.
func typeAt(t reflect.Type, path []string) reflect.Type {
	for _, part := range path {
		t = pointedTo(t)
		if t == nil {
			return nil
		}
		switch t.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map:
			t = t.Elem()
		default:
			t = fieldType(t, part)
		}
	}
	return t
}

func fieldType(t reflect.Type, name string) reflect.Type {
	for n, ft := range fields(t) {
		if n == name {
			return ft
		}
	}
	return nil
}

func pointedTo(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// textual types are written as JSON strings.
var textual = reflect.TypeFor[encoding.TextUnmarshaler]()

// takesString reports whether a JSON string is the right kind of value for t.
func takesString(t reflect.Type) bool {
	t = pointedTo(t)
	return t.Kind() == reflect.String || isBytes(t) || reflect.PointerTo(t).Implements(textual)
}

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// typeName names a Go type as a JSON caller would, with an example where the form is not
// obvious.
func typeName(t reflect.Type) string {
	t = pointedTo(t)
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "a time such as 2026-05-01T12:00:00Z"
	case isBytes(t):
		return "a string in base64"
	case takesString(t):
		return "a string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// kindName names what stands in the JSON where a value of type want should.
func kindName(k jsontext.Kind, want reflect.Type) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	case '"':
		return "a string"
	case '0':
		if want = pointedTo(want); want != nil && want.Kind() >= reflect.Int && want.Kind() <= reflect.Float64 {
			return "a number that does not fit"
		}
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return "something else"
}
