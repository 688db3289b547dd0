package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/internal/fault"
)

// Members reads a JSON object as its members, each byte for byte. It is for payloads of which
// every mistake is reported at once, which Unmarshal does not do. Duplicate names, invalid
// UTF-8, and anything after the object are errors of the whole.
func Members(data []byte) (map[string]Raw, error) {
	levels, err := Nested(data)
	if err != nil {
		return nil, err
	}
	return levels[0], nil
}

// Nested is Members that continues into the member with the first name, from there into the
// one with the second name, and so on, as far as they are objects. It reads the data once,
// which matters for large payloads.
func Nested(data []byte, names ...string) ([]map[string]Raw, error) {
	d, put := decoderOf(data)
	defer put()
	n := nested{data: data, d: d, names: names, levels: make([]map[string]Raw, len(names)+1)}
	if n.d.PeekKind() != '{' {
		var none struct{}
		return nil, Unmarshal(data, &none)
	}
	err := n.object(0)
	if err == nil {
		if _, err = n.d.ReadToken(); errors.Is(err, io.EOF) {
			return n.levels, nil
		}
		if err == nil {
			return nil, fault.New(fault.InvalidPayload, "There is something after the JSON object. Send one object.")
		}
	}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return nil, own
	}
	return nil, explain(err, &n.levels[0])
}

// decoders are reused with the memory that they have for names: every message that comes in
// is read by one.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// decoderOf is a decoder of data, for use until put is called.
func decoderOf(data []byte) (d *jsontext.Decoder, put func()) {
	d = decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(data))
	return d, func() {
		d.Reset(bytes.NewBuffer(nil)) // it keeps nothing of ours
		decoders.Put(d)
	}
}

// nested is the state of one Nested call.
type nested struct {
	data   []byte
	d      *jsontext.Decoder
	names  []string
	levels []map[string]Raw
}

// object reads the object that comes next, at this level of nesting.
func (n *nested) object(level int) error {
	members := make(map[string]Raw, 8) // more take more memory than most objects need
	n.levels[level] = members
	_, err := n.d.ReadToken()
	for err == nil && n.d.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = n.d.ReadToken(); err != nil {
			break
		}
		key := name.String()
		if strings.ContainsRune(key, 0) {
			return fault.New(fault.InvalidPayload,
				"The name of a field contains the character \\u0000, which is not allowed in text. Leave it out.")
		}
		members[key], err = n.value(key, level)
	}
	if err == nil {
		_, err = n.d.ReadToken()
	}
	return err
}

// value reads the value that comes next, and its members if its name is the one to continue
// into. The result is a part of the data, not a copy.
func (n *nested) value(key string, level int) (Raw, error) {
	if level < len(n.names) && n.names[level] == key && n.d.PeekKind() == '{' {
		// What is before it is a colon and white space.
		start := int(n.d.InputOffset())
		start += bytes.IndexByte(n.data[start:], '{')
		err := n.object(level + 1)
		return Raw(n.data[start:n.d.InputOffset()]), err
	}
	value, err := n.d.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(n.d.InputOffset())
	return Raw(n.data[end-len(value) : end]), nil
}

// Text is a JSON string as text; false if it is not a string, or contains a NUL.
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

// TextIn is a member of an object that is a string, "" if there is none.
func TextIn(object Raw, name string) string {
	if object.Kind() != '{' {
		return ""
	}
	members, _ := Members(object)
	text, _ := Text(members[name])
	return text
}

// Depth is how deep the lists and objects of a JSON text are nested. It counts brackets
// outside of strings and does not check the text.
func Depth(text []byte) int {
	deepest, now, inside := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inside && c == '\\':
			i++ // whatever is escaped
		case c == '"':
			inside = !inside
		case inside:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}
