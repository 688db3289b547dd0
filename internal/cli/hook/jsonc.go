package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// node is a value in a text of JSON, with where it stands. Settings are changed by
// cutting and pasting in the text, so that all the rest of it stays as people wrote it.
type node struct {
	kind       byte // '{', '[', '"', or 0 for another value
	start, end int
	items      []item
}

// item is a member of an object, or an item of a list.
type item struct {
	name  string // "" in a list
	start int    // of the name, if there is one
	value node
	comma int // where the comma after it stands, -1 when there is none
}

// text of a string, "" of anything else.
func (n node) text(source []byte) string {
	var s string
	if n.kind == '"' {
		_ = json.Unmarshal(source[n.start:n.end], &s)
	}
	return s
}

// member finds a member of an object.
func (n node) member(name string) (node, bool) {
	for _, i := range n.items {
		if n.kind == '{' && i.name == name {
			return i.value, true
		}
	}
	return node{}, false
}

// parser reads JSON, and comments and commas before an end where these are allowed.
type parser struct {
	source   []byte
	at       int
	comments bool
}

type syntaxError struct{ text string }

func (e syntaxError) Error() string { return e.text }

// parse reads a whole text. A name that stands twice in an object is an error: nobody can
// say which one counts.
func parse(source []byte, comments bool) (n node, err error) {
	defer func() {
		if p := recover(); p != nil {
			problem, ok := p.(syntaxError)
			if !ok {
				panic(p)
			}
			err = problem
		}
	}()
	p := &parser{source: source, comments: comments}
	p.space()
	n = p.value(0)
	p.space()
	if p.at < len(source) {
		p.fail("something follows the end")
	}
	return n, nil
}

func (p *parser) fail(what string) {
	line := 1 + bytes.Count(p.source[:p.at], []byte("\n"))
	panic(syntaxError{fmt.Sprintf("line %d: %s", line, what)})
}

func (p *parser) peek() byte {
	if p.at < len(p.source) {
		return p.source[p.at]
	}
	return 0
}

// space passes over what means nothing.
func (p *parser) space() {
	for p.at < len(p.source) {
		rest := p.source[p.at:]
		var end int
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			end = 1
		case p.comments && bytes.HasPrefix(rest, []byte("//")):
			if end = bytes.IndexByte(rest, '\n'); end < 0 {
				end = len(rest)
			}
		case p.comments && bytes.HasPrefix(rest, []byte("/*")):
			if end = bytes.Index(rest[2:], []byte("*/")); end < 0 {
				p.fail("a comment has no end")
			}
			end += 4
		default:
			return
		}
		p.at += end
	}
}

func (p *parser) value(depth int) node {
	const deepest = 200
	if depth > deepest {
		p.fail("it is nested too deep")
	}
	n := node{start: p.at}
	switch p.peek() {
	case '{', '[':
		n.kind = p.peek()
		p.container(&n, depth)
	case '"':
		n.kind = '"'
		p.quoted()
	default:
		for p.at < len(p.source) && !strings.ContainsRune(" \t\r\n,:]}[{\"/", rune(p.source[p.at])) {
			p.at++
		}
	}
	n.end = p.at
	if n.kind != '{' && n.kind != '[' && !json.Valid(p.source[n.start:n.end]) {
		p.at = n.start
		p.fail("a value is expected")
	}
	return n
}

// quoted passes over a string.
func (p *parser) quoted() {
	for p.at++; p.at < len(p.source); p.at++ {
		switch p.source[p.at] {
		case '\\':
			p.at++
		case '"':
			p.at++
			return
		}
	}
	p.at = len(p.source)
	p.fail("a string has no end")
}

func (p *parser) container(n *node, depth int) {
	end := byte('}')
	if n.kind == '[' {
		end = ']'
	}
	names := map[string]bool{}
	p.at++
	p.space()
	for p.peek() != end {
		i := item{start: p.at, comma: -1}
		if n.kind == '{' {
			name := p.value(depth + 1)
			if name.kind != '"' {
				p.fail("a name in quotes is expected")
			}
			if i.name = name.text(p.source); names[i.name] {
				p.fail(fmt.Sprintf("%q stands there twice", i.name))
			}
			names[i.name] = true
			p.space()
			if p.peek() != ':' {
				p.fail("a colon is expected")
			}
			p.at++
			p.space()
		}
		i.value = p.value(depth + 1)
		p.space()
		more := p.peek() == ','
		if more {
			i.comma = p.at
			p.at++
			p.space()
		}
		n.items = append(n.items, i)
		switch {
		case !more && p.peek() != end:
			p.fail("a comma or an end is expected")
		case more && p.peek() == end && !p.comments:
			p.fail("a comma stands before an end")
		}
	}
	p.at++
}

// style is how a text is laid out.
type style struct{ newline, unit string }

// styleOf looks at the first thing in a text.
func styleOf(source []byte, root node) style {
	if !bytes.ContainsRune(source, '\n') {
		return style{}
	}
	s := style{"\n", "  "}
	if bytes.Contains(source, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	if len(root.items) > 0 {
		before := source[:root.items[0].start]
		own := before[bytes.LastIndexByte(before, '\n')+1:]
		if len(own) > 0 && len(bytes.Trim(own, " \t")) == 0 {
			s.unit = string(own)
		}
	}
	return s
}

// render writes a value as it stands at a depth.
func (s style) render(value any, depth int) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if s.newline != "" {
		e.SetIndent(strings.Repeat(s.unit, depth), s.unit)
	}
	_ = e.Encode(value) // texts, numbers and lists of them
	return strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\n", s.newline)
}

func (s style) line(depth int) string {
	if s.newline == "" {
		return ""
	}
	return s.newline + strings.Repeat(s.unit, depth)
}

// add puts an entry, as render has made it, at the end of what stands at a depth.
func (s style) add(source []byte, in node, depth int, entry string) []byte {
	closing := in.end - 1
	last := closing // where the end's own line begins
	for last > in.start+1 && strings.ContainsRune(" \t\r\n", rune(source[last-1])) {
		last--
	}
	edits := []edit{{last, closing, s.line(depth+1) + entry + s.line(depth)}}
	if n := len(in.items); n > 0 {
		if in.items[n-1].comma < 0 {
			edits = append([]edit{{in.items[n-1].value.end, in.items[n-1].value.end, ","}}, edits...)
		}
	}
	return apply(source, edits)
}

// addFirst puts an entry before all others.
func (s style) addFirst(source []byte, in node, depth int, entry string) []byte {
	if len(in.items) == 0 {
		return s.add(source, in, depth, entry)
	}
	at := in.items[0].start
	return apply(source, []edit{{at, at, entry + "," + s.line(depth+1)}})
}

// edit puts a text in place of another.
type edit struct {
	from, to int
	text     string
}

// apply makes edits that stand in order.
func apply(source []byte, edits []edit) []byte {
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, source[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, source[at:]...)
}

// cut takes an item out of what it stands in, with its comma and its line.
func cut(source []byte, in node, index int) []byte {
	it := in.items[index]
	from, to := it.start, it.value.end
	var edits []edit
	switch {
	case it.comma >= 0:
		to = it.comma + 1
	case index > 0:
		comma := in.items[index-1].comma
		edits = append(edits, edit{comma, comma + 1, ""})
	}
	lineStart := from
	for lineStart > 0 && (source[lineStart-1] == ' ' || source[lineStart-1] == '\t') {
		lineStart--
	}
	// The end of the line before may be that of a comment: it goes only if another follows.
	after := bytes.TrimLeft(source[to:], " \t\r")
	if lineStart > 0 && source[lineStart-1] == '\n' && bytes.HasPrefix(after, []byte("\n")) {
		from = lineStart - 1
		if from > 0 && source[from-1] == '\r' {
			from--
		}
	}
	if len(edits) > 0 {
		from = max(from, edits[0].to)
	}
	return apply(source, append(edits, edit{from, to, ""}))
}
