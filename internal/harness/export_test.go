package harness

import (
	"bufio"
	"context"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/roster"
)

// NewConn is a connection as a transport makes it.
func (h *Harness) NewConn(transport string, who func(context.Context) (roster.Identity, error)) *Conn {
	return h.newConn(transport, who)
}

// ReadLine is how streams read.
func ReadLine(r *bufio.Reader) ([]byte, error) { return readLine(r) }

// Checks parses a message and, if it is an event, checks its payload too.
func Checks(text []byte) bool {
	m, err := parseMessage(text)
	if err != nil {
		return false
	}
	e, problem := parseEvent(m.params, m.inside)
	if problem != nil {
		return false
	}
	e.policyEvent("")
	e.digest()
	strict := e.kind.payload == nil || e.kind.payload(e.Payload) == nil
	e.adapt()
	return strict
}

// Asked is what rules see of a message.
func (h *Harness) Asked(text []byte) policy.Event {
	m, _ := parseMessage(text)
	e, _ := parseEvent(m.params, m.inside)
	return e.policyEvent("")
}

// StreamsEnded is closed when every stream has ended, with the calls that were under way.
func (h *Harness) StreamsEnded() <-chan struct{} {
	ended := make(chan struct{})
	go func() { h.streams.open.Wait(); close(ended) }()
	return ended
}

// Overloaded is the reply to a message that there is no room for.
func (h *Harness) Overloaded(c *Conn, text []byte) []byte {
	m, _ := parseMessage(text)
	return h.overloadReply(context.Background(), c, roster.Identity{}, &m, "Too many.", time.Second).JSON
}
