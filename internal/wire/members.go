package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/signalbox/signalbox/internal/fault"
)

// Members reads a JSON object as its members, each as it came. It is for payloads whose
// every mistake is to be told at once, which Unmarshal does not do. A name that stands
// there twice, broken UTF-8, and anything after the object are errors of the whole.
func Members(data []byte) (map[string]Raw, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	members := make(map[string]Raw, 24)
	if d.PeekKind() != '{' {
		var none struct{}
		return nil, Unmarshal(data, &none)
	}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = d.ReadToken(); err != nil {
			break
		}
		key := name.String()
		if strings.ContainsRune(key, 0) {
			return nil, fault.New(fault.InvalidPayload, "The name of a field contains the character \\u0000, which text may not. Leave it out.")
		}
		var value jsontext.Value
		if value, err = d.ReadValue(); err == nil {
			end := int(d.InputOffset())
			members[key] = Raw(data[end-len(value) : end])
		}
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	if err == nil {
		if _, err = d.ReadToken(); errors.Is(err, io.EOF) {
			return members, nil
		}
		if err == nil {
			return nil, fault.New(fault.InvalidPayload, "There is something after the JSON object. Send one object.")
		}
	}
	return nil, explain(err, &members)
}

// Text is a JSON string as text; false for what is none, or holds a NUL.
func Text(raw Raw) (string, bool) {
	if raw.Kind() != '"' {
		return "", false
	}
	text := string(raw[1 : len(raw)-1])
	if bytes.IndexByte(raw, '\\') >= 0 {
		plain, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return "", false
		}
		text = string(plain)
	}
	return text, !strings.ContainsRune(text, 0)
}
