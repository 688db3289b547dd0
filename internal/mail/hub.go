package mail

import (
	"context"
	"sync"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
)

// hub holds the sockets of this node, and the senders on this node that wait for the outcome of
// a delivery. It holds no messages: if it forgets something, a sender waits for longer than it
// had to, and nothing is lost. mu guards both maps, and nothing is written to a socket under it.
type hub struct {
	mu        sync.RWMutex
	listeners map[string]map[*listener]struct{} // by the agent's id
	outcomes  map[string]chan string            // by the message's id: the method, or Failed
}

// listener is one socket of an agent. It is in the hub from its auth frame until it ends.
type listener struct {
	agent, key string
	events     chan []byte // frames about messages that the agent has sent
	end        func()      // makes the socket check its key again, without blocking
}

// maxEvents is how many frames wait for a slow socket. Further ones are dropped: they are
// receipts, which are a convenience.
const maxEvents = 64

// add makes a socket known until remove is called.
func (h *hub) add(l *listener) (remove func()) {
	l.events = make(chan []byte, maxEvents)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[string]map[*listener]struct{}{}
	}
	// An agent may have several sockets, such as one for each of its processes.
	if h.listeners[l.agent] == nil {
		h.listeners[l.agent] = map[*listener]struct{}{}
	}
	h.listeners[l.agent][l] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners[l.agent], l)
		if len(h.listeners[l.agent]) == 0 {
			delete(h.listeners, l.agent)
		}
	}
}

// empty reports whether nobody on this node wants to know about deliveries.
func (h *hub) empty() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.listeners) == 0 && len(h.outcomes) == 0
}

// connected reports whether the agent has a socket here.
func (h *hub) connected(agent string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.listeners[agent]) > 0
}

// sendEvent queues a frame for every socket of an agent, and never waits for a slow one.
func (h *hub) sendEvent(agent string, frame []byte) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for l := range h.listeners[agent] {
		select {
		case l.events <- frame:
		default:
		}
	}
}

// recheckAgent makes every socket of an agent check its key again.
func (h *hub) recheckAgent(agent string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for l := range h.listeners[agent] {
		l.end()
	}
}

// recheckKey does the same for the sockets that were opened with one key.
func (h *hub) recheckKey(key string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, all := range h.listeners {
		for l := range all {
			if l.key == key {
				l.end()
			}
		}
	}
}

// expectOutcome returns a channel for the outcome of a message. It has room for one value, so reportOutcome
// never waits. forget must be called.
func (h *hub) expectOutcome(id string) (outcome <-chan string, forget func()) {
	c := make(chan string, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outcomes == nil {
		h.outcomes = map[string]chan string{}
	}
	h.outcomes[id] = c
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.outcomes, id)
	}
}

// reportOutcome reports the outcome of a message to the sender that waits for it, if there is one.
func (h *hub) reportOutcome(id, method string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	select {
	case h.outcomes[id] <- method:
	default: // nobody waits
	}
}

// recipientOf is the id of the agent whose queue an entry puts a message into, "" for none. The
// ledger calls it for every entry and wakes the waiters of that agent, which read the queue.
func (m *Mail) recipientOf(e *ledger.Entry) string {
	if m.arrivals.Waiting() == 0 {
		return "" // spare the decoding
	}
	switch e.Kind {
	case kindRouted:
		if b, err := readRouted(e); err == nil && b.Meta.Quarantine == "" {
			return b.Meta.Recipient
		}
	case kindReleased:
		if b, err := ledger.Read[transition](e); err == nil {
			return b.Agent
		}
	}
	return ""
}

// reportMessage reports what happened to a message to the sender that waits for it, and sends
// receipts to the sender's sockets. Every node does it for its own.
func (m *Mail) reportMessage(e *ledger.Entry) error {
	b, err := ledger.Read[transition](e)
	if err != nil {
		return err
	}
	switch e.Kind {
	// An acknowledgement by poll or socket is no delivery of ours that a sender would wait for.
	case kindAcked:
		if calledOut(b.Via) {
			m.hub.reportOutcome(e.Subject, b.Via)
		}
	case kindFailed:
		m.hub.reportOutcome(e.Subject, Failed)
	// Receipts are for senders that asked for one with options.receipt; Sender is empty otherwise.
	case kindDelivered:
		if b.Sender != "" {
			m.hub.sendEvent(b.Sender, frame("message.delivered",
				map[string]any{"id": e.Subject, "to": b.To, "delivered_at": amp.Stamp(e.At), "method": b.Via}))
		}
	case kindRead:
		m.hub.sendEvent(b.Sender, frame("message.read", map[string]any{"id": e.Subject, "read_at": amp.Stamp(e.At)}))
	}
	return nil
}

// pushed is a message that was written to a socket for the first time, to be recorded.
type pushed struct {
	workspace, id, trace string
	body                 transition
}

// recordPushes records pushes as message.delivered, up to 256 in one write, until ctx ends. A
// crash loses the last records and no message: those are in the queue until acknowledged, and
// are pushed again (MSG-61).
func (m *Mail) recordPushes(ctx context.Context) {
	for {
		var batch []pushed
		select {
		case p := <-m.pushed:
			batch = append(batch, p)
		case <-ctx.Done():
			return
		}
		// This is the only reader of the channel, so a length above 0 means that a receive does not block.
		for len(batch) < 256 && len(m.pushed) > 0 {
			batch = append(batch, <-m.pushed)
		}
		err := m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			for _, p := range batch {
				tx.Append(ledger.Event{
					Workspace: p.workspace, Kind: kindDelivered, Actor: "system", Subject: p.id, Trace: p.trace,
					Body: p.body,
				})
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			m.core.Log.Warn("push records lost: write failed", "count", len(batch), "error", err.Error())
		}
	}
}

// awaitOutcome waits for the outcome of a message: its method, Failed, or "" if there is none in time.
func awaitOutcome(ctx context.Context, outcome <-chan string, most time.Duration) string {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case method := <-outcome:
		return method
	case <-timer.C:
	case <-ctx.Done():
	}
	return ""
}
