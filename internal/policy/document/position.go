package document

import (
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Inside finds the place in the source of a character of a scalar's value. YAML folds
// lines, strips indentation and has escapes, but it only ever changes white space and
// what is escaped: the nth character that is not white space is the same in both. An
// offset at white space or at the end is the place after what stands before it.
func (r *Reader) Inside(n *yaml.Node, offset int) Position {
	value := []rune(n.Value)
	offset = max(0, min(offset, len(value)))
	before := 0
	for _, c := range value[:offset] {
		if !unicode.IsSpace(c) {
			before++
		}
	}
	if offset < len(value) && !unicode.IsSpace(value[offset]) {
		begin, _ := r.nth(n, before)
		return begin
	}
	if before == 0 {
		return At(n)
	}
	_, end := r.nth(n, before-1)
	return end
}

// nth is where the nth character of a scalar that is not white space begins and ends. It reads
// from the beginning of the scalar each time: scalars are short, and it is for errors only.
func (r *Reader) nth(n *yaml.Node, want int) (begin, end Position) {
	s := &scanner{lines: r.lines, line: n.Line - 1, column: n.Column - 1, style: n.Style}
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		s.line, s.column = n.Line, 0 // the text begins on the line after the | or >
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		s.column++
	}
	s.load()
	for count := 0; s.line < len(s.lines); {
		begin = Position{s.line + 1, s.column + 1}
		c, ok := s.next()
		end = Position{s.line + 1, s.column + 1}
		if !ok || unicode.IsSpace(c) {
			continue
		}
		if count == want {
			return begin, end
		}
		count++
	}
	return At(n), At(n)
}

// scanner reads the characters of a scalar from the source, undoing what YAML does to quotes
// and escapes. YAML has accepted the text before, so it need not check anything.
type scanner struct {
	lines        []string
	text         []rune // the current line
	line, column int    // from 0
	style        yaml.Style
}

// load takes the characters of the current line, without the return of a Windows line end.
func (s *scanner) load() {
	s.text = nil
	if s.line < len(s.lines) {
		s.text = []rune(strings.TrimSuffix(s.lines[s.line], "\r"))
	}
}

// next reads one character, with escapes decoded. It is false at the end of a line, which is
// no character of the value: YAML folds it into a space or keeps it, by the style.
func (s *scanner) next() (rune, bool) {
	if s.column >= len(s.text) {
		s.line, s.column = s.line+1, 0
		s.load()
		return 0, false
	}
	c := s.text[s.column]
	s.column++
	switch {
	case c == '\'' && s.style&yaml.SingleQuotedStyle != 0:
		s.column++ // the second of two
	case c == '\\' && s.style&yaml.DoubleQuotedStyle != 0:
		return s.escape()
	}
	return c, true
}

// escape reads what follows a backslash in double quotes.
func (s *scanner) escape() (rune, bool) {
	if s.column >= len(s.text) {
		return ' ', true // the line goes on
	}
	c := s.text[s.column]
	s.column++
	if digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c]; digits > 0 && s.column+digits <= len(s.text) {
		code, err := strconv.ParseUint(string(s.text[s.column:s.column+digits]), 16, 32)
		s.column += digits
		return rune(code), err == nil //nolint:gosec // YAML checked that it is a character
	}
	if strings.ContainsRune("tnrvfNLP_ \t", c) {
		return ' ', true
	}
	return c, true
}
