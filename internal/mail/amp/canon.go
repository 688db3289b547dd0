package amp

import (
	"bytes"
	"cmp"
	"encoding/json" // clients sign what their own encoders write: it has to take every JSON that they take
	"errors"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A signature covers a hash of the payload as JSON text, and every generation of clients makes
// that text in its own way. So the payload is cut into tokens, which keep their spelling, and put
// together again in each of those ways (MSG-39): members sorted or in the order of the message,
// strings as spelt, in ASCII or in UTF-8. Numbers are always copied (MSG-40): every client sends
// a number as it hashed it, and no parser keeps 1.0 and 12345678901234567890 apart from others.

// node is a JSON value in the spelling of the message. It refers to the text that it was parsed
// from.
type node struct {
	kind    byte   // '{', '[', or 0 for a scalar
	raw     []byte // of a scalar, with its quotes if it is a string
	members []member
	items   []node
}

// member is a name and a value of an object.
type member struct {
	name  string // decoded, for the order
	raw   []byte // in the spelling of the message, with its quotes
	value node
}

var errNotJSON = errors.New("not JSON")

// MaxNesting is how deep lists and objects may be nested. The parser calls itself, so there has
// to be a limit; real payloads stay below 20.
const MaxNesting = 256

// parseTokens reads one JSON value. Its input was checked by wire before, so it does not check
// everything again; it only has to be safe with any bytes.
func parseTokens(text []byte) (node, error) {
	p := parser{text: text}
	n, err := p.value(0)
	if err == nil && p.skip() != 0 {
		err = errNotJSON
	}
	return n, err
}

// parser is a position in a JSON text.
type parser struct {
	text []byte
	at   int
}

// skip moves past white space and returns the byte there without reading it, 0 at the end.
func (p *parser) skip() byte {
	for ; p.at < len(p.text); p.at++ {
		if c := p.text[p.at]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// value reads the value at the position.
func (p *parser) value(depth int) (node, error) {
	if depth > MaxNesting {
		return node{}, errNotJSON
	}
	switch c := p.skip(); c {
	case '{':
		return p.object(depth)
	case '[':
		return p.list(depth)
	case '"':
		raw, err := p.quoted()
		return node{raw: raw}, err
	default:
		return p.scalar()
	}
}

// object reads an object whose brace is at the position. Duplicate names were refused before
// (MSG-6), so the order of equal names does not matter.
func (p *parser) object(depth int) (node, error) {
	n := node{kind: '{'}
	for p.at++; ; p.at++ {
		if p.skip() == '}' && len(n.members) == 0 {
			break
		}
		if p.skip() != '"' {
			return n, errNotJSON
		}
		raw, err := p.quoted()
		if err != nil {
			return n, err
		}
		name, err := unquote(raw)
		if err != nil || p.skip() != ':' {
			return n, errNotJSON
		}
		p.at++
		value, err := p.value(depth + 1)
		if err != nil {
			return n, err
		}
		n.members = append(n.members, member{name, raw, value})
		if c := p.skip(); c == '}' {
			break
		} else if c != ',' {
			return n, errNotJSON
		}
	}
	p.at++
	return n, nil
}

// list reads a list whose bracket is at the position.
func (p *parser) list(depth int) (node, error) {
	n := node{kind: '['}
	for p.at++; ; p.at++ {
		if p.skip() == ']' && len(n.items) == 0 {
			break
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return n, err
		}
		n.items = append(n.items, value)
		if c := p.skip(); c == ']' {
			break
		} else if c != ',' {
			return n, errNotJSON
		}
	}
	p.at++
	return n, nil
}

// quoted reads a string and returns it with its quotes, escapes untouched.
func (p *parser) quoted() ([]byte, error) {
	from := p.at
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '\\':
			p.at++
		case c == '"':
			p.at++
			return p.text[from:p.at], nil
		case c < ' ':
			return nil, errNotJSON
		}
	}
	return nil, errNotJSON
}

// scalar reads a number, true, false or null.
func (p *parser) scalar() (node, error) {
	from := p.at
	for p.at < len(p.text) && bytes.IndexByte([]byte(" \t\r\n,:]}[{\""), p.text[p.at]) < 0 {
		p.at++
	}
	raw := p.text[from:p.at]
	if !json.Valid(raw) {
		return node{}, errNotJSON
	}
	return node{raw: raw}, nil
}

// unquote decodes a string token. Most have no escapes, and need no decoder.
func unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// style is one way in which a client writes the JSON that it hashes.
type style struct {
	order func(a, b member) int                   // nil keeps the order
	text  func(dst []byte, decoded string) []byte // nil copies strings as they came
}

// styles are those of the clients in use, the most frequent first: Verify stops at the first that
// fits, and a wrong signature costs all of them.
var styles = []style{
	{byCodepoint, nil},           // jq -S, json.dumps(sort_keys), JSON.stringify of sorted keys
	{nil, nil},                   // clients that do not sort
	{byCodepoint, quoteASCII},    // the seed's json.dumps, when the text was sent otherwise
	{byCodepoint, quoteUTF8},     // jq, when the text was sent otherwise
	{inScriptOrder, quoteScript}, // JSON.stringify, whose objects have numbers first
	{inScriptOrder, nil},
	{nil, quoteASCII},
	{nil, quoteUTF8},
}

// forms are the different texts of a payload that may have been signed, that of styles[0] first.
func (n *node) forms() (forms [][]byte) {
	for _, s := range styles {
		form := n.appendTo(nil, s)
		if !slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Equal(f, form) }) {
			forms = append(forms, form)
		}
	}
	return forms
}

// Canonical is the text of a payload that we sign (MSG-38): tokens as spelt, members sorted.
func Canonical(payload []byte) ([]byte, error) {
	n, err := parseTokens(payload)
	if err != nil {
		return nil, err
	}
	return n.appendTo(nil, styles[0]), nil
}

// ASCII is a payload with every string in ASCII escapes and members in their order, without white space.
func ASCII(payload []byte) ([]byte, error) {
	n, err := parseTokens(payload)
	if err != nil {
		return nil, err
	}
	return n.appendTo(nil, style{text: quoteASCII}), nil
}

// appendTo appends the value in a style, without white space.
func (n *node) appendTo(dst []byte, s style) []byte {
	switch n.kind {
	case '{':
		return n.appendObject(dst, s)
	case '[':
		dst = append(dst, '[')
		for i := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = n.items[i].appendTo(dst, s)
		}
		return append(dst, ']')
	}
	if n.raw[0] == '"' {
		return s.appendText(dst, n.raw)
	}
	return append(dst, n.raw...)
}

// appendObject appends an object. The node is not changed: the next style needs its own order.
func (n *node) appendObject(dst []byte, s style) []byte {
	members := n.members
	if s.order != nil && !slices.IsSortedFunc(members, s.order) {
		members = slices.Clone(members)
		slices.SortStableFunc(members, s.order)
	}
	dst = append(dst, '{')
	for i := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(s.appendText(dst, members[i].raw), ':')
		dst = members[i].value.appendTo(dst, s)
	}
	return append(dst, '}')
}

// appendText appends a string token, re-encoded if the style wants that. One that cannot be decoded
// is copied.
func (s style) appendText(dst, raw []byte) []byte {
	if s.text != nil {
		if decoded, err := unquote(raw); err == nil {
			return s.text(dst, decoded)
		}
	}
	return append(dst, raw...)
}

// byCodepoint orders members as jq and Python do. Bytes of UTF-8 compare like code points.
func byCodepoint(a, b member) int { return cmp.Compare(a.name, b.name) }

// inScriptOrder orders members as JavaScript keeps them in an object that was filled in sorted
// order: array indexes first, by value, then the other names by UTF-16 code units.
func inScriptOrder(a, b member) int {
	na, ia := arrayIndex(a.name)
	nb, ib := arrayIndex(b.name)
	switch {
	case ia && ib:
		return cmp.Compare(na, nb)
	case ia:
		return -1
	case ib:
		return 1
	}
	return slices.Compare(utf16.Encode([]rune(a.name)), utf16.Encode([]rune(b.name)))
}

// arrayIndex reports whether JavaScript takes a name for an array index: 10, and not 010 or -1.
func arrayIndex(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 32)
	return n, err == nil && n < 1<<32-1 && strconv.FormatUint(n, 10) == name
}

// shortEscapes are those that all three encoders use.
var shortEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

const hexDigits = "0123456789abcdef"

// quote appends a string with the short escapes, and \u for the characters that escaped selects.
func quote(dst []byte, text string, escaped func(rune) bool) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		short, ok := shortEscapes[c]
		switch {
		case ok:
			dst = append(dst, short...)
		case !escaped(c):
			dst = utf8.AppendRune(dst, c)
		case c > 0xffff:
			hi, lo := utf16.EncodeRune(c)
			dst = appendUnit(appendUnit(dst, hi), lo)
		default:
			dst = appendUnit(dst, c)
		}
	}
	return append(dst, '"')
}

// appendUnit appends one UTF-16 code unit as \uXXXX, in lower case.
func appendUnit(dst []byte, c rune) []byte {
	return append(dst, '\\', 'u', hexDigits[c>>12&15], hexDigits[c>>8&15], hexDigits[c>>4&15], hexDigits[c&15])
}

// quoteASCII writes a string as Python's json does, with ensure_ascii.
func quoteASCII(dst []byte, text string) []byte {
	return quote(dst, text, func(c rune) bool { return c < ' ' || c > '~' })
}

// quoteUTF8 writes a string as jq does, which escapes DEL.
func quoteUTF8(dst []byte, text string) []byte {
	return quote(dst, text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// quoteScript writes a string as JSON.stringify does, which does not.
func quoteScript(dst []byte, text string) []byte {
	return quote(dst, text, func(c rune) bool { return c < ' ' })
}
