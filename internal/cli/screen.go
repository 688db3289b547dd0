package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// viewer is what is shown on the whole terminal. It is only called by one goroutine.
type viewer interface {
	// take hears what has happened: a key, changed, lost, or what a call has come to. The
	// call that it returns, if any, is made meanwhile.
	take(event any) call
	// draw is the screen, a line for each of its rows.
	draw(width, height int) []string
}

// call is made beside the screen; what it returns is an event. The quit call ends it.
type call func() any

type (
	// changed says that the ledger has an entry that may change what is on the screen.
	changed struct{}
	// lost says that the server cannot be reached, and why.
	lost struct{ why string }
	// key is a key that was pressed: its name, and the text that it stands for.
	key struct{ name, text string }
	// left is the event after which the screen ends.
	left struct{}
)

// quit ends the screen.
func quit() any { return left{} }

// screen shows a view on the whole terminal until somebody leaves it, and tells it of
// every entry whose kind begins with one of the nouns.
func (a *app) screen(ctx context.Context, c *client, v viewer, instead string, nouns ...string) error {
	in, typed := a.in.(*os.File)
	out, shown := a.out.(*os.File)
	if !typed || !shown || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return usage("This draws on a terminal, and there is none. %s prints the same once.", instead)
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer func() { _, _ = fmt.Fprint(out, "\x1b[?25h\x1b[?1049l"); _ = term.Restore(int(in.Fd()), before) }()
	_, _ = fmt.Fprint(out, "\x1b[?1049h\x1b[?25l\x1b]2;Signalbox\x07")

	events := make(chan any)
	send := func(e any) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	go readKeys(in, send) // it ends with the process: a terminal cannot be told to stop reading
	go c.follow(ctx, send, nouns)
	go func() { send(changed{}) }()
	for every := time.NewTicker(time.Second); ; {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil {
			return err
		}
		paint(out, v.draw(width, height), width, height)
		select {
		case e := <-events:
			if _, ended := e.(left); ended {
				return nil
			}
			if next := v.take(e); next != nil {
				go func() { send(next()) }()
			}
		case <-every.C: // ages change
		case <-resized:
		case <-ctx.Done():
			return nil // Ctrl-C is a way to leave
		}
	}
}

// paint writes all rows in one go, each over what was there, so that nothing flickers.
func paint(out *os.File, lines []string, width, height int) {
	var b bytes.Buffer
	b.WriteString("\x1b[?2026h\x1b[H")
	for i := range height {
		text := ""
		if i < len(lines) {
			text = lines[i]
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(fit(text, width) + "\x1b[0m")
	}
	b.WriteString("\x1b[?2026l")
	_, _ = out.Write(b.Bytes())
}

// sequences are what terminals send for keys that have no letter.
var sequences = map[string]string{"[A": "up", "[B": "down", "[H": "home", "[F": "end", "[5~": "pgup", "[6~": "pgdown", "OA": "up", "OB": "down"}

// readKeys turns what a terminal sends into keys.
func readKeys(in *os.File, send func(any)) {
	for b := make([]byte, 4096); ; {
		n, err := in.Read(b)
		if err != nil {
			return
		}
		for text := string(b[:n]); text != ""; {
			var k key
			k, text = nextKey(text)
			send(k)
		}
	}
}

// nextKey is the first key of what was sent, and the rest.
func nextKey(text string) (key, string) {
	if rest, escaped := strings.CutPrefix(text, "\x1b"); escaped {
		for form, name := range sequences {
			if after, ok := strings.CutPrefix(rest, form); ok {
				return key{name: name}, after
			}
		}
		return key{name: "esc"}, rest
	}
	r, size := utf8.DecodeRuneInString(text)
	rest := text[size:]
	switch r {
	case '\r', '\n':
		return key{name: "enter"}, rest
	case 0x7f, 0x08:
		return key{name: "backspace"}, rest
	case 0x03:
		return key{name: "ctrl+c"}, rest
	case ' ':
		return key{name: "space", text: " "}, rest
	}
	if printable(string(r)) != string(r) {
		return key{name: "unknown"}, rest
	}
	return key{name: string(r), text: string(r)}, rest
}

// follow listens to the ledger until ctx ends, and connects again when it has to.
func (c *client) follow(ctx context.Context, send func(any), nouns []string) {
	for ctx.Err() == nil {
		if err := c.listen(ctx, send, nouns); err != nil && ctx.Err() == nil {
			send(lost{err.Error()})
		}
		pauseFor(ctx, time.Second)
	}
}

// listen reads server-sent events. What comes together is told once.
func (c *client) listen(ctx context.Context, send func(any), nouns []string) error {
	res, err := c.do(ctx, "GET", "/ops/events", nil, "Accept", "text/event-stream")
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	send(changed{})
	var last time.Time
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		kind, ok := strings.CutPrefix(lines.Text(), "event: ")
		if !ok || !begins(kind, nouns) {
			continue
		}
		if wait := 100*time.Millisecond - time.Since(last); wait > 0 {
			pauseFor(ctx, wait)
		}
		last = time.Now()
		send(changed{})
	}
	return lines.Err()
}

func begins(kind string, nouns []string) bool {
	for _, noun := range nouns {
		if strings.HasPrefix(kind, noun) {
			return true
		}
	}
	return false
}
