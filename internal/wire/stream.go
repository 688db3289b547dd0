package wire

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
)

const (
	// StreamBeat is how often a stream on which nothing happens is written to, so that
	// proxies do not close the connection.
	StreamBeat = 15 * time.Second
	// streamTime is how long a client may take to read what is written.
	streamTime = 2 * StreamBeat

	eventMedia = "text/event-stream"
)

// WantsEvents reports whether a call asks for server-sent events, where a route can also
// answer once.
func WantsEvents(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), eventMedia)
}

// LastEventID is the number of the last event that a client has received, which it sends
// when it connects again; absent when it sends none.
func LastEventID(r *http.Request, absent int64) (int64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		return absent, nil
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 0 {
		return 0, fault.New(fault.InvalidRequest, "Last-Event-ID should be the id of the last event that was received.")
	}
	return id, nil
}

// Stream writes an answer piece by piece: server-sent events, or lines of JSON. What is
// written reaches the client with Flush, whose error says that the client has disconnected.
// Each flush gives the client a new deadline, so a stream may last for ever and a client that
// stops reading is dropped. It belongs to one goroutine.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	events  bool
	fresh   bool // nothing was written since the last Flush
}

// Events starts an answer that is a stream of server-sent events.
func Events(w http.ResponseWriter) *Stream { return newStream(w, eventMedia) }

// Lines starts an answer that is lines of JSON.
func Lines(w http.ResponseWriter) *Stream { return newStream(w, "application/x-ndjson") }

// newStream sets the headers; they are sent with the first Flush.
func newStream(w http.ResponseWriter, media string) *Stream {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	return &Stream{w: w, control: http.NewResponseController(w), events: media == eventMedia, fresh: true}
}

// Put writes data, which has no line break: an event with an id and a name, either of which
// may be "", or a line, which has neither.
func (s *Stream) Put(id, name string, data []byte) {
	if !s.events {
		s.write(data)
		s.write([]byte("\n"))
		return
	}
	var head []byte
	if id != "" {
		head = append(head, "id: "+id+"\n"...)
	}
	if name != "" {
		head = append(head, "event: "+name+"\n"...)
	}
	s.write(append(head, "data: "...))
	s.write(data)
	s.write([]byte("\n\n"))
}

// Retry tells the client after how long it should connect again.
func (s *Stream) Retry(after time.Duration) {
	s.write([]byte("retry: " + strconv.FormatInt(after.Milliseconds(), 10) + "\n\n"))
}

// write ignores errors: the next Flush returns them.
func (s *Stream) write(text []byte) {
	if s.fresh {
		_ = s.control.SetWriteDeadline(time.Now().Add(streamTime))
		s.fresh = false
	}
	_, _ = s.w.Write(text)
}

// Flush sends what was written. Before anything was, it sends the header.
func (s *Stream) Flush() error {
	s.fresh = true
	return s.control.Flush()
}

// Send writes data as Put does, and sends it.
func (s *Stream) Send(id, name string, data []byte) error {
	s.Put(id, name, data)
	return s.Flush()
}

// Beat sends a comment, which clients pass over, so that the connection stays open.
func (s *Stream) Beat() error {
	s.write([]byte(": still here\n\n"))
	return s.Flush()
}
