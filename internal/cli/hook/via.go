package hook

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"signalbox/internal/run/engine"
)

// handMoment is how long a hook waits as what it is. What the policy decides is there by
// then; what is not takes as long as a person does.
const handMoment = 300 * time.Millisecond

// handOn has the process that watches the run answer in our place. When that takes longer
// than a moment this process becomes a shell, which takes a small part of the memory.
func handOn(ctx context.Context, t *Tool, text []byte, socket string) Output {
	refuse := func(err error) Output {
		return t.Refuse("Signalbox cannot be asked, so this is refused: " + err.Error() + ".")
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return refuse(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	env := map[string]string{}
	for _, name := range Variables {
		env[name] = os.Getenv(name)
	}
	if err := writeCall(conn, handedCall{t.Name, text, env}); err != nil {
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
	out := Output{Code: code, Stderr: lines[1]}
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
