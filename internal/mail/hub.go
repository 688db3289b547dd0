package mail

import (
	"context"
	"sync"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
)

// hub knows the sockets of this node, and the senders who want to hear how their message
// fared. It holds no messages.
type hub struct {
	mu        sync.RWMutex
	listeners map[string]map[*listener]struct{} // by the agent's id
	outcomes  map[string]chan string            // by the message's id: how it was delivered
}

// listener is a socket of an agent.
type listener struct {
	agent, key string
	events     chan []byte // frames about messages that the agent has sent
	end        func()      // closes a socket whose agent may not have it any more
}

// maxEvents is how many frames wait for a slow socket; more are dropped, since what they
// tell can be looked up.
const maxEvents = 64

func (h *hub) add(l *listener) (remove func()) {
	l.events = make(chan []byte, maxEvents)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[string]map[*listener]struct{}{}
	}
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

// tell sends a frame to the sockets of an agent.
func (h *hub) tell(agent string, frame []byte) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for l := range h.listeners[agent] {
		select {
		case l.events <- frame:
		default:
		}
	}
}

// drop ends the sockets of an agent.
func (h *hub) drop(agent string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for l := range h.listeners[agent] {
		l.end()
	}
}

// dropKey ends the sockets that were opened with a key.
func (h *hub) dropKey(key string) {
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

// expect makes a place where the delivery of a message is told of.
func (h *hub) expect(id string) (outcome <-chan string, forget func()) {
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

// settle tells of a delivery.
func (h *hub) settle(id, method string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	select {
	case h.outcomes[id] <- method:
	default: // nobody waits
	}
}

// arrival names the agent whose queue an entry puts a message into, "" for none. Who waits
// for it is woken, and looks at the queue.
func (m *Mail) arrival(e *ledger.Entry) string {
	if m.arrivals.Waiting() == 0 {
		return "" // so that nothing is decoded for nobody
	}
	switch e.Kind {
	case kindRouted:
		if b, err := readRouted(e); err == nil && b.Meta.Quarantine == "" {
			return b.Meta.Recipient
		}
	case kindReleased:
		if b, err := ledger.Read[about](e); err == nil {
			return b.Agent
		}
	}
	return ""
}

// seeMessage tells whoever an entry about a message concerns.
func (m *Mail) seeMessage(e *ledger.Entry) error {
	b, err := ledger.Read[about](e)
	if err != nil {
		return err
	}
	switch e.Kind {
	case kindAcked:
		if calledOut(b.Via) {
			m.hub.settle(e.Subject, b.Via)
		}
	case kindFailed:
		m.hub.settle(e.Subject, Failed)
	case kindDelivered:
		if b.Sender != "" {
			m.hub.tell(b.Sender, frame("message.delivered",
				map[string]any{"id": e.Subject, "to": b.To, "delivered_at": amp.Stamp(e.At), "method": b.Via}))
		}
	case kindRead:
		m.hub.tell(b.Sender, frame("message.read", map[string]any{"id": e.Subject, "read_at": amp.Stamp(e.At)}))
	}
	return nil
}

// pushed is a message that was written to a socket for the first time.
type pushed struct {
	workspace, id, trace string
	body                 about
}

// notePushed records what was pushed, many in one write. To lose the last of it in a
// crash is no loss of a message: it stays in the queue until it is acknowledged.
func (m *Mail) notePushed(ctx context.Context) {
	for {
		var batch []pushed
		select {
		case p := <-m.pushed:
			batch = append(batch, p)
		case <-ctx.Done():
			return
		}
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
			m.core.Log.Warn("cannot record which messages were pushed", "count", len(batch), "error", err.Error())
		}
	}
}

// await waits for a message to be delivered, and says how; "" when it is not in time.
func await(ctx context.Context, outcome <-chan string, most time.Duration) string {
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
