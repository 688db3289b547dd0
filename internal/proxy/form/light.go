package form

import "bytes"

// What is said to a model, and by it, is most of a request and of a reply, and rules look at
// the rest. So the text is passed over here by its quotes and brackets only, and what is left
// is decoded strictly. A text that is JSON is cut where a decoder would cut it; of one that
// is not, the provider or the client says so.

// passedOver are the members of a request that are passed over.
var passedOver = map[string]bool{"messages": true, "input": true, "system": true, "instructions": true}

// Without is an object without the members that are passed over, and where the last of those
// with the name listed is. It is false for what is no object, or has one of them twice.
func Without(text []byte, listed string) (rest, found []byte, ok bool) {
	rest = append(make([]byte, 0, 512), '{')
	var seen [4]string
	passed := 0
	whole := eachMember(text, func(name, member, value []byte) bool {
		if !passedOver[string(name)] {
			if len(rest) > 1 {
				rest = append(rest, ',')
			}
			rest = append(rest, member...)
			return true
		}
		for _, other := range seen[:passed] {
			if other == string(name) {
				return false
			}
		}
		seen[passed] = string(name)
		passed++
		if string(name) == listed {
			found = value
		}
		return true
	})
	return append(rest, '}'), found, whole
}

// IsWhole reports whether text is one object that has come to its end.
func IsWhole(text []byte) bool {
	return eachMember(text, func(_, _, _ []byte) bool { return true })
}

// eachMember goes through the members of an object: the name as it is written, the whole
// member, and its value. It is false when text is no object, ends before it should, or do
// says so.
func eachMember(text []byte, do func(name, member, value []byte) bool) bool {
	at := space(text, 0)
	if at == len(text) || text[at] != '{' {
		return false
	}
	if at = space(text, at+1); at < len(text) && text[at] == '}' {
		return space(text, at+1) == len(text)
	}
	for {
		begin := at
		if at == len(text) || text[at] != '"' {
			return false
		}
		if at = pass(text, at); at < 0 {
			return false
		}
		name := text[begin+1 : at-1]
		if at = space(text, at); at == len(text) || text[at] != ':' {
			return false
		}
		value := space(text, at+1)
		if at = pass(text, value); at < 0 || !do(name, text[begin:at], text[value:at]) {
			return false
		}
		if at = space(text, at); at == len(text) {
			return false
		}
		switch text[at] {
		case ',':
			at = space(text, at+1)
		case '}':
			return space(text, at+1) == len(text)
		default:
			return false
		}
	}
}

// space is where the white space ends that begins there.
func space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// pass is where the value ends that begins there, -1 when it does not.
func pass(text []byte, at int) int {
	depth := 0
	begin := at
	for at < len(text) {
		switch text[at] {
		case '"':
			if at = closing(text, at+1); at < 0 {
				return -1
			}
			if depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return at + 1
			}
			if depth < 0 { // of the object around a number or a word
				return orNone(begin, at)
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return orNone(begin, at)
			}
		}
		at++
	}
	return -1
}

// orNone is where a number or a word ends, -1 when there is none.
func orNone(begin, at int) int {
	if begin == at {
		return -1
	}
	return at
}

// closing is what follows the quote that ends the text, -1 when there is none: one that has
// an even number of backslashes before it.
func closing(text []byte, at int) int {
	for begin := at; ; {
		i := bytes.IndexByte(text[at:], '"')
		if i < 0 {
			return -1
		}
		at += i + 1
		slashes := 0
		for j := at - 2; j >= begin && text[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
	}
}
