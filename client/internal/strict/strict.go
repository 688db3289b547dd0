// Package strict reads the answers that an agent acts on: one JSON object, or an error. encoding/json
// is lenient in ways that matter for a decision: it takes the last of two members with one name,
// matches names whatever their case, and replaces broken Unicode.
//
// The clients for agents share this package. The server's strict reader, internal/wire, needs a library
// outside of the standard one, which the clients promise not to import. Both accept the same texts:
// internal/wire/wiretest has a table that all our readers are tested with.
//
// It knows JSON, and nothing of what an answer means.
package strict

import (
	"bytes"
	"encoding/json" // the clients import the standard library alone
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Object reads the members of a JSON object, each as its bytes. Names are compared exactly. Anything
// before or after the object is an error, and so is a name that an object has twice, at any depth:
// of two decisions nobody can say which one is meant.
func Object(text []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(text) || halfCharacter(text) {
		return nil, errors.New("its text is not Unicode")
	}
	// Unmarshal reports what follows the value; a Decoder would leave it unread.
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return nil, err
	}
	d := decoder(text)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("it begins with %.20q", text)
	}
	members := map[string]json.RawMessage{}
	err := eachMember(d, func(name string) error {
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		members[name] = value
		return namesOnce(decoder(value))
	})
	return members, err
}

// decoder reads tokens. Numbers are kept as text, so that none is too large.
func decoder(text []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d
}

// namesOnce reads the next value and reports an object in it that has a name twice.
func namesOnce(d *json.Decoder) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		return eachMember(d, func(string) error { return namesOnce(d) })
	case json.Delim('['):
		for d.More() {
			if err := namesOnce(d); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// eachMember calls value for the name of each member of an object whose first brace was read.
func eachMember(d *json.Decoder, value func(name string) error) error {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if seen[name] || !ok {
			return fmt.Errorf("it has %.40q twice", name)
		}
		seen[name] = true
		if err := value(name); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// halfCharacter reports whether an escape is half of a surrogate pair, which a decoder would replace by
// a character that nobody wrote.
func halfCharacter(text []byte) bool {
	for i := bytes.IndexByte(text, '\\'); i >= 0 && i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch half := surrogate(text[i:]); {
		case half == 0: // another escape; skip its letter, which may be a backslash
			i++
		case half < 0xDC00 && surrogate(text[min(i+6, len(text)):]) >= 0xDC00:
			i += 11
		default:
			return true
		}
	}
	return false
}

// surrogate is the half of a surrogate pair that the text begins with, 0 for anything else.
func surrogate(text []byte) uint64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	if n, err := strconv.ParseUint(string(text[2:6]), 16, 16); err == nil && n >= 0xD800 && n < 0xE000 {
		return n
	}
	return 0
}
