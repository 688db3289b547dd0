package wire

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/internal/fault"
)

// Twice returns the JSON pointer (RFC 6901) of a duplicate name, if that is what an error of
// decoding is about.
func Twice(err error) (pointer string, is bool) {
	s, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok || !errors.Is(err, jsontext.ErrDuplicateName) {
		return "", false
	}
	return string(s.JSONPointer), true
}

// maxDataDepth is far deeper than any real document, and far less than what the decoder
// accepts: data that is wrapped into an entry must still be readable.
const maxDataDepth = 256

// Data reads one JSON value as maps, slices, text, booleans and json.Number, as strictly
// as Unmarshal does: text has no NUL in it, and nothing is nested without end. It is for
// what is checked against a schema.
func Data(text []byte) (any, error) {
	d, put := decoderOf(text)
	defer put()
	v, err := readData(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fault.New(fault.InvalidPayload, "There is no JSON. Send one object.")
		}
		if _, ours := errors.AsType[*fault.Error](err); ours {
			return nil, err
		}
		return nil, fault.Wrap(err, fault.InvalidPayload, "%s", explain(err, new(struct{})))
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.InvalidPayload, "There is something after the JSON object. Send one object.")
	}
	return v, nil
}

// readData reads one value. It recurses as deep as the data is nested, which is bounded.
func readData(d *jsontext.Decoder, depth int) (any, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if depth > maxDataDepth {
		return nil, fault.New(fault.InvalidPayload,
			"Lists and objects are nested more than %d deep. Send what is that deep as text.", maxDataDepth)
	}
	switch token.Kind() {
	case '{':
		object := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key, err := cleanText(name.String())
			if err != nil {
				return nil, err
			}
			if object[key], err = readData(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
		return object, err
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			item, err := readData(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		_, err = d.ReadToken()
		return list, err
	case '"':
		return cleanText(token.String())
	case '0':
		return number(token.String())
	case 't', 'f':
		return token.Bool(), nil
	}
	return nil, nil
}

func cleanText(text string) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", fault.New(fault.InvalidPayload,
			"A text contains the character \\u0000, which is not allowed in text. Leave it out.")
	}
	return text, nil
}

// maxExponent is larger than any meaningful exponent. Comparing 1e1000000 with another number
// would take a long time, and an agent could send many of them.
const maxExponent = 1000

// number keeps the digits of a number and bounds its exponent.
func number(text string) (any, error) {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(text[i+1:]); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return nil, fault.New(fault.InvalidPayload, "The number %.40s is too large or too small to work with.", text)
		}
	}
	return json.Number(text), nil
}
