package mail

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/failure"
	"signalbox/internal/mail/hub"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The close codes of a socket (MSG-63): no auth frame in time, another first frame, a key that is
// refused or whose agent is suspended, and no frame for too long.
const (
	closeAuthTimeout = websocket.StatusCode(4001)
	closeNotAuth     = websocket.StatusCode(4002)
	closeRefused     = websocket.StatusCode(4003)
	closeIdle        = websocket.StatusCode(4004)
)

// writeTime is how long writing one frame may take before the socket is given up.
const writeTime = 10 * time.Second

// socketPage is how many messages are read from the queue at a time.
const socketPage = 100

// socket is one WebSocket of an agent. serve reads its frames (readFrames) and owns two goroutines:
// pushMessages writes messages from the queue whenever the ledger wakes it, writeEvents writes receipts.
// The connection serialises all writes.
//
// MSG-61: a pushed message stays in the queue until it is acknowledged, and is pushed again on
// the next connection. Two sockets of one agent both get every message.
type socket struct {
	*Mail
	conn     *websocket.Conn
	who      roster.Identity
	token    string
	listener *hub.Socket
}

// frame is the text of a frame with data.
func frame(kind string, data map[string]any) []byte {
	text, err := wire.Marshal(map[string]any{"type": kind, "data": data})
	if err != nil {
		return nil // cannot happen: data holds texts and numbers
	}
	return text
}

// getSocket serves a WebSocket until it ends. The deadlines of the server are for requests, and
// are taken off the connection.
func (m *Mail) getSocket(w http.ResponseWriter, r *http.Request) error {
	// A socket may stay open for days.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	// MSG-60: the key is in the first frame, never in a cookie or the URL. So the origin need not
	// be checked: a page of another origin has no credentials to abuse.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{"amp.v1"},
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil // Accept has answered
	}
	// A frame with a message is at most as large as the body of POST /v1/route.
	conn.SetReadLimit(amp.MaxBody)
	defer func() { _ = conn.CloseNow() }()
	ctx, end := wire.UntilStop(r.Context())
	defer end()
	s := &socket{Mail: m, conn: conn}
	if s.readAuth(ctx) {
		s.serve(ctx)
	}
	return nil
}

// readAuth reads the auth frame and checks its key; false if the connection was closed.
func (s *socket) readAuth(ctx context.Context) bool {
	// Cancelling a read would break the connection without a close code. Closing it, with the
	// code, ends the read too.
	// MSG-60: a connection that does not authenticate must not keep resources.
	late := time.AfterFunc(s.AuthTime, func() { s.close(closeAuthTimeout, "no auth frame in time") })
	kind, text, err := s.conn.Read(ctx)
	late.Stop()
	if err != nil {
		return false
	}
	f, err := amp.ReadFields(text)
	if kind != websocket.MessageText || err != nil || f.Text("type", 64) != "auth" {
		s.fail(ctx, "", refusal.NoKey(fault.New(fault.Unauthenticated,
			"The first frame should be {\"type\": \"auth\", \"token\": \"amp_live_sk_…\"}.")))
		s.close(closeNotAuth, "the first frame should be auth")
		return false
	}
	s.token = f.Text("token", 256)
	if s.who, err = s.authenticate(ctx); err != nil {
		s.fail(ctx, "", err)
		s.close(closeRefused, protocolCodeOf(err))
		return false
	}
	return true
}

// authenticate checks the key of the socket, which may have been revoked since it was opened.
func (s *socket) authenticate(ctx context.Context) (roster.Identity, error) {
	who, err := s.core.Roster.Authenticate(ctx, s.token)
	switch {
	case err != nil:
		return who, err
	case who.Kind != roster.HolderAgent:
		return who, fault.New(fault.Unauthenticated, "This is the key of an %s. Use an agent's key, amp_live_sk_….", who.Kind)
	}
	return who, directory.Active(who)
}

// serve pushes messages and reads frames, until the connection ends, and waits for its goroutines.
func (s *socket) serve(stopping context.Context) {
	// Not the context that a stop of the server cancels: a message that is being routed then is
	// finished. The stop closes the connection, which ends readFrames.
	ctx, cancel := context.WithCancel(context.WithoutCancel(stopping))
	defer cancel()
	s.listener = &hub.Socket{Agent: s.who.ID, Key: s.who.KeyID, Recheck: func() { go s.closeIfRefused(ctx) }}
	// In the hub before the queue is first read: a message that arrives in between is pushed, maybe twice
	// looked for, and never missed.
	defer s.hub.Add(s.listener)()
	defer s.core.Roster.Connected(s.who.ID)()
	defer context.AfterFunc(stopping, func() { s.close(websocket.StatusGoingAway, "the server is stopping") })()
	// Everything after this entry is new; everything before it is backlog, marked as a replay.
	head, err := s.core.Ledger.Head(ctx)
	if err != nil {
		return
	}
	n, _, _, err := s.waiting(ctx, s.who.ID, 0)
	if err != nil || s.write(ctx, frame("connected",
		map[string]any{"address": s.who.Address, "pending_count": n})) != nil {
		return
	}
	var writing sync.WaitGroup
	// A push that fails closes the connection, which ends readFrames.
	writing.Go(func() { s.pushMessages(ctx, head); _ = s.conn.CloseNow() })
	writing.Go(func() { s.writeEvents(ctx) })
	s.readFrames(ctx)
	cancel()
	writing.Wait()
}

// closeIfRefused closes the connection if its key is refused by now.
func (s *socket) closeIfRefused(ctx context.Context) {
	if _, err := s.authenticate(ctx); err != nil {
		s.close(closeRefused, protocolCodeOf(err))
	}
}

// readFrames reads frames until the connection ends, is idle for too long, or its key is refused.
// The key is checked for every frame, from the roster's cache.
func (s *socket) readFrames(ctx context.Context) {
	// MSG-63: clients ping every 30 seconds; five minutes of silence is a connection that is gone.
	idle := time.AfterFunc(s.IdleTime, func() { s.close(closeIdle, "idle for too long") })
	defer idle.Stop()
	for {
		kind, text, err := s.conn.Read(ctx)
		if err != nil {
			return
		}
		idle.Reset(s.IdleTime)
		// For every frame: a key that was revoked a moment ago must not send one more message.
		who, err := s.authenticate(ctx)
		if err != nil {
			s.fail(ctx, "", err)
			s.close(closeRefused, protocolCodeOf(err))
			return
		}
		if kind != websocket.MessageText {
			s.fail(ctx, "", fault.New(fault.InvalidRequest, "Frames are text, with one JSON object each."))
			continue
		}
		s.handle(ctx, who, text)
	}
}

// protocolCodeOf is the protocol's code of an error, as the reason of a close.
func protocolCodeOf(err error) string { return string(failure.Code(fault.From(err).Code)) }

// handle answers one frame. An error is an error frame, and the connection goes on.
func (s *socket) handle(ctx context.Context, who roster.Identity, text []byte) {
	f, err := amp.ReadFields(text)
	if err != nil {
		s.fail(ctx, "", err)
		return
	}
	request := f.Text("request_id", 128)
	switch kind := f.Text("type", 64); kind {
	case "ping":
		_ = s.write(ctx, []byte(`{"type":"pong","timestamp":"`+amp.Stamp(s.core.Now())+`"}`))
	case "ack", "message.ack":
		if _, err := s.Ack(ctx, who, ByWebSocket, f.Text("id", 128)); err != nil {
			s.fail(ctx, request, err)
		}
	case "route":
		s.route(ctx, who, request, f)
	case "auth": // a second one changes nothing
	default:
		s.fail(ctx, request, fault.New(fault.InvalidRequest,
			"Unknown frame type %.40q. Frames are auth, ping, route and ack.", kind))
	}
}

// route sends a message as POST /v1/route does, against the same limits. request_id is echoed,
// since other frames arrive between a route and its answer.
func (s *socket) route(ctx context.Context, who roster.Identity, request string, f *amp.Fields) {
	// The raw text of the member goes to Route, which verifies the signature over its bytes.
	data, ok := f.Get("data")
	if !ok {
		s.fail(ctx, request, fault.New(fault.MissingField,
			"The field \"data\" is missing. It should be what POST /v1/route takes.").About("data"))
		return
	}
	if _, err := s.takeMessage(who); err != nil {
		s.fail(ctx, request, err)
		return
	}
	answer, err := s.Route(ctx, who, data)
	if err != nil {
		s.fail(ctx, request, err)
		return
	}
	text, err := wire.Marshal(map[string]any{"type": "message.routed", "request_id": request, "data": answer})
	if err == nil {
		_ = s.write(ctx, text)
	}
}

// fail sends an error frame.
func (s *socket) fail(ctx context.Context, request string, err error) {
	refusal.Note(ctx, err)
	e := fault.From(err)
	out := map[string]any{"type": "error", "error": failure.Code(e.Code), "message": e.Message}
	if e.Field != "" {
		out["field"] = e.Field
	}
	if request != "" {
		out["request_id"] = request
	}
	if text, err := wire.Marshal(out); err == nil {
		_ = s.write(ctx, text)
	}
}

// write writes one frame, within writeTime.
func (s *socket) write(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, text)
}

func (s *socket) close(code websocket.StatusCode, reason string) { _ = s.conn.Close(code, reason) }

// pushMessages writes the backlog, which is everything up to the entry head, and then new messages, each
// once on this connection, until ctx ends or a write fails.
func (s *socket) pushMessages(ctx context.Context, head int64) {
	place := int64(0)
	_ = s.arrivals.Await(ctx, s.who.ID, func(context.Context) (done bool, err error) {
		place, err = s.pushPage(ctx, place, head)
		return false, err // the connection is gone
	})
}

// writeEvents writes receipts for messages that the agent sent.
func (s *socket) writeEvents(ctx context.Context) {
	for {
		select {
		case text := <-s.listener.Events:
			if s.write(ctx, text) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// pushPage writes all messages of the queue after a place, and returns the place of the last.
func (s *socket) pushPage(ctx context.Context, place, head int64) (int64, error) {
	for {
		page, err := s.fetch(ctx, s.who.ID, place, socketPage)
		if err != nil {
			return place, err
		}
		for i := range page {
			p := &page[i]
			if err := s.pushOne(ctx, p, p.place <= head); err != nil {
				return place, err
			}
			place = p.place
		}
		if len(page) == 0 {
			return place, nil
		}
	}
}

// pushOne writes one message and reports the delivery. A replay is not recorded again. The record
// waits for room in pushed, so that sockets are no faster than the ledger.
func (s *socket) pushOne(ctx context.Context, p *Pending, replay bool) error {
	data, err := p.json()
	if err != nil {
		return err
	}
	text := []byte(`{"type":"message.new"}`)
	if replay {
		text = []byte(`{"type":"message.new","replay":true}`)
	}
	if err := s.write(ctx, wire.Splice(text, wire.Member{Name: "data", Value: data})); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	// The sender may wait for this on this node; on another it has its answer already.
	s.hub.Report(p.ID, hub.Outcome{Method: ByWebSocket})
	if replay {
		return nil
	}
	note := pushed{
		workspace: s.who.Workspace, id: p.ID, trace: trace(p.Envelope.ThreadID),
		body: transition{Seq: p.seq, Agent: s.who.ID, Via: ByWebSocket},
	}
	// Sender and recipient stand in the entry, so that every node can send the receipt.
	if p.receipt {
		note.body.Sender, note.body.To = p.sender, p.Envelope.To
	}
	select {
	case s.pushed <- note:
	case <-ctx.Done():
	}
	return nil
}
