package bench

import (
	"io"
	"net/http"
	"testing"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/testbed"
)

// Before the first are asked again, each is sent what its queue takes, and not more; nor more of one sender than that
// may fill of a queue.
func TestALoadOfMailFillsNoQueue(t *testing.T) {
	t.Parallel()
	s := &correspondents{circle: 3}
	n := s.needed(flags{duration: time.Second, rate: 3000})
	if n != 9 || s.full != nil { // 3 take 1,200, since each has two to write to it
		t.Fatalf("%d agents, emptied: %t", n, s.full != nil)
	}
	for i := range n {
		one := &correspondent{}
		for turn := range 2 {
			one.bodies = append(one.bodies, []byte{byte(i), byte(turn)})
		}
		s.agents = append(s.agents, one)
	}
	pairs := map[string]int{}
	for i := range 3000 {
		pairs[string(s.body(int64(i)))]++
	}
	s.sent = 3000
	for i := range int64(n)*s.nearlyFull() - s.sent {
		pairs[string(s.body(i))]++
	}
	for i, one := range s.agents {
		if got := one.waiting.Load(); got != 2*fromOne {
			t.Errorf("agent %d is sent %d messages, want %d", i, got, 2*fromOne)
		}
	}
	for pair, got := range pairs {
		if got != fromOne {
			t.Errorf("%q writes %d messages, want %d", pair, got, fromOne)
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
	server := testbed.ServeHTTP(t, mux)
	s := &correspondents{operator: &api.Client{Base: server}}
	n, err := s.emptyQueue(t.Context(), &correspondent{})
	if err != nil || n != 2 || acked != `{"ids":["msg_1","msg_2"]}` {
		t.Errorf("%d messages, acknowledged %s: %v", n, acked, err)
	}
}
