package server_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/testbed"
)

func TestTLSWithAGivenCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool := testbed.SelfSigned(t, dir, "127.0.0.1", 1)
	b := start(t, "",
		map[string]string{"tls.cert": filepath.Join(dir, "cert.pem"), "tls.key": filepath.Join(dir, "key.pem")})
	if !strings.HasPrefix(b.url, "https://") {
		t.Fatalf("the address is %s", b.url)
	}
	get := func(pool *x509.CertPool) (version int, err error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs:    pool,
			MinVersion: tls.VersionTLS12,
		}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/healthz", nil)
		res, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return res.ProtoMajor, res.Body.Close()
	}
	if version, err := get(pool); err != nil || version != 2 {
		t.Fatalf("spoke HTTP/%d, want 2: %v", version, err)
	}
	renewed := testbed.SelfSigned(t, dir, "127.0.0.1", 2)
	if _, err := get(renewed); err != nil {
		t.Errorf("a renewed certificate is not served: %v", err)
	}
	testbed.Write(t, filepath.Join(dir, "cert.pem"), "half written")
	if _, err := get(renewed); err != nil {
		t.Errorf("a broken renewal stops the server: %v", err)
	}
}

// dial opens a plain connection to the server.
func dial(t *testing.T, b *box) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testbed.Patience))
	return conn
}

func TestTheListenerHasLimits(t *testing.T) {
	t.Parallel()
	b := start(t, "", nil)

	t.Run("headers that are too large are refused", func(t *testing.T) {
		conn := dial(t, b)
		_, _ = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", 80<<10))
		line, _ := bufio.NewReader(conn).ReadString('\n')
		if !strings.Contains(line, "431") {
			t.Errorf("answered %q", line)
		}
	})
	t.Run("a client that sends its header too slowly is cut off", func(t *testing.T) {
		t.Parallel()
		conn := dial(t, b)
		_, _ = fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n")
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("it was kept")
		}
	})
	t.Run("a body that breaks off changes nothing", func(t *testing.T) {
		before := b.head()
		conn := dial(t, b)
		_, _ = fmt.Fprintf(conn,
			"POST /ops/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
				"Content-Length: 100\r\n\r\n{\"name\":\"half\"}", b.token())
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(conn)
		if !strings.Contains(string(answer), "400") || b.head() != before {
			t.Errorf("answered %q", answer)
		}
	})
	t.Run("every answer has an id, and no answer is sniffed", func(t *testing.T) {
		_, _, header := b.do(request{call: "GET /healthz"})
		if len(header.Get("X-Request-Id")) != 16 || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%v", header)
		}
	})
}
