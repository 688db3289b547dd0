package amp

import (
	"strings"
	"unicode/utf8"
)

// FirstLine is the first line of a text, cut to at most so many characters.
func FirstLine(text string, most int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if utf8.RuneCountInString(line) > most {
		line = string([]rune(line)[:most]) + "…"
	}
	return line
}
