// Package blobtest starts a real S3 server for tests. It knows nothing of what they store there.
package blobtest

import (
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"signalbox/internal/blob"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// S3 starts versitygw over a folder of the test's own, and returns its bucket. The server ends with
// the test. Without the program, which the script test-tools installs, the test is skipped; under CI
// that is a failure.
func S3(t testing.TB) blob.S3 {
	t.Helper()
	program := testbed.Program(t, "versitygw", filepath.Join(build.Default.GOPATH, "bin", "versitygw"))
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "attachments"), 0o700); err != nil {
		t.Fatal(err)
	}
	address := testbed.FreeAddress(t)
	server := exec.CommandContext(t.Context(), program, "--port", address, "posix", "--sidecar", t.TempDir(), root)
	server.Dir = t.TempDir()
	// The keys are those of the answer below.
	server.Env = append(os.Environ(), "ROOT_ACCESS_KEY=test-key", "ROOT_SECRET_KEY=test-secret")
	testbed.Background(t, server)
	bucket := blob.S3{
		Endpoint: "http://" + address, Region: "us-east-1", Bucket: "attachments", AccessKey: "test-key",
		SecretKey: wire.NewSecret("test-secret"),
	}
	// It may accept connections before it answers.
	testbed.Until(t, "the S3 server to answer", func() bool {
		_, err := blob.OpenBucket(t.Context(), bucket)
		return err == nil
	})
	return bucket
}
