package screen

import (
	"strings"
	"unicode/utf8"

	"signalbox/internal/cli/output"
)

// style is how a text looks, as terminals say it. The colours are those of the terminal,
// so that they fit light and dark.
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

func (s style) of(text string) string { return "\x1b[" + string(s) + "m" + text + "\x1b[0m" }

// wide is how wide a text is, without what makes it coloured.
func wide(text string) (n int) {
	each(text, func(r rune, _ string) bool { n += output.RuneWidth(r); return true })
	return n
}

// each calls fn with every character and the styles before it.
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

// fit makes a line exactly as wide as its place.
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

// spread is a line with something at each end.
func spread(left, right string, room int) string {
	before := room - wide(right)
	if before < 8 {
		return fit(left, room)
	}
	return fit(left, before-1) + " " + right
}

// wrapped is an agent's text in lines that fit, with nothing in it that could move the
// cursor.
func wrapped(text string, room int) (lines []string) {
	for line := range strings.Lines(text) {
		one := ""
		for _, word := range strings.SplitAfter(output.Printable(strings.TrimRight(line, "\r\n")), " ") {
			if one != "" && wide(one)+wide(strings.TrimRight(word, " ")) > room {
				lines, one = append(lines, one), ""
			}
			for wide(word) > room { // a word that is longer than a line
				part := fit(word, room)
				lines, word = append(lines, part), strings.TrimPrefix(word, strings.TrimRight(part, " "))
				if room < 2 {
					return lines
				}
			}
			one += word
		}
		lines = append(lines, one)
	}
	return lines
}

// fill gives lines the size of their place.
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

// riskMark is a level of risk with its colour.
func riskMark(risk string) string {
	switch risk {
	case "high":
		return danger.of("● high  ")
	case "medium":
		return warned.of("◐ medium")
	}
	return faint.of("○ low   ")
}
