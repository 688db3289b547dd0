// Package screen has the commands that take the whole terminal: `gates watch`, the inbox
// in which people decide with a key, and `top`, the overview. Both follow the ledger,
// ask the server for what they show, and draw the whole screen anew. The package knows
// the operators' API and nothing of the server behind it.
//
// One goroutine, that of show, owns the view. Everything else (keys, the stream of
// events, calls to the server) runs in goroutines that send events to it. So views need
// no locks, and a slow server never blocks the keyboard.
//
// Texts of agents are shown to people who decide by them. Every one goes through
// output.Printable or wrapped before it is drawn: an escape sequence could otherwise
// repaint the gate.
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
	"signalbox/internal/clock"
	"signalbox/internal/show"
)

// viewer is what is shown on the whole terminal. Only the goroutine of show calls it.
type viewer interface {
	// take handles an event: a key, changed, lost, or the result of a call. It must not
	// block. If it returns a call, that is made in a goroutine of its own, and its
	// result is the next event.
	take(event any) call
	// draw returns the rows of the screen. Rows that are too long are cut, and missing
	// ones are blank. It is called after every event and once a second.
	draw(width, height int) []string
}

// call is work beside the screen, such as a request to the server. Its result is an
// event.
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

// quit is the call that ends the screen.
func quit() any { return left{} }

// show shows a view on the whole terminal until somebody leaves it, and sends it changed
// for every entry whose kind begins with noun. instead is the command that prints the
// same once, for the error without a terminal. It restores the terminal in every case,
// panics included: a terminal in raw mode shows nothing of what one types.
func present(ctx context.Context, a *command.App, c *api.Client, v viewer, instead, noun string) error {
	in, typed := a.In.(*os.File)
	out, shown := a.Out.Exactly().(*os.File)
	if !typed || !shown || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return command.Usage("This command needs a terminal. `%s` prints the same once.", instead)
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer func() { _, _ = fmt.Fprint(out, "\x1b[?25h\x1b[?1049l"); _ = term.Restore(int(in.Fd()), before) }()
	// The alternate screen keeps what was in the terminal before; the cursor is hidden;
	// the window gets a title.
	_, _ = fmt.Fprint(out, "\x1b[?1049h\x1b[?25l\x1b]2;Signalbox\x07")

	// Unbuffered: a sender waits until the view has handled the event before. send gives
	// up when the screen ends, so no goroutine but that of the keyboard outlives it.
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
	// The first read does not wait for the stream to be connected.
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

// paint writes all rows in one write, each over the old one, between the marks of a
// synchronised update. The screen is never cleared, because that would flicker.
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

// sequences maps the escape sequences of keys without a letter, after the escape itself.
// Terminals send arrows in two forms, depending on their mode.
var sequences = map[string]string{
	"[A": "up", "[B": "down", "[H": "home", "[F": "end", "[5~": "pgup", "[6~": "pgdown",
	"OA": "up", "OB": "down",
}

// readKeys turns the input of a terminal into keys until the input ends. A paste arrives
// in one read and is split into its keys.
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

// nextKey returns the first key of the input, and the rest. An escape that begins no
// known sequence is the Esc key. Control characters without a meaning here become
// "unknown", with no text, so they cannot get into a note.
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
	if show.Text(string(r)) != string(r) {
		return key{name: "unknown"}, rest
	}
	return key{name: string(r), text: string(r)}, rest
}

// follow sends events of the ledger until ctx ends. It reconnects after a second,
// without growing pauses: somebody is looking at the screen.
func follow(ctx context.Context, c *api.Client, send func(any), noun string) {
	for ctx.Err() == nil {
		if err := listen(ctx, c, send, noun); err != nil && ctx.Err() == nil {
			send(lost{err.Error()})
		}
		clock.Pause(ctx, time.Second)
	}
}

// listen sends changed for entries as they are written, at most ten times a second.
// Entries in between need no event of their own, since a view always reads the current
// state. The first event after connecting makes up for what was missed while
// disconnected.
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
