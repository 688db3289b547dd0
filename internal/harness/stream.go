package harness

import (
	"context"
	"errors"
	"sync"
	"time"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// stream carries messages both ways.
type stream interface {
	// read returns the next message; errTooLong is about that message only.
	read() ([]byte, error)
	// write sends one message, whole or not at all, and is called by many at once.
	write(text []byte) error
	// close ends the stream, and a read that waits. What was written before is still sent.
	close()
}

const (
	// maxInFlight is how many requests of one connection are under way at a time.
	maxInFlight = 256
	// alone is the size from which a message is answered before the next one is read, so that one
	// connection does not fill the memory.
	alone = 256 << 10
	// writeTime is how long a client may take to take an answer.
	writeTime = 10 * time.Second
)

// streams are those that are open.
type streams struct {
	mu    sync.Mutex
	open  sync.WaitGroup
	ended bool
}

// begin reports whether another stream may begin.
func (s *streams) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.open.Add(1)
	return true
}

// end waits for those that are open, and lets no other begin.
func (s *streams) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.open.Wait()
}

// serve answers what comes on a stream until it ends, or the server stops. Requests are
// answered side by side, in any order; what is under way is finished.
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
	defer end()
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
			_ = s.write(errorReply(nil, refuse(codeParse, "The message is longer than %d bytes.", maxLine)))
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
			_ = s.write(errorReply(m.id, problem))
			continue
		}
		w.dispatch(ctx, &m, len(text))
	}
}

// workers answer the requests of one stream side by side. They stay for the next requests,
// since a new goroutine has to grow its stack first.
type workers struct {
	h       *Harness
	c       *Conn
	s       stream
	slots   chan struct{} // one for each request that is under way
	next    chan *message // closed when the stream has ended
	working sync.WaitGroup
}

// dispatch answers a message: at once if that is quick, else in a worker.
func (w *workers) dispatch(ctx context.Context, m *message, size int) {
	if !m.request() || m.method == methodHandshake || size > alone {
		if r := w.h.answerMessage(ctx, w.c, m); !r.Notified {
			_ = w.s.write(r.JSON)
		}
		return
	}
	select {
	case w.slots <- struct{}{}:
	default:
		_ = w.s.write(w.h.overloadReply(w.c, m, "Too many calls of this connection are under way.", time.Second).JSON)
		return
	}
	select {
	case w.next <- m:
	default:
		w.working.Go(func() { w.work(ctx, m) })
	}
}

// work answers a request, and those that come after it.
func (w *workers) work(ctx context.Context, m *message) {
	for open := true; open; m, open = <-w.next {
		_ = w.s.write(w.h.answerMessage(ctx, w.c, m).JSON)
		<-w.slots
	}
}

func blank(text []byte) bool {
	for _, b := range text {
		if b != ' ' && b != '\t' && b != '\r' {
			return false
		}
	}
	return true
}

// overloadReply refuses a request for now: with a decision to ask again later if its type has
// one, else with an error.
func (h *Harness) overloadReply(c *Conn, m *message, reason string, after time.Duration) Reply {
	if m.method == methodEvent {
		if e, err := parseEvent(m.params, m.inside); err == nil && e.kind.blocking() && h.checkEvent(c, e) == nil {
			if later := postponement(e.Type, reason, after); later.Decision != "block" {
				if text, err := later.encode(e, nil); err == nil {
					return Reply{JSON: resultReply(m.id, text)}
				}
			}
		}
	}
	return Reply{
		JSON: errorReply(m.id, refuse(codeOverloaded, "overloaded: %s Ask again in %d ms.", reason, after.Milliseconds())),
		Busy: true,
	}
}

// refuseOverLimit refuses a request beyond the agent's rate limit.
func (h *Harness) refuseOverLimit(c *Conn, who roster.Identity, m *message) (Reply, bool) {
	if !m.request() || m.method == methodHandshake {
		return Reply{}, false
	}
	left, err := h.core.Roster.Take(who, "requests", 0)
	if err == nil {
		return Reply{}, false
	}
	return h.overloadReply(c, m, err.Error(), max(time.Second, time.Minute/time.Duration(max(left.Limit, 1)))), true
}
