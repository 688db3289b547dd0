package sink_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/roster/key"
	"signalbox/internal/show/showtest"
	"signalbox/internal/sink"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// bench is a ledger with sinks.
type bench struct {
	*ledgertest.Node
	sinks *sink.Sinks
}

// begin opens a ledger with sinks, which run.
func begin(t *testing.T, address string, o sink.Options, change ...func(*ledger.Options)) *bench {
	t.Helper()
	b := &bench{Node: ledgertest.Open(t, address, nil, nil, change...)}
	o.Ledger, o.Now, o.Log = b.Ledger, b.Now, slog.New(slog.DiscardHandler)
	if o.FileBytes == 0 {
		o.FileBytes = 1 << 30
	}
	var err error
	b.sinks, err = sink.New(o)
	b.Must(err)
	b.Run(b.sinks.Run)
	return b
}

// happen appends entries, each with a body.
func (b *bench) happen(n int) {
	b.T.Helper()
	for i := range n {
		b.Append(ledger.Event{
			Kind: "thing.happened", Actor: "agent:tailor", Subject: fmt.Sprint("t", i), Workspace: "default",
			Body: []byte("{\n \"i\": " + strconv.Itoa(i) + "}"),
		})
	}
}

// state waits until a state of a sink is as it should be.
func (b *bench) state(name, what string, is func(sink.State) bool) {
	b.T.Helper()
	testbed.Until(b.T, what, func() bool {
		all, err := b.sinks.States(b.T.Context())
		b.Must(err)
		for _, s := range all {
			if s.Name == name {
				return is(s)
			}
		}
		return false
	})
}

// sent waits until everything has been sent.
func (b *bench) sent(name string) {
	b.T.Helper()
	b.state(name, "all entries to be sent", func(s sink.State) bool {
		return s.Lag == 0 && s.Seq == b.Head() && s.Problem == "" && s.Since == nil
	})
}

// line is what a test reads of a line.
type line struct {
	Seq  int64
	Kind string
	Body json.RawMessage
}

// wantAll fails the test unless the lines have every entry from the first to the last one in order; those that were
// sent again follow those before them.
func wantAll(t *testing.T, text []byte, last int64) (lines []line) {
	t.Helper()
	next := int64(1)
	for raw := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("%v: %q", err, raw)
		}
		if l.Seq > next {
			t.Fatalf("entry %d follows %d", l.Seq, next-1)
		}
		next = max(next, l.Seq+1)
		lines = append(lines, l)
	}
	if next != last+1 {
		t.Fatalf("the last entry is %d, want %d", next-1, last)
	}
	return lines
}

func TestTheFileHasEveryEntryAlsoAfterAStopAndATornLine(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		path := filepath.Join(t.TempDir(), "entries.jsonl")
		dir := ledgertest.Dir(t.TempDir())
		b := begin(t, address, sink.Options{File: path}, dir)
		b.happen(20)
		b.sent("file")
		b.Stop()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read it: %v %v", info.Mode(), err)
		}
		// A crash in the middle of a line.
		testbed.Write(t, path, string(testbed.Read(t, path))+`{"seq":21,"at":"20`)
		again := begin(t, address, sink.Options{File: path, Bodies: true}, dir)
		again.happen(5)
		again.sent("file")
		lines := wantAll(t, testbed.Read(t, path), again.Head())
		if lines[3].Body != nil || !strings.Contains(string(lines[len(lines)-1].Body), `"i":4`) {
			t.Errorf("bodies by setting: %s, then %s", lines[3].Body, lines[len(lines)-1].Body)
		}
		// What is printed is what `ledger tail --json` prints.
		entry, err := again.Ledger.Entry(t.Context(), again.Head())
		b.Must(err)
		want, err := wire.Marshal(entry.View())
		b.Must(err)
		if text := testbed.Read(t, path); !bytes.HasSuffix(text, append(want, '\n')) {
			t.Errorf("want %s at the end of %s", want, text)
		}
	})
}

func TestAFullFileIsPutAwayAndNothingIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "entries.jsonl")
	b := begin(t, storetest.SQLite(t), sink.Options{File: path, FileBytes: 2000})
	for range 6 {
		b.happen(10)
		b.sent("file")
	}
	names, err := filepath.Glob(path + ".*")
	b.Must(err)
	if len(names) < 3 {
		t.Fatalf("files: %q", names)
	}
	slices.Sort(names)
	var all []byte
	for _, name := range append(names, path) {
		all = append(all, testbed.Read(t, name)...)
	}
	if lines := wantAll(t, all, b.Head()); int64(len(lines)) != b.Head() {
		t.Errorf("%d lines of %d entries", len(lines), b.Head())
	}
	// Somebody else moves the file away.
	b.Must(os.Rename(path, path+".moved"))
	b.happen(3)
	b.sent("file")
	if text := testbed.Read(t, path); bytes.Count(text, []byte("\n")) != 3 {
		t.Errorf("%s", text)
	}
}

// receiver reads messages of syslog with octet counting, until the other side closes.
type receiver struct {
	mu       sync.Mutex
	messages []string
	hangUp   atomic.Int64 // after so many messages of the next connections
}

func (r *receiver) serve(conn net.Conn, kill func()) {
	in := bufio.NewReader(conn)
	for {
		count, err := in.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSpace(count))
		text := make([]byte, n)
		if _, err2 := io.ReadFull(in, text); err != nil || err2 != nil {
			return
		}
		r.mu.Lock()
		r.messages = append(r.messages, string(text))
		r.mu.Unlock()
		if r.hangUp.Load() > 0 && r.hangUp.Add(-1) == 0 {
			kill()
			return
		}
	}
}

// reset cuts a connection off, as when the receiver is killed while it has not read everything.
func reset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// lines are the texts of the messages, of which each has to be in the form of RFC 5424.
func (r *receiver) lines(t *testing.T) (text []byte) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.messages {
		head, rest, _ := strings.Cut(m, " - {")
		fields := strings.Fields(head)
		if len(fields) != 6 || fields[0] != "<110>1" || fields[3] != "signalbox" || fields[4] != "-" ||
			!strings.Contains(fields[5], ".") {
			t.Fatalf("%q", m)
		}
		text = append(text, "{"+rest+"\n"...)
	}
	return text
}

func TestSyslogHasEveryEntryThoughTheReceiverIsKilledInTheMiddle(t *testing.T) {
	certificate := t.TempDir()
	testbed.SelfSigned(t, certificate, "127.0.0.1", 1)
	pair, err := tls.LoadX509KeyPair(filepath.Join(certificate, "cert.pem"), filepath.Join(certificate, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"tcp", "unix", "tls"} {
		t.Run(kind, func(t *testing.T) {
			var r receiver
			network, address := "tcp", "127.0.0.1:0"
			if kind == "unix" {
				network, address = "unix", filepath.Join(t.TempDir(), "log.sock")
			} else {
				r.hangUp.Store(3)
			}
			l := testbed.Serve(t, network, address, func(conn net.Conn) {
				if kind != "tls" {
					r.serve(conn, func() { reset(conn) })
					return
				}
				secured := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}})
				r.serve(secured, func() { reset(conn) })
				_ = secured.Close()
			})
			to := kind + "://" + l.Addr().String()
			parsed, err := sink.ParseSyslog(to)
			if err != nil {
				t.Fatal(err)
			}
			b := begin(t, storetest.SQLite(t), sink.Options{Syslog: parsed, Roots: filepath.Join(certificate, "cert.pem")})
			b.happen(10)
			b.sent("syslog")
			b.happen(10)
			b.sent("syslog")
			wantAll(t, r.lines(t), b.Head())
		})
	}
}

func TestAReceiverThatTLSDoesNotBelieveGetsNothing(t *testing.T) {
	certificate := t.TempDir()
	testbed.SelfSigned(t, certificate, "127.0.0.1", 1)
	pair, err := tls.LoadX509KeyPair(filepath.Join(certificate, "cert.pem"), filepath.Join(certificate, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	var r receiver
	l := testbed.Serve(t, "tcp", "127.0.0.1:0", func(conn net.Conn) {
		r.serve(tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}}), func() {})
	})
	to, err := url.Parse("tls://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := begin(t, storetest.SQLite(t), sink.Options{Syslog: to})
	b.happen(1)
	b.state("syslog", "a problem with the certificate", func(s sink.State) bool {
		return strings.Contains(s.Problem, "certificate") && s.Seq == 0
	})
	if text := r.lines(t); text != nil {
		t.Errorf("%s", text)
	}
}

// leaked is a key that a collector repeats.
var leaked = key.Draw("signal")

// collector is an HTTP collector that answers as it is told.
type collector struct {
	mu     sync.Mutex
	text   []byte
	keys   []string
	tokens []string
	status atomic.Int64
	hang   chan struct{}
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	status := int(c.status.Load())
	if status == 0 {
		select {
		case <-c.hang:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	if status < 300 {
		c.mu.Lock()
		c.text = append(c.text, text...)
		c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
		c.tokens = append(c.tokens, r.Header.Get("Authorization"))
		c.mu.Unlock()
	}
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "\x1b[2Jgo away "+leaked)
}

func TestACollectorThatRefusesIsShownAndNothingIsPassedOver(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		c := &collector{hang: make(chan struct{})}
		elsewhere := atomic.Int64{}
		mux := http.NewServeMux()
		mux.Handle("POST /in", c)
		mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
		to := testbed.ServeHTTP(t, mux)
		c.status.Store(http.StatusBadRequest)
		path := filepath.Join(t.TempDir(), "entries.jsonl")
		b := begin(t, address, sink.Options{
			HTTP: wire.NewSecret(to + "/in?key=hidden"), Token: wire.NewSecret("let-me-in"), File: path,
		})
		b.happen(30)
		for _, status := range []int{400, 503, 302} {
			c.status.Store(int64(status))
			b.state("http", fmt.Sprint("a problem with ", status), func(s sink.State) bool {
				if strings.Contains(s.Problem, "hidden") || strings.Contains(s.Problem, leaked) ||
					strings.Contains(s.Problem, "\x1b") {
					t.Errorf("%q", s.Problem)
				}
				return strings.Contains(s.Problem, fmt.Sprint("answered ", status)) && s.Seq == 0 && s.Lag == b.Head() &&
					s.Since != nil
			})
		}
		// A sink that is stuck holds back only itself.
		b.sent("file")
		c.status.Store(http.StatusOK)
		b.sent("http")
		wantAll(t, c.text, b.Head())
		for i, both := range c.keys {
			if first, last, ok := strings.Cut(both, "-"); !ok || first == "" || last == "" || c.tokens[i] != "Bearer let-me-in" {
				t.Errorf("%q %q", both, c.tokens[i])
			}
		}
		if elsewhere.Load() != 0 {
			t.Error("a redirect was followed")
		}
	})
}

func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	c := &collector{hang: make(chan struct{})}
	path := filepath.Join(t.TempDir(), "entries.jsonl")
	b := begin(t, storetest.SQLite(t), sink.Options{HTTP: wire.NewSecret(testbed.ServeHTTP(t, c)), File: path})
	b.happen(30)
	b.sent("file")
	c.status.Store(http.StatusOK)
	close(c.hang)
	b.sent("http")
	wantAll(t, c.text, b.Head())
}

func TestNoBodyOfAnAgentForgesAnEntry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "entries.jsonl")
	b := begin(t, storetest.SQLite(t), sink.Options{File: path, Bodies: true})
	for _, hostile := range showtest.All(t) {
		text, err := json.Marshal(hostile.Text + "\n{\"seq\":1}\n")
		b.Must(err)
		b.Append(ledger.Event{Kind: "thing.happened", Actor: "agent:x", Body: text},
			ledger.Event{Kind: "thing.happened", Actor: "agent:x", Body: []byte("no JSON\n{\"seq\":1}\n" + hostile.Text)})
	}
	b.sent("file")
	text := testbed.Read(t, path)
	if lines := wantAll(t, text, b.Head()); int64(len(lines)) != b.Head() {
		t.Errorf("%d lines of %d entries", len(lines), b.Head())
	}
	if bytes.ContainsAny(text, "\x1b\r\u202e\u200b\u2066") {
		t.Error("the file has characters that nobody sees")
	}
}

func TestAddressesOfReceivers(t *testing.T) {
	for text, want := range map[string]string{
		"tcp://logs.example.com": "tcp://logs.example.com:601", "tls://logs.example.com": "tls://logs.example.com:6514",
		"udp://[::1]:5514": "udp://[::1]:5514", "unix:///run/log.sock": "unix:///run/log.sock",
		"logs.example.com:601": "", "http://x": "", "tcp://": "", "unix://run/log": "", "tcp://a:1/path": "",
		"tcp://u:p@a:1": "",
	} {
		if u, err := sink.ParseSyslog(text); (err != nil) != (want == "") || err == nil && u.String() != want {
			t.Errorf("%s: %v %v", text, u, err)
		}
	}
	for text, ok := range map[string]bool{
		"https://a.example/x?k=1": true, "http://127.0.0.1:1": true, "ftp://a": false, "a": false,
	} {
		if err := sink.CheckCollector(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
