package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"signalbox/internal/cli/api"
)

// Before the first are asked again, each is sent what its queue takes, and not more.
func TestALoadOfMailFillsNoQueue(t *testing.T) {
	t.Parallel()
	s := &correspondents{circle: 3}
	n := s.needed(flags{duration: time.Second, rate: 5000})
	if n != 9 || s.full != nil { // 3 take 2,400
		t.Fatalf("%d agents, emptied: %t", n, s.full != nil)
	}
	for range n {
		s.agents = append(s.agents, &correspondent{})
	}
	for i := range 5000 {
		s.body(int64(i))
	}
	s.sent = 5000
	for i := range int64(n*nearlyFull) - s.sent {
		s.body(i)
	}
	for i, one := range s.agents {
		if got := one.waiting.Load(); got != nearlyFull {
			t.Errorf("agent %d is sent %d messages, want %d", i, got, nearlyFull)
		}
	}
	if n := s.needed(flags{duration: time.Hour}); n != maxCorrespondents/3*3 || s.full == nil {
		t.Errorf("an hour takes %d agents, emptied: %t", n, s.full != nil)
	}
}

func TestWhatWaitsIsFetchedAndAcknowledged(t *testing.T) {
	t.Parallel()
	var acked string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/messages/pending", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w,
			`{"messages":[{"id":"msg_1","envelope":{}},{"id":"msg_2","envelope":{}}],"count":2,"remaining":0}`)
	})
	mux.HandleFunc("POST /v1/messages/pending/ack", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		acked = string(body)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	s := &correspondents{operator: &api.Client{Base: server.URL}}
	n, err := s.emptyQueue(t.Context(), &correspondent{})
	if err != nil || n != 2 || acked != `{"ids":["msg_1","msg_2"]}` {
		t.Errorf("%d messages, acknowledged %s: %v", n, acked, err)
	}
}
