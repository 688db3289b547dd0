package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"signalbox/internal/cli/hook"
	"signalbox/internal/fault"
	"signalbox/internal/run/engine"
)

// guard makes a supervised CLI ask us before each tool call, until remove is called. Its
// hooks hand what they are asked to this process, which waits for all of them: a hook that
// waits for a person would take more memory than everything else of a run.
func (r *runner) guard(ctx context.Context) (remove func(), err error) {
	if !r.spec.Job.Supervised {
		return func() {}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "signalbox-run-")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "hook.sock")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot listen at %s, where the run would ask for permission. TMPDIR should be a folder with a short name that can be written to.", socket)
	}
	// We stand in for the CLI's own permissions, which would ask somebody who is not there.
	d := &desk{app: r.app, flags: hookFlags{wait: engine.GuardTime - time.Hour, final: true}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // until remove, in which the CLI has ended
	d.wg.Go(func() { d.accept(ctx, l) })
	remove = func() { cancel(); _ = l.Close(); d.wg.Wait(); _ = os.RemoveAll(dir) }
	if r.spec.Job.Guard, err = r.spec.Engine.Guard(dir, self, "--via", socket); err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

// desk asks the server in the place of hooks.
type desk struct {
	*app
	flags hookFlags
	wg    sync.WaitGroup
}

// handedCall is what a hook hands over: one JSON value. The answer is three lines: the exit
// code, what goes to standard error, and what goes to standard output.
type handedCall struct {
	Tool  string            `json:"tool"`
	Input []byte            `json:"input"`
	Env   map[string]string `json:"env"`
}

func (d *desk) accept(ctx context.Context, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		d.wg.Go(func() {
			defer func() { _ = conn.Close() }()
			d.serve(ctx, conn)
		})
	}
}

// serve answers one hook, unless it goes away before.
func (d *desk) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var call handedCall
	_ = conn.SetReadDeadline(time.Now().Add(hookTime))
	if err := json.NewDecoder(io.LimitReader(conn, 2*maxPiped)).Decode(&call); err != nil {
		return // and that is a no
	}
	t := hook.Named(call.Tool)
	if t == nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	d.wg.Go(func() {
		_, _ = conn.Read(make([]byte, 1)) // it says nothing more, so this is its end
		cancel()
	})
	out := d.answer(ctx, t, call.Input, func(name string) string { return call.Env[name] }, d.flags)
	if ctx.Err() != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(hookTime))
	line := func(text string) string { return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", " ") }
	_, _ = fmt.Fprintf(conn, "%d\n%s\n%s\n", out.Code, line(out.Stderr), line(string(out.Stdout)))
}

// handMoment is how long a hook waits as what it is. What the policy decides is there by
// then; what is not takes as long as a person does.
const handMoment = 300 * time.Millisecond

// handOn has the process that watches the run answer in our place. When that takes longer
// than a moment this process becomes a shell, which takes a small part of the memory.
func handOn(ctx context.Context, t *hook.Tool, text []byte, socket string) hook.Output {
	refuse := func(err error) hook.Output {
		return t.Refuse("Signalbox cannot be asked, so this is refused: " + err.Error() + ".")
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return refuse(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	env := map[string]string{}
	for _, name := range hook.Variables {
		env[name] = os.Getenv(name)
	}
	if err := json.NewEncoder(conn).Encode(handedCall{t.Name, text, env}); err != nil {
		return refuse(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(handMoment))
	said := bufio.NewReader(conn)
	if _, err := said.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		becomeShell(conn)
	}
	_ = conn.SetReadDeadline(time.Now().Add(engine.GuardTime))
	text, err = io.ReadAll(said)
	if err != nil {
		return refuse(err)
	}
	lines := strings.Split(string(text), "\n")
	code, err := strconv.Atoi(lines[0])
	if err != nil || len(lines) != 4 {
		return refuse(errors.New("the process that watches this run does not answer"))
	}
	out := hook.Output{Code: code, Stderr: lines[1]}
	if lines[2] != "" {
		out.Stdout = []byte(lines[2] + "\n")
	}
	return out
}

// waitScript is the rest of handOn for a shell, whose standard input is the connection. A
// line without an end is none: half an answer is a no.
const waitScript = `IFS= read -r code && IFS= read -r why && IFS= read -r out || {
  echo "Signalbox cannot be asked, so this is refused: the process that watches this run does not answer." >&2
  exit 2
}
[ -z "$why" ] || printf '%s\n' "$why" >&2
[ -z "$out" ] || printf '%s\n' "$out"
exit "$code"`

// becomeShell does not return, unless it cannot be done.
func becomeShell(conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetNonblock(int(fd), false)
		_ = syscall.Close(0)
		if input, err := syscall.Dup(int(fd)); err == nil && input == 0 { // the lowest that is free
			_ = syscall.Exec("/bin/sh", []string{"sh", "-c", waitScript}, os.Environ())
		}
		_ = syscall.SetNonblock(int(fd), true)
	})
}
