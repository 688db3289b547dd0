package reload_test

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/reload"
	"signalbox/internal/testbed"
)

// TestTheLogChangesItsLevelAndFormForLoggersThatExist and keeps credentials out of both forms.
func TestTheLogChangesItsLevelAndFormForLoggersThatExist(t *testing.T) {
	t.Parallel()
	var out testbed.Buffer
	logs := reload.NewLogs(&out, "info", "text")
	log := logs.Logger().With("part", "p").WithGroup("g")
	log.Debug("hidden")
	log.Info("first", "n", 1)
	logs.Set("debug", "json")
	log.Debug("second", "n", 2)
	logs.Set("error", "json")
	log.Warn("hidden")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=INFO msg=first part=p g.n=1") ||
		!strings.Contains(lines[1], `"level":"DEBUG","msg":"second","part":"p","g":{"n":2}`) {
		t.Errorf("%s", out.String())
	}
}

// TestACertificateIsExchangedWhileTheServerListens also for one in other files; a pair that does not fit changes
// nothing.
func TestACertificateIsExchangedWhileTheServerListens(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	old, renewed := testbed.SelfSigned(t, first, "127.0.0.1", 1), testbed.SelfSigned(t, second, "127.0.0.1", 2)
	files := func(dir string) (cert, key string) {
		return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	}
	certificate, err := reload.NewCertificate(files(first))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := certificate.Listen(plain)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(t.Context())
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-served })
	shakes := func(roots *tls.Config) error {
		roots.MinVersion = tls.VersionTLS12
		conn, err := tls.Dial("tcp", plain.Addr().String(), roots)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	if err := shakes(&tls.Config{RootCAs: old}); err != nil {
		t.Fatal(err)
	}
	cert, _ := files(second)
	_, key := files(first)
	if _, err := certificate.Load(cert, key); err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Errorf("a key of another certificate: %v", err)
	}
	if err := shakes(&tls.Config{RootCAs: old}); err != nil {
		t.Errorf("after a pair that does not fit: %v", err)
	}
	use, err := certificate.Load(files(second))
	if err != nil {
		t.Fatal(err)
	}
	use()
	if err := shakes(&tls.Config{RootCAs: renewed}); err != nil {
		t.Errorf("the other certificate is not served: %v", err)
	}
	var none *reload.Certificate
	if none.Listen(plain) != plain {
		t.Error("a server without TLS speaks it")
	}
}
