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

// handMoment is how long a hook waits as the process it is. The policy has decided by
// then; what has not takes as long as a person does.
const handMoment = 300 * time.Millisecond

// askDesk has the process that watches the run answer in our place. If that takes longer
// than handMoment, this process becomes a shell with the connection as its standard
// input, which takes a small part of the memory. Whatever goes wrong is a denial
// (RUN-42).
func askDesk(ctx context.Context, t *Tool, text []byte, socket string) Output {
	refuse := func(err error) Output {
		return t.Refuse("Signalbox cannot be asked, so this is refused: " + err.Error() + ".")
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return refuse(err)
	}
	defer func() { _ = conn.Close() }()
	// A deadline in the past ends a read that waits.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	env := map[string]string{}
	for _, name := range Variables {
		env[name] = environment(name)
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
	// Three lines and the empty rest after the last line break.
	if err != nil || len(lines) != 4 {
		return refuse(errors.New("the supervisor of this run does not answer"))
	}
	out := Output{Code: code, Stderr: lines[1]}
	if lines[2] != "" {
		out.Stdout = []byte(lines[2] + "\n")
	}
	return out
}

// waitScript is the rest of askDesk as a shell script. `read` fails for a line without
// an end, so half an answer is a denial.
const waitScript = `IFS= read -r code && IFS= read -r why && IFS= read -r out || {
  echo "Signalbox cannot be asked, so this is refused: the supervisor of this run does not answer." >&2
  exit 2
}
[ -z "$why" ] || printf '%s\n' "$why" >&2
[ -z "$out" ] || printf '%s\n' "$out"
exit "$code"`

// becomeShell replaces this process by the shell, and returns only if that fails.
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
