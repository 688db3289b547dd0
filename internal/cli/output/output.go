// Package output is how commands write for people: tables, numbers, times, and texts of
// agents made safe for a terminal. It writes to what it is given and knows no server, no
// flag and no command.
package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"signalbox/internal/show"
)

// Printer writes for people. Errors of writing are dropped: whoever closed the terminal
// or the pipe does not read, and a command should still finish what it is doing.
type Printer struct{ w io.Writer }

// NewPrinter makes a printer.
func NewPrinter(w io.Writer) Printer { return Printer{w} }

// Exactly is where bytes go that are written as they are: exports, JSON that was escaped, and what
// another program writes. An architecture test lists who may use it.
func (p Printer) Exactly() io.Writer { return p.w }

// Print writes a line, in the form of fmt.Printf. Texts among the arguments are made visible as one
// line, since most of them are an agent's; those of several lines go through Lines first.
func (p Printer) Print(format string, args ...any) {
	for i := range args {
		args[i] = visible(args[i])
	}
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

// JSON writes a document on one line. What a terminal would not show as it is, is escaped.
func (p Printer) JSON(document []byte) error {
	_, err := p.w.Write(append(show.JSON(document), '\n'))
	return err
}

// Line prints one line of a list. On a terminal it is cut to the terminal's width, so that each entry
// of the list takes one line.
func (p Printer) Line(text string) {
	text = show.Text(text)
	if room := p.TerminalWidth(); room > 0 {
		text = Shorten(text, room)
	}
	p.Print("%s", Shown(strings.TrimRight(text, " ")))
}

// Rows makes one R of every element of a list, such as a row of a table.
func Rows[T, R any](list []T, row func(T) R) []R {
	rows := make([]R, len(list))
	for i, one := range list {
		rows[i] = row(one)
	}
	return rows
}

// Field prints a name and its value in two columns, and nothing for a value that is empty. A
// value of several lines stays in its column.
func (p Printer) Field(name, value string) {
	if value != "" {
		p.Print("%-10s %s", name, Shown(strings.ReplaceAll(string(Lines(value)), "\n", "\n           ")))
	}
}

// Moment is a point in time as people read it, in their own zone.
func Moment(t time.Time) string { return t.Local().Format(time.DateTime) }

// Since says how long ago something was, in one unit, rounded down. A time in the
// future, from a server whose clock is ahead, is "0s ago".
func Since(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// Seen says when somebody was last there, nil for never.
func Seen(online bool, last *time.Time) string {
	switch {
	case online:
		return "online"
	case last == nil:
		return "never"
	}
	return Since(*last)
}

// Thousands writes 1234567 as 1,234,567.
func Thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count writes a number with its noun: 1 gate, 2 gates. It only knows the plural with s.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%s %ss", Thousands(int64(n)), thing)
}

// GatesWait says how many gates wait.
func GatesWait(n int) string {
	if n == 1 {
		return "1 gate waits"
	}
	return Thousands(int64(n)) + " gates wait"
}

// Sentence begins a text with a capital letter.
func Sentence(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
