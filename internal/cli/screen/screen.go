// Package screen is the commands that take the whole terminal: `gates watch`, the inbox in which
// people decide with a key, and `top`, the overview. Both follow the ledger, ask the server for what
// they show, and draw the whole screen anew. It knows the operators' API and nothing of the server
// behind it.
package screen

import (
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

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/clock"
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

// show shows a view on the whole terminal until somebody leaves it, and tells it of every entry
// whose kind begins with the noun. instead is the command that prints the same once.
func show(ctx context.Context, a *command.App, c *api.Client, v viewer, instead, noun string) error {
	in, typed := a.In.(*os.File)
	out, shown := a.Out.Writer.(*os.File)
	if !typed || !shown || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return command.Usage("This draws on a terminal, and there is none. `%s` prints the same once.", instead)
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
	go follow(ctx, c, send, noun)
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
var sequences = map[string]string{
	"[A": "up", "[B": "down", "[H": "home", "[F": "end", "[5~": "pgup", "[6~": "pgdown",
	"OA": "up", "OB": "down",
}

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
	if output.Printable(string(r)) != string(r) {
		return key{name: "unknown"}, rest
	}
	return key{name: string(r), text: string(r)}, rest
}

// follow listens to the ledger until ctx ends, and connects again when it has to.
func follow(ctx context.Context, c *api.Client, send func(any), noun string) {
	for ctx.Err() == nil {
		if err := listen(ctx, c, send, noun); err != nil && ctx.Err() == nil {
			send(lost{err.Error()})
		}
		clock.Pause(ctx, time.Second)
	}
}

// listen tells of entries as they come. What comes together is told once.
func listen(ctx context.Context, c *api.Client, send func(any), noun string) error {
	events, err := c.Events(ctx, "/ops/events")
	if err != nil {
		return err
	}
	defer events.Close()
	send(changed{})
	for last := time.Now(); ; {
		kind, _, err := events.Next()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(kind, noun) {
			continue
		}
		clock.Pause(ctx, 100*time.Millisecond-time.Since(last))
		last = time.Now()
		send(changed{})
	}
}
