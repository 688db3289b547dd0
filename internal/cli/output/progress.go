package output

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Progress shows how far long work has come: in place on a terminal, a line every few
// seconds elsewhere, nothing for work that is done sooner. It is not safe for concurrent
// use. Call End before printing anything else.
type Progress struct {
	w           io.Writer
	terminal    bool
	began, last time.Time
	shown       bool
}

// NewProgress begins to show the progress of something that begins now.
func NewProgress(p Printer) *Progress {
	return &Progress{w: p.w, terminal: IsTerminal(p), began: time.Now(), last: time.Now()}
}

// Say shows a line, unless the one before was shown a moment ago.
func (p *Progress) Say(line func(since time.Duration) string) {
	every := 5 * time.Second
	if p.terminal {
		every = 100 * time.Millisecond
	}
	if time.Since(p.last) < every {
		return
	}
	p.last, p.shown = time.Now(), true
	text := line(time.Since(p.began))
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	} else {
		_, _ = fmt.Fprintln(p.w, text)
	}
}

// Of is a function that shows how much of the work is done, under its name.
func (p *Progress) Of(what string) func(done, total int64) {
	return func(done, total int64) {
		p.Say(func(since time.Duration) string {
			rate := float64(done) / since.Seconds()
			return fmt.Sprintf("%s: %s of %s (%d %%), %s a second", what,
				Thousands(done), Thousands(total), done*100/max(total, 1), Thousands(int64(rate)))
		})
	}
}

// End takes the line off a terminal.
func (p *Progress) End() {
	if p.terminal && p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// IsTerminal reports whether a reader or a writer is a terminal.
func IsTerminal(stream any) bool {
	if p, ok := stream.(Printer); ok {
		stream = p.w
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
