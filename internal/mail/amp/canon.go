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

// A signature covers a hash of the payload as JSON text, and every generation of clients
// has its own idea of that text. So the payload is cut into tokens as they came, and put
// together again in each of those ways: with members sorted or as they came, text as it
// came, in ASCII or in UTF-8. Numbers are always copied: whatever has hashed them has sent
// them as it hashed them.

// node is a JSON value as it came.
type node struct {
	kind    byte // '{', '[', or 0 for a scalar
	raw     []byte
	members []member
	items   []node
}

type member struct {
	name  string // decoded
	raw   []byte // as it came, with its quotes
	value node
}

var errNotJSON = errors.New("not JSON")

// MaxNesting is far above what is real.
const MaxNesting = 256

// parseTokens reads a JSON value. What comes in has been checked by wire; this only
// has to be safe with anything.
func parseTokens(text []byte) (node, error) {
	p := parser{text: text}
	n, err := p.value(0)
	if err == nil && p.skip() != 0 {
		err = errNotJSON
	}
	return n, err
}

type parser struct {
	text []byte
	at   int
}

// skip passes over white space and shows the next byte, 0 at the end.
func (p *parser) skip() byte {
	for ; p.at < len(p.text); p.at++ {
		if c := p.text[p.at]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

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

// quoted is a string with its quotes.
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

// scalar is a number, true, false or null.
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

func unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// style is one way to write JSON.
type style struct {
	order func(a, b member) int                   // nil keeps the order
	text  func(dst []byte, decoded string) []byte // nil copies strings as they came
}

// styles are those that clients hash, the most frequent first.
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

// forms are the texts of a payload that may have been signed, each once.
func (n *node) forms() (forms [][]byte) {
	for _, s := range styles {
		form := n.appendTo(nil, s)
		if !slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Equal(f, form) }) {
			forms = append(forms, form)
		}
	}
	return forms
}

// Canonical is the text of a payload that we sign: tokens as they are, members sorted.
func Canonical(payload []byte) ([]byte, error) {
	n, err := parseTokens(payload)
	if err != nil {
		return nil, err
	}
	return n.appendTo(nil, styles[0]), nil
}

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

func (s style) appendText(dst, raw []byte) []byte {
	if s.text != nil {
		if decoded, err := unquote(raw); err == nil {
			return s.text(dst, decoded)
		}
	}
	return append(dst, raw...)
}

// byCodepoint: the bytes of UTF-8 are in the order of code points.
func byCodepoint(a, b member) int { return cmp.Compare(a.name, b.name) }

// inScriptOrder is how JavaScript keeps the members of an object whose names were put in
// sorted: whole numbers first and by value, then by UTF-16 code units.
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

func arrayIndex(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 32)
	return n, err == nil && n < 1<<32-1 && strconv.FormatUint(n, 10) == name
}

var shortEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

const hexDigits = "0123456789abcdef"

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

func appendUnit(dst []byte, c rune) []byte {
	return append(dst, '\\', 'u', hexDigits[c>>12&15], hexDigits[c>>8&15], hexDigits[c>>4&15], hexDigits[c&15])
}

// quoteASCII writes a string as Python's json does.
func quoteASCII(dst []byte, text string) []byte {
	return quote(dst, text, func(c rune) bool { return c < ' ' || c > '~' })
}

// quoteUTF8 writes a string as jq does.
func quoteUTF8(dst []byte, text string) []byte {
	return quote(dst, text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// quoteScript writes a string as JavaScript does.
func quoteScript(dst []byte, text string) []byte {
	return quote(dst, text, func(c rune) bool { return c < ' ' })
}
