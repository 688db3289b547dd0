// Package blobtest starts a real store that speaks S3, for tests. It knows nothing of what
// they put there.
package blobtest

import (
	"go/build"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"signalbox/internal/blob"
	"signalbox/internal/wire"
)

// S3 starts versitygw over a folder of the test's own, and says where its bucket is. The
// script test-tools installs it.
func S3(t testing.TB) blob.S3 {
	t.Helper()
	program, err := exec.LookPath("versitygw")
	if err != nil {
		program = filepath.Join(build.Default.GOPATH, "bin", "versitygw")
		_, err = os.Stat(program)
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no versitygw; run the tests with make test")
		}
		t.Skip("there is no versitygw; run the tests with make test")
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "attachments"), 0o700); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	server := exec.CommandContext(t.Context(), program, "--port", address, "posix", "--sidecar", t.TempDir(), root)
	server.Dir = t.TempDir()
	server.Env = append(os.Environ(), "ROOT_ACCESS_KEY=test-key", "ROOT_SECRET_KEY=test-secret")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatal("versitygw does not listen")
		}
	}
	return blob.S3{Endpoint: "http://" + address, Region: "us-east-1", Bucket: "attachments", AccessKey: "test-key", SecretKey: wire.NewSecret("test-secret")}
}

// freeAddress is one on which nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
