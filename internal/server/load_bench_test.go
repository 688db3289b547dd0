package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/roster"
	"signalbox/internal/server"
	"signalbox/internal/server/servertest"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// BenchmarkMailSockets measures how much memory 10,000 agents take that are connected, and
// how long after the sender's 200 a message has reached one of them: the sender is answered
// when it was written to the socket, so that is the time on the way, and 0 when the message
// is there before the answer. call-p99-ms counts from the sender's call.
func BenchmarkMailSockets(b *testing.B) {
	const agents, messages = 10_000, 500
	s := startChild(b, "")
	m := newSockets(b, s, agents)
	for b.Loop() {
		var late, whole []time.Duration
		for i := range messages {
			to, called := m[(i*37)%agents], time.Now()
			answered := to.from(b, s, m[(i*37+1)%agents])
			got := to.read(b)
			late, whole = append(late, got.Sub(answered)), append(whole, got.Sub(called))
		}
		slices.Sort(late)
		slices.Sort(whole)
		b.ReportMetric(float64(whole[len(whole)*99/100].Microseconds())/1000, "call-p99-ms")
		b.ReportMetric(max(0, float64(late[len(late)*99/100].Microseconds()))/1000, "p99-ms")
		b.ReportMetric(max(0, float64(late[len(late)/2].Microseconds()))/1000, "p50-ms")
		b.ReportMetric(s.memory(b), "MB")
	}
	b.ReportMetric(0, "ns/op")
}

// listening is an agent with a socket.
type listening struct {
	directory.Registered
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
			body, _ := json.Marshal(map[string]string{
				"name": fmt.Sprintf("agent-%d", i), "tenant": "acme",
				"public_key": roster.EncodePublicKey(public), "key_algorithm": "Ed25519",
			})
			l := &listening{got: make(chan time.Time, 16)}
			all[i] = l
			s.call(b, client, http.MethodPost, "/v1/register", s.token, string(body), &l.Registered)
			target := strings.Replace(s.url, "http", "ws", 1) + "/v1/ws"
			conn, _, err := websocket.Dial(b.Context(), target, //nolint:bodyclose // the connection takes it
				nil)
			if err != nil {
				return err
			}
			l.conn = conn
			b.Cleanup(func() { _ = conn.CloseNow() })
			if err := conn.Write(b.Context(), websocket.MessageText,
				fmt.Appendf(nil, `{"type":"auth","token":%q}`, l.APIKey)); err != nil {
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
	return testbed.Receive(b, "the message", l.got)
}

// from sends a message to the agent, and returns when the sender was answered.
func (l *listening) from(b *testing.B, s *benchServer, sender *listening) time.Time {
	b.Helper()
	s.call(b, http.DefaultClient, http.MethodPost, "/v1/route", sender.APIKey,
		fmt.Sprintf(`{"to":%q,"subject":"s","payload":{"type":"request","message":"m"}}`, l.Address), nil)
	return time.Now()
}

// memory is what the server's process has in memory, in MB.
func (s *benchServer) memory(b *testing.B) float64 {
	b.Helper()
	text := testbed.Read(b, fmt.Sprintf("/proc/%d/status", s.pid))
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
// server where a million messages wait, or as many as are wanted, with that on an empty
// one. The two take turns.
func BenchmarkMailAmongMany(b *testing.B) {
	for name, address := range benchDatabases {
		b.Run(name, func(b *testing.B) {
			full, empty := startBench(b, address(b), fillWithMail), startBench(b, address(b))
			client := &http.Client{}
			among, alone := newMailers(b, full, 40, "acme"), newMailers(b, empty, 40, "acme")
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
	one := letter{key: m.keys[turn%len(m.keys)]}
	if method == http.MethodPost {
		one = m.letters(b, 1)[0]
	}
	begun := time.Now()
	(&benchServer{url: m.url}).call(b, client, method, path, one.key, one.body, nil)
	return time.Since(begun)
}

// fillWithMail lets messages wait, 1,000 for each agent. They are written into the tables by
// the database itself, which takes a fraction of the time: all have the same body, so that
// a record can be put together in SQL. Whoever runs with so many has long followed the
// ledger to its end, so that nobody has to do it now.
func fillWithMail(b *testing.B, config *server.Config) {
	b.Helper()
	config.Audit.Fast, config.Audit.Whole = 1000*time.Hour, 1000*time.Hour // it would find that nobody signed this
	db := migrated(b, config)
	defer db.Close()
	at := time.Now().Add(-24 * time.Hour)
	body, err := json.Marshal(map[string]any{
		"decision": nil,
		"payload": map[string]string{
			"type":    "request",
			"message": "Please process the following task, and tell me when it is done.",
		}, "meta": mail.Meta{
			Envelope: amp.Envelope{
				Version: amp.Version, From: "x@acme.signalbox.local", To: "y@acme.signalbox.local",
				Subject: "Task request", Priority: "normal", Signature: strings.Repeat("s", 88),
			},
			SenderAddress: "x@acme.signalbox.local", Recipient: "agent", RecipientWorkspace: "acme",
			RecipientAddress: "y@acme.signalbox.local", Kind: "request", Trust: mail.Untrusted,
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	salt := bytes.Repeat([]byte{'s'}, 16)
	hash := sha256.Sum256(append(slices.Clone(salt), body...))
	blob := map[string]string{"sqlite": "BLOB", "postgres": "bytea"}[db.Name()]
	words := strings.NewReplacer(
		"{id}", "'msg_1700000000_' || CAST(100000000 + i AS TEXT)", "{agent}",
		"'agent_' || CAST(100000000 + i / 1000 AS TEXT)",
		"{at}", fmt.Sprint(at.UnixMicro()), "{until}", fmt.Sprint(at.Add(mail.TTL).UnixMicro()), "{hash}",
		hex.EncodeToString(hash[:]), "{blob}", blob,
		"{body}", strings.ReplaceAll(string(body), "'", "''"), "{salt}", string(salt),
	)
	for from := 0; from < manyMessages(); from += 100_000 {
		numbers := fmt.Sprintf("WITH RECURSIVE numbers(i) AS (SELECT CAST(%d AS bigint) UNION ALL "+
			"SELECT i + 1 FROM numbers WHERE i < %d) ", from+1, min(from+100_000, manyMessages()))
		inOneGo(b, db, func(tx *store.Tx) {
			for _, text := range []string{
				ledgertest.InsertEntries + `{numbers} SELECT i, 'acme', 'message.routed', {id}, 'thread:' || {id},
CAST('{"seq":' || CAST(i AS TEXT) || ',"at":{at},"workspace":"acme","kind":"message.routed","actor":"agent:x",` +
					`"subject":"' || {id} || '","trace":"thread:' || {id} || '",` +
					`"body":"{hash}"}' AS {blob}), CAST('{salt}' AS {blob}), CAST('{body}' AS {blob}) FROM numbers`,
				`INSERT INTO mail_message (seq, id, workspace, at, sender, sender_address, recipient, recipient_workspace,` +
					` recipient_address, thread, subject, priority, kind, trust, flags, alias, idem, request, quarantine, gate,` +
					` expires_at, status, method, delivered_at, read_at, ended_at, erased, place)
{numbers} SELECT i, {id}, 'acme', {at}, '', 'x@acme.signalbox.local', {agent}, 'acme', 'y@acme.signalbox.local',` +
					` {id}, 'Task request', 'normal', 'request', 'untrusted', '', '', '', '', '', '', {until}, 'queued', 'relay',` +
					` 0, 0, 0, FALSE, i FROM numbers`,
				"INSERT INTO mail_queue (agent, place, seq, expires_at) {numbers} SELECT {agent}, i, i, {until} FROM numbers",
				"INSERT INTO mail_party (agent, seq) {numbers} SELECT {agent}, i FROM numbers",
			} {
				tx.Exec(words.Replace(strings.Replace(text, "{numbers}", numbers, 1)))
			}
		})
	}
	inOneGo(b, db, func(tx *store.Tx) {
		tx.Exec(fmt.Sprintf("UPDATE ledger_head SET seq = %d, at = %d", manyMessages(), at.UnixMicro()))
		tx.Exec("INSERT INTO ledger_cursor (name, holder, seq, held_until) SELECT 'mail.words', '', seq, 0 FROM ledger_head")
		tx.Exec("UPDATE counter_cursor SET seq = (SELECT seq FROM ledger_head)")
	})
	l, err := ledger.Open(b.Context(),
		ledger.Options{DB: db, Dir: config.Data, Origin: "localhost/signalbox", Projections: server.Projections()})
	if err == nil {
		err = l.Checkpoint(b.Context()) // so that the tree is not built while we measure
	}
	if err != nil {
		b.Fatal(err)
	}
}

// inOneGo changes tables in a transaction, beside the ledger.
func inOneGo(b *testing.B, db *store.DB, change func(*store.Tx)) {
	b.Helper()
	err := db.Bookkeep(b.Context(), "ledger_tree", func(tx *store.Tx) error { change(tx); return nil })
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkTaskMessages measures messages that are accepted durably over 64 connections:
// dispatches, and the acks and results that answer them.
func BenchmarkTaskMessages(b *testing.B) {
	for _, database := range []string{"sqlite", "postgres"} {
		b.Run(database, func(b *testing.B) {
			address := ""
			if database == "postgres" {
				address = storetest.Postgres(b)
			}
			s := startBench(b, address)
			keys := map[string]string{}
			for _, role := range []string{"coordinator", "executor"} {
				var made struct{ Keys map[string]string }
				s.call(b, http.DefaultClient, http.MethodPost, "/ops/agents", s.token,
					fmt.Sprintf(`{"name":%q,"labels":{"role":%q}}`, role, role), &made)
				keys[role] = made.Keys["signal"]
			}
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
			post := func(role, path, body string) { s.call(b, client, http.MethodPost, path, keys[role], body, nil) }
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			before := testbed.ProcessorTime()
			for range 64 {
				wg.Go(func() {
					for {
						n := next.Add(3)
						if n > int64(b.N)+2 {
							return
						}
						id := fmt.Sprintf("T-2026-%06d", n)
						post("coordinator", "/amp/messages", strings.ReplaceAll(taskDispatch, "T-2026-044", id))
						post("executor", "/amp/messages/task_dispatch-"+id+"-1772116327000/ack", `{}`)
						post("executor", "/amp/messages", strings.ReplaceAll(taskResult, "T-2026-044", id))
					}
				})
			}
			wg.Wait()
			messages := float64(next.Load() - 64*3)
			b.ReportMetric(messages/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64((testbed.ProcessorTime()-before).Microseconds())/messages, "cpu-us/message")
		})
	}
}

// fillWithEntries writes a million entries, of which some are gates. Their risk is low, so
// that what comes while one watches stands above them.
func fillWithEntries(b *testing.B, config *server.Config) {
	b.Helper()
	fill(b, config, 1000, func(tx *ledger.Tx, _ int) error {
		for i := range 999 {
			tx.Append(ledger.Event{
				Workspace: "default", Kind: "step.allowed", Actor: "agent:x", Subject: fmt.Sprint("s", i),
				Body: map[string]string{"tool": "bash"},
			})
		}
		return openSample(tx, gate.Risks[0])
	})
}

// BenchmarkTheDashboard measures the first page and a live event among a million entries,
// and what 200 people who watch cost the server while ten entries a second come in.
func BenchmarkTheDashboard(b *testing.B) {
	dir := b.TempDir()
	fillWithEntries(b, servertest.Load(b, map[string]string{"data": dir}))
	s := start(b, "", map[string]string{"data": dir})
	v := s.signedIn(s.token())
	b.Run("first page", func(b *testing.B) {
		for _, path := range []string{"/ui/inbox", "/ui/overview", "/ui/agents"} {
			var took []time.Duration
			for range 40 {
				began := time.Now()
				v.sees(path)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms-"+path[4:])
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "worst-ms-"+path[4:])
		}
		b.ReportMetric(0, "ns/op")
	})
	b.Run("live event", func(b *testing.B) {
		quiet(b)
		_, key := s.addAgent("letters")
		p := s.tab(b, chromium(b), s.token())
		p.observe()
		for name, pause := range map[string]time.Duration{"quiet": 300 * time.Millisecond, "burst": 20 * time.Millisecond} {
			var took []time.Duration
			answered := map[string]time.Time{}
			for i := range 20 {
				title := fmt.Sprint("Letter ", i, " of a ", name)
				s.ask(key, "letters", fmt.Sprint(name, i), title)
				answered[title] = time.Now()
				time.Sleep(pause) // the pace that is measured
			}
			for title, at := range answered {
				took = append(took, p.after(at, title))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms-"+name)
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "worst-ms-"+name)
		}
		b.ReportMetric(0, "ns/op")
	})
	b.Run("200 watchers", func(b *testing.B) {
		quiet(b)
		ctx, cancel := context.WithCancel(b.Context())
		var watching sync.WaitGroup
		var events atomic.Int64
		for range 200 {
			watching.Go(func() {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/ui/events?on=gate", nil)
				for _, c := range v.Jar.Cookies(req.URL) {
					req.AddCookie(c)
				}
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					return
				}
				defer func() { _ = res.Body.Close() }()
				lines := bufio.NewScanner(res.Body)
				for lines.Scan() {
					if lines.Text() != "event: change" {
						continue
					}
					events.Add(1)
					page, err := v.Get(s.url + "/ui/inbox") // as the script does
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, page.Body)
					_ = page.Body.Close()
				}
			})
		}
		_, key := s.addAgent("busy")
		before, began := testbed.ProcessorTime(), time.Now()
		for i := range 50 {
			s.ask(key, "busy", fmt.Sprint("busy-", i), "Do it")
			time.Sleep(100 * time.Millisecond) // the pace that is measured
		}
		b.ReportMetric((testbed.ProcessorTime()-before).Seconds()/time.Since(began).Seconds(), "cores-with-clients")
		b.ReportMetric(float64(events.Load()), "pages")
		cancel()
		watching.Wait()
		b.ReportMetric(0, "ns/op")
	})
}

// quiet waits until those who follow the ledger have caught up with what was filled in.
func quiet(b *testing.B) {
	b.Helper()
	for begun := time.Now(); time.Since(begun) < 3*time.Minute; {
		before := testbed.ProcessorTime()
		time.Sleep(500 * time.Millisecond)
		if testbed.ProcessorTime()-before < 25*time.Millisecond {
			return
		}
	}
	b.Fatal("the server does not come to rest")
}
