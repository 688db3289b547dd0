package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

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
	testbed.Parallel(t, "a client that sends its header too slowly is cut off", func(t *testing.T) {
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
	target := strings.Replace(b.url, "http", "ws", 1) + "/ahp?token=" + key
	w.Conn, _, err = websocket.Dial(b.t.Context(), target, //nolint:bodyclose // the connection is it
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
		// What the server has taken is still being decided, and a refusal for want of time is an answer too.
		testbed.Until(t, "the other to be answered", func() bool {
			other.send(t, fmt.Sprintf(askText, i, "small"))
			return strings.Contains(other.next(t), `"decision":"allow"`)
		})
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

	if got := b.askLocally("ls"); !strings.Contains(got, `"id":"2","result":{"decision":"allow"`) {
		t.Error(got)
	}
}

// askLocally asks over the Unix socket, as a hook of this machine does, and is all that is answered until
// the server closes its half too.
func (b *box) askLocally(command string) string {
	b.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(b.t.Context(), "unix", filepath.Join(b.config.Data, "ahp.sock"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, greetText+"\n"+askText+"\n", 2, command); err != nil {
		b.t.Fatal(err)
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		b.t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(testbed.Patience))
	text, err := io.ReadAll(conn)
	if err != nil {
		b.t.Fatalf("%s %v", text, err)
	}
	return string(text)
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

// openStream begins a call whose answer goes on, and is closed when the test ends.
func (b *box) openStream(path, token, accept string) io.Reader {
	b.t.Helper()
	req, err := http.NewRequestWithContext(testbed.Context(b.t), http.MethodGet, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = res.Body.Close() })
	return res.Body
}

func TestEventsArriveAsTheyHappen(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		stream := b.openStream("/ops/events?after=0", b.token(), "")
		b.ops(201, "POST /ops/agents", `{"name":"streamed"}`, nil)
		var seen bytes.Buffer
		buffer := make([]byte, 4096)
		for !strings.Contains(seen.String(), "streamed") {
			n, err := stream.Read(buffer)
			if err != nil {
				t.Fatalf("%v after %s", err, seen.String())
			}
			seen.Write(buffer[:n])
		}
		for _, s := range []string{"id: 1\nevent: workspace.added\ndata: {", "id: 5\nevent: agent.added\n"} {
			if !strings.Contains(seen.String(), s) {
				t.Errorf("the stream lacks %q:\n%s", s, seen.String())
			}
		}
	})
}

func TestAStreamEndsWhenItsTokenIsNoLongerGood(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var eve struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"eve","role":"viewer"}`, &eve)
		stream := b.openStream("/ops/events", eve.Token, "")
		b.ops(204, "DELETE /ops/operators/eve", "", nil)
		if text, err := io.ReadAll(stream); err != nil {
			t.Errorf("%v after %s", err, text)
		}
	})
}

func TestWhatTheRosterDoesCanBeRebuilt(t *testing.T) {
	eachBox(t, func(_ *testing.T, b *box) {
		for i := range 12 {
			b.ops(201, "POST /ops/agents", fmt.Sprintf(`{"name":"a-%d","labels":{"n":"%d"}}`, i, i), nil)
		}
		b.ops(200, "PATCH /ops/agents/a-1", `{"suspended":true,"trust":"untrusted"}`, nil)
		b.ops(200, "PATCH /ops/agents/a-1", `{"suspended":false}`, nil)
		b.ops(204, "DELETE /ops/agents/a-2", "", nil)
		b.ops(201, "POST /ops/agents", `{"name":"a-2"}`, nil)
		b.ops(201, "POST /ops/operators", `{"name":"o"}`, nil)
		b.ops(201, "POST /ops/owners", `{"name":"stays"}`, nil)
		b.ops(201, "POST /ops/owners", `{"name":"goes"}`, nil)
		b.ops(201, "POST /ops/agents", `{"name":"owned","owner":"goes","public_key":"`+publicKey+`"}`, nil)
		b.ops(204, "DELETE /ops/owners/goes", "", nil)
		b.ops(200, "PATCH /ops/agents/owned", `{"rate_limit":7}`, nil)
		var keys struct{ Keys []struct{ ID string } }
		b.ops(200, "GET /ops/keys", "", &keys)
		b.ops(201, "POST /ops/keys/"+keys.Keys[3].ID+"/rotate", "", nil)
		b.ops(200, "POST /ops/keys/"+keys.Keys[4].ID+"/revoke", "", nil)
		b.wantRebuilt(30)
	})
}

// A stream lasts as long as nobody decides, which may be days.
func TestAStreamOfAGateEndsWhenItsKeyIsRevoked(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var agent struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"writer"}`, &agent)
		key := agent.Keys["signal"]
		status, answer, _ := b.do(request{
			call: "POST /amp/gate_request", token: key,
			body: `{"amp_version":"2.0","agent_id":"writer","run_id":"r","summary":"Wrote it","proposed_action":"Send it"}`,
		})
		if status != http.StatusAccepted {
			t.Fatalf("%d %s", status, answer)
		}
		var page struct{ Gates []struct{ ID string } }
		b.ops(200, "GET /ops/gates", "", &page)
		stream := b.openStream("/amp/gates/"+page.Gates[0].ID, key, "text/event-stream")
		b.ops(204, "DELETE /ops/agents/writer", "", nil)
		if text, err := io.ReadAll(stream); err != nil {
			t.Errorf("%v after %s", err, text)
		}
	})
}
