// Package access writes one line for each request that the server has answered: who, what, from where, with which
// status, how many bytes and how long. A stream or a WebSocket has its line when it ends, a refused request too.
//
// It owns the form of the line and the file. It must not know what a call does, and it never has a token, a query or a
// body: a query may hold a key, and a path is cleaned like every log. Nothing that a caller chooses can begin a line or
// look like another field. A file may be moved away while the server runs; the next line goes into a new one.
package access

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/secret"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

// Where lines go, beside the path of a file.
const (
	Off    = "off"
	Stderr = "stderr"
)

// Forms are the forms of a line.
var Forms = []string{"json", "text"}

const (
	// lookEvery is how often it is looked whether the file was moved away.
	lookEvery = time.Second
	// maxPath is the longest path in a line, in bytes; the rest is cut.
	maxPath = 1000
)

// Log writes lines. nil writes none. It is safe for concurrent use.
type Log struct {
	lines *slog.Logger
	lost  atomic.Int64
}

// Open opens the log that the settings ask for: nil for Off, standard error, or a file, which is made if it does not
// exist and appended to if it does.
func Open(where, form string) (*Log, error) {
	var out io.Writer = os.Stderr
	switch where {
	case Off, "":
		return nil, nil //nolint:nilnil // a log that is off is nil, and may be used
	case Stderr:
	default:
		f := &appended{path: where}
		if err := f.open(); err != nil {
			return nil, fault.Wrap(err, fault.InvalidConfig,
				"Cannot append to the access log %s. Check that its folder exists and that this user may write there.", where).
				About("log.access")
		}
		out = f
	}
	return New(out, form), nil
}

// New is a log that writes to out, each line with one call of Write.
func New(out io.Writer, form string) *Log {
	// The level and the message are the same in each line.
	options := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}}
	l := &Log{}
	counting := writer(func(line []byte) (int, error) {
		n, err := out.Write(line)
		if err != nil {
			l.lost.Add(1)
		}
		return n, err
	})
	if form == "text" {
		l.lines = slog.New(slog.NewTextHandler(counting, options))
	} else {
		l.lines = slog.New(slog.NewJSONHandler(counting, options))
	}
	return l
}

// Lost counts the lines that could not be written, such as to a full disk. Calls are answered all the same.
func (l *Log) Lost() int64 {
	if l == nil {
		return 0
	}
	return l.lost.Load()
}

// Begin notes a request. It replaces w with one that counts, and r with one in which its caller is noted. end writes
// the line; it reads the request then, so that one which was replaced meanwhile is told of as it was answered.
func (l *Log) Begin(w *http.ResponseWriter, r **http.Request) (end func()) {
	if l == nil {
		return func() {}
	}
	began, counted := time.Now(), &counter{ResponseWriter: *w}
	ctx, caller := wire.WithCaller((*r).Context())
	*w, *r = counted, (*r).WithContext(ctx)
	return func() {
		r := *r
		from, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			from = r.RemoteAddr
		}
		who := caller.Load()
		if who == nil {
			who = &wire.Caller{}
		}
		// The end of the context is no reason to write nothing.
		l.lines.LogAttrs(context.Background(), slog.LevelInfo, "",
			slog.String("request", counted.Header().Get("X-Request-Id")), slog.String("from", clean(from)),
			slog.String("who", who.ID), slog.String("name", clean(who.Name)), slog.String("workspace", clean(who.Workspace)),
			slog.String("method", clean(r.Method)), slog.String("route", r.Pattern), slog.String("path", clean(r.URL.Path)),
			slog.Int("status", counted.answered()), slog.Int64("bytes", counted.bytes.Load()),
			slog.Float64("seconds", time.Since(began).Seconds()))
	}
}

// clean is a text that a caller has chosen, without credentials, with every character visible, and bounded.
func clean(text string) string {
	rest := ""
	if len(text) > maxPath {
		text, rest = text[:maxPath], "…"
	}
	return show.Text(secret.Hide(text)) + rest
}

// writer is a function as an io.Writer.
type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// counter counts what is answered. It has no status until WriteHeader or Write is called, as in net/http.
type counter struct {
	http.ResponseWriter
	status int
	bytes  atomic.Int64
}

func (c *counter) WriteHeader(status int) {
	if c.status == 0 || c.status < 200 && status >= 200 { // 1xx are not the answer
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Hijack hands the connection to a WebSocket, and goes on counting what is written to it.
func (c *counter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err != nil {
		return conn, buffers, err
	}
	if c.status == 0 {
		c.status = http.StatusSwitchingProtocols
	}
	return &countedConn{conn, &c.bytes}, buffers, nil
}

// answered is the status: 200 when the handler has written nothing, as net/http then answers.
func (c *counter) answered() int {
	if c.status == 0 {
		return http.StatusOK
	}
	return c.status
}

// countedConn counts what is written to a connection.
type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// appended is a file that lines are appended to. If it was moved away, it is made anew.
type appended struct {
	path string

	mu     sync.Mutex
	file   *os.File
	looked time.Time
}

// open opens the file. Others may have to read it, but not everybody.
func (a *appended) open() error {
	f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if a.file != nil {
		_ = a.file.Close()
	}
	a.file, a.looked = f, time.Now()
	return nil
}

// Write appends a line. While no new file can be made, lines go on into the old one.
func (a *appended) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.looked) >= lookEvery {
		a.looked = now
		ours, err := a.file.Stat()
		there, gone := os.Stat(a.path)
		if err != nil || gone != nil || !os.SameFile(ours, there) {
			_ = a.open()
		}
	}
	return a.file.Write(line)
}
