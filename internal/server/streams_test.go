package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/testbed"
)

const (
	greetText = `{"jsonrpc":"2.0","id":"h","method":"ahp/handshake","params":{"protocol_version":"2.4",` +
		`"agent_info":{"framework":"t","version":"0","capabilities":[]},"session_id":"s","agent_id":"a"}}`
	askText = `{"jsonrpc":"2.0","id":"%d","method":"ahp/event","params":{"event_type":"pre_action","session_id":"s",` +
		`"agent_id":"a","timestamp":"t","depth":0,"payload":{"tool_name":%q}}}`
)

// wires is a WebSocket of an agent, with the TCP connection below it.
type wires struct {
	*websocket.Conn
	tcp *net.TCPConn
}

// connect opens a WebSocket and shakes hands.
func (b *box) connect(key string) *wires {
	b.t.Helper()
	w := &wires{}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		w.tcp, _ = conn.(*net.TCPConn)
		return conn, err
	}}
	b.t.Cleanup(transport.CloseIdleConnections)
	var err error
	w.Conn, _, err = websocket.Dial(b.t.Context(), strings.Replace(b.url, "http", "ws", 1)+"/ahp?token="+key, //nolint:bodyclose // the connection is it
		&websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		b.t.Fatal(err)
	}
	w.SetReadLimit(1 << 20)
	b.t.Cleanup(func() { _ = w.CloseNow() })
	w.send(b.t, greetText)
	w.next(b.t)
	return w
}

func (w *wires) send(t testing.TB, text string) {
	t.Helper()
	if err := w.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (w *wires) next(t testing.TB) string {
	t.Helper()
	_, text, err := w.Read(testbed.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A client that asks and never reads fills its own buffers: others are answered, and the
// server can be stopped (which the test's end does).
func TestAWebSocketThatIsNotReadHurtsOnlyItself(t *testing.T) {
	b := start(t, "", nil)
	b.ops(200, "PUT /ops/policy",
		"version: 1\nrules: [{name: r, on: [action], when: 'event.tool.contains(\"large\")', then: modify, set: {x: 1}}]\n",
		nil)
	deaf, other := b.connect(b.agentKey("deaf", "default")), b.connect(b.agentKey("other", "default"))
	large := strings.Repeat("large", 20_000) // comes back in the answer
	sent := 0
	for ; sent < 1000; sent++ {
		sending, stop := context.WithTimeout(t.Context(), 3*time.Second)
		err := deaf.Write(sending, websocket.MessageText, fmt.Appendf(nil, askText, sent, large))
		stop()
		if err != nil {
			break // the server takes no more from who takes nothing
		}
	}
	if sent < 10 {
		t.Errorf("only %d were taken", sent)
	}
	for i := range 20 {
		other.send(t, fmt.Sprintf(askText, i, "small"))
		if got := other.next(t); !strings.Contains(got, `"decision":"allow"`) {
			t.Fatal(got)
		}
	}
}

// A connection of which one half is closed: what was asked is answered, and then it ends.
func TestAConnectionThatIsHalfClosedEnds(t *testing.T) {
	b := start(t, "", nil)
	b.ops(200, "PUT /ops/policy", "version: 1\nrules: []\n", nil)
	w := b.connect(b.agentKey("half", "default"))
	w.send(t, fmt.Sprintf(askText, 1, "ls"))
	if err := w.tcp.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := w.next(t); !strings.Contains(got, `"decision":"allow"`) {
		t.Error(got)
	}
	if _, _, err := w.Read(t.Context()); err == nil {
		t.Error("it goes on")
	}

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", filepath.Join(b.config.Data, "ahp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, greetText+"\n"+askText+"\n", 2, "ls"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(testbed.Patience))
	text, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(text), `"id":"2","result":{"decision":"allow"`) {
		t.Errorf("%s %v", text, err)
	}
}

// One that goes away without a word, while a person has to decide: what was kept for it is
// given up.
func TestAConnectionThatIsCutOffEnds(t *testing.T) {
	b := start(t, "", map[string]string{"harness.timeout": "3s"})
	b.ops(200, "PUT /ops/policy", "version: 1\nrules: [{name: r, on: [action], then: gate}]\n", nil)
	key := b.agentKey("gone", "default")
	before := runtime.NumGoroutine()
	w := b.connect(key)
	w.send(t, fmt.Sprintf(askText, 1, "ls"))
	if err := w.tcp.SetLinger(0); err != nil { // a reset instead of a goodbye
		t.Fatal(err)
	}
	_ = w.tcp.Close()
	testbed.Until(t, fmt.Sprintf("all but %d goroutines to end", before), func() bool {
		return runtime.NumGoroutine() <= before
	})
}
