package engine

import (
	"bytes"
	"encoding/json" // decodes one string, which may hold a NUL
	"strconv"
	"unicode/utf8"

	"signalbox/internal/wire"
)

// value is one JSON value that is known to be valid, as it was written. The zero value
// is absent. A wrong type is not an error: what is asked for is then absent (RUN-11).
// It shares memory with the line, which the reader overwrites; raw makes a copy to
// keep.
type value []byte

// parse finds the object in a line. Bytes that are not UTF-8 and halves of surrogate
// pairs are replaced (RUN-12), so that everything in it can be passed on as it is. The
// skip functions below rely on the text being valid, and do not check bounds.
func parse(line []byte) (value, bool) {
	line = bytes.Trim(line, " \t\r\n\v\f")
	// Most lines that are no JSON are progress bars and warnings; looking at the first byte
	// spares parsing them.
	if len(line) == 0 || line[0] != '{' || !wire.Valid(line) {
		return nil, false
	}
	return mendSurrogates(mendUTF8(line)), true
}

// each calls fn for every member of an object, in order. A name that occurs twice is
// handed over twice, so that the last one counts, as with most decoders. Names are
// compared exactly (RUN-14).
func (v value) each(fn func(name []byte, member value)) {
	if len(v) == 0 || v[0] != '{' {
		return
	}
	for i := skipSpace(v, 1); v[i] == '"'; {
		end := skip(v, i)
		name := v[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			text, _ := v[i:end].text()
			name = value(text)
		}
		i = skipSpace(v, skipSpace(v, end)+1) // over the colon
		end = skip(v, i)
		fn(name, v[i:end])
		if i = skipSpace(v, end); v[i] == ',' {
			i = skipSpace(v, i+1)
		}
	}
}

// get is a member of an object, absent if there is none or v is no object.
func (v value) get(name string) (found value) {
	v.each(func(n []byte, member value) {
		if string(n) == name {
			found = member
		}
	})
	return found
}

// items calls fn for every item of an array.
func (v value) items(fn func(item value)) {
	if len(v) == 0 || v[0] != '[' {
		return
	}
	for i := skipSpace(v, 1); v[i] != ']'; {
		end := skip(v, i)
		fn(v[i:end])
		if i = skipSpace(v, end); v[i] == ',' {
			i = skipSpace(v, i+1)
		}
	}
}

// text is the string, and false if v is none.
func (v value) text() (string, bool) {
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	if inside := v[1 : len(v)-1]; bytes.IndexByte(inside, '\\') < 0 {
		return string(inside), true
	}
	var text string
	err := json.Unmarshal(v, &text)
	return text, err == nil
}

// str is the string, "" if v is none.
func (v value) str() string {
	text, _ := v.text()
	return text
}

// is reports whether the value is this string.
func (v value) is(text string) bool { return v.str() == text }

// integer is a number that was written without fraction and exponent (RUN-14).
func (v value) integer() (int64, bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// number is any number.
func (v value) number() (float64, bool) {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return f, err == nil
}

// truthy is the value as Python's bool has it, since the tools that defined these
// streams are written in Python: absent, null, false, zero and everything empty is
// false.
func (v value) truthy() bool {
	switch {
	case len(v) == 0:
		return false
	case v[0] == '"':
		return len(v) > 2
	case v[0] == '{' || v[0] == '[':
		return skipSpace(v, 1) < len(v)-1
	case v[0] == 'n' || v[0] == 'f':
		return false
	case v[0] == 't':
		return true
	}
	f, _ := v.number()
	return f != 0
}

// shown is a value as a title has it: a string without its quotes, anything else as
// JSON.
func (v value) shown() string {
	if text, ok := v.text(); ok {
		return text
	}
	return string(v)
}

// raw is a copy that outlives the line.
func (v value) raw() wire.Raw { return wire.Raw(bytes.Clone(v)) }

// object is the value if it is an object, and an empty one otherwise.
func (v value) object() value {
	if len(v) > 0 && v[0] == '{' {
		return v
	}
	return value("{}")
}

// skip is the index after the value that begins at i.
func skip(v []byte, i int) int {
	switch v[i] {
	case '"':
		return skipString(v, i)
	case '{', '[':
		depth := 0
		for ; ; i++ {
			switch v[i] {
			case '"':
				i = skipString(v, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(v) && v[i] != ',' && v[i] != '}' && v[i] != ']' && v[i] > ' ' {
		i++
	}
	return i
}

// skipString is the index after the string that begins at i. A quote ends it unless an
// odd number of backslashes stands before it.
func skipString(v []byte, i int) int {
	for i++; ; i++ {
		quote := bytes.IndexByte(v[i:], '"')
		escapes := 0
		for j := i + quote - 1; j >= i && v[j] == '\\'; j-- {
			escapes++
		}
		i += quote
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// skipSpace is the index of the next byte that is no white space.
func skipSpace(v []byte, i int) int {
	for i < len(v) && v[i] <= ' ' {
		i++
	}
	return i
}

// mendUTF8 replaces every byte that is part of no character (RUN-12).
func mendUTF8(line []byte) []byte {
	if utf8.Valid(line) {
		return line
	}
	out := make([]byte, 0, len(line)+64)
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		out = utf8.AppendRune(out, r)
		line = line[n:]
	}
	return out
}

// mendSurrogates replaces escaped halves of surrogate pairs that stand alone (RUN-12).
// Decoders disagree about them, and databases refuse them. The length does not change.
func mendSurrogates(line []byte) []byte {
	if !bytes.Contains(line, []byte(`\ud`)) && !bytes.Contains(line, []byte(`\uD`)) {
		return line
	}
	out := bytes.Clone(line)
	for i := 0; i < len(out); i++ {
		if out[i] != '\\' {
			continue
		}
		high := escaped(out, i)
		switch {
		case high >= 0xd800 && high < 0xdc00 && escaped(out, i+6)>>10 == 0xdc00>>10:
			i += 11 // a pair
		case high >= 0xd800 && high < 0xe000:
			copy(out[i:], `\ufffd`)
			i += 5
		default:
			i++
		}
	}
	return out
}

// escaped is the number in the \u escape at i, 0 if there is none.
func escaped(v []byte, i int) uint64 {
	if i+6 > len(v) || v[i] != '\\' || v[i+1] != 'u' {
		return 0
	}
	n, _ := strconv.ParseUint(string(v[i+2:i+6]), 16, 32)
	return n
}
