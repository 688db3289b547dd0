package hook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/harness"
	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Desk asks the server in place of the hooks of a supervised run. The hooks hand what
// they are asked to the process that watches the run, which waits for all of them: a
// hook that waited for a person by itself would take more memory than the rest of the
// run.
type Desk struct {
	asker
	decided
	listener net.Listener
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	asking   atomic.Int64 // hooks that wait for an answer
}

// Asking reports whether a hook waits for an answer.
func (d *Desk) Asking() bool { return d.asking.Load() > 0 }

// GoOn has the desk go on with what rules with on_unreachable allow while the server cannot be reached. It asks the
// server for its key, before the agent runs.
func (d *Desk) GoOn(ctx context.Context) error {
	_, err := d.trustServer(ctx)
	return err
}

// OpenDesk listens for hooks on a socket in the folder, until Close. It waits up to
// wait for a person's decision. Its permission is final (RUN-43): the CLI's own prompt
// would ask somebody who is not there.
//
// as is on whose behalf the run is, as far as its supervisor knows: the environment of the hooks says the rest.
func OpenDesk(ctx context.Context, a *command.App, dir string, as Behalf, wait time.Duration) (*Desk, error) {
	socket := filepath.Join(dir, "hook.sock")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot listen at %s, where the run would ask for permission. "+
				"TMPDIR should be a folder with a short name that can be written to.", socket)
	}
	d := &Desk{asker: asker{App: a, wait: wait, alone: true, as: as}, listener: l}
	d.byID, d.byTool, d.noted = map[string]answered{}, map[string]int{}, d.note
	// Not the run's own context: hooks of a run that is being stopped are denied by Close,
	// after the CLI has ended.
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx)) // until Close, when the CLI has ended
	d.wg.Go(func() { d.accept(ctx) })
	return d, nil
}

// Arguments are those with which `signalbox hook` hands its call to this desk.
func (d *Desk) Arguments() []string { return []string{"--via", d.listener.Addr().String()} }

// Close ends the desk. Hooks that wait lose their connection, which they take for a
// denial.
func (d *Desk) Close() {
	d.cancel()
	_ = d.listener.Close()
	d.wg.Wait()
}

// handedCall is what a hook hands over, as one line of JSON. The answer is three lines:
// the exit code, what goes to standard error, and what goes to standard output. A shell
// can read that, which it has to (waitScript).
type handedCall struct {
	Tool  string            `json:"tool"`
	Input []byte            `json:"input"`
	Env   map[string]string `json:"env"`
}

// writeCall and readCall are the two ends of the line.
func writeCall(w io.Writer, call handedCall) error {
	line, err := wire.Marshal(call)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}

func readCall(r io.Reader) (call handedCall, err error) {
	line, err := bufio.NewReader(io.LimitReader(r, 2*harness.MaxMessage)).ReadBytes('\n')
	if err == nil {
		err = wire.Unmarshal(line, &call)
	}
	return call, err
}

// accept serves hooks until the listener is closed.
func (d *Desk) accept(ctx context.Context) {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.wg.Go(func() {
			defer func() { _ = conn.Close() }()
			d.serve(ctx, conn)
		})
	}
}

// serve answers one hook, unless it goes away first: a CLI that was cancelled asks for
// nothing any more. A connection that ends without an answer is a denial.
func (d *Desk) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetReadDeadline(time.Now().Add(callTime))
	call, err := readCall(conn)
	if err != nil {
		return // and that is a no
	}
	t := Named(call.Tool)
	if t == nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	// A read that returns says that the hook is gone, whatever it returns.
	d.wg.Go(func() {
		_, _ = conn.Read(make([]byte, 1)) // it says nothing more, so this is its end
		cancel()
	})
	d.asking.Add(1)
	defer d.asking.Add(-1)
	out := d.answer(ctx, t, call.Input, func(name string) string { return call.Env[name] })
	if ctx.Err() != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(callTime))
	line := func(text string) string { return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", " ") }
	_, _ = fmt.Fprintf(conn, "%d\n%s\n%s\n", out.Code, line(out.Stderr), line(string(out.Stdout)))
}
