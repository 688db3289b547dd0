package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/harness"
	"signalbox/internal/kin"
	"signalbox/internal/ledger"
	"signalbox/internal/mcp"
	"signalbox/internal/protocol"
	"signalbox/internal/reload"
	"signalbox/internal/server/access"
	"signalbox/internal/server/measure"
	"signalbox/internal/wire"
)

// The limits of the listener. A client that is slower than this is cut off.
const (
	// How long the headers of a request may take: the limit against clients that send one byte at a time.
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// requestTimeout is how long a request's body may take to arrive; the answer may
	// take twice as long. Streams set their own deadlines.
	requestTimeout = time.Minute
	// stopTimeout is how long calls in progress may take after a stop was requested. It
	// is below the 30 seconds after which container systems kill a process.
	stopTimeout = 25 * time.Second
)

// Server is one Signalbox. New opens it, Run serves until its context ends and closes it; a server can be run only
// once. Between the two it holds the lock on the data folder and the port, but answers nothing.
type Server struct {
	config   *Config
	edge     *edge
	log      *slog.Logger
	access   *access.Log
	core     *core
	lock     *os.File
	cert     *reload.Certificate // nil without TLS
	listener net.Listener
	// six is the listener on ::1 beside one on 127.0.0.1. Browsers look for localhost there first, and who
	// listens there could show people a gate and have them sign for another.
	six           net.Listener
	ownsLocalhost bool
	socket        net.Listener // of AHP
	started       time.Time
	metrics       *measure.Metrics
	tools         *mcp.Handler
	stopping      context.Context //nolint:containedctx // the server's life and no call's: it ends when a stop was asked for
	stop          context.CancelFunc
}

// New opens everything up to the listening socket; requests are answered only after Run.
// After an error everything is closed again. more are protocols beside our own. The
// caller has to call Run, which is what releases the lock and the port.
func New(ctx context.Context, c *Config, log *slog.Logger, more ...protocol.Protocol) (*Server, error) {
	s := &Server{config: c, edge: newEdge(c), log: log, started: time.Now()}
	s.stopping, s.stop = context.WithCancel(context.Background())
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot create the data folder %s. Choose another with --data, or create it yourself "+
				"and give this user the right to write to it.", c.Data)
	}
	var err error
	if s.lock, err = file.Lock(c.Data); err != nil {
		return nil, err
	}
	if s.access, err = access.Open(c.AccessLog, c.AccessForm); err != nil {
		s.close()
		return nil, err
	}
	// The socket comes before the database: a port in use must change nothing.
	if s.cert, err = reload.NewCertificate(c.TLSCert, c.TLSKey); err == nil {
		s.listener, err = listen(ctx, c)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	s.listener = s.cert.Listen(s.listener)
	s.listenLocalhost(ctx)
	if s.socket, err = harness.Listen(ctx, c.socketPath()); err == nil && c.Shared != "" {
		err = os.Chmod(c.socketPath(), 0o660) // the folder decides who gets here
	}
	if err != nil {
		s.close()
		return nil, err
	}
	if s.core, err = openCore(ctx, c, s.URL(), s.edge, log, more); err != nil {
		s.close()
		return nil, err
	}
	s.openReload()
	s.metrics = measure.New(measure.Sources{
		DB: s.core.DB, Counters: s.core.counters, Gates: s.core.Gates, Outbox: s.core.Outbox, Made: &s.core.Book.Made,
		Sinks: s.core.sinks, Ledger: s.core.Ledger, Harness: s.core.harness, Access: s.access, Now: s.core.Now,
		Audit: s.core.audit, Backups: s.core.backups, Keeper: s.core.keeper,
	})
	s.core.telemetry.Measure(s.metrics.Gatherer)
	return s, nil
}

// close releases what New has opened, as far as it got. The lock is the last: until then
// no other server may open the folder.
func (s *Server) close() {
	if s.tools != nil {
		s.tools.Close()
	}
	if s.core != nil {
		s.core.DB.Close()
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
	if s.six != nil {
		_ = s.six.Close()
	}
	if s.socket != nil {
		_ = s.socket.Close()
		_ = os.Remove(s.config.socketPath())
	}
	_ = s.lock.Close()
}

// URL is the address at which people reach the server: public_url, or else the address of the listener. On loopback
// that is localhost, since browsers have passkeys at a name only; the number works as well.
func (s *Server) URL() string {
	if s.config.PublicURL != "" {
		return s.config.PublicURL
	}
	at := s.localURL()
	if s.ownsLocalhost {
		at = strings.Replace(at, "127.0.0.1", "localhost", 1)
	}
	return at
}

// localURL is the address for clients on this machine. A listener on all addresses is reached through loopback.
func (s *Server) localURL() string {
	scheme := "http"
	if s.config.TLSCert != "" {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Database is the kind of database in use: sqlite or postgres.
func (s *Server) Database() string { return s.core.DB.Name() }

// Refusal is the reason why the server refuses writes, or nil. The only reason is a
// ledger that differs from what was signed.
func (s *Server) Refusal() error { return s.core.Ledger.Mismatch() }

// Run serves until ctx ends, then finishes the calls that it has accepted, stops
// everything and closes it. ready is called once, when the listener accepts connections.
// Run returns nil after an orderly stop, also if some calls had to be cut off.
func (s *Server) Run(ctx context.Context, ready func(*Server)) error {
	defer s.close()
	// First the followers of the ledger stop, then the ledger, which answers every write. Neither
	// context ends with ctx, because calls that are still in progress need both.
	core, stopCore := context.WithCancel(context.WithoutCancel(ctx))
	book, stopBook := context.WithCancel(context.WithoutCancel(ctx))
	ran, kept := make(chan error, 1), make(chan error, 1)
	go func() { kept <- s.core.Ledger.Run(book) }()
	go func() { ran <- s.core.run(core) }()
	stop := func(err error) error {
		stopCore()
		err = errors.Join(err, <-ran)
		stopBook()
		return errors.Join(err, <-kept)
	}
	if err := s.prepare(ctx); err != nil {
		return stop(err)
	}
	web := s.httpServer()
	served, local := make(chan error, 2), make(chan error, 1)
	go func() { served <- web.Serve(s.listener) }()
	if s.six != nil {
		go func() { served <- web.Serve(s.six) }()
	}
	go func() { local <- s.core.harness.ServeSocket(s.stopping, s.socket) }()
	ready(s)

	select {
	// The listener broke, which does not happen in normal work.
	case err := <-served:
		s.stop()
		return stop(errors.Join(fmt.Errorf("serve: %w", err), <-local))
	case <-ctx.Done():
	}
	// Streams would never end by themselves; s.stop ends them, then Shutdown waits for the rest.
	s.log.Info("stopping; finishing calls in progress")
	s.stop()
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := web.Shutdown(deadline); err != nil {
		s.log.Warn("some calls did not finish in time and were cut off")
		_ = web.Close()
	}
	return stop(<-local)
}

// prepare does what a start needs before the first call: the address for local commands, the first admin and policy,
// cursors, and the token file. Each step finds out by itself whether it was done before. A ledger that refuses writes
// is served for reading, without these steps, so that operators can look at it.
func (s *Server) prepare(ctx context.Context) error {
	reach := s.localURL()
	if s.config.TLSCert != "" {
		reach = s.URL() // the name that the certificate is for
	}
	err := file.Replace(filepath.Join(s.config.Data, URLFile), []byte(reach+"\n"), 0o600)
	if err == nil && s.config.Shared != "" {
		err = file.Replace(filepath.Join(s.config.Shared, URLFile), []byte(reach+"\n"), 0o644)
	}
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly,
			"Cannot write to the data folder %s. Check that this user may write there, and that the disk has room.",
			s.config.Data)
	}
	for _, w := range s.config.Warnings {
		s.log.Warn(w)
	}
	if !s.core.Ledger.Signs() {
		s.log.Warn("this node does not have the ledger's key and does not sign checkpoints; copy "+ledger.KeyFile+
			" from the node that made the ledger so that this one can", "folder", s.config.Data)
	}
	if s.core.Ledger.Mismatch() != nil {
		return nil //nolint:nilerr // said by the ledger, loudly
	}
	if err := s.core.Kin.Load(ctx); err != nil {
		return err
	}
	if err := s.core.keeper.Start(ctx); err != nil {
		return err
	}
	if err := s.core.Roster.Bootstrap(ctx); err != nil {
		return err
	}
	if err := s.core.Book.Bootstrap(ctx); err != nil {
		return err
	}
	if err := s.core.notifier.Enrol(ctx); err != nil {
		return err
	}
	if err := s.core.taskMail.Begin(ctx); err != nil {
		return err
	}
	if err := s.core.adoptKeys(ctx, s.config); err != nil {
		return err
	}
	return s.core.ensureToken(ctx, s.config.Data, s.log)
}

// LockFolder locks the folder for a command that must not run beside a server, such as a
// rebuild. It fails at once if the folder is locked.
func LockFolder(dir string) (release func(), err error) {
	f, err := file.Lock(dir)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// listen opens the listener. The errors that people meet most get a sentence of their own.
func listen(ctx context.Context, c *Config) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.Listen)
	if err == nil {
		return l, nil
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fault.Wrap(err, fault.InvalidConfig,
			"The address %s is in use, perhaps by another Signalbox. Stop what uses it, or choose another "+
				"with --listen, such as --listen 127.0.0.1:7447.", c.Listen).About("listen")
	case errors.Is(err, syscall.EACCES):
		return nil, fault.Wrap(err, fault.InvalidConfig,
			"This user may not listen on %s. Choose a port above 1023 with --listen.", c.Listen).About("listen")
	}
	return nil, fault.Wrap(err, fault.InvalidConfig,
		"Cannot listen on %s: the address is not one of this machine. Use 127.0.0.1:7446, or :7446 for every address.",
		c.Listen).About("listen")
}

// listenLocalhost takes the rest of localhost, if the listener has 127.0.0.1 without TLS. A machine without
// IPv6 has no more of it. If somebody else has it, people are sent to the number, where there are no passkeys.
func (s *Server) listenLocalhost(ctx context.Context) {
	at, ok := s.listener.Addr().(*net.TCPAddr)
	if !ok || s.config.TLSCert != "" || s.config.PublicURL != "" {
		return
	}
	if at.IP.IsUnspecified() && at.IP.To4() == nil { // all addresses of both kinds
		s.ownsLocalhost = true
		return
	}
	if !at.IP.IsUnspecified() && !at.IP.Equal(net.IPv4(127, 0, 0, 1)) {
		return
	}
	var lc net.ListenConfig
	six, err := lc.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(at.Port)))
	switch {
	case err == nil:
		s.six, s.ownsLocalhost = six, true
	case errors.Is(err, syscall.EADDRINUSE):
		s.log.Warn("another program listens on this port of ::1, so localhost is not this server; there are no passkeys",
			"port", at.Port)
	default:
		s.ownsLocalhost = true // there is no ::1
	}
}

// httpServer has the limits of the listener. It has no WriteTimeout, since streams last; serve sets deadlines for
// each call. The messages of net/http are mostly about clients that went away, hence the debug level.
func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return wire.WithStop(context.Background(), s.stopping) },
		ConnContext:       kin.WithConn,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}
