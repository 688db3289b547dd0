// Package show makes texts of agents visible to people as they are: in terminals, on pages, in chats
// and in e-mail. Whoever decides has to see what stands there, so characters that a reader would not
// see, or that would change what stands around them, are shown by their number, as in ⟨U+202E⟩. It
// is pure and knows nothing of where a text is shown.
package show

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// maxMarks is how many marks may stand on one letter. More would cover the lines around it; no
// language needs them.
const maxMarks = 4

// Text is a text of one line. Line breaks and tabs are shown by their number too, since they would
// begin something that looks like another field.
func Text(text string) string { return show(text, false) }

// Lines is a text that may have several lines, which stay lines, also those that end as on Windows;
// tabs stay as well.
func Lines(text string) string { return show(strings.ReplaceAll(text, "\r\n", "\n"), true) }

func show(text string, lines bool) string {
	var b strings.Builder
	done := 0 // how much of the text is in b
	marks := 0
	before := rune(-1)
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		marks++
		if r < utf8.RuneSelf || !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		stays := lines && (r == '\n' || r == '\t') || holdsEmoji(before, r, text[at+size:])
		if !stays && (hidden(r, size) || marks > maxMarks) {
			b.WriteString(text[done:at])
			b.WriteString(number(r, size, text[at]))
			done = at + size
		}
		before, at = r, at+size
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// number is how a character is shown that is not seen. A byte that is no text is shown as such.
func number(r rune, size int, first byte) string {
	if r == utf8.RuneError && size <= 1 {
		return fmt.Sprintf("⟨byte %02X⟩", first)
	}
	return fmt.Sprintf("⟨U+%04X⟩", r)
}

// hidden reports whether a reader would not see a character, or not as what it is: controls, those of
// text direction, what has no width, spaces that look like the common one, and what has no glyph.
// The bracket of our own numbers is among them, so that a number is always ours.
func hidden(r rune, size int) bool {
	switch {
	case r >= ' ' && r < 0x7f:
		return false
	case r == utf8.RuneError && size <= 1, r == '⟨', r == '\u2800': // a Braille pattern without dots
		return true
	}
	return !unicode.IsGraphic(r) || unicode.In(r, unicode.Zs, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
}

// holdsEmoji reports whether a character that has no width makes one picture of its neighbours, as in
// those of families and flags. Between letters it is shown.
func holdsEmoji(before, r rune, after string) bool {
	const joiner, asPicture = '\u200d', '\ufe0f'
	isPicture := func(r rune) bool {
		return r == asPicture || unicode.Is(unicode.So, r) || r >= 0x1f3fb && r <= 0x1f3ff
	}
	next, _ := utf8.DecodeRuneInString(after)
	switch r {
	case asPicture:
		return unicode.Is(unicode.So, before)
	case joiner:
		return isPicture(before) && unicode.Is(unicode.So, next)
	}
	return false
}

// JSON escapes in JSON what Text would show by its number, so that a document stays the same document,
// and can be printed. Outside of its texts JSON has none of these.
func JSON(document []byte) []byte {
	var out []byte
	done := 0
	for at := 0; at < len(document); {
		r, size := utf8.DecodeRune(document[at:])
		if r >= utf8.RuneSelf && r != '⟨' && hidden(r, size) && size > 1 || r == 0x7f {
			out = append(out, document[done:at]...)
			if r > 0xffff {
				high, low := utf16.EncodeRune(r)
				out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
			} else {
				out = fmt.Appendf(out, `\u%04x`, r)
			}
			done = at + size
		}
		at += size
	}
	if done == 0 {
		return document
	}
	return append(out, document[done:]...)
}
