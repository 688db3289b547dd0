package output

import (
	"os"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"signalbox/internal/show"
)

// Gap is the space between two columns of a table.
const Gap = 2

// RuneWidth is how many columns of a terminal a character takes: 0 for marks that
// combine with the character before, 2 for wide characters of East Asian scripts and
// emoji, else 1.
func RuneWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// Width is how many columns of a terminal a text takes. The text has no escape sequences.
func Width(text string) (n int) {
	for _, r := range text {
		n += RuneWidth(r)
	}
	return n
}

// Shorten cuts a text to so many columns. A text that was cut ends with an ellipsis.
func Shorten(text string, room int) string {
	if Width(text) <= room {
		return text
	}
	var b strings.Builder
	used := 1 // the ellipsis
	for _, r := range text {
		if used += RuneWidth(r); used > room {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// TerminalWidth is how many columns the terminal behind a printer has, or 0 if the output goes to
// a file or a pipe. What is written there is never cut: a program may read it.
func (p Printer) TerminalWidth() int {
	file, ok := p.w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Table prints rows in columns, or the text none if there are no rows. On a terminal the table
// fits its width: the widest columns are cut, but never the first, whose ids people copy.
func (p Printer) Table(none string, header []string, rows [][]string) {
	if len(rows) == 0 {
		p.Print("%s", none)
		return
	}
	all := [][]string{header}
	widths := make([]int, len(header))
	for _, row := range rows {
		all = append(all, Rows(row, show.Text))
	}
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], Width(cell))
		}
	}
	if room := p.TerminalWidth(); room > 0 {
		narrow(widths, room)
	}
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			cell = Shorten(cell, widths[i])
			line.WriteString(cell + strings.Repeat(" ", widths[i]-Width(cell)+Gap))
		}
		p.Print("%s", Shown(strings.TrimRight(line.String(), " ")))
	}
}

// narrowest is how far columns are cut to make a table fit: first as far as most words stay
// readable, and only if that is not enough, further.
var narrowest = []int{8, 4, 1}

// narrow shrinks the widest columns, one column of the terminal at a time, until the
// table fits or nothing can be cut any more. The first column is never cut.
func narrow(widths []int, room int) {
	used := Gap * (len(widths) - 1)
	for _, w := range widths {
		used += w
	}
	for _, least := range narrowest {
		for ; used > room && len(widths) > 1; used-- {
			widest := slices.Index(widths[1:], slices.Max(widths[1:])) + 1
			if widths[widest] <= least {
				break
			}
			widths[widest]--
		}
	}
}
