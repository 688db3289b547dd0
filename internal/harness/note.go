package harness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// told takes a notification. It is checked here and written later, so that no agent
// waits for the disk. Methods other than events are passed over, as the protocol has it.
func (h *Harness) told(ctx context.Context, c *Conn, who roster.Identity, m *message) *rpcError {
	if m.method != methodEvent {
		return nil
	}
	e, err := parseEvent(m.params, m.inside)
	if err != nil {
		return refuse(codeHandler, "Handler error: Invalid params: %s", err.Error())
	}
	if err := h.check(c, e); err != nil {
		return refuse(codeHandler, "Handler error: %s", err.message)
	}
	if e.kind.blocking() {
		return refuse(codeHandler, "Handler error: Protocol error: Blocking event %s must be sent as a request", e.Type)
	}
	if c.stream && !c.shaken.Load() {
		return refuse(codeHandshake, "handshake required: send %s first", methodHandshake)
	}
	if err := h.greeted(ctx, c, who, e.Session); err != nil {
		return err
	}
	h.take(ctx, who, e)
	return nil
}

// take puts what an agent tells into the queue.
func (h *Harness) take(ctx context.Context, who roster.Identity, e *Event) {
	n := &told{who: who, session: keyOf(e.Session), typ: e.Type, event: e.Raw, at: h.core.Now().UnixMicro(), kept: e.kind.contract}
	h.notes.add(n)
	if n.kept {
		h.notes.room(ctx)
	}
}

// sees makes sure that a session is known, before anything is known of it but a step.
func (h *Harness) sees(who roster.Identity, key string) {
	if h.notes.fresh(who.ID, key) {
		h.notes.add(&told{who: who, session: key, at: h.core.Now().UnixMicro(), kept: true})
	}
}

// told is something to be written. Without a type it only says that there is a session.
type told struct {
	who     roster.Identity
	session string
	typ     Type
	event   wire.Raw
	info    wire.Raw
	at      int64
	kept    bool // is never dropped
	number  int64
}

const (
	// maxTelemetry is how much of what may be dropped waits at the most.
	maxTelemetry      = 50_000
	maxTelemetryBytes = 64 << 20
	// maxKept is how much of what is never dropped waits before those who tell have to.
	maxKept      = 200_000
	maxKeptBytes = 256 << 20
	// maxFlush is how much goes into one write.
	maxFlush      = 5_000
	maxFlushBytes = 1 << 20
	maxKnown      = 50_000 // sessions
)

// queue is what waits to be written. Telemetry has a bounded place and its oldest makes
// room; the rest is never dropped.
type queue struct {
	mu        sync.Mutex
	telemetry fifo
	kept      fifo
	next      int64
	dropped   map[sessionID]int64
	lost      int64              // all that was dropped
	known     map[sessionID]bool // sessions that were queued or written
	kick      chan struct{}      // there is something
	drained   chan struct{}      // closed and replaced when there is room again
}

type sessionID struct{ agent, session string }

// fifo is a list that is taken from at its front.
type fifo struct {
	items []*told
	bytes int
}

func (f *fifo) push(n *told) {
	f.items = append(f.items, n)
	f.bytes += len(n.event)
}

func (f *fifo) pop() *told {
	n := f.items[0]
	f.items[0] = nil
	f.items = f.items[1:]
	f.bytes -= len(n.event)
	return n
}

func (q *queue) init() {
	q.kick, q.drained = make(chan struct{}, 1), make(chan struct{})
	q.dropped, q.known = map[sessionID]int64{}, map[sessionID]bool{}
}

// add never waits.
func (q *queue) add(n *told) {
	q.mu.Lock()
	q.next++
	n.number = q.next
	if n.kept {
		q.kept.push(n)
	} else {
		q.telemetry.push(n)
		for len(q.telemetry.items) > maxTelemetry || q.telemetry.bytes > maxTelemetryBytes {
			old := q.telemetry.pop()
			q.lost++
			q.dropped[sessionID{old.who.ID, old.session}]++
		}
	}
	q.mu.Unlock()
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// room waits while there is more than memory should hold of what is never dropped.
func (q *queue) room(ctx context.Context) {
	for {
		q.mu.Lock()
		full, drained := len(q.kept.items) > maxKept || q.kept.bytes > maxKeptBytes, q.drained
		q.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return
		}
	}
}

// fresh reports whether a session was not seen by this node before.
func (q *queue) fresh(agent, session string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := sessionID{agent, session}
	if q.known[name] {
		return false
	}
	if len(q.known) >= maxKnown {
		clear(q.known) // the writer looks whether a session is there
	}
	q.known[name] = true
	return true
}

// batch takes what goes into one write, in the order of arrival.
func (q *queue) batch() (all []*told, dropped map[sessionID]int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for size := 0; len(all) < maxFlush && size < maxFlushBytes; {
		from := &q.kept
		switch {
		case len(q.telemetry.items) == 0 && len(q.kept.items) == 0:
			size = maxFlushBytes
			continue
		case len(q.kept.items) == 0, len(q.telemetry.items) > 0 && q.telemetry.items[0].number < q.kept.items[0].number:
			from = &q.telemetry
		}
		n := from.pop()
		size += len(n.event)
		all = append(all, n)
	}
	dropped = map[sessionID]int64{}
	for _, n := range all {
		if name := (sessionID{n.who.ID, n.session}); q.dropped[name] > 0 {
			dropped[name] = q.dropped[name]
			delete(q.dropped, name)
		}
	}
	close(q.drained)
	q.drained = make(chan struct{})
	return all, dropped
}

// Run writes what agents tell until ctx ends, and then what is left.
func (h *Harness) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-h.notes.kick:
			h.flush(ctx)
		case <-ctx.Done():
		}
	}
	h.streams.end()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	h.flush(ending)
	if len(h.unwritten) > 0 {
		h.core.Log.Error("what agents told could not be written and is lost", "sessions", len(h.unwritten))
	}
	h.calls.CloseIdleConnections()
	return nil
}

const (
	flushTime  = 10 * time.Second
	flushPause = 200 * time.Millisecond // after a write that failed
)

// flush writes until nothing is left. What cannot be written is tried again.
func (h *Harness) flush(ctx context.Context) {
	for again := true; ctx.Err() == nil; {
		if again { // else there is no database, and what waits has its bounded place
			h.unwritten = append(h.unwritten, gather(h.notes.batch())...)
		}
		if len(h.unwritten) == 0 {
			return
		}
		var err error
		h.unwritten, err = h.writeAll(ctx, h.unwritten)
		if again = err == nil || !passing(err); err == nil {
			continue
		}
		h.core.Log.Warn("what agents told cannot be written; will try again", "error", err.Error())
		select {
		case <-time.After(flushPause):
		case <-ctx.Done():
		}
	}
}

// writeAll writes sessions together, or one by one if one of them is at fault, and
// returns those that could not be written.
func (h *Harness) writeAll(ctx context.Context, all []*session) (left []*session, err error) {
	if err = h.write(ctx, all); err == nil || passing(err) || len(all) == 1 {
		if err == nil {
			all = nil
		}
		return all, err
	}
	for _, s := range all {
		if failed := h.write(ctx, []*session{s}); failed != nil {
			left, err = append(left, s), failed
		}
	}
	if len(left) == 0 {
		err = nil
	}
	return left, err
}

// passing reports whether an error is about the database and not about what was written.
func passing(err error) bool {
	switch fault.From(store.Explain(err)).Code {
	case fault.StoreUnavailable, fault.StoreFull, fault.StoreReadOnly, fault.OutcomeUnknown, fault.LedgerMismatch, fault.Stopping, fault.Overloaded, fault.Cancelled:
		return true
	default:
		return false
	}
}

// session is what is to be written of one session.
type session struct {
	sessionID
	who             roster.Identity
	info            wire.Raw
	noted, reported []note
	dropped         int64
	bodies          [2]ledger.Body // of noted and reported
}

// gather sorts what was told by session.
func gather(all []*told, dropped map[sessionID]int64) []*session {
	found := map[sessionID]*session{}
	var order []*session
	for _, n := range all {
		name := sessionID{n.who.ID, n.session}
		s := found[name]
		if s == nil {
			s = &session{sessionID: name, who: n.who, dropped: dropped[name]}
			found[name], order = s, append(order, s)
		}
		if n.info != nil {
			s.info = n.info
		}
		switch one := (note{n.at, n.typ, n.event}); {
		case n.typ == "":
		case kinds[n.typ].state:
			s.reported = append(s.reported, one)
		default:
			s.noted = append(s.noted, one)
		}
	}
	return order
}

// write writes sessions in one transaction.
func (h *Harness) write(ctx context.Context, sessions []*session) error {
	for _, s := range sessions {
		for i, list := range [][]note{s.noted, s.reported} {
			if s.bodies[i].JSON != nil || len(list) == 0 {
				continue
			}
			b := &notes{Agent: s.agent, Notes: list}
			if i == 0 {
				b.Dropped = s.dropped
			}
			text, err := wire.Marshal(b)
			if err != nil {
				return fmt.Errorf("encode what was told: %w", err)
			}
			s.bodies[i] = ledger.Body{Value: b, JSON: text}
		}
	}
	return h.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		for _, s := range sessions {
			if err := s.append(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// append opens the session if it is not there, and adds what was told.
func (s *session) append(tx *ledger.Tx) error {
	trace := traceOf(s.agent, s.session)
	put := func(kind string, body any) {
		tx.Append(ledger.Event{Workspace: s.who.Workspace, Kind: kind, Actor: s.who.Actor(), Subject: s.session, Trace: trace, Body: body})
	}
	var one int
	err := tx.QueryRow("SELECT 1 FROM harness_session WHERE agent = $1 AND session = $2", []any{s.agent, s.session}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		put(kindOpened, opened{s.agent, s.info})
		err = nil
	}
	for i, kind := range []string{kindNoted, kindReported} {
		if s.bodies[i].JSON != nil {
			put(kind, s.bodies[i])
		}
	}
	return err
}
