package bus_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/mail/bus"
	"signalbox/internal/testbed"
)

// startBus starts a bus without mail, and returns its socket and what stops it.
func startBus(t *testing.T, config string) (socket string, stop func() error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "b", "bus.sock")
	testbed.Write(t, filepath.Join(dir, "bus.json"), config)
	env := map[string]string{"AMP_BUS_SOCKET": socket}
	c, err := bus.Load(dir, "brain", func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- bus.New(c, nil).Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() { _ = stop() })
	return socket, stop
}

// peer is a component.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Scanner
	n    int
	got  []map[string]any // what was pushed, in order
}

func dial(t *testing.T, socket string) *peer {
	t.Helper()
	p := &peer{t: t, conn: testbed.Dial(t, "unix", socket)}
	_ = p.conn.SetDeadline(time.Now().Add(testbed.Patience))
	p.in = bufio.NewScanner(p.conn)
	p.in.Buffer(nil, 4<<20)
	return p
}

func join(t *testing.T, socket, name, more string) *peer {
	t.Helper()
	p := dial(t, socket)
	if got := p.call("bus.register", fmt.Sprintf(`{"name":%q%s}`, name, more)); got["status"] != "registered" {
		t.Fatalf("%v", got)
	}
	return p
}

// next reads a line.
func (p *peer) next() map[string]any {
	p.t.Helper()
	if !p.in.Scan() {
		p.t.Fatalf("no more lines: %v", p.in.Err())
	}
	var out map[string]any
	if err := json.Unmarshal(p.in.Bytes(), &out); err != nil || out["jsonrpc"] != "2.0" {
		p.t.Fatalf("%v: %s", err, p.in.Bytes())
	}
	return out
}

// call makes a call, and returns the result or the error.
func (p *peer) call(method, params string) map[string]any {
	p.t.Helper()
	p.n++
	_, _ = fmt.Fprintf(p.conn, `{"jsonrpc":"2.0","method":%q,"params":%s,"id":%d}`+"\n", method, params, p.n)
	for {
		out := p.next()
		if out["method"] != nil {
			p.got = append(p.got, out)
			continue
		}
		if out["id"] != float64(p.n) {
			p.t.Fatalf("%v", out)
		}
		if e, ok := out["error"].(map[string]any); ok {
			return e
		}
		return out["result"].(map[string]any)
	}
}

// pushed is the next thing that was pushed, without its time.
func (p *peer) pushed() string {
	p.t.Helper()
	if len(p.got) == 0 {
		p.got = append(p.got, p.next())
	}
	out := p.got[0]
	p.got = p.got[1:]
	params := out["params"].(map[string]any)
	if _, err := time.Parse(time.RFC3339, params["timestamp"].(string)); err != nil {
		p.t.Error(err)
	}
	delete(params, "timestamp")
	text, _ := json.Marshal(params)
	return out["method"].(string) + " " + string(text)
}

func (p *peer) wantPushed(want ...string) {
	p.t.Helper()
	var got []string
	for range want {
		got = append(got, p.pushed())
	}
	if d := cmp.Diff(want, got); d != "" {
		p.t.Error(d)
	}
}

func TestComponentsFindAndWriteToOneAnother(t *testing.T) {
	t.Parallel()
	socket, _ := startBus(t, `{}`)
	cortex := join(t, socket, "cortex", `,"role":"coordinator","capabilities":["planning"],"version":"1.0"`)
	motor := join(t, socket, "motor", "")
	cortex.wantPushed(`bus.notify {"data":{"name":"motor","role":"worker"},"event":"component.joined"}`)

	all := cortex.call("bus.discover", `{}`)["components"].([]any)
	if len(all) != 2 {
		t.Errorf("%v", all)
	}
	one := motor.call("bus.discover", `{"capability":"planning"}`)["components"].([]any)
	if c := one[0].(map[string]any); len(one) != 1 || c["name"] != "cortex" || c["role"] != "coordinator" ||
		c["version"] != "1.0" || c["connected_at"] == "" || c["last_heartbeat"] == "" {
		t.Errorf("%v", one)
	}
	if got := cortex.call("bus.send",
		`{"to":"motor","payload":{"n":12345678901234567890}}`); got["status"] != "delivered" {
		t.Errorf("%v", got)
	}
	if line := motor.next(); fmt.Sprint(line["params"].(map[string]any)["from"]) != "cortex" ||
		!strings.Contains(motor.in.Text(), "12345678901234567890") {
		t.Errorf("the payload was changed: %s", motor.in.Text())
	}
	if got := cortex.call("bus.broadcast", `{"payload":"all"}`); got["count"] != float64(1) {
		t.Errorf("%v", got)
	}
	motor.wantPushed(`bus.message {"from":"cortex","payload":"all"}`)

	motor.call("bus.subscribe", `{"topic":"ticks"}`)
	if got := cortex.call("bus.publish", `{"topic":"ticks","payload":1}`); got["delivered_to"] != float64(1) {
		t.Errorf("%v", got)
	}
	motor.wantPushed(`bus.topic {"from":"cortex","payload":1,"topic":"ticks"}`)
	motor.call("bus.unsubscribe", `{"topic":"ticks"}`)
	if got := cortex.call("bus.publish", `{"topic":"ticks","payload":2}`); got["delivered_to"] != float64(0) {
		t.Errorf("%v", got)
	}
	_, _ = fmt.Fprintln(cortex.conn,
		`{"jsonrpc":"2.0","method":"bus.notify","params":{"event":"tick","data":{"cycle":42}}}`)
	motor.wantPushed(`bus.notify {"data":{"cycle":42},"event":"tick","from":"cortex"}`)

	if got := motor.call("bus.heartbeat", `{}`); got["status"] != "ok" {
		t.Errorf("%v", got)
	}
	if got := motor.call("bus.deregister", `{}`); got["status"] != "deregistered" {
		t.Errorf("%v", got)
	}
	cortex.wantPushed(`bus.notify {"data":{"name":"motor","reason":"deregistered"},"event":"component.left"}`)
	again := join(t, socket, "motor", "")
	cortex.wantPushed(`bus.notify {"data":{"name":"motor","role":"worker"},"event":"component.joined"}`)
	_ = again.conn.Close()
	cortex.wantPushed(`bus.notify {"data":{"name":"motor","reason":"disconnected"},"event":"component.left"}`)
}

func TestWhatTheBusRefuses(t *testing.T) {
	t.Parallel()
	socket, _ := startBus(t, `{"max_components":2,"max_message_bytes":1000}`)
	stranger := dial(t, socket)
	if got := stranger.call("bus.discover", `{}`); got["code"] != float64(-32003) || got["message"] != "not_registered" {
		t.Errorf("before it registers: %v", got)
	}
	p := join(t, socket, "cortex", "")
	for _, c := range []struct {
		line string
		code float64
	}{
		{`{"jsonrpc":"2.0","method":"bus.register","params":{"name":"other"},"id":1}`, -32002},
		{`{"jsonrpc":"2.0","method":"bus.send","params":{"to":"nobody","payload":1},"id":1}`, -32001},
		{`{"jsonrpc":"2.0","method":"bus.send","params":{"to":"cortex"},"id":1}`, -32602},
		{`{"jsonrpc":"2.0","method":"bus.send","params":[1],"id":1}`, -32602},
		{`{"jsonrpc":"2.0","method":"bus.send","params":{"to":1,"payload":1},"id":1}`, -32602},
		{`{"jsonrpc":"2.0","method":"bus.unsubscribe","params":{"topic":"none"},"id":1}`, -32004},
		{`{"jsonrpc":"2.0","method":"bus.subscribe","params":{"topic":""},"id":1}`, -32602},
		{`{"jsonrpc":"2.0","method":"bus.publish","params":{"topic":"amp.inbound","payload":1},"id":1}`, -32602},
		{`{"jsonrpc":"2.0","method":"bus.notify","params":{"event":"bus.shutdown"},"id":1}`, -32602},
		{`{"jsonrpc":"2.0","method":"bus.fly","id":1}`, -32601},
		{`{"jsonrpc":"2.0","method":"amp.identity","id":1}`, -32001},
		{`{"jsonrpc":"1.0","method":"bus.heartbeat","id":1}`, -32600},
		{`{"jsonrpc":"2.0","method":"bus.heartbeat","id":{}}`, -32600},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"bus.heartbeat"}`, -32700},
		{`[]`, -32600},
		{`{"jsonrpc"`, -32700},
		{
			`{"jsonrpc":"2.0","method":"bus.broadcast","params":{"payload":"` + strings.Repeat("x", 1000) + `"},"id":1}`,
			-32006,
		},
	} {
		_, _ = fmt.Fprintln(p.conn, c.line)
		if e, _ := p.next()["error"].(map[string]any); e["code"] != c.code {
			t.Errorf("%.120s: %v, want %v", c.line, e, c.code)
		}
	}
	for name, code := range map[string]float64{
		"Cortex": -32602, "a.b": -32602, "": -32602, "cortex": -32002,
		"bus": -32002,
	} {
		if got := dial(t, socket).call("bus.register", fmt.Sprintf(`{"name":%q}`, name)); got["code"] != code {
			t.Errorf("%q: %v", name, got)
		}
	}
	join(t, socket, "second", "")
	if got := dial(t, socket).call("bus.register", `{"name":"third"}`); got["code"] != float64(-32005) {
		t.Errorf("a third of two: %v", got)
	}
	// After all of that it still works.
	if got := p.call("bus.heartbeat", `{}`); got["status"] != "ok" {
		t.Errorf("%v", got)
	}
}

func TestASilentComponentIsTakenOut(t *testing.T) {
	t.Parallel()
	socket, _ := startBus(t, `{"heartbeat_timeout_ms":400}`)
	watcher := join(t, socket, "watcher", "")
	join(t, socket, "silent", "")
	watcher.wantPushed(`bus.notify {"data":{"name":"silent","role":"worker"},"event":"component.joined"}`)
	left := make(chan string, 1)
	go func() { left <- watcher.pushed() }()
	for beat := time.NewTicker(50 * time.Millisecond); ; <-beat.C {
		select {
		case got := <-left:
			if got != `bus.notify {"data":{"name":"silent","reason":"timeout"},"event":"component.left"}` {
				t.Error(got)
			}
			return
		default: // a notification of any kind is a sign of life
			_, _ = fmt.Fprintln(watcher.conn, `{"jsonrpc":"2.0","method":"bus.heartbeat"}`)
		}
	}
}

func TestTheBusEndsInOrder(t *testing.T) {
	t.Parallel()
	socket, stop := startBus(t, `{"shutdown_timeout_ms":60000}`)
	p := join(t, socket, "cortex", "")
	for path, mode := range map[string]fs.FileMode{filepath.Dir(socket): 0o700, socket: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	second := filepath.Dir(socket)
	c, err := bus.Load(second, "brain", func(name string) string {
		return map[string]string{"AMP_BUS_SOCKET": socket}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.New(c, nil).Run(t.Context()); err == nil {
		t.Error("two buses on one socket")
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	p.wantPushed(`bus.notify {"data":{"timeout_ms":60000},"event":"bus.shutdown"}`)
	p.call("bus.deregister", `{}`) // for which the bus waits, and no longer
	if err := <-ended; err != nil {
		t.Error(err)
	}
	left, _ := os.ReadDir(filepath.Dir(socket))
	if len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func TestABadConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		file, agent string
		env         map[string]string
	}{
		"no entity":           {"{}", "", nil},
		"an entity of a path": {`{"entity":"../x"}`, "a", nil},
		"no JSON":             {"{", "a", nil},
		"a file that is not":  {"{}", "a", map[string]string{"AMP_BUS_CONFIG": filepath.Join(dir, "none.json")}},
	} {
		testbed.Write(t, filepath.Join(dir, "bus.json"), c.file)
		if _, err := bus.Load(dir, c.agent, func(name string) string { return c.env[name] }); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
