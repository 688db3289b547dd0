package server_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// mailers are agents that write to one another, with everything on: each demands signatures of itself, and signs a nonce.
type mailers struct {
	url       string
	keys      []string
	addresses []string
	private   []ed25519.PrivateKey
	sent      int // letters that were made
}

// newMailers registers so many agents in a workspace of their own, without limits.
func newMailers(b *testing.B, s *benchServer, n int, workspace string) *mailers {
	b.Helper()
	out := &mailers{url: s.url}
	s.call(b, http.DefaultClient, http.MethodPost, "/ops/workspaces", s.token, fmt.Sprintf(`{"name":%q}`, workspace), nil)
	for i := range n {
		public, key, _ := ed25519.GenerateKey(nil)
		name := fmt.Sprintf("agent-%d", i)
		body, _ := json.Marshal(map[string]any{
			"name": name, "tenant": workspace, "public_key": roster.EncodePublicKey(public), "key_algorithm": "Ed25519",
			"require_signature": true,
		})
		var r directory.Registered
		s.call(b, http.DefaultClient, http.MethodPost, "/v1/register", s.token, string(body), &r)
		s.call(b, http.DefaultClient, http.MethodPatch, "/ops/agents/"+name+"?workspace="+workspace, s.token,
			`{"rate_limit":0}`, nil)
		out.addresses, out.private, out.keys = append(out.addresses, r.Address), append(out.private, key), append(out.keys, r.APIKey)
	}
	return out
}

// letter is a message, with the key of its sender.
type letter struct{ key, body string }

// letters are so many messages, each with a text and a nonce of its own. An agent writes to several in turn, since one
// sender may fill a part of a queue only.
func (m *mailers) letters(b *testing.B, n int) []letter {
	b.Helper()
	all := make([]letter, n)
	for i := range all {
		from, to := m.sent%len(m.keys), m.addresses[(m.sent%len(m.keys)+1+m.sent/len(m.keys)%8)%len(m.keys)]
		m.sent++
		payload := fmt.Appendf(nil, `{"message":"Please process the task %d, and tell me when it is done.","nonce":%q,"type":"request"}`,
			m.sent, rand.Text())
		signature, err := amp.Signed{
			From: []string{m.addresses[from]}, To: []string{to}, Subject: "Task request", Priority: "normal", Payload: payload,
		}.Sign(m.private[from])
		if err != nil {
			b.Fatal(err)
		}
		all[i] = letter{m.keys[from], fmt.Sprintf(`{"to":%q,"subject":"Task request","payload":%s,"signature":%q}`, to, payload, signature)}
	}
	return all
}

// perSecond sends letters over 16 connections.
func perSecond(b *testing.B, url string, letters []letter) float64 {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, MaxConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	s := &benchServer{url: url}
	var next atomic.Int64
	var senders sync.WaitGroup
	begun := time.Now()
	for range 16 {
		senders.Go(func() {
			for i := next.Add(1); i <= int64(len(letters)); i = next.Add(1) {
				s.call(b, client, http.MethodPost, "", letters[i-1].key, letters[i-1].body, nil)
			}
		})
	}
	senders.Wait()
	return float64(len(letters)) / time.Since(begun).Seconds()
}

// paced sends letters at a rate, whatever the answers take, and returns the 99th percentile of how long after its time
// each was answered, in milliseconds.
func paced(b *testing.B, url string, letters []letter, perSecond float64) float64 {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	s := &benchServer{url: url}
	pause := time.Duration(float64(time.Second) / perSecond)
	took := make([]time.Duration, len(letters))
	var answered sync.WaitGroup
	begun := time.Now()
	for i, one := range letters {
		due := begun.Add(time.Duration(i) * pause)
		time.Sleep(time.Until(due))
		answered.Go(func() {
			s.call(b, client, http.MethodPost, "", one.key, one.body, nil)
			took[i] = time.Since(due)
		})
	}
	answered.Wait()
	slices.Sort(took)
	return float64(took[len(took)*99/100].Microseconds()) / 1000
}

// mailbox are the rows by which a recipient finds a message, its sender hears what became of it, and its signature is
// good once: the tables of mail, and nothing else that follows from an entry.
var mailbox = ledgertest.Part{Migrations: mail.Migrations, Projection: ledger.Projection{
	Name: "mail", Tables: ledger.Tables("mail_message (seq)", "mail_queue (agent, place)", "mail_signed (signature)"),
	Apply: map[string]ledger.Apply{"message.routed": func(tx *store.Tx, e *ledger.Entry) error {
		tx.Exec(`INSERT INTO mail_message (seq, id, workspace, at, sender, sender_address, recipient,
recipient_workspace, recipient_address, thread, subject, priority, kind, trust, flags, alias, idem, request,
quarantine, gate, expires_at, status, method, delivered_at, read_at, ended_at, erased, place)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
'relay', 0, 0, 0, $23, $24)`, e.Seq, fmt.Sprintf("msg_%020d", e.Seq), e.Workspace, e.At.UnixMicro(), e.Actor, e.Actor,
			e.Subject, e.Workspace, e.Subject, e.Trace, "Task request", "normal", "request", "verified", "", "", "", "", "", "",
			e.At.Add(time.Hour).UnixMicro(), "queued", false, e.Seq)
		tx.Exec("INSERT INTO mail_queue (agent, place, seq, expires_at) VALUES ($1, $2, $3, $4)", e.Subject, e.Seq, e.Seq,
			e.At.Add(time.Hour).UnixMicro())
		tx.Exec("INSERT INTO mail_signed (signature, at) VALUES ($1, $2)", e.Trace, e.At.UnixMicro())
		return nil
	}},
}}

// leastMail is the least that a server of durable, signed mail does: it reads the message as we do, verifies the
// signature, and appends one entry. parts are the tables that follow from it.
func (m *mailers) leastMail(b *testing.B, address string, parts ...ledgertest.Part) http.Handler {
	b.Helper()
	n := ledgertest.Open(b, address, nil, parts)
	n.Run()
	sender := map[string]int{}
	for i, key := range m.keys {
		sender["Bearer "+key] = i
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		draft, err := amp.ReadDraft(body)
		from, known := sender[r.Header.Get("Authorization")]
		if err != nil || !known {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		if _, _, ok := (amp.Signed{
			From: []string{m.addresses[from]}, To: []string{draft.To}, Subject: draft.Subject, Priority: draft.Priority,
			InReplyTo: draft.InReplyTo, Payload: draft.Payload, Signature: draft.Signature,
		}).Verify(m.private[from].Public().(ed25519.PublicKey)); !ok {
			http.Error(w, "the signature", http.StatusForbidden)
			return
		}
		err = n.Ledger.Write(r.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{
				Workspace: "acme", Kind: "message.routed", Subject: draft.To, Trace: draft.Signature, Body: body,
			})
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w,
			`{"id":"msg_1706648400_abc123abc123abc1","status":"queued","method":"relay","queued_at":"2026-01-30T10:00:00Z"}`)
	})
}

// BenchmarkMail compares signed messages among 40 agents, each verified, decided upon, taken once and
// durable, with a bare handler that only parses the same body and answers, with the least
// that is as durable (leastMail), and with the least that also has a mailbox. 16 connections; the client is in the same
// process. The four take turns. Then other agents send at half of our rate, five times for five seconds; the worst counts.
func BenchmarkMail(b *testing.B) {
	bare := testbed.ServeHTTP(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w,
			`{"id":"msg_1706648400_abc123abc123abc1","status":"queued","method":"relay","queued_at":"2026-01-30T10:00:00Z"}`)
	}))
	for name, address := range benchDatabases {
		b.Run(name, func(b *testing.B) {
			s := startBench(b, address(b))
			m := newMailers(b, s, 40, "acme")
			beside := func() string {
				if name == "sqlite" {
					return storetest.SQLite(b)
				}
				return address(b)
			}
			least, route := testbed.ServeHTTP(b, m.leastMail(b, beside())), s.url+"/v1/route"
			keeping := testbed.ServeHTTP(b, m.leastMail(b, beside(), mailbox))
			for b.Loop() {
				var ours, theirs, leasts, kept, p99 float64
				const turns, each = 5, 3000 // queues take 1,000 of each agent
				for range turns {
					letters := m.letters(b, each)
					ours += perSecond(b, route, letters) / turns
					leasts += perSecond(b, least, letters) / turns
					kept += perSecond(b, keeping, letters) / turns
					theirs += perSecond(b, bare, letters) / turns
				}
				for run := range 5 {
					letters := newMailers(b, s, 40, fmt.Sprint("paced-", run)).letters(b, min(int(5*ours/2), 30_000))
					p99 = max(p99, paced(b, route, letters, ours/2))
				}
				b.ReportMetric(ours, "ours/s")
				b.ReportMetric(theirs, "bare/s")
				b.ReportMetric(leasts, "least/s")
				b.ReportMetric(ours/theirs, "ratio")
				b.ReportMetric(ours/leasts, "of-least")
				b.ReportMetric(kept/leasts, "mailbox-of-least")
				b.ReportMetric(ours/kept, "of-mailbox")
				b.ReportMetric(p99, "p99-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
