package harness

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/fault"
)

// upgrade serves a WebSocket on the address of the POSTs. It returns when the socket is
// closed.
func (h *Harness) upgrade(w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Allow", http.MethodPost)
		return fault.New(fault.MethodNotAllowed, "/ahp takes POST, and GET only as the upgrade to a WebSocket.")
	}
	key, err := h.authenticate(r, true)
	if err != nil {
		return unauthorized(w, r, err)
	}
	// Agents send no Origin; a browser does, and Accept checks that it is ours.
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil //nolint:nilerr // it was answered
	}
	conn.SetReadLimit(maxLine)
	ctx := context.WithoutCancel(r.Context()) // the request's own ends in the middle of an answer
	h.serve(ctx, h.newConn(TransportWebSocket, h.keyHolder(key)), &socket{conn: conn, harness: h})
	return nil
}

// socket is a WebSocket as a stream: one text message is one message of AHP.
type socket struct {
	conn    *websocket.Conn
	harness *Harness
	once    sync.Once
}

// read returns the next text message. Binary messages are ignored, as by the reference
// server (AHP-13). A message over the limit closes the connection, which the library
// does by itself.
func (s *socket) read() ([]byte, error) {
	for {
		kind, text, err := s.conn.Read(context.Background())
		if err != nil || kind == websocket.MessageText {
			return text, err
		}
		s.harness.core.Log.Debug("binary message ignored", "bytes", len(text))
	}
}

// write sends one text message, and closes the connection if the client does not take
// it in time.
func (s *socket) write(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	err := s.conn.Write(ctx, websocket.MessageText, text)
	if err != nil {
		s.once.Do(func() { _ = s.conn.CloseNow() })
	}
	return err
}

// close says goodbye and waits a second for the peer to do the same.
func (s *socket) close() {
	s.once.Do(func() {
		done := make(chan struct{})
		go func() { defer close(done); _ = s.conn.Close(websocket.StatusGoingAway, "") }()
		select {
		case <-done:
		case <-time.After(time.Second): // a peer that does not answer a close is cut off
			_ = s.conn.CloseNow()
			<-done
		}
	})
}
