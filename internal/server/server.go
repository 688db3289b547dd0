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
	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
)

// The limits of the listener. A client that is slower than this is cut off.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// requestTimeout is how long a body may take to arrive and an answer to be
	// taken; streams set their own.
	requestTimeout = time.Minute
	// stopTimeout is how long calls under way may take after a stop was asked for.
	stopTimeout = 25 * time.Second
)

// Server is a Signalbox that can be run, once.
type Server struct {
	config   *Config
	log      *slog.Logger
	core     *core
	lock     *os.File
	listener net.Listener
	socket   net.Listener // of AHP
	started  time.Time
	metrics  *metrics
	stopping context.Context //nolint:containedctx // the server's life and no call's: it ends when a stop was asked for
	stop     context.CancelFunc
}

// New opens everything, up to the listening socket. The server answers after Run.
// more are protocols beside our own.
func New(ctx context.Context, c *Config, log *slog.Logger, more ...protocol.Protocol) (*Server, error) {
	s := &Server{config: c, log: log, started: time.Now()}
	s.stopping, s.stop = context.WithCancel(context.Background())
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot make the data folder %s. Choose another with --data, or make it yourself "+
				"and give this user the right to write to it.", c.Data)
	}
	var err error
	if s.lock, err = lockFolder(c.Data); err != nil {
		return nil, err
	}
	// The socket comes before the database: a port in use must change nothing.
	if s.listener, err = listen(ctx, c); err != nil {
		s.close()
		return nil, err
	}
	if s.socket, err = harness.Listen(ctx, filepath.Join(c.Data, harness.SocketFile)); err != nil {
		s.close()
		return nil, err
	}
	if s.core, err = openCore(ctx, c, s.URL(), log, more); err != nil {
		s.close()
		return nil, err
	}
	s.metrics = newMetrics(s.core)
	return s, nil
}

func (s *Server) close() {
	if s.core != nil {
		s.core.DB.Close()
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
	if s.socket != nil {
		_ = s.socket.Close()
		_ = os.Remove(filepath.Join(s.config.Data, harness.SocketFile))
	}
	_ = s.lock.Close()
}

// URL is where the server is reached.
func (s *Server) URL() string {
	if s.config.PublicURL != "" {
		return s.config.PublicURL
	}
	return s.localURL()
}

// localURL is the address for clients on this machine.
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

// Database is the kind of database in use.
func (s *Server) Database() string { return s.core.DB.Name() }

// Refusal is why the server takes no writes, nil when it does.
func (s *Server) Refusal() error { return s.core.Ledger.Mismatch() }

// Run serves until ctx ends, then finishes what it has accepted. ready is called
// once, when the first request can be answered.
func (s *Server) Run(ctx context.Context, ready func(*Server)) error {
	defer s.close()
	// First what follows the ledger stops, then the ledger: it answers every write.
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
	served, local := make(chan error, 1), make(chan error, 1)
	go func() { served <- web.Serve(s.listener) }()
	go func() { local <- s.core.harness.ServeSocket(s.stopping, s.socket) }()
	ready(s)

	select {
	case err := <-served:
		s.stop()
		return stop(errors.Join(fmt.Errorf("serve: %w", err), <-local))
	case <-ctx.Done():
	}
	s.log.Info("stopping; calls under way are finished")
	s.stop()
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := web.Shutdown(deadline); err != nil {
		s.log.Warn("some calls did not end in time and were cut off")
		_ = web.Close()
	}
	return stop(<-local)
}

// prepare makes what a first start needs. A ledger that refuses writes is served
// all the same, so that operators can look at it.
func (s *Server) prepare(ctx context.Context) error {
	reach := s.localURL()
	if s.config.TLSCert != "" {
		reach = s.URL() // the name that the certificate is for
	}
	if err := os.WriteFile(filepath.Join(s.config.Data, URLFile), []byte(reach+"\n"), 0o600); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly,
			"Cannot write to the data folder %s. Check that this user may, and that the disk has room.", s.config.Data)
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
	if err := s.core.Roster.Bootstrap(ctx); err != nil {
		return err
	}
	if err := s.core.Book.Bootstrap(ctx); err != nil {
		return err
	}
	if err := s.core.notifier.Enrol(ctx); err != nil {
		return err
	}
	if err := s.core.taskMail.begin(ctx); err != nil {
		return err
	}
	if err := s.core.adoptKeys(ctx, s.config); err != nil {
		return err
	}
	return s.core.ensureToken(ctx, s.config.Data, s.log)
}

// lockFolder keeps a second server away from the folder. The lock goes when the
// process does, however it ends.
func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot write to the data folder %s. Give this user the right to, or choose another with --data.", dir)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		_ = f.Close()
		return nil, fault.Wrap(err, fault.Conflict,
			"Another Signalbox (process %s) uses the data folder %s. Stop it, or choose another folder with --data.",
			strings.TrimSpace(string(holder)), dir)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// LockFolder takes the folder for a command that must not run beside a server.
func LockFolder(dir string) (release func(), err error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

func listen(ctx context.Context, c *Config) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.Listen)
	if err == nil {
		return wrapTLS(l, c)
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

func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}
