package output

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/term"
)

// Pages shows what a function prints. On a terminal that it does not fit on, it goes through the pager of
// who looks: $PAGER, less if there is none. Texts were made visible before, so that the pager
// shows what stands there, whatever it would make of escapes.
func (p Printer) Pages(ctx context.Context, show func(w Printer)) {
	var text bytes.Buffer
	show(NewPrinter(&text))
	if !p.page(ctx, text.Bytes()) {
		_, _ = p.w.Write(text.Bytes())
	}
}

// page reports whether a pager has shown the text.
func (p Printer) page(ctx context.Context, text []byte) bool {
	file, ok := p.w.(*os.File)
	if !ok {
		return false
	}
	columns, rows, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return false
	}
	// A pager takes minutes for a line of a megabyte, so lines are broken here.
	lines := wrap(string(text), max(columns, 2))
	if strings.Count(lines, "\n") < rows { // with a line for what is asked after it
		return false
	}
	pager, set := os.LookupEnv("PAGER")
	if !set {
		pager = "less"
	}
	words := strings.Fields(pager)
	if len(words) == 0 {
		return false
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	// In less no key runs a program or writes a file, and what was read stays on the screen.
	cmd.Env = append(os.Environ(), "LESSSECURE=1")
	if os.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=X")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(lines), file, file
	return cmd.Start() == nil && cmd.Wait() == nil
}

// wrap breaks lines that are wider than so many columns, at least two.
func wrap(text string, columns int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for part, rest := Split(strings.TrimSuffix(line, "\n"), columns); ; part, rest = Split(rest, columns) {
			b.WriteString(part + "\n")
			if rest == "" {
				break
			}
		}
	}
	return b.String()
}

// Split cuts a text after as many characters as fit into so many columns.
func Split(text string, columns int) (part, rest string) {
	used := 0
	for at, r := range text {
		if used += RuneWidth(r); used > columns {
			return text[:at], text[at:]
		}
	}
	return text, ""
}
