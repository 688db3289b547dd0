// Package wire is the edge: strict JSON in, plain JSON out, and the one error
// form that every HTTP path without a form of its own answers with.
//
// It knows HTTP and JSON and nothing of agents, ledgers or policies. Bytes that
// came in are handed on as they came; nothing here re-writes them.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/signalbox/signalbox/internal/fault"
)

// Handler answers a request or returns the error to answer with.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Raw is JSON that is passed through as it came.
type Raw = jsontext.Value

// Read returns the body, which may not be larger than limit bytes.
func Read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fault.New(fault.TooLarge, "The body is larger than %d bytes, which is the most this call takes.", limit)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidPayload, "The body ended before it was complete. Send it again.")
	}
	return body, nil
}

// ReadJSON reads one JSON object from the request into v, which is a pointer to a
// struct. Unknown and repeated fields, wrong types and broken UTF-8 are errors
// that say where they are.
func ReadJSON(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return fault.New(fault.UnsupportedMedia, "Send the body as JSON, with the header Content-Type: application/json.")
	}
	body, err := Read(w, r, limit)
	if err != nil {
		return err
	}
	return Unmarshal(body, v)
}

// Unmarshal decodes strictly and explains what is wrong in terms of v's fields.
func Unmarshal(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fault.New(fault.InvalidPayload, "The body is empty. Send a JSON object%s.", withFields(v))
	}
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	return explain(err, v)
}

// Marshal encodes v as JSON in a fixed order: fields as declared, map keys sorted.
func Marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true))
}

func explain(err error, v any) error {
	if s, ok := errors.AsType[*json.SemanticError](err); ok {
		field := dotted(s.JSONPointer)
		if errors.Is(err, json.ErrUnknownName) {
			name := field[strings.LastIndexByte(field, '.')+1:]
			return fault.New(fault.InvalidPayload, "The field %q is not known here. %s", field, fault.DidYouMean(name, fieldsAt(v, field))).About(field)
		}
		if s.GoType != nil && field != "" {
			return fault.New(fault.InvalidPayload, "The field %q should be %s, and is %s.", field, typeName(s.GoType), kindName(s.JSONKind)).About(field)
		}
		return fault.Wrap(err, fault.InvalidPayload, "The body should be a JSON object%s, and is %s.", withFields(v), kindName(s.JSONKind))
	}
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			field := dotted(s.JSONPointer)
			return fault.New(fault.InvalidPayload, "The field %q stands there twice. Send it once.", field).About(field)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fault.New(fault.InvalidPayload, "The JSON stops in the middle, at byte %d.", s.ByteOffset)
		}
		return fault.Wrap(err, fault.InvalidPayload, "The body is not valid JSON at byte %d: %s.", s.ByteOffset, s.Err)
	}
	return fault.Wrap(err, fault.InvalidPayload, "The body is not the JSON object that this call takes%s.", withFields(v))
}

func dotted(p jsontext.Pointer) string {
	return strings.ReplaceAll(strings.TrimPrefix(string(p), "/"), "/", ".")
}

func withFields(v any) string {
	names := FieldNames(reflect.TypeOf(v))
	if len(names) == 0 {
		return ""
	}
	return " with the fields " + strings.Join(names, ", ")
}

// FieldNames lists the JSON names of a struct type's fields.
func FieldNames(t reflect.Type) []string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// fieldsAt lists what could stand where the unknown field stands.
func fieldsAt(v any, field string) []string {
	t := reflect.TypeOf(v)
	parts := strings.Split(field, ".")
	for _, part := range parts[:len(parts)-1] {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			continue // an index into the slice that was just left
		}
		for f := range t.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == part {
				t = f.Type
			}
		}
	}
	for t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return FieldNames(t)
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.String:
		return "a string"
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

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	case '"':
		return "a string"
	case '0':
		return "a number that does not fit"
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return "something else"
}

// Reply answers with JSON.
func Reply(w http.ResponseWriter, status int, v any) error {
	body, err := Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away gets nothing; what it asked for is done and
	// recorded, and it can ask again.
	_, _ = w.Write(append(body, '\n'))
	return nil
}

// ErrorBody is the one error form.
type ErrorBody struct {
	Error   fault.Code     `json:"error"`
	Message string         `json:"message"`
	Field   string         `json:"field,omitempty"`
	Details map[string]any `json:"details,omitempty"`
}

// Fail answers with the public part of err.
func Fail(w http.ResponseWriter, err error) {
	e := fault.From(err)
	if e.Code.Status() == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	// The answer to a broken connection goes nowhere; there is nobody to tell.
	_ = Reply(w, e.Code.Status(), ErrorBody{e.Code, e.Message, e.Field, e.Details})
}
