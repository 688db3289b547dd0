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

// upgrade serves a WebSocket.
func (h *Harness) upgrade(w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Allow", http.MethodPost)
		return fault.New(fault.MethodNotAllowed, "/ahp takes POST, and GET only as the upgrade to a WebSocket.")
	}
	key, err := h.authenticate(r, true)
	if err != nil {
		return unauthorized(w, err)
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

// socket is a stream of text messages of a WebSocket.
type socket struct {
	conn    *websocket.Conn
	harness *Harness
	once    sync.Once
}

func (s *socket) read() ([]byte, error) {
	for {
		kind, text, err := s.conn.Read(context.Background())
		if err != nil || kind == websocket.MessageText {
			return text, err
		}
		s.harness.core.Log.Debug("binary message ignored", "bytes", len(text))
	}
}

func (s *socket) write(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	err := s.conn.Write(ctx, websocket.MessageText, text)
	if err != nil {
		s.once.Do(func() { _ = s.conn.CloseNow() })
	}
	return err
}

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
