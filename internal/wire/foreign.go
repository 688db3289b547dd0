package wire

import (
	"bytes"
	stdjson "encoding/json" // numbers as they are written, and what was hashed before (EncodeData)
	"errors"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// foreign are the options for JSON that others wrote for others: lenient, as their libraries
// are.
var foreign = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// UnmarshalForeign decodes what another service or program wrote. Of a duplicate name the
// last one counts, invalid UTF-8 is replaced, and members that v has no fields for are
// ignored. What agents and operators send us is read with Unmarshal.
func UnmarshalForeign(data []byte, v any) error {
	return json.Unmarshal(data, v, foreign)
}

// Valid reports whether a text is one JSON value, as UnmarshalForeign reads it.
func Valid(text []byte) bool { return Raw(text).IsValid(foreign) }

// Strict reports whether a text is one JSON value, as UnmarshalPart reads it: no name twice in an object, and UTF-8.
func Strict(text []byte) bool { return Raw(text).IsValid() }

// Indent formats a JSON value for people, with a line for each member; false if it is not
// JSON.
func Indent(text []byte) (Raw, bool) {
	out := Raw(text).Clone()
	err := out.Indent(jsontext.WithIndent("  "), foreign)
	return out, err == nil
}

// Pretty is JSON with a line for each member. What is not JSON stays as it is, and so does what lists in
// lists would make many times as long.
func Pretty(text string) string {
	const long, deep, growth = 24 << 10, 16, 4
	if len(text) > long && Depth([]byte(text)) > deep {
		return text
	}
	if out, ok := Indent([]byte(text)); ok && len(out) <= growth*max(len(text), long) {
		return string(out)
	}
	return text
}

// Numeral is a number in what Data and ForeignData read, with its digits as they were
// written.
type Numeral = stdjson.Number

// ForeignData is Data for JSON of others, read as UnmarshalForeign reads it.
func ForeignData(text []byte) (v any, err error) {
	d := stdjson.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

// EncodeData writes what Data or ForeignData has read, names in order and numbers as they were
// written; and events of runs, which are stored in this form. Digests are made of it, so every
// byte stays as it is, which includes that <, > and & are escaped.
func EncodeData(v any) ([]byte, error) { return stdjson.Marshal(v) }
