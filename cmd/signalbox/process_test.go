package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/run/runtest"
	"signalbox/internal/testbed"
)

// These tests run the real binary as a process of its own.

var binary string

func TestMain(m *testing.M) {
	runtest.Main()
	dir, err := os.MkdirTemp("", "signalbox-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "signalbox")
	// What is tested is what is shipped: make knows the flags.
	out, err := exec.CommandContext(context.Background(), "make", "-s", "-C", filepath.Join("..", ".."), "build",
		"BIN="+binary).CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("build: %v\n%s", err, out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// process is a running server.
type process struct {
	t    testing.TB
	dir  string
	url  string
	cmd  *exec.Cmd
	log  *testbed.Buffer
	done chan struct{}
}

// configure writes the configuration of the server in a data folder, which need not exist yet.
func configure(t testing.TB, dir, text string) {
	t.Helper()
	testbed.Write(t, filepath.Join(dir, "signalbox.yaml"), text)
}

// up starts a server on a free port and waits until it says that it is ready.
func up(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	return upIn(t, dir, nil, args...)
}

// upIn is up with more in its environment.
func upIn(t testing.TB, dir string, env []string, args ...string) *process {
	t.Helper()
	return upAs(t, dir, nil, env, args...)
}

// upAs is upIn as another user.
func upAs(t testing.TB, dir string, user *syscall.SysProcAttr, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, dir: dir, log: &testbed.Buffer{}, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), binary,
		append([]string{"up", "--data", dir, "--listen", "127.0.0.1:0"}, args...)...)
	p.cmd.Env, p.cmd.SysProcAttr = append(cleanEnv(), env...), user
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "ready at "); ok {
				ready <- url
			}
		}
		_ = p.cmd.Wait()
		close(p.done)
	}()
	select {
	case p.url = <-ready:
	case <-p.done:
		t.Fatalf("the server did not start:\n%s", p.log)
	case <-time.After(testbed.Patience):
		t.Fatalf("the server did not become ready:\n%s", p.log)
	}
	return p
}

// cleanEnv is the environment without what configures a Signalbox.
func cleanEnv() (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SIGNALBOX_") {
			env = append(env, e)
		}
	}
	return env
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the server to stop and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(testbed.Patience):
		p.t.Fatalf("the server does not stop:\n%s", p.log)
	}
	return p.cmd.ProcessState.ExitCode()
}

// run runs a command of the binary against the folder.
func run(t testing.TB, dir string, args ...string) (code int, output string) {
	t.Helper()
	cmd := exec.CommandContext(testbed.Context(t), binary, args...)
	cmd.Env = append(cleanEnv(), "SIGNALBOX_DATA="+dir)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func mustRun(t testing.TB, dir string, args ...string) string {
	t.Helper()
	code, out := run(t, dir, args...)
	if code != 0 {
		t.Fatalf("signalbox %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// token is the first operator's.
func (p *process) token() string {
	p.t.Helper()
	text := testbed.Read(p.t, filepath.Join(p.dir, "operator.token"))
	return strings.TrimSpace(string(text))
}

var web = &http.Client{Timeout: testbed.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// call sends a request with the operator's token.
func (p *process) call(method, path, body string) (status int, answer string, err error) {
	return p.callAs(p.token(), method, path, body)
}

// callAs sends a request with somebody's key.
func (p *process) callAs(token, method, path, body string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(context.Background(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := web.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// get is a call that has to succeed.
func (p *process) get(path string, into any) {
	p.t.Helper()
	status, answer, err := p.call("GET", path, "")
	if err != nil || status != http.StatusOK {
		p.t.Fatalf("GET %s: %d %s %v", path, status, answer, err)
	}
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		p.t.Fatal(err)
	}
}
