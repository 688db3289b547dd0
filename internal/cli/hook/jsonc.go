package hook

import (
	"bytes"
	"encoding/json" // indents as the settings are indented, which wire does not
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// node is a value in a text of JSON, with where it is. Settings are edited by cutting
// and pasting text, so that everything else stays as people wrote it. Offsets are bytes
// of the text that was parsed, and are stale after an edit: parse again.
type node struct {
	kind       byte // '{', '[', '"', or 0 for another value
	start, end int
	items      []item
}

// item is a member of an object, or an element of a list.
type item struct {
	name  string // "" in a list
	start int    // of the name, if there is one
	value node
	comma int // where the comma after it stands, -1 when there is none
}

// text is the string at a node, "" if it is none.
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

// maxBrackets bounds the nesting: the parser is recursive, and a stack overflow cannot
// be caught.
const maxBrackets = 100_000

// parse parses a whole text, with comments and trailing commas if these are allowed.
// Duplicate names in an object are an error: nobody can say which one counts.
func parse(source []byte, comments bool) (node, error) {
	if bytes.Count(source, []byte("{"))+bytes.Count(source, []byte("[")) > maxBrackets {
		return node{}, fmt.Errorf("it has more than %d brackets", maxBrackets)
	}
	// The parser wants an end of the line after a comment, also after the last one.
	v, err := hujson.Parse(append(bytes.Clone(source), '\n'))
	if err != nil {
		return node{}, errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
	}
	if !comments && !v.IsStandard() {
		return node{}, errors.New("it has comments or a comma before an end, which are not JSON")
	}
	return read(source, v)
}

// read turns a parsed value into a node with offsets.
func read(source []byte, v hujson.Value) (n node, err error) {
	n = node{start: v.StartOffset, end: v.EndOffset}
	switch v := v.Value.(type) {
	case hujson.Literal:
		if v.Kind() == '"' {
			n.kind = '"'
		}
	case *hujson.Array:
		n.kind = '['
		for _, e := range v.Elements {
			n.items = append(n.items, item{start: e.StartOffset})
			if err := n.items[len(n.items)-1].read(source, e, len(n.items) == len(v.Elements)); err != nil {
				return n, err
			}
		}
	case *hujson.Object:
		n.kind = '{'
		names := map[string]bool{}
		for _, m := range v.Members {
			i := item{name: m.Name.Value.(hujson.Literal).String(), start: m.Name.StartOffset}
			// Which of the two a CLI takes is not known, so an edit could change the wrong one.
			if names[i.name] {
				line := 1 + bytes.Count(source[:i.start], []byte("\n"))
				return n, fmt.Errorf("line %d: duplicate name %q", line, i.name)
			}
			names[i.name] = true
			n.items = append(n.items, i)
			if err := n.items[len(n.items)-1].read(source, m.Value, len(n.items) == len(v.Members)); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// read fills in the value, and where the comma after it is. hujson has no offset for
// commas: there is one after every item but the last, and after the last if something
// was parsed behind its value.
func (i *item) read(source []byte, v hujson.Value, last bool) (err error) {
	i.value, err = read(source, v)
	i.comma = v.EndOffset + len(v.AfterExtra)
	if last && v.AfterExtra == nil {
		i.comma = -1
	}
	return err
}

// style is how a text is laid out: its line break, "" if it is on one line, and one
// level of indentation.
type style struct{ newline, unit string }

// styleOf guesses the style from the first member.
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

// render writes a value as it looks at a depth.
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

// line is a line break with the indentation of a depth.
func (s style) line(depth int) string {
	if s.newline == "" {
		return ""
	}
	return s.newline + strings.Repeat(s.unit, depth)
}

// add appends an entry, as render has made it, to an object or a list at a depth. A
// comma goes right after the last item, so that a comment behind it stays where it is.
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

// addFirst puts an entry before all others: of Amp's rules the first that matches
// decides.
func (s style) addFirst(source []byte, in node, depth int, entry string) []byte {
	if len(in.items) == 0 {
		return s.add(source, in, depth, entry)
	}
	at := in.items[0].start
	return apply(source, []edit{{at, at, entry + "," + s.line(depth+1)}})
}

// edit replaces the bytes from from to to.
type edit struct {
	from, to int
	text     string
}

// apply makes edits, which must be in order and must not overlap.
func apply(source []byte, edits []edit) []byte {
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, source[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, source[at:]...)
}

// cut takes an item out of an object or a list, with its comma and its line. Comments
// stay, also one on the line before.
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
