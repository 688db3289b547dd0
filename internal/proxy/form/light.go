package form

import "bytes"

// Most bytes of a request and of a reply are text of the conversation, and most rules look at the
// rest. The functions here skip that text by its quotes and brackets alone, several times faster
// than decoding it; what is left is decoded strictly. On valid JSON they cut exactly where a decoder
// would. On anything else they may cut anywhere: the provider, or the client's SDK, refuses it.

// conversation are the members of a request that hold the conversation, and are skipped.
var conversation = map[string]bool{"messages": true, "input": true, "system": true, "instructions": true}

// Said are parts of a conversation as they are written, nil where they are absent.
type Said struct{ Listed, System []byte }

// Without returns an object without the members in conversation, and of those the one named listed
// and the system prompt. ok is false if text is not an object, or has one of those members twice:
// which of two the provider reads is not known.
func Without(text []byte, listed string) (rest []byte, said Said, ok bool) {
	rest = append(make([]byte, 0, 512), '{')
	var seen [4]string
	passed := 0
	whole := eachMember(text, func(name, member, value []byte) bool {
		if !conversation[string(name)] {
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
		switch string(name) {
		case listed:
			said.Listed = value
		case "system":
			said.System = value
		}
		return true
	})
	return append(rest, '}'), said, whole
}

// IsCompleteObject reports whether text is one complete object with nothing after it.
func IsCompleteObject(text []byte) bool {
	return eachMember(text, func(_, _, _ []byte) bool { return true })
}

// eachMember calls do for each member of an object: its name as it is written, with escapes, the whole
// member, and its value. It returns false if text is not one complete object, or if do does.
func eachMember(text []byte, do func(name, member, value []byte) bool) bool {
	at := skipSpace(text, 0)
	if at == len(text) || text[at] != '{' {
		return false
	}
	if at = skipSpace(text, at+1); at < len(text) && text[at] == '}' {
		return skipSpace(text, at+1) == len(text)
	}
	for {
		begin := at
		if at == len(text) || text[at] != '"' {
			return false
		}
		if at = skipValue(text, at); at < 0 {
			return false
		}
		name := text[begin+1 : at-1]
		if at = skipSpace(text, at); at == len(text) || text[at] != ':' {
			return false
		}
		value := skipSpace(text, at+1)
		if at = skipValue(text, value); at < 0 || !do(name, text[begin:at], text[value:at]) {
			return false
		}
		if at = skipSpace(text, at); at == len(text) {
			return false
		}
		switch text[at] {
		case ',':
			at = skipSpace(text, at+1)
		case '}':
			return skipSpace(text, at+1) == len(text)
		default:
			return false
		}
	}
}

// The readers called light take what is written as providers and SDKs write it, in half of the time of a decoder, and
// leave everything else to one: then they are false. What they have read counts only if wire.Strict takes the text.

// EachMember calls do for each member of an object, as long as do returns true. It is false if do was, if the text is no
// object, or if a name is written with escapes.
func EachMember(text []byte, do func(name, value []byte) bool) bool {
	return eachMember(text, func(name, _, value []byte) bool { return bytes.IndexByte(name, '\\') < 0 && do(name, value) })
}

// EachItem does the same for the items of a list.
func EachItem(text []byte, do func(item []byte) bool) bool {
	if len(text) == 0 || text[0] != '[' {
		return false
	}
	for at := skipSpace(text, 1); at < len(text) && text[at] != ']'; at = skipSpace(text, at) {
		if text[at] == ',' {
			at = skipSpace(text, at+1)
		}
		begin := at
		if at = skipValue(text, at); at < 0 || !do(text[begin:at]) {
			return false
		}
	}
	return true
}

// IsText reports whether a value is a text without escapes, and puts it into to.
func IsText(value []byte, to *string) bool {
	if value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	*to = string(value[1 : len(value)-1])
	return true
}

// skipSpace is the index after the white space that begins at at.
func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// skipValue is the index after the value that begins at at, -1 if it does not end. Brackets are counted and
// not matched: {] passes here, and no decoder takes it.
func skipValue(text []byte, at int) int {
	depth := 0
	begin := at
	for at < len(text) {
		switch text[at] {
		case '"':
			if at = skipString(text, at+1); at < 0 {
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
			if depth < 0 { // the end of the object around a number or a word
				return wordEnd(begin, at)
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return wordEnd(begin, at)
			}
		}
		at++
	}
	return -1
}

// wordEnd is the index where a number or a word ends, -1 if it is empty.
func wordEnd(begin, at int) int {
	if begin == at {
		return -1
	}
	return at
}

// skipString is the index after the quote that ends a string, -1 if there is none. A quote ends it if an
// even number of backslashes is before it.
func skipString(text []byte, at int) int {
	// IndexByte is the fast part: strings are long and quotes in them rare.
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
