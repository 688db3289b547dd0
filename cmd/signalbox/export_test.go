package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"signalbox/internal/testbed"
)

// exported is what stands in a line that was sent, and in the status about the sinks.
type exported struct {
	Seq     int64
	Name    string
	Lag     int64
	Entries int64
	Exports []exported
}

// status is the state of the server and of its sinks.
func (p *process) status() (s exported) {
	p.t.Helper()
	code, text, err := p.call(http.MethodGet, "/ops/status", "")
	if err != nil || code != http.StatusOK || json.Unmarshal([]byte(text), &s) != nil {
		p.t.Fatal(code, text, err)
	}
	return s
}

// wantWhole fails the test unless the lines have every entry to the last one, in order; what was sent again follows
// those before it.
func wantWhole(t *testing.T, what string, text []byte, last int64) (lines int) {
	t.Helper()
	next := int64(1)
	for raw := range bytes.Lines(text) {
		var l exported
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("%s: %v: %q", what, err, raw)
		}
		if l.Seq > next {
			t.Fatalf("%s: entry %d follows %d", what, l.Seq, next-1)
		}
		next = max(next, l.Seq+1)
		lines++
	}
	if next <= last {
		t.Fatalf("%s: the last entry is %d, want %d", what, next-1, last)
	}
	return lines
}

// A server that was killed holds the lease of its cursors for half a minute more, so this waits.
func TestEntriesGoOutThoughTheServerIsKilled(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var text []byte
	to := testbed.ServeHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		all, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the server was killed in the middle
		}
		mu.Lock()
		defer mu.Unlock()
		text = append(text, all...)
	}))
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "entries.jsonl")
	configure(t, dir, "export.file: "+path+"\nexport.http: "+to+"\n")
	w := &witness{acked: map[string]bool{}}
	for range 2 {
		p := up(t, dir)
		before := p.status().Entries
		stop := make(chan struct{})
		calling := w.agents(p, 4, stop)
		w.more(t, 20)
		testbed.Until(t, "the sinks to be under way", func() bool {
			under := 0
			for _, one := range p.status().Exports {
				if one.Seq >= before {
					under++
				}
			}
			return under == 2
		})
		p.kill()
		close(stop)
		calling.Wait()
	}
	p := up(t, dir)
	var s exported
	testbed.Until(t, "everything to be sent", func() bool {
		s = p.status()
		return len(s.Exports) == 2 && s.Exports[0].Lag == 0 && s.Exports[1].Lag == 0
	})
	mu.Lock()
	defer mu.Unlock()
	whole := wantWhole(t, "file", testbed.Read(t, path), s.Exports[0].Seq)
	wantWhole(t, "http", text, s.Exports[0].Seq)
	if int64(whole) < s.Entries || len(w.acked) < 40 {
		t.Errorf("%d lines of %d entries, %d agents", whole, s.Entries, len(w.acked))
	}
}
