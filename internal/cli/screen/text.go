package screen

import (
	"strings"
	"unicode/utf8"

	"signalbox/internal/cli/output"
	"signalbox/internal/show"
)

// style is a way to print text, as the parameter of an SGR escape sequence. Only the
// sixteen colours of the terminal are used, so that they fit light and dark backgrounds.
type style string

const (
	bold   style = "1"
	bar    style = "7"
	danger style = "31"
	good   style = "32"
	warned style = "33"
	blue   style = "34"
	faint  style = "90"
)

// of wraps a text in the style. Styles do not nest: the first reset ends all of them.
func (s style) of(text string) string { return "\x1b[" + string(s) + "m" + text + "\x1b[0m" }

// wide is the width of a text in columns, without its styles.
func wide(text string) (n int) {
	each(text, func(r rune, _ string) bool { n += output.RuneWidth(r); return true })
	return n
}

// each calls fn with every character and the escape sequences before it, until fn
// returns false. It returns the sequences after the last character, which are needed to
// end a style.
func each(text string, fn func(r rune, styles string) bool) (rest string) {
	styles := ""
	for text != "" {
		if after, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexByte(after, 'm')
			if end >= 0 {
				styles += text[:2+end+1]
				text = after[end+1:]
				continue
			}
		}
		r, size := utf8.DecodeRuneInString(text)
		if !fn(r, styles) {
			return ""
		}
		styles, text = "", text[size:]
	}
	return styles
}

// fit makes a line exactly room columns wide: cut, or padded with blanks. A styled text
// is always reset at its end, also when the cut removed its own reset, so that colours
// never leak into the next column.
func fit(text string, room int) string {
	if room <= 0 {
		return ""
	}
	var b strings.Builder
	used := 0
	rest := each(text, func(r rune, styles string) bool {
		n := output.RuneWidth(r)
		if used+n > room {
			return false
		}
		used += n
		b.WriteString(styles)
		b.WriteRune(r)
		return true
	})
	b.WriteString(rest)
	if strings.Contains(text, "\x1b") {
		b.WriteString("\x1b[0m")
	}
	return b.String() + strings.Repeat(" ", room-used)
}

// spread is a line with one text at each end. Where both do not fit, the left one wins.
func spread(left, right string, room int) string {
	before := room - wide(right)
	if before < 8 {
		return fit(left, room)
	}
	return fit(left, before-1) + " " + right
}

// wrapped breaks an agent's text into lines of at most room columns, at spaces where it
// can. It keeps line breaks and replaces control characters, so nothing in the text can
// move the cursor.
func wrapped(text string, room int) (lines []string) {
	for line := range strings.Lines(text) {
		one := ""
		for _, word := range strings.SplitAfter(show.Text(strings.TrimRight(line, "\r\n")), " ") {
			if one != "" && wide(one)+wide(strings.TrimRight(word, " ")) > room {
				lines, one = append(lines, one), ""
			}
			for part, rest := output.Split(word, room); rest != ""; part, rest = output.Split(word, room) { // longer than a line
				if part == "" {
					return lines
				}
				lines, word = append(lines, part), rest
			}
			one += word
		}
		lines = append(lines, one)
	}
	return lines
}

// fill makes lines exactly fill their rectangle, so that two of them can be put side by
// side.
func fill(lines []string, room, height int) []string {
	out := make([]string, 0, height)
	for i := range height {
		text := ""
		if i < len(lines) {
			text = lines[i]
		}
		out = append(out, fit(text, room))
	}
	return out
}

// riskMark is a level of risk with a symbol and a colour, padded to the same width. The
// symbol is for people who do not see the colour. Anything unknown is shown
// as low.
func riskMark(risk string) string {
	switch risk {
	case "high":
		return danger.of("● high  ")
	case "medium":
		return warned.of("◐ medium")
	}
	return faint.of("○ low   ")
}
