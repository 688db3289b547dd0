package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/run/runtest"
	"signalbox/internal/store/storetest"
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

// witness remembers what the server has acknowledged.
type witness struct {
	mu    sync.Mutex
	acked map[string]bool
	tried int
}

// more waits until so many more calls were acknowledged.
func (w *witness) more(t *testing.T, n int) {
	t.Helper()
	count := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.acked) }
	want := count() + n
	testbed.Until(t, "more calls to be acknowledged", func() bool { return count() >= want })
}

// agents adds agents from many clients until stop is closed. A call whose answer
// was lost may or may not have been done; it is not tried again.
func (w *witness) agents(p *process, clients int, stop <-chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range clients {
		repeat(&wg, stop, func() {
			w.mu.Lock()
			w.tried++
			name := fmt.Sprintf("agent-%d", w.tried)
			w.mu.Unlock()
			status, answer, err := p.call("POST", "/ops/agents", fmt.Sprintf(`{"name":%q}`, name))
			if err == nil && status == http.StatusCreated && strings.Contains(answer, name) {
				w.mu.Lock()
				w.acked[name] = true
				w.mu.Unlock()
			}
		})
	}
	return &wg
}

// repeat takes a step again and again, beside the test, until stop is closed.
func repeat(wg *sync.WaitGroup, stop <-chan struct{}, step func()) {
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				step()
			}
		}
	})
}

// check reads the whole ledger: it has no gap, every acknowledged agent once, and
// none twice.
func (w *witness) check(t *testing.T, p *process) {
	t.Helper()
	type entry struct {
		Seq  int64  `json:"seq"`
		Kind string `json:"kind"`
		Body struct {
			Name string `json:"name"`
		} `json:"body"`
	}
	seen := map[string]int{}
	for after := int64(0); ; {
		var page struct {
			Entries []entry `json:"entries"`
			Next    int64   `json:"next"`
		}
		p.get(fmt.Sprintf("/ops/ledger?limit=1000&after=%d", after), &page)
		for i, e := range page.Entries {
			if e.Seq != after+int64(i)+1 {
				t.Fatalf("entry %d follows %d", e.Seq, after+int64(i))
			}
			if e.Kind == "agent.added" {
				seen[e.Body.Name]++
			}
		}
		after = page.Next
		if len(page.Entries) == 0 {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.acked {
		if seen[name] != 1 {
			t.Errorf("%s was acknowledged and is in the ledger %d times", name, seen[name])
		}
	}
	for name, n := range seen {
		if n > 1 {
			t.Errorf("%s is in the ledger %d times", name, n)
		}
	}
}

// verify proves the tree offline and compares every table with the ledger.
func (w *witness) verify(t *testing.T, p *process, dbFlags ...string) {
	t.Helper()
	w.check(t, p)
	file := filepath.Join(t.TempDir(), "export")
	mustRun(t, p.dir, "ledger", "export", "--out", file)
	mustRun(t, p.dir, "ledger", "verify", file)
	if out := mustRun(t, p.dir, append([]string{"ledger", "rebuild", "--check"}, dbFlags...)...); !strings.Contains(out,
		" 0 differences") {
		t.Errorf("rebuild --check: %s", out)
	}
	if len(w.acked) == 0 {
		t.Error("nothing was acknowledged; the test shows nothing")
	}
	t.Logf("%d acknowledged of %d tried", len(w.acked), w.tried)
}

func TestNothingAcknowledgedIsLostWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := &witness{acked: map[string]bool{}}
	for range 20 {
		p := up(t, dir)
		w.check(t, p)
		stop := make(chan struct{})
		clients := w.agents(p, 8, stop)
		w.more(t, rand.IntN(150))
		p.kill()
		close(stop)
		clients.Wait()
	}
	w.verify(t, up(t, dir))
}

func TestNothingAcknowledgedIsLostWhenPostgreSQLIsKilled(t *testing.T) {
	t.Parallel()
	cluster := storetest.NewCluster(t)
	dir := t.TempDir()
	w := &witness{acked: map[string]bool{}}
	p := up(t, dir, "--db", cluster.Address)
	for round := range 9 {
		stop := make(chan struct{})
		clients := w.agents(p, 8, stop)
		w.more(t, 1+rand.IntN(200))
		// In turn: the database alone, the server alone, both.
		if round%3 != 0 {
			p.kill()
		}
		if round%3 != 1 {
			cluster.Kill()
		}
		close(stop)
		clients.Wait()
		if round%3 != 1 {
			cluster.Start(t)
		}
		if round%3 != 0 {
			p = up(t, dir, "--db", cluster.Address)
		} else {
			waitReady(t, p)
		}
		w.check(t, p)
	}
	w.verify(t, p, "--db", cluster.Address)
}

// waitReady waits until a server that lost its database works again by itself.
func waitReady(t *testing.T, p *process) {
	t.Helper()
	testbed.Until(t, "the server to come back", func() bool {
		status, _, err := p.call("GET", "/readyz", "")
		return err == nil && status == http.StatusOK
	}, p.log)
}

func TestSeveralProcessesShareOneLedgerAndOneIsKilled(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	w := &witness{acked: map[string]bool{}}
	var nodes []*process
	stop := make(chan struct{})
	var clients []*sync.WaitGroup
	for range 3 {
		p := up(t, t.TempDir(), "--db", address)
		nodes = append(nodes, p)
		clients = append(clients, w.agents(p, 4, stop))
	}
	w.more(t, 100)
	nodes[1].kill()
	w.more(t, 100)
	close(stop)
	for _, c := range clients {
		c.Wait()
	}
	w.check(t, nodes[2])
	w.verify(t, nodes[0], "--db", address)
}
