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
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The codes with which a socket is closed: nobody said who they are in time, the first frame
// was another, the key is not good or its agent suspended, nothing was said for too long.
const (
	closeAuthTimeout = websocket.StatusCode(4001)
	closeNotAuth     = websocket.StatusCode(4002)
	closeRefused     = websocket.StatusCode(4003)
	closeIdle        = websocket.StatusCode(4004)
)

// writeTime is how long a frame may take to be written.
const writeTime = 10 * time.Second

// socketPage is how many messages are read at once to be pushed.
const socketPage = 100

// socket is one WebSocket of an agent. One goroutine reads frames; one, push, looks at
// the queue whenever it is woken and writes what is new; one, pass, writes what is told of
// messages that the agent has sent. What was pushed stays in the queue until it is
// acknowledged, and comes again on the next connection.
type socket struct {
	*Mail
	conn     *websocket.Conn
	who      roster.Identity
	token    string
	listener *listener
}

// frame is a frame with data.
func frame(kind string, data map[string]any) []byte {
	text, err := wire.Marshal(map[string]any{"type": kind, "data": data})
	if err != nil {
		return nil // texts and numbers can be written
	}
	return text
}

// getSocket serves a WebSocket until it ends.
func (m *Mail) getSocket(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	// A key is in the first frame, never in a cookie, so pages of other origins can do
	// nothing here that they could not do from anywhere.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{"amp.v1"},
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil // Accept has answered
	}
	conn.SetReadLimit(amp.MaxBody)
	defer func() { _ = conn.CloseNow() }()
	ctx, end := wire.UntilStop(r.Context())
	defer end()
	s := &socket{Mail: m, conn: conn}
	if s.greet(ctx) {
		s.serve(ctx)
	}
	return nil
}

// greet finds out who it is, within the time for it.
func (s *socket) greet(ctx context.Context) bool {
	// A read that is broken off breaks the connection, without a word. So the connection
	// is closed, which ends the read.
	late := time.AfterFunc(s.AuthTime, func() { s.close(closeAuthTimeout, "no auth frame in time") })
	kind, text, err := s.conn.Read(ctx)
	late.Stop()
	if err != nil {
		return false
	}
	f, err := amp.ReadFields(text)
	if kind != websocket.MessageText || err != nil || f.Text("type", 64) != "auth" {
		s.fail(ctx, "", fault.New(fault.Unauthenticated,
			"The first frame should be {\"type\": \"auth\", \"token\": \"amp_live_sk_…\"}."))
		s.close(closeNotAuth, "the first frame should be auth")
		return false
	}
	s.token = f.Text("token", 256)
	if s.who, err = s.authenticate(ctx); err != nil {
		s.fail(ctx, "", err)
		s.close(closeRefused, word(err))
		return false
	}
	return true
}

// authenticate finds out whether the socket's key is still good, and whose it is.
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

// serve pushes messages and takes frames, until the connection ends.
func (s *socket) serve(stopping context.Context) {
	// Not the context of the stop: what is under way then is finished.
	ctx, cancel := context.WithCancel(context.WithoutCancel(stopping))
	defer cancel()
	s.listener = &listener{agent: s.who.ID, key: s.who.KeyID, end: func() { go s.dismiss(ctx) }}
	defer s.hub.add(s.listener)()
	defer s.core.Roster.Connected(s.who.ID)()
	defer context.AfterFunc(stopping, func() { s.close(websocket.StatusGoingAway, "the server is stopping") })()
	// What comes after this is new to the agent, however soon.
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
	writing.Go(func() { s.push(ctx, head); _ = s.conn.CloseNow() })
	writing.Go(func() { s.pass(ctx) })
	s.listen(ctx)
	cancel()
	writing.Wait()
}

// dismiss closes a connection whose key is no longer good.
func (s *socket) dismiss(ctx context.Context) {
	if _, err := s.authenticate(ctx); err != nil {
		s.close(closeRefused, word(err))
	}
}

// listen reads frames until the connection ends, is idle for too long, or may not be had
// any more.
func (s *socket) listen(ctx context.Context) {
	idle := time.AfterFunc(s.IdleTime, func() { s.close(closeIdle, "idle for too long") })
	defer idle.Stop()
	for {
		kind, text, err := s.conn.Read(ctx)
		if err != nil {
			return
		}
		idle.Reset(s.IdleTime)
		who, err := s.authenticate(ctx)
		if err != nil {
			s.fail(ctx, "", err)
			s.close(closeRefused, word(err))
			return
		}
		if kind != websocket.MessageText {
			s.fail(ctx, "", fault.New(fault.InvalidRequest, "Frames are text, with one JSON object each."))
			continue
		}
		s.handle(ctx, who, text)
	}
}

// word is the code of an error as the protocol has it.
func word(err error) string { return string(protocolCode(fault.From(err).Code)) }

// handle does what a frame asks for.
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
	case "auth": // again, which changes nothing
	default:
		s.fail(ctx, request, fault.New(fault.InvalidRequest,
			"There is no frame of type %.40q. There are auth, ping, route and ack.", kind))
	}
}

// route sends a message, as POST /v1/route does.
func (s *socket) route(ctx context.Context, who roster.Identity, request string, f *amp.Fields) {
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

// fail sends an error.
func (s *socket) fail(ctx context.Context, request string, err error) {
	e := fault.From(err)
	out := map[string]any{"type": "error", "error": protocolCode(e.Code), "message": e.Message}
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

func (s *socket) write(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, text)
}

func (s *socket) close(code websocket.StatusCode, reason string) { _ = s.conn.Close(code, reason) }

// push writes the backlog, which is what the ledger held at head, then what comes, each
// message once on this connection.
func (s *socket) push(ctx context.Context, head int64) {
	place := int64(0)
	_ = s.arrivals.Await(ctx, s.who.ID, func(context.Context) (done bool, err error) {
		place, err = s.pushPage(ctx, place, head)
		return false, err // the connection is gone
	})
}

// pass writes what is told of messages that the agent has sent.
func (s *socket) pass(ctx context.Context) {
	for {
		select {
		case text := <-s.listener.events:
			if s.write(ctx, text) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// pushPage writes what is in the queue after a place. What was there before the
// connection is marked as replayed.
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
	s.hub.settle(p.ID, ByWebSocket)
	if replay {
		return nil
	}
	note := pushed{
		workspace: s.who.Workspace, id: p.ID, trace: trace(p.Envelope.ThreadID),
		body: about{Seq: p.seq, Agent: s.who.ID, Via: ByWebSocket},
	}
	if p.receipt {
		note.body.Sender, note.body.To = p.sender, p.Envelope.To
	}
	select {
	case s.pushed <- note:
	case <-ctx.Done():
	}
	return nil
}
