package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Inside is what runs in a box before the CLI: it makes the door a network.
type Inside struct {
	Door    string   // the path of the socket
	Proxy   string   // where it listens as a proxy of HTTP
	Forward []string // where it listens, and what that leads to: ADDRESS=HOST:PORT
	Command []string
}

// Run runs the command until it ends, and returns its exit code. It does not end by itself before: a command that is told
// to leave may still need the network.
func (i Inside) Run(ctx context.Context) (code int, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", i.Proxy)
	if err != nil {
		return 0, err
	}
	server := &http.Server{Handler: i.handler(), ReadHeaderTimeout: askTime}
	go func() { _ = server.Serve(l) }()
	for _, one := range i.Forward {
		at, target, _ := strings.Cut(one, "=")
		l, err := lc.Listen(ctx, "tcp", at)
		if err != nil { // ports below 1024 are not for us; the proxy leads there as well
			_, _ = fmt.Fprintf(os.Stderr, "Signalbox cannot listen at %s in the sandbox: %v\n", at, err)
			continue
		}
		go i.carry(l, target)
	}
	told := make(chan os.Signal, 8)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	cmd := exec.Command(i.Command[0], i.Command[1:]...) //nolint:noctx // the run ends it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		if state, _ := failed.Sys().(syscall.WaitStatus); state.Signaled() { //nolint:misspell // the standard library spells it so
			return 128 + int(state.Signal()), nil
		}
		return failed.ExitCode(), nil
	}
	return 0, err
}

// carry leads every connection of a listener to a target.
func (i Inside) carry(l net.Listener, target string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			out, err := i.dial(target)
			if err != nil {
				_ = conn.Close()
				return
			}
			join(conn, out)
		}()
	}
}

// handler is a proxy of HTTP: it tunnels what CONNECT asks for, and passes plain calls on.
func (i Inside) handler() http.Handler {
	plain := &httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, FlushInterval: -1,
		Transport: &http.Transport{
			DialContext: func(_ context.Context, _, target string) (net.Conn, error) { return i.dial(target) }, IdleConnTimeout: time.Minute,
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "Signalbox: "+err.Error()+".", http.StatusForbidden)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			i.tunnel(w, r.Host)
		case r.URL.Host != "" && r.URL.Scheme == "http":
			plain.ServeHTTP(w, r)
		default:
			http.Error(w, "Signalbox: this is a proxy.", http.StatusBadRequest)
		}
	})
}

// tunnel answers CONNECT.
func (i Inside) tunnel(w http.ResponseWriter, target string) {
	out, err := i.dial(target)
	if err != nil {
		http.Error(w, "Signalbox: "+err.Error()+".", http.StatusForbidden)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = out.Close()
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	if n := buffered.Reader.Buffered(); n > 0 { // what came with the request
		early, _ := buffered.Reader.Peek(n)
		_, _ = out.Write(early)
	}
	join(conn, out)
}

// join copies between two connections until both have said all.
func join(a, b net.Conn) {
	var wg sync.WaitGroup
	half := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if tcp, ok := to.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}
	wg.Go(func() { half(a, b) })
	wg.Go(func() { half(b, a) })
	wg.Wait()
	_, _ = a.Close(), b.Close()
}

// dial asks at the door for a connection.
func (i Inside) dial(target string) (net.Conn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: i.Door, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(dialTime + askTime))
	if _, err := io.WriteString(conn, target+"\n"); err != nil {
		return nil, err
	}
	text, rights := make([]byte, 1024), make([]byte, syscall.CmsgSpace(4))
	n, m, _, _, err := conn.ReadMsgUnix(text, rights)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, errors.New("the run is over")
	case m == 0:
		return nil, errors.New(strings.TrimSpace(string(text[:n])))
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("the door gave no connection")
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("the door gave no connection")
	}
	syscall.CloseOnExec(fds[0])
	f := os.NewFile(uintptr(fds[0]), "connection")
	defer func() { _ = f.Close() }()
	return net.FileConn(f)
}
