package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"signalbox/internal/wire"
)

// withJSON gives a command the flag --json.
func (a *app) withJSON(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return c
}

// show prints v as JSON with --json, and as text otherwise.
func (a *app) show(v any, text func(w io.Writer)) error {
	if !a.json {
		text(a.out)
		return nil
	}
	data, err := wire.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, string(data))
	return err
}

// table prints rows in columns, or what to say when there are none.
func table(w io.Writer, none string, header []string, rows [][]string) {
	if len(rows) == 0 {
		_, _ = fmt.Fprintln(w, none)
		return
	}
	var aligned bytes.Buffer
	t := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush()
	for line := range strings.Lines(aligned.String()) {
		_, _ = fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// printable keeps what agents call things from moving the cursor, turning the text
// around, or faking a row or a column.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// since says how long ago something was, in one unit.
func since(t time.Time) string {
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

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// progress shows how far long work has come: in place on a terminal, a line every
// few seconds elsewhere.
func progress(w io.Writer, what string) (update func(done, total int64), end func()) {
	terminal := isTerminal(w)
	began, last := time.Now(), time.Now()
	shown := false
	update = func(done, total int64) {
		every := 5 * time.Second
		if terminal {
			every = 100 * time.Millisecond
		}
		if time.Since(last) < every {
			return
		}
		last, shown = time.Now(), true
		rate := float64(done) / time.Since(began).Seconds()
		line := fmt.Sprintf("%s: %s of %s (%d %%), %s a second", what, thousands(done), thousands(total), done*100/max(total, 1), thousands(int64(rate)))
		if terminal {
			_, _ = fmt.Fprintf(w, "\r\x1b[K%s", line)
		} else {
			_, _ = fmt.Fprintln(w, line)
		}
	}
	return update, func() {
		if terminal && shown {
			_, _ = fmt.Fprint(w, "\r\x1b[K")
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
