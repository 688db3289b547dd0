// Package testbed is what every test may stand on: waiting for something, a free port, a file, HTTP, git, and
// output that a test reads while a process writes it. It knows nothing of Signalbox, and
// only tests and their helpers import it.
package testbed

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for something that has to happen. It is far more than
// a busy machine takes, and costs nothing: the wait ends when the thing happens.
const Patience = 2 * time.Minute

// Until waits until is reports true, and looks less often the longer it takes, since looks of
// many tests keep a busy machine busy. It fails the test when Patience is over, and then prints
// the logs. Use it where the code under test gives no signal to wait for.
func Until(t testing.TB, what string, is func() bool, logs ...interface{ String() string }) {
	t.Helper()
	for begun := time.Now(); !is(); {
		waited := time.Since(begun)
		if waited > Patience {
			for _, l := range logs {
				t.Log(l.String())
			}
			t.Fatalf("waited %v in vain for %s", Patience, what)
		}
		time.Sleep(min(max(waited/10, time.Millisecond), 250*time.Millisecond))
	}
}

// Receive waits for the next value of a channel, and for its end if it is closed.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(Patience):
		t.Fatalf("waited %v in vain for %s", Patience, what)
		panic("unreachable")
	}
}

// Parallel runs a part of a test beside its others.
func Parallel(t *testing.T, name string, part func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		part(t)
	})
}

// Context is a context that ends with the test, and when Patience is over: for calls that
// wait for something that has to happen.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// FreeAddress is an address of this machine where nobody listens. Whoever can should
// listen on port 0 instead: another process may take the port.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Dial connects to somebody who may not listen yet, and closes the connection at the end of
// the test.
func Dial(t testing.TB, network, address string) net.Conn {
	t.Helper()
	var conn net.Conn
	Until(t, "somebody who listens at "+address, func() bool {
		var err error
		conn, err = (&net.Dialer{}).DialContext(t.Context(), network, address)
		// Where nobody listens, a connection may be given the same port at both ends, and then takes it from the listener.
		if err == nil && conn.LocalAddr().String() == conn.RemoteAddr().String() {
			_ = conn.Close()
			return false
		}
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Serve takes connections until the test ends, and waits for what serves them.
func Serve(t testing.TB, network, address string, serve func(net.Conn)) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer func() { _ = conn.Close() }()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	return l
}

// Background starts a program that is killed at the end of the test.
func Background(t testing.TB, program *exec.Cmd) {
	t.Helper()
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
}

// Buffer keeps what is written to it, for a test that reads it meanwhile.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is everything that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
