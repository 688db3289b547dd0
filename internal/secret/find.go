package secret

import (
	"cmp"
	"slices"
	"strings"
)

// Finding is a credential, or a mark of one that was replaced, in a text. Start and End are offsets
// in bytes, as in text[Start:End]. Kind is a word of lower-case letters, digits and hyphens.
type Finding struct {
	Kind       string
	Start, End int
}

// Find lists the credentials in a text, and the marks of those that were replaced before, in order
// and without overlap. It is nil if there are none, which costs no allocation. In JSON, offsets are
// those of the raw text.
func Find(text string) []Finding {
	hits := find(text, 0)
	if hits == nil {
		return nil
	}
	found := make([]Finding, len(hits))
	for i, h := range hits {
		found[i] = h.Finding
	}
	return found
}

// hit is a finding and what the digest in its mark is made of.
type hit struct {
	Finding
	secret string // as it reads once decoded
	rank   rank
}

// rank says which kind is told when two hits overlap: the more special one.
type rank uint8

// The ranks. What was found by its form is skipped; the others are looked into, because a name such
// as token says less than a prefix inside of its value. A mark is the lowest: where a mark is a part
// of something secret, all of it is replaced.
const (
	isMark rank = iota
	byName
	byPlace
	byForm
)

// find looks into text as JSON if it is, else as text. If it begins like JSON and turns out to be
// none (a document that was cut, say), what was found in it counts beside what is found in the text.
func find(text string, depth int) []hit {
	if !looksLikeJSON(text) || depth > maxDepth {
		return findText(text)
	}
	hits, whole := findJSON(text, depth)
	if !whole {
		hits = join(text, append(hits, findText(text)...))
	}
	return hits
}

// findText looks at text as it is.
func findText(text string) []hit {
	s := scan{text: text}
	s.run()
	return join(text, s.hits)
}

// join sorts hits and makes one of those that overlap. It covers both, so that nothing of either is
// left, and has the kind of the higher rank.
func join(text string, hits []hit) []hit {
	if len(hits) < 2 {
		return hits
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Or(a.Start-b.Start, b.End-a.End) })
	joined := hits[:1]
	for _, h := range hits[1:] {
		last := &joined[len(joined)-1]
		if h.Start >= last.End {
			joined = append(joined, h)
			continue
		}
		if h.End > last.End {
			last.End = h.End
			last.secret = text[last.Start:last.End]
		}
		if h.rank > last.rank {
			last.Kind, last.rank = h.Kind, h.rank
		}
	}
	return joined
}

// scan is one pass over a text.
type scan struct {
	text string
	hits []hit

	spans    [alphabets]span // the last run of each alphabet: see span
	programs uint32          // those on this line that take a password in a flag, as bits
	cookies  int             // up to where a header of cookies was read
}

// span is a part of the text.
type span struct{ start, end int }

// role is what a byte may begin.
type role uint8

// The roles.
const (
	dull    role = iota
	inWord       // a letter or digit; a prefix stands at the beginning of a word
	assigns      // = and :
	dash         // a flag or a PEM block
	bracket      // a mark
	angle        // the end of a tag
	tilde        // in a client secret of Azure
	escape       // an escape, after which a word begins
	newline
)

// roles has the role of each byte.
var roles = func() (table [256]role) {
	for c := range table {
		if isLetter(byte(c)) || isDigit(byte(c)) {
			table[c] = inWord
		}
	}
	table['='], table[':'], table['-'], table['['], table['>'], table['~'] = assigns, assigns, dash, bracket, angle, tilde
	table['\\'], table['%'], table[0x1b], table['\n'] = escape, escape, escape, newline
	return table
}()

// run goes over the text once.
func (s *scan) run() {
	text := s.text
	index := tries
	for i := 0; i < len(text); {
		switch roles[text[i]] {
		case inWord:
			end := i + 1
			for end < len(text) && roles[text[end]] == inWord {
				end++
			}
			// Most words end here: nothing begins like them, and they are short.
			group := index.at(text[i:])
			if group != 0 || end-i >= leastDiscord {
				end = s.atWord(i, end, index.tries[group])
			}
			i = end
		case assigns:
			i = s.atAssign(i)
		case dash:
			i = s.atDash(i)
		case bracket:
			i = s.atBracket(i)
		case angle:
			i = s.atAngle(i)
		case tilde:
			i = s.atTilde(i)
		case escape:
			i = s.afterEscape(i)
		case newline:
			s.programs = 0
			i++
		default:
			i++
		}
	}
}

// add records a hit and returns where to go on: behind it, or, for a rank that other hits may be
// more special than, at next.
func (s *scan) add(kind string, start, end int, r rank, next int) int {
	s.hits = append(s.hits, hit{Finding{kind, start, end}, s.text[start:end], r})
	if r == byForm || r == isMark {
		return end
	}
	return next
}

// span is the end of the run of characters of an alphabet that covers from. The last run of each
// alphabet is remembered: if each of many prefixes in a row begins a run up to the end of the text,
// the text is still read once.
func (s *scan) span(a alphabet, from int) int {
	last := &s.spans[a]
	if from < last.start || from >= last.end {
		end := from
		for end < len(s.text) && classes[s.text[end]]&(1<<a) != 0 {
			end++
		}
		*last = span{from, end}
	}
	return last.end
}

// afterEscape is where a word may begin after an escape: \n, \u003d, %3D or a colour of the
// terminal. Without it, the n of \nghp_… would hide the token. Text that was escaped twice has
// several backslashes. A newline behind a backslash does not end the command.
func (s *scan) afterEscape(i int) int {
	text := s.text
	if text[i] == '%' {
		if isHex(text, i+1, 2) {
			return i + 3
		}
		return i + 1
	}
	next := i + 1
	for next < len(text) && text[i] == '\\' && text[next] == '\\' {
		next++
	}
	if text[i] == '\\' && next < len(text) {
		switch c := text[next]; {
		case c == 'u' && isHex(text, next+1, 4):
			next += 5
		case (c == 'x' || c == '0') && isHex(text, next+1, 2):
			next += 3
		case strings.IndexByte("nrtbfe0\n", c) >= 0:
			next++
		}
	}
	if next == len(text) || text[next] != '[' {
		return next
	}
	// The colour green is ESC [ 3 2 m.
	end := next + 1
	for end < len(text) && (isDigit(text[end]) || text[end] == ';') {
		end++
	}
	if end < len(text) && (text[end] == 'm' || text[end] == 'K') {
		return end + 1
	}
	return next
}

// isHex reports whether n hex digits stand at i.
func isHex(text string, i, n int) bool {
	if i+n > len(text) {
		return false
	}
	for _, c := range []byte(text[i : i+n]) {
		if classes[c]&(1<<hexes) == 0 {
			return false
		}
	}
	return true
}
