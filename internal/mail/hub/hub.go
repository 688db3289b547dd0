// Package hub knows, on one node, which agents have a socket, and which senders wait to learn how their
// message was delivered. It is a switchboard in memory: it holds no messages, stores nothing, and knows
// neither the protocol nor the ledger.
//
// Package mail reports to it what it reads from the ledger, so that every node serves its own sockets and
// senders, whichever node wrote the entry. What the hub forgets costs a wait or a receipt, and no message.
package hub

import (
	"context"
	"sync"
	"time"
)

// Hub holds the sockets of this node, and the senders on this node that wait for the outcome of
// a delivery. It holds no messages: if it forgets something, a sender waits for longer than it
// had to, and nothing is lost. mu guards both maps, and nothing is written to a socket under it.
type Hub struct {
	mu       sync.RWMutex
	sockets  map[string]map[*Socket]struct{} // by the agent's id
	outcomes map[string]chan Outcome         // by the ids of the message and of the delivery that carries it
}

// Socket is one socket of an agent. It is in the hub from its auth frame until it ends.
type Socket struct {
	Agent, Key string      // whose it is, and the id of the key that opened it
	Recheck    func()      // makes the socket check its key again, without blocking
	Events     chan []byte // frames to write, which Add makes: receipts for messages that the agent sent
}

// maxEvents is how many frames wait for a slow socket. Further ones are dropped: they are
// receipts, which are a convenience.
const maxEvents = 64

// Add makes a socket known until remove is called.
func (h *Hub) Add(s *Socket) (remove func()) {
	s.Events = make(chan []byte, maxEvents)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sockets == nil {
		h.sockets = map[string]map[*Socket]struct{}{}
	}
	// An agent may have several sockets, such as one for each of its processes.
	if h.sockets[s.Agent] == nil {
		h.sockets[s.Agent] = map[*Socket]struct{}{}
	}
	h.sockets[s.Agent][s] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.sockets[s.Agent], s)
		if len(h.sockets[s.Agent]) == 0 {
			delete(h.sockets, s.Agent)
		}
	}
}

// Empty reports whether nobody on this node wants to know about deliveries.
func (h *Hub) Empty() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.sockets) == 0 && len(h.outcomes) == 0
}

// Sockets reports whether any agent has a socket here.
func (h *Hub) Sockets() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.sockets) > 0
}

// Connected reports whether the agent has a socket here.
func (h *Hub) Connected(agent string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.sockets[agent]) > 0
}

// Send queues a frame for every socket of an agent, and never waits for a slow one.
func (h *Hub) Send(agent string, frame []byte) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.sockets[agent] {
		select {
		case s.Events <- frame:
		default:
		}
	}
}

// RecheckAgent makes every socket of an agent check its key again.
func (h *Hub) RecheckAgent(agent string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.sockets[agent] {
		s.Recheck()
	}
}

// RecheckKey does the same for the sockets that were opened with one key.
func (h *Hub) RecheckKey(key string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, all := range h.sockets {
		for s := range all {
			if s.Key == key {
				s.Recheck()
			}
		}
	}
}

// Outcome is what became of a delivery: the message arrived, it failed for good, or a try failed and others follow.
type Outcome struct {
	Method string // how it arrived; "" if it did not
	Held   bool   // it arrived at another server, which holds it for a person
	Final  bool   // it failed, and is not tried again
	Reason string // why it did not arrive, in a sentence
}

// Expectation is a sender that waits for the outcome of one message. End must be called.
type Expectation struct {
	hub     *Hub
	outcome chan Outcome // has room for one value, so Report never waits
	ids     []string
}

// Expect begins to wait for the outcome of a message.
func (h *Hub) Expect(id string) *Expectation {
	e := &Expectation{hub: h, outcome: make(chan Outcome, 1)}
	e.Also(id)
	return e
}

// Also waits for what is reported about a further id too, such as that of the delivery that carries the message.
func (e *Expectation) Also(id string) {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	if e.hub.outcomes == nil {
		e.hub.outcomes = map[string]chan Outcome{}
	}
	e.hub.outcomes[id] = e.outcome
	e.ids = append(e.ids, id)
}

// End ends the expectation.
func (e *Expectation) End() {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	for _, id := range e.ids {
		delete(e.hub.outcomes, id)
	}
}

// Report reports the outcome of a message, or of its delivery, to the sender that waits for it, if there is one. The
// first report counts.
func (h *Hub) Report(id string, o Outcome) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	select {
	case h.outcomes[id] <- o:
	default: // nobody waits
	}
}

// Await waits for the outcome, the zero value if there is none in time.
func (e *Expectation) Await(ctx context.Context, most time.Duration) Outcome {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case o := <-e.outcome:
		return o
	case <-timer.C:
	case <-ctx.Done():
	}
	return Outcome{}
}
