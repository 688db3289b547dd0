package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json" // the format is OCI's
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"signalbox/internal/testbed"
)

// imageBox is a container of the image: a root that nobody can write to, and a volume for the data.
type imageBox struct {
	root, data string
	config     struct {
		User                 string
		Env, Entrypoint, Cmd []string
	}
}

// imageUser is the user of the image.
const imageUser = 65532

// unpackTar writes the files of an archive below a folder, with their owners.
func unpackTar(t *testing.T, from io.Reader, root string) {
	t.Helper()
	for in := tar.NewReader(from); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.FromSlash(head.Name))
		if head.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var text []byte
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				if text, err = io.ReadAll(in); err == nil {
					err = os.WriteFile(path, text, head.FileInfo().Mode())
				}
			}
		}
		if err == nil {
			err = os.Chown(path, head.Uid, head.Gid)
		}
		if err == nil {
			err = os.Chmod(path, head.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// makeImage makes the image of the program that is tested, and unpacks it as a container engine does.
func makeImage(t *testing.T) *imageBox {
	t.Helper()
	if os.Getuid() != 0 {
		testbed.Missing(t, "this test becomes the image's user, which takes root")
	}
	testbed.Program(t, "bwrap")
	folder, layout := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "-ldflags=-s", "./scripts/release", "image",
		"-program", "linux/"+runtime.GOARCH+"="+binary, folder)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(folder, "signalbox_*_oci.tar"))
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	unpackTar(t, bytes.NewReader(testbed.Read(t, made[0])), layout)
	read := func(digest string, into any) []byte {
		text := testbed.Read(t, filepath.Join(layout, "blobs", strings.Replace(digest, ":", "/", 1)))
		if into != nil {
			if err := json.Unmarshal(text, into); err != nil {
				t.Fatal(err)
			}
		}
		return text
	}
	type descriptor struct{ Digest string }
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(testbed.Read(t, filepath.Join(layout, "index.json")), &index); err != nil {
		t.Fatal(err)
	}
	read(index.Manifests[0].Digest, &index)
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(index.Manifests[0].Digest, &manifest)
	b := &imageBox{root: t.TempDir()}
	read(manifest.Config.Digest, &struct{ Config any }{&b.config})
	for _, layer := range manifest.Layers {
		plain, err := gzip.NewReader(bytes.NewReader(read(layer.Digest, nil)))
		if err != nil {
			t.Fatal(err)
		}
		unpackTar(t, plain, b.root)
	}
	b.data = filepath.Join(b.root, "data")
	passable(t, b.root)
	return b
}

// command runs the program of the image in a container: as the image's user, with what is in the image and nothing
// else, read-only but for the data folder. It is on this machine's network, so that the test can call it.
func (b *imageBox) command(args ...string) *exec.Cmd {
	all := []string{
		"--unshare-pid", "--unshare-ipc", "--die-with-parent", "--clearenv", "--ro-bind", b.root + "/usr", "/usr",
		"--ro-bind", b.root + "/etc", "/etc", "--bind", b.data, "/data", "--proc", "/proc", "--dev", "/dev",
		"--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/data",
	}
	for _, e := range b.config.Env {
		name, value, _ := strings.Cut(e, "=")
		all = append(all, "--setenv", name, value)
	}
	all = append(append(all, b.config.Entrypoint...), args...)
	cmd := exec.CommandContext(context.Background(), "bwrap", all...)
	cmd.Env = cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser}}
	return cmd
}

// up starts the server in the container, and returns its address.
func (b *imageBox) up(t *testing.T) (url string, stop func()) {
	t.Helper()
	out := &testbed.Buffer{}
	cmd := b.command(append(b.config.Cmd, "--listen", "127.0.0.1:0")...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop = func() { _ = cmd.Process.Kill(); <-ended }
	t.Cleanup(stop)
	testbed.Until(t, "the container to be ready", func() bool {
		_, url, _ = strings.Cut(out.String(), "ready at ")
		url, _, _ = strings.Cut(url, "\n")
		return url != "" && strings.Contains(out.String(), "operator token")
	}, out)
	return url, stop
}

// answers checks that a server in a container is ready, by its own call and by the command that a health check runs.
func (b *imageBox) answers(t *testing.T, url string) {
	t.Helper()
	status, text, _ := testbed.Call(t, http.DefaultClient, "GET", url+"/readyz", "", nil)
	if status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, text)
	}
	if out, err := b.command("status").CombinedOutput(); err != nil || !strings.Contains(string(out), "ready") {
		t.Errorf("status: %v\n%s", err, out)
	}
}

// TestTheImageRunsWithoutRootAndWithoutWriting: its user is nobody's, its root is read-only, and there is no shell and
// no other program in it.
func TestTheImageRunsWithoutRootAndWithoutWriting(t *testing.T) {
	t.Parallel()
	b := makeImage(t)
	if b.config.User != "65532:65532" {
		t.Errorf("the user is %s", b.config.User)
	}
	url, _ := b.up(t)
	b.answers(t, url)
	info, err := os.Stat(filepath.Join(b.data, "operator.token"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != imageUser || info.Mode().Perm() != 0o600 {
		t.Errorf("the token: %v %v", info, err)
	}
	programs, err := filepath.Glob(filepath.Join(b.root, "usr/*/bin/*"))
	if err != nil || len(programs) != 1 {
		t.Errorf("programs in the image: %v %v", programs, err)
	}
	// What the container trusts is what the image brings.
	if roots := testbed.Read(t, filepath.Join(b.root, "etc/ssl/certs/ca-certificates.crt")); bytes.Count(roots,
		[]byte("BEGIN CERTIFICATE")) < 50 {
		t.Errorf("the image has %d bytes of certificates", len(roots))
	}
}

// TestAVolumeOfVersion01IsServedByTheImage: who replaces the image keeps the data, and the ledger still has what
// version 0.1 has signed.
func TestAVolumeOfVersion01IsServedByTheImage(t *testing.T) {
	t.Parallel()
	b := makeImage(t)
	old := t.TempDir()
	archive := filepath.Join("..", "..", "internal", "server", "testdata", "v0.1", "sqlite.tar.gz")
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", archive, "-C", old).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kept := filepath.Join(old, "kept.checkpoint")
	testbed.Write(t, kept, testbed.Read(t, filepath.Join(old, "data", "checkpoint")))
	for _, step := range [][]string{{"cp", "-a", old + "/data/.", b.data}, {"chown", "-R", "65532:65532", b.data}} {
		if out, err := exec.CommandContext(t.Context(), step[0], step[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", step, err, out)
		}
	}
	url, stop := b.up(t)
	b.answers(t, url)
	if out, err := b.command("ledger", "export", "--out", "/data/export").CombinedOutput(); err != nil {
		t.Fatalf("export: %v\n%s", err, out)
	}
	stop()
	key := filepath.Join(old, "data", "ledger.pub")
	out := mustRun(t, t.TempDir(), "ledger", "verify", filepath.Join(b.data, "export"), "--checkpoint", kept, "--key", key)
	if !strings.Contains(out, "signed") && !strings.Contains(out, "verified") && !strings.Contains(out, "ok") {
		t.Errorf("verify: %s", out)
	}
	// A second start finds nothing left to bring up to date.
	url, _ = b.up(t)
	b.answers(t, url)
}
