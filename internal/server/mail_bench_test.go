package server_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/mail"
	"github.com/signalbox/signalbox/internal/mail/amp"
	"github.com/signalbox/signalbox/internal/roster"
	"github.com/signalbox/signalbox/internal/server"
	"github.com/signalbox/signalbox/internal/store/storetest"
)

// mailers are agents that write to one another, each always the same message.
type mailers struct {
	url    string
	keys   []string
	bodies [][]byte
}

// newMailers registers so many agents, without limits.
func newMailers(b *testing.B, s *benchServer, n int) *mailers {
	b.Helper()
	out := &mailers{url: s.url}
	s.call(b, http.DefaultClient, http.MethodPost, "/ops/workspaces", s.token, `{"name":"acme"}`, nil)
	var addresses []string
	var private []ed25519.PrivateKey
	for i := range n {
		public, key, _ := ed25519.GenerateKey(nil)
		body, _ := json.Marshal(map[string]string{"name": fmt.Sprintf("agent-%d", i), "tenant": "acme", "public_key": roster.EncodePublicKey(public), "key_algorithm": "Ed25519"})
		var r mail.Registered
		s.call(b, http.DefaultClient, http.MethodPost, "/v1/register", s.token, string(body), &r)
		s.call(b, http.DefaultClient, http.MethodPatch, fmt.Sprintf("/ops/agents/agent-%d?workspace=acme", i), s.token, `{"rate_limit":0}`, nil)
		addresses, private, out.keys = append(addresses, r.Address), append(private, key), append(out.keys, r.APIKey)
	}
	payload := []byte(`{"message":"Please process the following task, and tell me when it is done.","type":"request"}`)
	for i := range n {
		to := addresses[(i+1)%n]
		signature, err := amp.Signed{From: []string{addresses[i]}, To: []string{to}, Subject: "Task request", Priority: "normal", Payload: payload}.Sign(private[i])
		if err != nil {
			b.Fatal(err)
		}
		out.bodies = append(out.bodies, fmt.Appendf(nil, `{"to":%q,"subject":"Task request","payload":%s,"signature":%q}`, to, payload, signature))
	}
	return out
}

// perSecond sends so many messages over 16 connections.
func (m *mailers) perSecond(b *testing.B, url string, n int64) float64 {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, MaxConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var senders sync.WaitGroup
	begun := time.Now()
	for range 16 {
		senders.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(m.bodies[int(i)%len(m.bodies)]))
				if err != nil {
					b.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+m.keys[int(i)%len(m.keys)])
				res, err := client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				text, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusOK {
					b.Errorf("%d %s", res.StatusCode, text)
					return
				}
			}
		})
	}
	senders.Wait()
	return float64(n) / time.Since(begun).Seconds()
}

// BenchmarkMail compares signed messages among 40 agents, each verified, decided upon and
// durable, with a bare handler that only parses the same body and answers. 16 connections;
// the client is in the same process. The two take turns.
func BenchmarkMail(b *testing.B) {
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"msg_1706648400_abc123abc123abc1","status":"queued","method":"relay","queued_at":"2026-01-30T10:00:00Z"}`)
	}))
	defer bare.Close()
	for name, address := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "" }, "postgres": storetest.Postgres} {
		b.Run(name, func(b *testing.B) {
			m := newMailers(b, startBench(b, address(b)), 40)
			for b.Loop() {
				var ours, theirs float64
				const turns, each = 10, 3000 // queues take 1,000 of each agent
				for range turns {
					ours += m.perSecond(b, m.url+"/v1/route", each) / turns
					theirs += m.perSecond(b, bare.URL, each) / turns
				}
				b.ReportMetric(ours, "ours/s")
				b.ReportMetric(theirs, "bare/s")
				b.ReportMetric(ours/theirs, "ratio")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkMailSockets measures how much memory 10,000 agents take that are connected, and
// how long after the sender's 200 a message has reached one of them.
func BenchmarkMailSockets(b *testing.B) {
	const agents, messages = 10_000, 500
	s := startChild(b, "")
	m := newSockets(b, s, agents)
	for b.Loop() {
		var late []time.Duration
		for i := range messages {
			to := m[(i*37)%agents]
			sent := to.from(b, s, m[(i*37+1)%agents])
			late = append(late, to.read(b).Sub(sent))
		}
		slices.Sort(late)
		b.ReportMetric(max(0, float64(late[len(late)*99/100].Microseconds()))/1000, "p99-ms")
		b.ReportMetric(max(0, float64(late[len(late)/2].Microseconds()))/1000, "p50-ms")
		b.ReportMetric(s.memory(b), "MB")
	}
	b.ReportMetric(0, "ns/op")
}

// listening is an agent with a socket.
type listening struct {
	mail.Registered
	conn *websocket.Conn
	got  chan time.Time // when a message came
}

func newSockets(b *testing.B, s *benchServer, n int) []*listening {
	b.Helper()
	all := make([]*listening, n)
	s.call(b, http.DefaultClient, http.MethodPost, "/ops/workspaces", s.token, `{"name":"acme"}`, nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	var joining errgroup.Group
	joining.SetLimit(32)
	for i := range all {
		joining.Go(func() error {
			public, _, _ := ed25519.GenerateKey(nil)
			body, _ := json.Marshal(map[string]string{"name": fmt.Sprintf("agent-%d", i), "tenant": "acme", "public_key": roster.EncodePublicKey(public), "key_algorithm": "Ed25519"})
			l := &listening{got: make(chan time.Time, 16)}
			all[i] = l
			s.call(b, client, http.MethodPost, "/v1/register", s.token, string(body), &l.Registered)
			conn, _, err := websocket.Dial(b.Context(), strings.Replace(s.url, "http", "ws", 1)+"/v1/ws", nil) //nolint:bodyclose // the connection takes it
			if err != nil {
				return err
			}
			l.conn = conn
			b.Cleanup(func() { _ = conn.CloseNow() })
			if err := conn.Write(b.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"auth","token":%q}`, l.APIKey)); err != nil {
				return err
			}
			_, text, err := conn.Read(b.Context())
			if err != nil || !bytes.Contains(text, []byte("connected")) {
				return fmt.Errorf("%s: %w", text, err)
			}
			go l.listen(b)
			return nil
		})
	}
	if err := joining.Wait(); err != nil {
		b.Fatal(err)
	}
	return all
}

// listen notes when messages come.
func (l *listening) listen(b *testing.B) {
	for {
		_, text, err := l.conn.Read(b.Context())
		if err != nil {
			return
		}
		if bytes.Contains(text, []byte("message.new")) {
			l.got <- time.Now()
		}
	}
}

func (l *listening) read(b *testing.B) time.Time {
	b.Helper()
	select {
	case at := <-l.got:
		return at
	case <-time.After(10 * time.Second):
		b.Fatal("the message does not come")
		return time.Time{}
	}
}

// from sends a message to the agent, and returns when the sender was answered.
func (l *listening) from(b *testing.B, s *benchServer, sender *listening) time.Time {
	b.Helper()
	s.call(b, http.DefaultClient, http.MethodPost, "/v1/route", sender.APIKey, fmt.Sprintf(`{"to":%q,"subject":"s","payload":{"type":"request","message":"m"}}`, l.Address), nil)
	return time.Now()
}

// memory is what the server's process has in memory, in MB.
func (s *benchServer) memory(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kb float64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		b.Fatal(err)
	}
	return kb / 1000
}

// manyMessages is how many wait in queues of 1,000; BENCH_MESSAGES says another number.
func manyMessages() int {
	if n, err := strconv.Atoi(os.Getenv("BENCH_MESSAGES")); err == nil {
		return n
	}
	return 1_000_000
}

// BenchmarkMailAmongMany compares how long sending and fetching take, one at a time, on a
// server where a million messages wait with that on an empty one. The two take turns.
func BenchmarkMailAmongMany(b *testing.B) {
	for name, address := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "" }, "postgres": storetest.Postgres} {
		b.Run(name, func(b *testing.B) {
			full, empty := startBench(b, address(b), fillWithMail), startBench(b, address(b))
			client := &http.Client{}
			last := fmt.Sprintf("/ops/messages?limit=1&search=last%d", manyMessages()-1)
			for found := 0; found == 0; time.Sleep(time.Second) { // whoever runs with so many has long found their words
				var page struct{ Messages []json.RawMessage }
				full.call(b, client, http.MethodGet, last, full.token, "", &page)
				found = len(page.Messages)
			}
			among, alone := newMailers(b, full, 40), newMailers(b, empty, 40)
			for b.Loop() {
				var times [4][]time.Duration // route and pending, among many and alone
				for turn := range 400 {
					for i, m := range []*mailers{among, alone} {
						times[i] = append(times[i], m.timed(b, client, http.MethodPost, "/v1/route", turn))
						times[2+i] = append(times[2+i], m.timed(b, client, http.MethodGet, "/v1/messages/pending?limit=10", turn+1))
					}
				}
				for i := range times {
					slices.Sort(times[i])
				}
				for i, what := range []string{"route", "pending"} {
					b.ReportMetric(float64(times[2*i][200])/float64(times[2*i+1][200]), what+"-times-p50")
				}
				b.ReportMetric(float64(times[0][200].Microseconds())/1000, "route-p50-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// timed makes a call as one of the agents.
func (m *mailers) timed(b *testing.B, client *http.Client, method, path string, turn int) time.Duration {
	b.Helper()
	i := turn % len(m.keys)
	body := ""
	if method == http.MethodPost {
		body = string(m.bodies[i])
	}
	begun := time.Now()
	(&benchServer{url: m.url}).call(b, client, method, path, m.keys[i], body, nil)
	return time.Since(begun)
}

// fillWithMail lets messages wait.
func fillWithMail(b *testing.B, config *server.Config) {
	b.Helper()
	until := time.Now().Add(mail.TTL).UnixMicro()
	fill(b, config, manyMessages()/500, func(tx *ledger.Tx, n int) error {
		for i := n * 500; i < (n+1)*500; i++ {
			id := fmt.Sprintf("msg_%d_%08x", 1_700_000_000+i/1000, i)
			meta := mail.Meta{
				Envelope: mail.Envelope{Version: mail.Version, ID: id, From: "x@acme.signalbox.local", To: "y@acme.signalbox.local", Subject: "Task request", Priority: "normal", ThreadID: id},
				Sender:   fmt.Sprintf("agt_%d", i%997), SenderAddress: "x@acme.signalbox.local", Recipient: fmt.Sprintf("agt_%d", i%(manyMessages()/1000)), RecipientWorkspace: "acme",
				RecipientAddress: "y@acme.signalbox.local", Kind: "request", Trust: mail.Untrusted, ExpiresAt: until,
			}
			payload := fmt.Sprintf(`{"message":"Please process the following task, and tell me when it is done. last%d","type":"request"}`, i)
			tx.Append(ledger.Event{Workspace: "acme", Kind: "message.routed", Actor: "agent:x", Subject: id, Trace: "thread:" + id, Body: map[string]any{"meta": meta, "decision": nil, "payload": json.RawMessage(payload)}})
		}
		return nil
	})
}
