package harness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// takeNotification checks a notification and queues it (AHP-46). It is written later,
// so that no agent waits for the disk. Methods other than ahp/event are accepted and
// ignored (AHP-48).
func (h *Harness) takeNotification(ctx context.Context, c *Conn, who roster.Identity, m *message) *rpcError {
	if m.method != methodEvent {
		return nil
	}
	e, err := parseEvent(m.params, m.inside)
	if err != nil {
		return refuse(codeHandler, "Handler error: Invalid params: %s", err.Error())
	}
	if err := h.checkEvent(ctx, c, who, e); err != nil {
		return refuse(codeHandler, "Handler error: %s", err.message)
	}
	if e.kind.blocking() {
		return refuse(codeHandler, "Handler error: Protocol error: Blocking event %s must be sent as a request", e.Type)
	}
	if c.stream && !c.greeted.Load() {
		return refuse(codeHandshake, "handshake required: send %s first", methodHandshake)
	}
	if err := h.requireHandshake(ctx, c, who, e.Session); err != nil {
		return err
	}
	h.queueEvent(ctx, who, e)
	return nil
}

// queueEvent queues an event that asks for no decision. It waits for room only if the
// event may not be dropped (AHP-47).
func (h *Harness) queueEvent(ctx context.Context, who roster.Identity, e *Event) {
	n := &notification{
		who: who, session: keyOf(e.Session), typ: e.Type, event: e.Raw, at: h.core.Now().UnixMicro(),
		kept: e.kind.contract,
	}
	h.notes.add(n)
	if e.Type == PostAction {
		h.handOn.End(ctx, who, e.Session, e.asStep())
	}
	if n.kept {
		h.notes.waitForRoom(ctx)
	}
}

// openSession queues the opening of a session that this node has not seen before. It may be queued twice after a
// restart or on two nodes: the writer opens a session only once.
func (h *Harness) openSession(who roster.Identity, key string) {
	if h.notes.firstSeen(who.ID, key) {
		h.notes.add(&notification{who: who, session: key, at: h.core.Now().UnixMicro(), kept: true})
	}
}

// notification waits to be written. Without a type it only opens its session. number is
// the place in the order of arrival, over both queues.
type notification struct {
	who     roster.Identity
	session string
	typ     Type
	event   wire.Raw
	info    wire.Raw
	at      int64
	kept    bool // is never dropped
	number  int64
}

// flushTime is how long Run may take to write what is left when the server stops, and
// flushPause how long it pauses after a write that failed.
const (
	flushTime  = 10 * time.Second
	flushPause = 200 * time.Millisecond // after a write that failed
)

// flush writes until nothing is left or ctx ends. What could not be written is kept and
// tried again; only Run calls it.
func (h *Harness) flush(ctx context.Context) {
	for again := true; ctx.Err() == nil; {
		if again { // while the database is away, what waits stays in the queue, which is bounded
			h.unwritten = append(h.unwritten, groupBySession(h.notes.takeBatch())...)
		}
		if len(h.unwritten) == 0 {
			return
		}
		var err error
		h.unwritten, err = h.writeOrSplit(ctx, h.unwritten)
		if again = err == nil || !isTransient(err); err == nil {
			continue
		}
		h.core.Log.Warn("notifications not written yet; retrying", "error", err.Error())
		select {
		case <-time.After(flushPause):
		case <-ctx.Done():
		}
	}
}

// writeOrSplit writes sessions in one transaction. If that fails for a reason of one of
// them, it writes each by itself, so that one bad session does not hold up the others.
// It returns those that are left.
func (h *Harness) writeOrSplit(ctx context.Context, all []*session) (left []*session, err error) {
	if err = h.writeSessions(ctx, all); err == nil || isTransient(err) || len(all) == 1 {
		if err == nil {
			all = nil
		}
		return all, err
	}
	for _, s := range all {
		if failed := h.writeSessions(ctx, []*session{s}); failed != nil {
			left, err = append(left, s), failed
		}
	}
	if len(left) == 0 {
		err = nil
	}
	return left, err
}

// isTransient reports whether an error is the database's, so that the same write may
// succeed later.
func isTransient(err error) bool {
	switch fault.From(store.Explain(err)).Code {
	case fault.StoreUnavailable, fault.StoreFull, fault.StoreReadOnly, fault.OutcomeUnknown, fault.LedgerMismatch,
		fault.Stopping, fault.Overloaded, fault.Cancelled:
		return true
	default:
		return false
	}
}

// session is what is to be written of one session in one go.
type session struct {
	sessionID
	who             roster.Identity
	info            wire.Raw
	noted, reported []note
	dropped         int64
	bodies          [2]ledger.Body // of noted and reported
}

// groupBySession sorts notifications by session and keeps the order of arrival within
// each. What people see of a session (kind.state) is kept apart from telemetry, because
// telemetry may be erased by ledger.retention and the tables must be rebuilt without
// it.
func groupBySession(all []*notification, dropped map[sessionID]int64) []*session {
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

// writeSessions writes sessions in one transaction. Bodies are encoded once, before the
// transaction: the ledger may run it twice.
func (h *Harness) writeSessions(ctx context.Context, sessions []*session) error {
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
				return fmt.Errorf("encode notifications: %w", err)
			}
			s.bodies[i] = ledger.Body{Value: b, JSON: text}
		}
	}
	return h.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		for _, s := range sessions {
			if err := s.appendEntries(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// appendEntries appends the opening of the session, if it is not open, and its
// notifications.
func (s *session) appendEntries(tx *ledger.Tx) error {
	trace := traceOf(s.agent, s.session)
	put := func(kind string, body any) {
		tx.Append(ledger.Event{
			Workspace: s.who.Workspace, Kind: kind, Actor: s.who.Actor(), Subject: s.session, Trace: trace,
			Body: body,
		})
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
