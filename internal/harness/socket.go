package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/proc"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// SocketFile is the name of the Unix socket in the data folder.
const SocketFile = "ahp.sock"

// maxAddress is the longest path that is used to bind or dial, in bytes. The kernel's
// limit is 108; test folders and long home folders are beyond it.
const maxAddress = 100

// Listen makes the Unix socket at the path, for this user only (AHP-16). It takes the
// place of a socket that a dead server left behind, and fails if somebody listens on
// it.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if isListening(ctx, path) {
		return nil, fault.New(fault.Conflict, "Another process listens on %s.", path)
	}
	// AHP-16: it is bound inside a folder that nobody else may enter, and moved to its
	// place once it has its mode. Between bind and chmod a socket has the mode of the
	// umask, and others could connect.
	private, err := os.MkdirTemp(filepath.Dir(path), ".ahp-*")
	if err != nil {
		return nil, cannotListen(err, path)
	}
	defer func() { _ = os.RemoveAll(private) }()
	short, done, err := shorten(filepath.Join(private, "s"))
	if err != nil {
		return nil, cannotListen(err, path)
	}
	defer done()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", short)
	if err != nil {
		return nil, cannotListen(err, path)
	}
	// The path it would unlink is the temporary one. The file stays, and the next Listen
	// replaces it.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = os.Chmod(filepath.Join(private, "s"), 0o600); err == nil {
		err = os.Rename(filepath.Join(private, "s"), path)
	}
	if err != nil {
		_ = l.Close()
		return nil, cannotListen(err, path)
	}
	return l, nil
}

// isListening reports whether somebody listens on a socket.
func isListening(ctx context.Context, path string) bool {
	short, done, err := shorten(path)
	if err != nil {
		return false
	}
	defer done()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", short)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// cannotListen explains an error of Listen.
func cannotListen(err error, path string) error {
	return fault.Wrap(err, fault.StoreReadOnly,
		"Cannot make the Unix socket %s. Check that this user may write to its folder.", path)
}

// shorten returns a path to the same file that is short enough for a socket: through
// the open folder in /proc. done closes the folder, and may be called once the socket
// is bound or connected.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= maxAddress {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

// ServeSocket answers connections to the Unix socket until ctx ends, and returns when
// the last one is closed. Requests under way are finished.
func (h *Harness) ServeSocket(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil // it was closed because we end
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // such as too many open files, which passes
			h.core.Log.Warn("cannot accept a connection on the Unix socket", "error", err.Error())
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		open.Go(func() {
			peer, user, err := h.checkPeer(conn)
			if err != nil {
				h.core.Log.Warn("connection to the Unix socket refused", "error", err.Error())
				_ = conn.Close()
				return
			}
			c := h.newConn(TransportSocket, func(ctx context.Context) (roster.Identity, error) { return h.LocalAgent(ctx, user) })
			c.peer = peer
			on := refusal.With(context.WithoutCancel(ctx), h.core.Refusals, refusal.Call{Source: "unix", Name: "AHP"})
			h.serve(wire.WithStop(on, ctx), c, newLines(conn))
		})
	}
}

// checkPeer refuses a peer that is neither this user nor root, unless the socket is shared (AHP-16). The mode of
// the file says the same; this also holds when somebody has changed the mode. It returns the
// number of another user, "" for this one and root.
func (h *Harness) checkPeer(conn net.Conn) (peer proc.Peer, user string, err error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return peer, "", nil
	}
	peer, err = proc.UnixPeer(unix)
	own := os.Getuid()
	switch {
	case err != nil || peer.UID == own || peer.UID == 0:
		return peer, "", err
	case !h.Config.Shared:
		return peer, "", fmt.Errorf("user %d is not user %d", peer.UID, own)
	}
	return peer, strconv.Itoa(peer.UID), nil
}

// LocalAgent is the agent that connections to the Unix socket act as; user is the number of another user than
// the server's. It is added on first use, so that it can be suspended, limited and named in rules like any
// other.
func (h *Harness) LocalAgent(ctx context.Context, user string) (roster.Identity, error) {
	name := h.Config.SocketAgent
	if user != "" {
		name += "-" + user
	}
	who, err := h.core.Roster.Named(ctx, roster.DefaultWorkspace, name)
	if !fault.Is(err, fault.NotFound) {
		return who, err
	}
	_, _, err = h.core.Roster.AddAgent(ctx, roster.Identity{}, roster.NewAgent{
		Name: name, Labels: map[string]string{"via": "ahp.sock"},
	})
	if err != nil && !fault.Is(err, fault.AlreadyExists) { // by another connection
		return who, err
	}
	return h.core.Roster.Named(ctx, roster.DefaultWorkspace, name)
}

// lines is a Unix socket as a stream: one line is one message.
type lines struct {
	conn net.Conn
	in   *bufio.Reader
	mu   sync.Mutex // of out
	out  error      // why nothing more can be written
}

// newLines makes a stream of a connection. The buffer is small: most messages have a
// few hundred bytes, and there may be thousands of connections.
func newLines(conn net.Conn) *lines { return &lines{conn: conn, in: bufio.NewReaderSize(conn, 8<<10)} }

// read returns the next line. Only one goroutine reads.
func (l *lines) read() ([]byte, error) { return readLine(l.in) }

// write sends one line. After an error the connection is closed and every later write
// fails with it.
func (l *lines) write(text []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		return l.out
	}
	_ = l.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if _, l.out = l.conn.Write(append(text, '\n')); l.out != nil {
		_ = l.conn.Close() // half a line may have gone out; the client must not read on
	}
	return l.out
}

// close ends the connection.
func (l *lines) close() { _ = l.conn.Close() }

// errTooLong says that one line is longer than maxLine. The lines after it can be read
// (AHP-15).
var errTooLong = errors.New("the line is too long")

// readLine reads a line without its line break; the last line may lack one. A line that
// is too long is read to its end, and only its beginning is kept.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, tooLong, err := wire.ReadLine(r, maxLine)
	switch {
	case err != nil && !errors.Is(err, io.EOF), err != nil && len(line) == 0 && !tooLong:
		return nil, err
	case tooLong:
		return line, errTooLong
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}
