package wire_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/wire"
)

func TestAStreamWritesEventsAndLines(t *testing.T) {
	for name, c := range map[string]struct {
		start func(http.ResponseWriter) *wire.Stream
		media string
		want  string
	}{
		"events": {
			wire.Events, "text/event-stream",
			"retry: 1500\n\nid: 7\nevent: change\ndata: {\"a\":1}\n\ndata: x\n\n: still here\n\n",
		},
		"lines": {wire.Lines, "application/x-ndjson", "{\"a\":1}\nx\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s := c.start(w)
			if name == "events" {
				s.Retry(1500 * time.Millisecond)
			}
			s.Put("7", "change", []byte(`{"a":1}`))
			if err := s.Send("", "", []byte("x")); err != nil || !w.Flushed {
				t.Errorf("nothing is sent: %v", err)
			}
			if name == "events" && s.Beat() != nil {
				t.Error("no beat")
			}
			if diff := cmp.Diff(c.want, w.Body.String()); diff != "" {
				t.Error(diff)
			}
			if h := w.Header(); h.Get("Content-Type") != c.media || h.Get("Cache-Control") != "no-store" {
				t.Errorf("the header is %v", h)
			}
		})
	}
}

func TestAStreamLeavesTheBytesThatItWritesAlone(t *testing.T) {
	whole := []byte("abcdef")
	if err := wire.Events(httptest.NewRecorder()).Send("1", "", whole[:3]); err != nil || string(whole) != "abcdef" {
		t.Errorf("%q, %v", whole, err)
	}
}

func TestAStreamWhoseClientHasGoneSaysSo(t *testing.T) {
	gone := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := wire.Events(w)
		for s.Send("", "", make([]byte, 1<<10)) == nil { //nolint:revive // until the client has gone
		}
		gone <- r.Context().Err()
	}))
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	<-gone
}

func TestTheLastEventIsANumber(t *testing.T) {
	for text, want := range map[string]int64{"": -1, "0": 0, "12": 12} {
		r := get(t, "")
		r.Header.Set("Last-Event-ID", text)
		if got, err := wire.LastEventID(r, -1); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "x", "1.5"} {
		r := get(t, "")
		r.Header.Set("Last-Event-ID", text)
		if _, err := wire.LastEventID(r, -1); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
