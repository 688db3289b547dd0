package harness

import (
	"context"
	"sync"
)

const (
	// maxTelemetry and maxTelemetryBytes bound the telemetry that waits. Beyond, the oldest
	// is dropped: the newest says most about what an agent is doing (AHP-47).
	maxTelemetry      = 50_000
	maxTelemetryBytes = 64 << 20
	// maxKept and maxKeptBytes bound what is never dropped. Beyond, senders wait (AHP-47).
	maxKept      = 200_000
	maxKeptBytes = 256 << 20
	// maxFlush and maxFlushBytes bound one write, so that decisions do not wait behind it
	// in the ledger.
	maxFlush      = 5_000
	maxFlushBytes = 1 << 20
	maxKnown      = 50_000 // sessions
)

// queue holds notifications until Run writes them. mu guards all fields but the
// channels. kick has room for one signal; drained is closed and replaced under mu, so
// whoever has read it under mu misses none.
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

// sessionID names a session: the id of the agent and the key of its session.
type sessionID struct{ agent, session string }

// fifo is a list, first in first out, that knows how many bytes its events have.
type fifo struct {
	items []*notification
	bytes int
}

// push adds at the end.
func (f *fifo) push(n *notification) {
	f.items = append(f.items, n)
	f.bytes += len(n.event)
}

// pop takes the oldest. The list must not be empty.
func (f *fifo) pop() *notification {
	n := f.items[0]
	f.items[0] = nil
	f.items = f.items[1:]
	f.bytes -= len(n.event)
	return n
}

// init makes the maps and channels. It is called once, before any other method.
func (q *queue) init() {
	q.kick, q.drained = make(chan struct{}, 1), make(chan struct{})
	q.dropped, q.known = map[sessionID]int64{}, map[sessionID]bool{}
}

// add queues a notification and never waits. Telemetry beyond the bounds pushes the
// oldest out, which is counted for its session.
func (q *queue) add(n *notification) {
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

// waitForRoom waits while more is queued of what is never dropped than there is room
// for. The sender's own notification is queued already, so the bound is passed by one
// per sender.
func (q *queue) waitForRoom(ctx context.Context) {
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

// firstSeen reports whether this node sees a session for the first time, and remembers
// it.
func (q *queue) firstSeen(agent, session string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := sessionID{agent, session}
	if q.known[name] {
		return false
	}
	if len(q.known) >= maxKnown {
		clear(q.known) // the writer checks whether a session is open
	}
	q.known[name] = true
	return true
}

// takeBatch takes what goes into one write, in the order of arrival over both queues,
// with how many notifications of these sessions were dropped. The counts of other
// sessions stay until they have an entry to be told in.
func (q *queue) takeBatch() (all []*notification, dropped map[sessionID]int64) {
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
