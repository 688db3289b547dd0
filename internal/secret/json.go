package secret

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxDepth is how often JSON in a string in JSON is looked into. Each level doubles the backslashes
	// of the next, so nobody writes more.
	maxDepth = 8
	// maxNesting is how deep objects and lists may nest, as in the standard library.
	maxNesting = 10_000
)

// looksLikeJSON reports whether a text begins as an object, a list or a string does.
func looksLikeJSON(text string) bool {
	i := skipBlanks(text, 0)
	return i < len(text) && (text[i] == '{' || text[i] == '[' || text[i] == '"')
}

// state is what may come next in a document.
type state uint8

// The states.
const (
	wantValue state = iota
	wantItem        // or the end of a list
	wantName        // or the end of an object
	wantColon
	wantComma // or the end of what is open
)

// findJSON looks into the strings of a text. whole is whether all of it is JSON; if not, the hits
// are those before the place where it is not.
//
// It is written by hand because offsets into the raw text are needed, and no decoder gives those of
// what is inside a string. It is lenient with numbers and commas, which hold no credentials, and
// takes several documents one after the other.
func findJSON(text string, depth int) (hits []hit, whole bool) {
	var room [16]frame
	open := nesting(room[:0])
	next := wantValue
	for i := skipBlanks(text, 0); i < len(text); i = skipBlanks(text, i) {
		if len(open) == 0 && next == wantComma {
			next = wantValue // another document
		}
		ok := true
		switch c := text[i]; {
		case c == '"':
			end := closing(text, i)
			if end < 0 || next == wantColon || next == wantComma {
				return hits, false
			}
			raw := text[i+1 : end]
			plain, right := decode(raw)
			if !right {
				return hits, false
			}
			hits = append(hits, look(i+1, raw, plain, open.nameOf(plain, next == wantName), depth)...)
			if i = end + 1; next == wantName {
				next = wantColon
			} else {
				next = wantComma
			}
		case c == '}' || c == ']':
			if next == wantColon || next == wantValue || !open.in(c == ']') {
				return hits, false
			}
			open = open[:len(open)-1]
			next = wantComma
			i++
		case c == ':':
			next, ok = wantValue, next == wantColon
			i++
		case c == ',':
			ok = next == wantComma
			if next = wantValue; open.in(false) {
				next = wantName
			}
			i++
		case next != wantValue && next != wantItem || len(open) == maxNesting:
			ok = false
		case c == '{' || c == '[':
			var f frame
			f, next = open.opened(c == '[')
			open = append(open, f)
			i++
		default:
			end := skipScalar(text, i)
			i, next, ok = end, wantComma, end > i
		}
		if !ok {
			return hits, false
		}
	}
	return hits, len(open) == 0 && next == wantComma
}

// look finds what is in a string and what its name says about it. The hits are those of the decoded
// text; their offsets are moved to where that stands in the raw one.
func look(offset int, raw, plain, called string, depth int) []hit {
	hits := find(plain, depth+1)
	if row := lookUp(called); row != nil {
		hits = join(plain, append(hits, named(row, plain)...))
	}
	var rawAt, plainAt int
	// to moves on to an offset of the decoded text. Inside of what one escape stands for, it stops
	// behind the escape.
	to := func(offset int) int {
		for plainAt < offset {
			_, size, width := unit(raw, rawAt)
			rawAt += size
			plainAt += width
		}
		return rawAt
	}
	for i := range hits {
		hits[i].Start = offset + to(hits[i].Start)
		hits[i].End = offset + to(hits[i].End)
	}
	return hits
}

// named are the hits in a string that a name makes a credential.
func named(row *name, plain string) []hit {
	s := scan{text: plain}
	switch {
	case row.trust == asHeader:
		s.header(0)
	case row.trust == asCookies:
		s.cookieHeader(0)
	case row.trust.accepts(plain, true):
		s.add(row.kind, 0, len(plain), byName, 0)
	}
	return s.hits
}

// skipBlanks is the first place from i on that is not white space.
func skipBlanks(text string, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// skipScalar is the end of a number, true, false or null at i, or i if there is none.
func skipScalar(text string, i int) int {
	for _, literal := range []string{"true", "false", "null"} {
		if strings.HasPrefix(text[i:], literal) {
			return i + len(literal)
		}
	}
	for i < len(text) && (isDigit(text[i]) || strings.IndexByte("+-.eE", text[i]) >= 0) {
		i++
	}
	return i
}

// closing is where the string that begins at i ends, or -1.
func closing(text string, i int) int {
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i
		case c == '\\':
			i++
		case c < ' ':
			return -1
		}
	}
	return -1
}

// decode reads the escapes of a string. Without any, it is the string itself.
func decode(raw string) (plain string, ok bool) {
	first := strings.IndexByte(raw, '\\')
	if first < 0 {
		return raw, true
	}
	out := make([]byte, 0, len(raw))
	rest := raw
	for first >= 0 {
		out = append(out, rest[:first]...)
		c, size, _ := unit(rest, first)
		if size == 0 {
			return "", false
		}
		out = utf8.AppendRune(out, c)
		rest = rest[first+size:]
		first = strings.IndexByte(rest, '\\')
	}
	return string(append(out, rest...)), true
}

// unit reads one byte or escape at i: the character, how many bytes it takes in the raw text (0 if
// the escape is wrong), and how many in the decoded one.
func unit(raw string, i int) (c rune, size, width int) {
	if raw[i] != '\\' {
		return rune(raw[i]), 1, 1
	}
	if i+1 == len(raw) {
		return 0, 0, 0
	}
	if raw[i+1] == 'u' {
		if !isHex(raw, i+2, 4) {
			return 0, 0, 0
		}
		c, size = fourHex(raw, i+2), 6
		if utf16.IsSurrogate(c) && isEscaped(raw, i+6) {
			if both := utf16.DecodeRune(c, fourHex(raw, i+8)); both != utf8.RuneError {
				c, size = both, 12
			}
		}
		if utf16.IsSurrogate(c) {
			c = utf8.RuneError
		}
		return c, size, utf8.RuneLen(c)
	}
	at := strings.IndexByte(`"\/bfnrt`, raw[i+1])
	if at < 0 {
		return 0, 0, 0
	}
	return rune("\"\\/\b\f\n\r\t"[at]), 2, 1
}

// isEscaped reports whether \u and four hex digits stand at i.
func isEscaped(raw string, i int) bool {
	return strings.HasPrefix(raw[min(i, len(raw)):], `\u`) && isHex(raw, i+2, 4)
}

// fourHex is the number that four hex digits at i make.
func fourHex(raw string, i int) (n rune) {
	for _, c := range []byte(raw[i : i+4]) {
		n <<= 4
		if isDigit(c) {
			n |= rune(c - '0')
		} else {
			n |= rune(c|0x20-'a') + 10
		}
	}
	return n
}
