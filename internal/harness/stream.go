package harness

import (
	"context"
	"errors"
	"sync"
	"time"

	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// stream carries messages both ways: a WebSocket, or lines on a Unix socket.
type stream interface {
	// read returns the next message; errTooLong is about that message only.
	read() ([]byte, error)
	// write sends one message, whole or not at all, and is called by many at once.
	write(text []byte) error
	// close ends the stream, and a read that waits. What was written before is still sent.
	close()
}

const (
	// maxInFlight is how many requests of one connection are under way at a time. More are
	// answered at once with a postponement (AHP-51). Held calls count, so it bounds what
	// one client can have waiting.
	maxInFlight = 256
	// serialSize is the size in bytes from which a message is answered before the next one is
	// read, so that one connection cannot fill the memory with 256 messages of 16 MiB.
	serialSize = 256 << 10
	// writeTime is how long a client may take to receive an answer before its connection is
	// closed. Workers wait for the write, so a client that does not read would keep them.
	writeTime = 10 * time.Second
)

// streams counts the open streams, so that Run can wait for them. begin and open.Add
// happen under the lock: a WaitGroup must not be added to once Wait may have returned.
type streams struct {
	mu    sync.Mutex
	open  sync.WaitGroup
	ended bool
}

// begin counts a stream, and reports false if the server is ending. The caller calls
// open.Done.
func (s *streams) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.open.Add(1)
	return true
}

// end lets no other stream begin, and waits for those that are open.
func (s *streams) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.open.Wait()
}

// serve answers the messages of a stream until it ends or the server stops. Requests
// are answered side by side, in any order (AHP-13). When the server stops, requests
// under way are answered first.
func (h *Harness) serve(ctx context.Context, c *Conn, s stream) {
	defer s.close()
	if !h.streams.begin() {
		return
	}
	defer h.streams.open.Done()
	if who, err := c.who(ctx); err == nil {
		defer h.core.Roster.Connected(who.ID)()
	}
	w := workers{h: h, c: c, s: s, slots: make(chan struct{}, maxInFlight), next: make(chan *message)}
	defer w.working.Wait()
	defer close(w.next)
	stopping, end := wire.UntilStop(ctx)
	// It ends with the stream: a call whose client has gone must not use an approval up.
	defer end()
	ctx = wire.WithStop(ctx, stopping)
	// Taking all slots waits until no request is under way, and lets none begin. Held calls
	// end by themselves then: holdStep watches the same context.
	stop := context.AfterFunc(stopping, func() {
		for range maxInFlight { // what is under way is answered, and nothing new begins
			w.slots <- struct{}{}
		}
		s.close()
	})
	defer stop()
	for {
		text, err := s.read()
		if errors.Is(err, errTooLong) {
			problem := refuse(codeParse, "The message is longer than %d bytes.", maxLine)
			_ = s.write(h.refuseText(ctx, c, "", &message{}, text, problem).JSON)
			continue
		}
		if err != nil {
			return
		}
		if blank(text) {
			continue
		}
		m, problem := parseMessage(text)
		if problem != nil {
			_ = s.write(h.refuseText(ctx, c, "", &m, text, problem).JSON)
			continue
		}
		w.dispatch(ctx, &m, len(text))
	}
}

// workers answer the requests of one stream side by side. A worker stays for the next
// requests, because a new goroutine would have to grow its stack first. At most
// maxInFlight exist, and all end with the stream.
type workers struct {
	h       *Harness
	c       *Conn
	s       stream
	slots   chan struct{} // one for each request that is under way
	next    chan *message // closed when the stream has ended
	working sync.WaitGroup
}

// dispatch answers a message: notifications, handshakes and large messages at once,
// everything else in a worker. A handshake is answered before the next message is read,
// so that a client may send it and its first event together.
func (w *workers) dispatch(ctx context.Context, m *message, size int) {
	if !m.request() || m.method == methodHandshake || size > serialSize {
		if r := w.h.answerMessage(ctx, w.c, m); !r.Notified {
			_ = w.s.write(r.JSON)
		}
		return
	}
	select {
	case w.slots <- struct{}{}:
	default:
		later := w.h.overloadReply(ctx, w.c, roster.Identity{}, m, "Too many calls of this connection are under way.",
			time.Second)
		_ = w.s.write(later.JSON)
		return
	}
	// An idle worker takes it; if none is idle, a new one starts.
	select {
	case w.next <- m:
	default:
		w.working.Go(func() { w.work(ctx, m) })
	}
}

// work answers a request, and then those that dispatch hands to an idle worker.
func (w *workers) work(ctx context.Context, m *message) {
	for open := true; open; m, open = <-w.next {
		_ = w.s.write(w.h.answerMessage(ctx, w.c, m).JSON)
		<-w.slots
	}
}

// blank reports whether a line has nothing on it. Some clients send blank lines between
// messages.
func blank(text []byte) bool {
	for _, b := range text {
		if b != ' ' && b != '\t' && b != '\r' {
			return false
		}
	}
	return true
}

// overloadReply refuses a request for now (AHP-51): with a decision that postpones if
// the event's type has one, else with an error. Nothing is recorded, since nothing was
// decided.
func (h *Harness) overloadReply(ctx context.Context, c *Conn, who roster.Identity, m *message, reason string,
	after time.Duration,
) Outcome {
	if m.method == methodEvent {
		e, err := parseEvent(m.params, m.inside)
		if err == nil && e.kind.blocking() && h.checkEvent(ctx, c, who, e) == nil {
			if later := postponement(e.Type, reason, after); later.Decision != "block" || e.compat {
				if text, err := later.encode(e, nil); err == nil {
					return Outcome{JSON: resultReply(m.id, text)}
				}
			}
		}
	}
	return Outcome{
		JSON: errorReply(m.id, refuse(codeOverloaded, "overloaded: %s Ask again in %d ms.", reason, after.Milliseconds())),
		Busy: true,
	}
}

// refuseOverLimit refuses a request beyond the agent's rate limit. A handshake is never
// refused: without one a stream is of no use, and it costs no decision.
func (h *Harness) refuseOverLimit(ctx context.Context, c *Conn, who roster.Identity, m *message) (Outcome, bool) {
	if !m.request() || m.method == methodHandshake {
		return Outcome{}, false
	}
	left, err := h.core.Roster.Take(who, "requests", 0)
	if err == nil {
		return Outcome{}, false
	}
	refusal.Note(ctx, err)
	after := max(time.Second, time.Minute/time.Duration(max(left.Limit, 1)))
	return h.overloadReply(ctx, c, who, m, err.Error(), after), true
}
