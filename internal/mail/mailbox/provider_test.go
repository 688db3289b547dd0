package mailbox

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/testbed"
)

// stranger is a provider that is not ours: it has no document to discover it by, its API
// is under /v1, it writes keys in hex, and it answers what a test tells it to.
type stranger struct {
	routed func(body string) (status int, answer string) // nil for one that delivers
	t      *testing.T
	URL    string

	mu       sync.Mutex
	queue    []string          // messages as JSON, by their ids below
	ids      []string          // of the queue
	acks     []string          // ids that were acknowledged
	bodies   map[string]string // last body by method and path
	answers  map[string]string // in place of the own answer, by method and path
	statuses map[string]int
}

func newStranger(t *testing.T) *stranger {
	t.Helper()
	s := &stranger{t: t, bodies: map[string]string{}, answers: map[string]string{}, statuses: map[string]int{}}
	s.URL = testbed.ServeHTTP(t, s)
	return s
}

func (s *stranger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := r.Method + " " + r.URL.Path
	body, _ := io.ReadAll(r.Body)
	s.bodies[call] = string(body)
	if status := s.statuses[call]; status != 0 {
		w.WriteHeader(status)
	}
	if answer, ok := s.answers[call]; ok {
		_, _ = w.Write([]byte(answer))
		return
	}
	id, isAck := strings.CutPrefix(call, "DELETE /v1/messages/pending/")
	switch {
	case isAck:
		s.acks = append(s.acks, id)
		for i := range s.ids {
			if s.ids[i] == id {
				s.ids, s.queue = append(s.ids[:i:i], s.ids[i+1:]...), append(s.queue[:i:i], s.queue[i+1:]...)
				break
			}
		}
		_, _ = w.Write([]byte(`{"acknowledged":true}`))
	case call == "GET /v1/messages/pending":
		_, _ = w.Write([]byte(`{"messages":[` + strings.Join(s.queue, ",") + `],"count":` + `0}`))
	case call == "POST /v1/register":
		_, _ = w.Write(
			[]byte(
				`{"address":"bob@acme.other.example","agent_id":"7","api_key":"amp_live_sk_1","provider":{"name":"other.example"}}`,
			),
		)
	case call == "POST /v1/route" && s.routed != nil:
		status, answer := s.routed(s.bodies[call])
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	case call == "POST /v1/route":
		_, _ = w.Write([]byte(`{"id":"msg_1_abcd","status":"delivered","method":"local","unknown":1}`))
	default:
		http.NotFound(w, r)
	}
}

// sample is a message for bob; what is empty is as it should be.
type sample struct {
	id, from, to, payload, key, local string
	forge, unsigned                   bool
	by                                ed25519.PrivateKey // carol's when nil
}

var carol = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// queueUp signs a message as carol, and lets it wait for bob.
func (s *stranger) queueUp(m sample) {
	s.t.Helper()
	if m.from == "" {
		m.from = "carol@acme.other.example"
	}
	if m.to == "" {
		m.to = "bob@acme.other.example"
	}
	if m.payload == "" {
		m.payload = `{"type":"request","message":"héllo <b>","context":{"n":1.0,"big":12345678901234567890}}`
	}
	if m.by == nil {
		m.by = carol
	}
	if m.key == "" {
		m.key = hex.EncodeToString(public(m.by))
	}
	signature, err := amp.Signed{
		From: []string{m.from}, To: []string{m.to}, Subject: "s", Priority: "normal",
		Payload: []byte(m.payload),
	}.Sign(m.by)
	if err != nil {
		s.t.Fatal(err)
	}
	if m.forge {
		m.payload = strings.Replace(m.payload, "request", "Request", 1)
	}
	if m.unsigned {
		signature = ""
	}
	if m.local == "" {
		m.local = "null"
	}
	quote := func(v string) string { out, _ := json.Marshal(v); return string(out) }
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, m.id)
	s.queue = append(s.queue, `{"id":`+quote(m.id)+`,"envelope":{"id":`+quote(m.id)+`,"from":`+quote(m.from)+`,"to":`+
		quote(m.to)+`,"subject":"s","priority":"normal","timestamp":"2025-01-30T10:00:00Z","in_reply_to":null,"signature":`+
		quote(signature)+`},"payload":`+m.payload+`,"sender_public_key":`+quote(m.key)+`,"local":`+m.local+`}`)
}

// bobAt is an agent that is registered with the stranger.
func bobAt(t *testing.T, s *stranger) *Box {
	t.Helper()
	b, err := Init(Where{Root: filepath.Join(t.TempDir(), "root")}, "bob", "acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Register(t.Context(), Joining{Server: s.URL}); err != nil {
		t.Fatal(err)
	}
	return b
}

func reopen(t *testing.T, b *Box) *Box {
	t.Helper()
	again, err := Open(Where{Dir: b.Dir})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func keyOf(t *testing.T, pem string) ed25519.PublicKey {
	t.Helper()
	key, err := roster.ParsePublicKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
