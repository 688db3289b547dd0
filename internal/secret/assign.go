package secret

import "strings"

// value is where a value stands in the text, without its quotes.
type value struct {
	start, end int
	quoted     bool
}

// farthest is how long a value in quotes may be. Longer text is not a credential, or has a form of
// its own.
const farthest = 8 << 10

// value reads a value at i: after blanks, in quotes or up to the next character that ends a word of
// a shell, a query or a list. Quotes may be escaped, as they are in JSON in a string; then the
// closing ones are escaped alike.
func (s *scan) value(i int) value {
	text := s.text
	for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
		i++
	}
	open := i
	if strings.HasPrefix(text[i:], "b'") || strings.HasPrefix(text[i:], `b"`) || strings.HasPrefix(text[i:], "r'") ||
		strings.HasPrefix(text[i:], `r"`) || strings.HasPrefix(text[i:], "u'") || strings.HasPrefix(text[i:], `u"`) {
		open++ // the kinds of strings of Python
	}
	quote := open
	for quote < len(text) && quote-open < 7 && text[quote] == '\\' {
		quote++
	}
	if quote == len(text) || text[quote] != '"' && text[quote] != '\'' && text[quote] != '`' {
		return value{i, s.span(loose, i), false}
	}
	start := quote + 1
	limit := min(len(text), start+farthest)
	for end := start; end < limit; end++ {
		switch c := text[end]; {
		case c == text[quote] && text[end-(quote-open):end] == text[open:quote]:
			return value{start, end - (quote - open), true}
		case c == '\n':
			return value{start, start, false} // quotes of a value close on the same line
		case c == '\\' && quote == open:
			end++ // what is escaped does not close
		}
	}
	// The text was cut inside the quotes.
	if limit == len(text) {
		return value{start, limit, true}
	}
	return value{start, start, false}
}

// atAssign looks at what stands around = or :.
func (s *scan) atAssign(i int) int {
	text := s.text
	if i == 0 || i+1 == len(text) {
		return i + 1
	}
	if text[i] == ':' {
		switch next := text[i+1]; {
		case next == '/' && strings.HasPrefix(text[i:], "://"):
			return s.atURL(i)
		case next == 'A' && isDigit(text[i-1]):
			return s.atBot(i)
		case next == '=' || next == ':':
			return i + 1
		}
	}
	called, spaced := s.nameBefore(i)
	row := lookUp(called)
	if row == nil {
		return i + 1
	}
	next := i + 1
	for next < len(text) && (text[next] == '=' || text[next] == '>') {
		next++ // == and =>
		spaced = true
	}
	s.assign(row, called, next, spaced || next < len(text) && text[next] == ' ')
	return i + 1
}

// nameBefore is the name in front of the assignment at i, and whether there are blanks between
// them. It may stand in quotes and in brackets: config["api_key"] = …
func (s *scan) nameBefore(i int) (called string, spaced bool) {
	text := s.text
	end := i
	if text[end-1] == '?' {
		end-- // token?: string
	}
	for end > 0 && strings.IndexByte(" \"'`\\]:", text[end-1]) >= 0 && i-end < 8 {
		end--
		spaced = spaced || text[end] == ' '
	}
	if byLastLetters[lastLetters(text[:end])] == nil {
		return "", false
	}
	start := end
	for start > 0 && end-start < 64 && (classes[text[start-1]]&(1<<dotted) != 0 || text[start-1] == ' ') {
		start--
	}
	if start > 0 && text[start-1] == '\\' && end-start > 1 && strings.IndexByte("nrt", text[start]) >= 0 {
		start++ // an escape, not a letter
	}
	if start > 1 && text[start-2:start] == "\x1b[" {
		start += strings.IndexByte(text[start:end], 'm') + 1 // a colour
	}
	if strings.HasSuffix(text[:i+1], markStart) || strings.HasSuffix(text[:start], markStart) {
		return "", false // of a mark that is not whole
	}
	return text[start:end], spaced
}

// assign judges what is assigned to a name at i. spaced is whether there are blanks around the sign,
// as there are in code and in prose, and not in a shell, a query or a file of variables.
func (s *scan) assign(row *name, called string, i int, spaced bool) {
	switch row.trust {
	case asHeader:
		s.header(i)
		return
	case asCookies:
		s.cookieHeader(i)
		return
	}
	v := s.value(i)
	text := s.text[v.start:v.end]
	if v.quoted {
		// In "password: " + text + "." the quote closes; what follows is code.
		closes := spaced && text != "" && strings.IndexByte("+,);.%}", text[0]) >= 0
		if !closes && row.trust.accepts(text, true) {
			s.add(row.kind, v.start, v.end, byName, i)
		}
		return
	}
	if isCode(text) || spaced && isMember(text) {
		return
	}
	next := v.end
	for next < len(s.text) && next-v.end < 8 && strings.IndexByte(" \t\r", s.text[next]) >= 0 {
		next++
	}
	after := s.text[next:]
	// password: str = "…" has a type between the name and the value.
	if strings.HasPrefix(after, "=") && spaced && isName(text) {
		if v := s.value(next + 1); v.quoted && row.trust.accepts(s.text[v.start:v.end], true) {
			s.add(row.kind, v.start, v.end, byName, i)
		}
		return
	}
	inQuotes := strings.HasPrefix(after, `"`) || strings.HasPrefix(after, "'")
	alone := after == "" || after[0] == '\n' || after[0] == '\\' || inQuotes
	switch {
	case !spaced && row.trust == asPassword && isVariable(lastPart(called)):
		// PGPASSWORD=letmein: a shell has nothing but values there.
		if len(text) >= 6 && !isPlaceholder(text) && !isPath(text) {
			s.add(row.kind, v.start, v.end, byName, i)
		}
	case !row.trust.accepts(text, !spaced || inQuotes):
	case spaced && (row.trust == asPassword && !alone || echoes(text)):
		// password = user2, or password2: a variable.
	default:
		s.add(row.kind, v.start, v.end, byName, i)
	}
}

// isCode reports whether an unquoted value is an expression of a programming language.
func isCode(text string) bool {
	return text == "" || strings.ContainsAny(text[:min(len(text), looked)], "([{") || text[0] == '$'
}

// isMember reports whether a text is a member of something, such as self.config2.token.
func isMember(text string) bool {
	text = text[:min(len(text), looked)]
	first, rest, dotted := strings.Cut(text, ".")
	for dotted {
		if first == "" || !isLetter(first[0]) && first[0] != '_' || len(first) > 40 {
			return false
		}
		first, rest, dotted = strings.Cut(rest, ".")
		if !dotted {
			return first != "" && isLetter(first[0])
		}
	}
	return false
}

// isName reports whether a text is a name, of a type for one.
func isName(text string) bool {
	f := formOf(text[:min(len(text), looked)])
	return f.words && f.odd == 0 && f.letters > 0
}

// lastPart is a name without the words that stand before it.
func lastPart(called string) string { return called[strings.LastIndexByte(called, ' ')+1:] }

// echoes reports whether a value repeats a name, as variables do: password = userPassword2.
func echoes(text string) bool {
	lower := strings.ToLower(text[:min(len(text), looked)])
	return strings.Contains(lower, "pass") || strings.Contains(lower, "secret") || strings.Contains(lower, "token")
}

// atAngle looks at what stands in an element of XML: <password>…</password>.
func (s *scan) atAngle(i int) int {
	text := s.text
	if byLastLetters[lastLetters(text[:i])] == nil {
		return i + 1
	}
	start := i
	for start > 0 && i-start < 64 && classes[text[start-1]]&(1<<dotted) != 0 {
		start--
	}
	row := lookUp(text[start:i])
	if row == nil || start == 0 || text[start-1] != '<' {
		return i + 1
	}
	end := s.span(loose, i+1)
	if strings.HasPrefix(text[end:], "</") && row.trust.accepts(text[i+1:end], true) {
		s.add(row.kind, i+1, end, byName, i)
	}
	return i + 1
}
