package server_test

import (
	"crypto/ed25519"
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
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// mailers are agents that write to one another, each always the same message.
type mailers struct {
	url       string
	keys      []string
	bodies    [][]byte // the sender of each is that of the key with its number, modulo how many keys there are
	addresses []string
	public    []ed25519.PublicKey
}

// newMailers registers so many agents, without limits.
func newMailers(b *testing.B, s *benchServer, n int) *mailers {
	b.Helper()
	out := &mailers{url: s.url}
	s.call(b, http.DefaultClient, http.MethodPost, "/ops/workspaces", s.token, `{"name":"acme"}`, nil)
	var private []ed25519.PrivateKey
	for i := range n {
		public, key, _ := ed25519.GenerateKey(nil)
		body, _ := json.Marshal(map[string]string{
			"name": fmt.Sprintf("agent-%d", i), "tenant": "acme",
			"public_key": roster.EncodePublicKey(public), "key_algorithm": "Ed25519",
		})
		var r directory.Registered
		s.call(b, http.DefaultClient, http.MethodPost, "/v1/register", s.token, string(body), &r)
		out.public = append(out.public, public)
		s.call(b, http.DefaultClient, http.MethodPatch, fmt.Sprintf("/ops/agents/agent-%d?workspace=acme", i), s.token,
			`{"rate_limit":0}`, nil)
		out.addresses, private, out.keys = append(out.addresses, r.Address), append(private, key), append(out.keys, r.APIKey)
	}
	payload := []byte(`{"message":"Please process the following task, and tell me when it is done.","type":"request"}`)
	// Each writes to several in turn, since one sender may fill a part of a queue only.
	for j := range n * min(8, n-1) {
		from, to := j%n, out.addresses[(j%n+1+j/n)%n]
		signature, err := amp.Signed{
			From: []string{out.addresses[from]}, To: []string{to}, Subject: "Task request",
			Priority: "normal", Payload: payload,
		}.Sign(private[from])
		if err != nil {
			b.Fatal(err)
		}
		out.bodies = append(out.bodies,
			fmt.Appendf(nil, `{"to":%q,"subject":"Task request","payload":%s,"signature":%q}`, to, payload, signature))
	}
	return out
}

// perSecond sends so many messages over 16 connections.
func (m *mailers) perSecond(b *testing.B, url string, n int64) float64 {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, MaxConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	s := &benchServer{url: url}
	var next atomic.Int64
	var senders sync.WaitGroup
	begun := time.Now()
	for range 16 {
		senders.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				s.call(b, client, http.MethodPost, "", m.keys[int(i)%len(m.keys)], string(m.bodies[int(i)%len(m.bodies)]), nil)
			}
		})
	}
	senders.Wait()
	return float64(n) / time.Since(begun).Seconds()
}

// paced sends messages at a rate for a while, whatever the answers take, and returns the 99th percentile of how long
// after its time each was answered, in milliseconds.
func (m *mailers) paced(b *testing.B, perSecond float64, during time.Duration) float64 {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	s := &benchServer{url: m.url + "/v1/route"}
	pause := time.Duration(float64(time.Second) / perSecond)
	took := make([]time.Duration, int(during/pause))
	var answered sync.WaitGroup
	begun := time.Now()
	for i := range took {
		due := begun.Add(time.Duration(i) * pause)
		time.Sleep(time.Until(due))
		answered.Go(func() {
			s.call(b, client, http.MethodPost, "", m.keys[i%len(m.keys)], string(m.bodies[i%len(m.bodies)]), nil)
			took[i] = time.Since(due)
		})
	}
	answered.Wait()
	slices.Sort(took)
	return float64(took[len(took)*99/100].Microseconds()) / 1000
}

// leastMail is the least that a server of durable, signed mail does: it reads the message as we do, verifies the
// signature, and appends one entry, of which no table follows.
func (m *mailers) leastMail(b *testing.B, address string) http.Handler {
	b.Helper()
	n := ledgertest.Open(b, address, nil, nil)
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
		}).Verify(m.public[from]); !ok {
			http.Error(w, "the signature", http.StatusForbidden)
			return
		}
		err = n.Ledger.Write(r.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{Workspace: "acme", Kind: "message.routed", Subject: draft.To, Body: body})
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

// BenchmarkMail compares signed messages among 40 agents, each verified, decided upon and
// durable, with a bare handler that only parses the same body and answers, and with the least
// that is as durable (leastMail). 16 connections; the client is in the same process. The three take
// turns. Then it sends at half of our rate.
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
			m := newMailers(b, startBench(b, address(b)), 40)
			beside := address(b)
			if name == "sqlite" {
				beside = storetest.SQLite(b)
			}
			least := testbed.ServeHTTP(b, m.leastMail(b, beside))
			for b.Loop() {
				var ours, theirs, leasts float64
				const turns, each = 5, 3000 // queues take 1,000 of each agent
				for range turns {
					ours += m.perSecond(b, m.url+"/v1/route", each) / turns
					leasts += m.perSecond(b, least, each) / turns
					theirs += m.perSecond(b, bare, each) / turns
				}
				b.ReportMetric(ours, "ours/s")
				b.ReportMetric(theirs, "bare/s")
				b.ReportMetric(leasts, "least/s")
				b.ReportMetric(ours/theirs, "ratio")
				b.ReportMetric(ours/leasts, "of-least")
				b.ReportMetric(m.paced(b, ours/2, min(5*time.Second, time.Duration(40_000/ours*float64(time.Second)))), "p99-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
