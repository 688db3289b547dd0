package output

import (
	"strings"
	"unicode"
)

// Printable replaces control characters and controls of text direction. Agents choose
// names and titles; none of them may move the cursor, reverse the text around it, or
// fake a row or a column. A line break counts too: use Lines for text that may have
// several.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Lines is Printable for a text of several lines, which keeps them.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Printable(strings.ReplaceAll(strings.TrimRight(lines[i], "\r"), "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// OneLine is a text without its line breaks and its runs of spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Cut is the first line of a text, and no more than so many characters of it.
func Cut(text string, most int) string {
	line, _, more := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > most {
		line, more = string(runes[:most]), true
	}
	if more {
		line += "…"
	}
	return line
}
