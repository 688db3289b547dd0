package harness_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socket serves the node's harness on a Unix socket.
func (n *node) socket() (path string, stop func()) {
	n.T.Helper()
	path = filepath.Join(n.T.TempDir(), "ahp.sock")
	l, err := harness.Listen(n.T.Context(), path)
	if err != nil {
		n.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.harness.ServeSocket(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.T.Error(err)
		}
	})
	n.T.Cleanup(stop)
	return path, stop
}

// peer is a client on the socket, with its bare hands.
type peer struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

func dial(t testing.TB, path string) *peer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &peer{conn, t, bufio.NewReaderSize(conn, 1<<20)}
	p.send([]byte(greetingText))
	if a := p.next(); a.Error != nil {
		t.Fatal(a)
	}
	return p
}

// startDialled starts a node under the rules, and dials its socket.
func startDialled(t *testing.T, config harness.Config, rules string) (*node, *peer) {
	t.Helper()
	n := start(t, storetest.SQLite(t), config)
	n.Apply(rules)
	path, _ := n.socket()
	return n, dial(t, path)
}

func (p *peer) send(text []byte) {
	p.t.Helper()
	if _, err := p.Write(append(bytes.Clone(text), '\n')); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) next() (a answer) {
	p.t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(testbed.Patience))
	line, err := p.in.ReadBytes('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	return a
}

func TestTheSocketIsForOneUserAndReplacesOnlyWhatNobodyUses(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("long-", 30), "ahp.sock")
	testbed.Write(t, path, "") // what a killed server left behind
	l, err := harness.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	at, err := os.Stat(path)
	if err != nil || at.Mode().Perm() != 0o600 || at.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v %v", at.Mode(), err)
	}
	_ = l.Close()
	if l, err = harness.Listen(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	short := filepath.Join(t.TempDir(), "s")
	l, err = harness.Listen(t.Context(), short)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if other, err := harness.Listen(t.Context(), short); err == nil {
		_ = other.Close()
		t.Error("a socket that is in use was taken")
	}
}

func TestTheSocketStandsForAnAgentOfTheRoster(t *testing.T) {
	n, p := startDialled(t, harness.Config{SocketAgent: "this-machine"},
		`rules: [{name: r, on: [action], when: agent.name == "this-machine", then: block, reason: known}]`+"\n")
	p.send(event("r", "pre_action", "s1", map[string]any{}))
	if a := p.next(); a.Result["reason"] != "known" {
		t.Errorf("%+v", a)
	}
	if _, err := n.Roster.Agent(t.Context(), "default", "this-machine"); err != nil {
		t.Error(err)
	}
	n.Apply("rules: []\n")
	yes := true
	if _, err := n.Roster.ChangeAgent(t.Context(), roster.Identity{Role: roster.Admin}, "default", "this-machine",
		roster.AgentChange{Suspended: &yes}); err != nil {
		t.Fatal(err)
	}
	p.send(event("r", "pre_action", "s1", map[string]any{}))
	if a := p.next(); a.Result["decision"] != "block" {
		t.Errorf("%+v", a)
	}
}

func TestWhatIsTooLongOrTooDeepIsRefusedAndTheRestGoesOn(t *testing.T) {
	_, p := startDialled(t, harness.Config{}, "rules: []\n")
	go func() {
		_, _ = p.Write(bytes.Repeat([]byte("x"), 17<<20))
		_, _ = p.Write([]byte("\n"))
	}()
	if a := p.next(); a.Error == nil || a.Error.Code != -32700 {
		t.Errorf("%+v", a)
	}
	for levels, good := range map[int]bool{100: true, 129: false, 9000: false} {
		inside := strings.Repeat("[", levels) + strings.Repeat("]", levels)
		p.send(event("r", "pre_action", "s1", json.RawMessage(inside)))
		if a := p.next(); (a.Error == nil) != good {
			t.Errorf("%d levels: %+v", levels, a)
		}
	}
	p.send([]byte("{\xff}"))
	if a := p.next(); a.Error == nil || a.Error.Code != -32700 {
		t.Errorf("%+v", a)
	}
	p.send([]byte(`{"jsonrpc":"2.0","id":7,"method":"ahp/event","params":{}}`))
	if a := p.next(); a.Error == nil || a.Error.Code != -32602 {
		t.Errorf("%+v", a)
	}
}

// A client that asks without end while a person has to decide hears later, and a client
// that does not read costs nobody else anything.
func TestAFloodIsPutOffAndAClientThatDoesNotReadHurtsOnlyItself(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply("rules: [{name: r, on: [action], when: event.tool == \"slow\", then: gate}]\n")
	path, stop := n.socket()
	deaf := dial(t, path)
	go func() {
		for i := 0; i < 100_000; i++ {
			if _, err := deaf.Write(append(event(fmt.Sprint(i), "pre_action", "deaf",
				map[string]any{"tool": strings.Repeat("x", 1000)}), '\n')); err != nil {
				return
			}
		}
	}()
	p := dial(t, path)
	const many = 300 // more than may be under way
	for i := range many {
		p.send(event(fmt.Sprint(i), "pre_action", "s1", map[string]any{"tool": "slow", "n": i % 3}))
	}
	for range many - 256 {
		if a := p.next(); a.Result["decision"] != "defer" {
			t.Fatalf("%+v", a)
		}
	}
	q := dial(t, path)
	q.send(event("r", "pre_action", "s2", map[string]any{}))
	if a := q.next(); a.Result["decision"] != "allow" {
		t.Errorf("%+v", a)
	}
	_ = deaf.Close()
	// A stop ends the waiting; what was asked is answered, and then the stream ends.
	go stop()
	for range 256 {
		if a := p.next(); a.Result["decision"] != "defer" {
			t.Fatalf("%+v", a)
		}
	}
	if _, err := p.in.ReadByte(); err == nil {
		t.Error("the stream goes on")
	}
}

func TestTheLimitOfAnAgentIsTold(t *testing.T) {
	n, p := startDialled(t, harness.Config{}, "rules: []\n")
	if _, err := n.Roster.ChangeAgent(t.Context(), roster.Identity{Role: roster.Admin}, "default", "local",
		roster.AgentChange{RateLimit: []byte("3")}); err != nil {
		t.Fatal(err)
	}
	words := map[any]int{}
	for range 6 {
		p.send(event("r", "pre_action", "s1", map[string]any{}))
		words[p.next().Result["decision"]]++
	}
	if words["allow"] != 3 || words["defer"] != 3 {
		t.Errorf("%v", words)
	}
	p.send(event("r", "planning", "s1", payloads["planning"]))
	if a := p.next(); a.Error == nil || a.Error.Code != -32005 {
		t.Errorf("%+v", a)
	}
	p.send(event("", "post_action", "s1", map[string]any{})) // to tell is never too much
	p.send([]byte(greetingText))
	if a := p.next(); a.Error != nil {
		t.Errorf("%+v", a)
	}
}

func TestLinesAreReadWhole(t *testing.T) {
	const most = 16 << 20
	long := strings.Repeat("x", most)
	r := bufio.NewReaderSize(strings.NewReader("a\r\n\n"+long+"\n"+long+"yy\nb\nlast"), 4096)
	for _, want := range []string{"a", "", long, "error", "b", "last"} {
		got, err := harness.ReadLine(r)
		if (want == "error") != (err != nil) || err == nil && string(got) != want {
			t.Errorf("%.20q %v, want %.20q", got, err, want)
		}
	}
	if _, err := harness.ReadLine(r); err != io.EOF { //nolint:errorlint // it is not wrapped
		t.Error(err)
	}
}

// A client that goes while a person decides has not used the approval: its next connection has it.
func TestAClientThatHasGoneUsesNoApproval(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t), harness.Config{})
	n.Apply(gateBash)
	path, _ := n.socket()
	ask := event("7", "pre_action", "s1", bash("make release"))
	first := dial(t, path)
	first.send(ask)
	testbed.Until(t, "a gate", func() bool { return len(n.Pending()) == 1 })
	_ = first.Close()
	select {
	case <-n.harness.StreamsEnded():
	case <-time.After(7 * time.Second): // it would be held for eight
		t.Fatal("the call waits for a person although its client has gone")
	}
	n.vote(gate.Ballot{Approve: true})
	second := dial(t, path)
	second.send(ask)
	if a := second.next(); a.Result["decision"] != "allow" {
		t.Errorf("%+v", a)
	}
	second.send(ask)
	testbed.Until(t, "a new gate", func() bool { return len(n.Pending()) == 1 })
	if got := len(n.Entries("step.settled")); got != 1 {
		t.Errorf("%d uses", got)
	}
}
