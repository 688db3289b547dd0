package ahp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json" // only the id is read here; the whole answer is read strictly
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Stream carries messages both ways, each one JSON text. Read is called by one
// goroutine at a time, Write by any number. Close ends a Read that waits, and may be
// called twice.
type Stream interface {
	Read() ([]byte, error)
	Write(message []byte) error
	Close() error
}

// writeTime is how long a harness may take to receive a message.
const writeTime = 10 * time.Second

// OpenStream connects to a harness over a WebSocket (ws://, wss://) or a Unix socket
// (unix: and a path). The key goes into the query of a WebSocket, form-encoded; a Unix
// socket needs none.
func OpenStream(ctx context.Context, target, key string, options ...Option) (Stream, error) {
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		return openSocket(ctx, path, gather(options).check)
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "ws" && u.Scheme != "wss" {
		// The address is not repeated: it may hold a key.
		return nil, errors.New("ahp: the harness should be an address such as " +
			"wss://signalbox.example.com/ahp, or unix: and a path")
	}
	if key != "" {
		q := u.Query()
		q.Set("api_key", key)
		u.RawQuery = q.Encode()
	}
	address := u.String()
	conn, res, err := websocket.Dial(ctx, address, nil) //nolint:bodyclose // the connection is the body
	if err != nil {
		status := ""
		if res != nil {
			status = " (" + res.Status + ")"
		}
		err := fmt.Errorf("ahp: no WebSocket at %s%s%s", u.Host, u.Path, status) // not the error: it holds the key
		if res != nil && res.StatusCode < http.StatusInternalServerError {
			return nil, &answeredError{err}
		}
		return nil, unreachable(err)
	}
	conn.SetReadLimit(maxAnswer)
	return &webStream{conn}, nil
}

// webStream is a WebSocket as a stream. It ignores binary messages (AHP-13).
type webStream struct{ conn *websocket.Conn }

// Read implements Stream.
func (s *webStream) Read() ([]byte, error) {
	for {
		kind, text, err := s.conn.Read(context.Background())
		if err != nil || kind == websocket.MessageText {
			return text, err
		}
	}
}

// Write implements Stream. It waits at most writeTime.
func (s *webStream) Write(message []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, message)
}

// Close implements Stream. It does not wait for the peer's goodbye.
func (s *webStream) Close() error {
	err := s.conn.CloseNow()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// openSocket connects to a Unix socket. A path that is longer than the kernel takes is
// reached through its open folder in /proc.
func openSocket(ctx context.Context, path string, check func(net.Conn) error) (Stream, error) {
	const longest = 100 // bytes that an address can have
	if len(path) > longest {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("ahp: %w", err)
		}
		defer func() { _ = dir.Close() }()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, unreachable(fmt.Errorf("ahp: %w", err))
	}
	if check != nil {
		if err := check(conn); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("ahp: %w", err)
		}
	}
	return newLines(conn, conn, conn.Close, func() { _ = conn.SetWriteDeadline(time.Now().Add(writeTime)) }), nil
}

// StartStream starts a harness as a program and returns its standard input and output
// as a stream. Close closes its input, waits for it to end, and kills it after endTime.
// What it wrote before its end can still be read after Close, for a second.
func StartStream(command *exec.Cmd) (Stream, error) {
	in, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("ahp: %w", err)
	}
	// Not StdoutPipe: Wait would close it under a reader that has not come to its end.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("ahp: %w", err)
	}
	command.Stdout = theirs
	err = command.Start()
	_ = theirs.Close()
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("ahp: %w", err)
	}
	return newLines(out, in, func() error {
		_ = in.Close() // asks it to end
		timer := time.AfterFunc(endTime, func() { _ = command.Process.Kill() })
		defer timer.Stop()
		_ = command.Wait() // however it ended, it has
		// What it said can still be read; who inherited its output is not waited for.
		return out.SetReadDeadline(time.Now().Add(time.Second))
	}, func() {}), nil
}

// endTime is how long a program may take to end after its standard input has.
const endTime = 5 * time.Second

// lines is a stream of lines, one message each.
type lines struct {
	in     *bufio.Reader
	out    io.Writer
	shut   func() error
	before func() // each write

	mu sync.Mutex
}

// newLines makes a stream of a reader and a writer. shut ends both, once; before runs
// before each write.
func newLines(in io.Reader, out io.Writer, shut func() error, before func()) *lines {
	return &lines{in: bufio.NewReader(in), out: out, shut: sync.OnceValue(shut), before: before}
}

// Read reads a line of at most maxAnswer bytes, and skips blank ones. A last line
// without a line break is dropped: the program was killed while it wrote, and half an
// answer is none.
func (l *lines) Read() ([]byte, error) {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line)+len(part) > maxAnswer {
			return nil, fmt.Errorf("ahp: a line is longer than %d bytes", maxAnswer)
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		case len(bytes.TrimSpace(line)) == 0:
			line = line[:0]
		default:
			return bytes.TrimSpace(line), nil
		}
	}
}

// Write implements Stream. A line is one write, so lines of several goroutines do not
// mix.
func (l *lines) Write(message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before()
	_, err := l.out.Write(append(bytes.Clone(message), '\n'))
	return err
}

// Close implements Stream.
func (l *lines) Close() error { return l.shut() }

// multiplexer is a carrier over a stream. It matches answers with the calls that wait for them
// by their id. Ids are random and never used twice, so an answer that comes late meets
// nobody.
type multiplexer struct {
	stream Stream
	done   chan struct{} // closed when nothing more is read

	mu      sync.Mutex
	waiting map[string]chan []byte
	ended   error
}

// newMultiplexer starts the goroutine that reads. close waits for it.
func newMultiplexer(s Stream) *multiplexer {
	t := &multiplexer{stream: s, done: make(chan struct{}), waiting: map[string]chan []byte{}}
	go t.listen()
	return t
}

// listen reads until the stream ends, and then fails all calls that wait, at once.
func (t *multiplexer) listen() {
	defer close(t.done)
	for {
		text, err := t.stream.Read()
		if err != nil {
			t.end(unreachable(fmt.Errorf("ahp: the stream has ended: %w", err)))
			return
		}
		var response struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(text, &response) != nil {
			continue // it answers nobody
		}
		t.mu.Lock()
		waits := t.waiting[response.ID]
		delete(t.waiting, response.ID)
		t.mu.Unlock()
		if waits != nil {
			waits <- text
		}
	}
}

// end fails all calls that wait, and every later one, with the error. The first error
// stays.
func (t *multiplexer) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = err
	}
	for id, waits := range t.waiting {
		close(waits)
		delete(t.waiting, id)
	}
}

// call sends a request and waits for its answer. The channel has room for one answer,
// so listen never waits for a caller that has given up.
func (t *multiplexer) call(ctx context.Context, id string, message []byte) ([]byte, error) {
	waits := make(chan []byte, 1)
	t.mu.Lock()
	if err := t.ended; err != nil {
		t.mu.Unlock()
		return nil, err
	}
	t.waiting[id] = waits
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.waiting, id)
	}()
	if err := t.stream.Write(message); err != nil {
		return nil, unreachable(fmt.Errorf("ahp: %w", err))
	}
	select {
	case text, ok := <-waits:
		if !ok {
			t.mu.Lock()
			defer t.mu.Unlock()
			return nil, t.ended
		}
		return text, nil
	case <-ctx.Done():
		return nil, unreachable(fmt.Errorf("ahp: no answer: %w", ctx.Err()))
	}
}

// notify sends a notification.
func (t *multiplexer) notify(_ context.Context, message []byte) error {
	t.mu.Lock()
	err := t.ended
	t.mu.Unlock()
	if err != nil {
		return err
	}
	return t.stream.Write(message)
}

// close ends the stream and waits until nothing more is read.
func (t *multiplexer) close() error {
	t.end(errors.New("ahp: the client was closed"))
	err := t.stream.Close()
	<-t.done
	return err
}
