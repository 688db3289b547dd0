package harness

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/harness/knowledge"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Protocol is AHP 2.4, for the server's list.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Harness", Migrations: Migrations, Projection: Projection(), Readers: Readers(),
	}
}

// Config is what an operator sets.
type Config struct {
	Timeout   time.Duration // after which clients give up; 10s when zero
	BatchSize int           // 100 when zero
	MaxDepth  int64         // 10 when zero
	// OnFailure is BlockOnFailure or ErrorOnFailure.
	OnFailure string
	// HTTPHandshake says what a POST needs: HandshakeOff, HandshakeCredential or
	// HandshakeSession.
	HTTPHandshake string
	// Handlers are the URLs of external handlers, which answer a type of event.
	Handlers map[Type]string
	// Compat are the transports whose clients are A3S Code.
	Compat map[string]bool
	// SocketAgent is the name of the agent that the Unix socket stands for.
	SocketAgent string
	Version     string // of this program, as handshakes tell it
}

// What the answer is when the policy fails.
const (
	BlockOnFailure = "block"
	ErrorOnFailure = "error"
)

// Which handshake a POST needs.
const (
	HandshakeOff        = "off"
	HandshakeCredential = "credential"
	HandshakeSession    = "session"
)

// The transports, as settings and entries name them.
const (
	TransportHTTP      = "http"
	TransportWebSocket = "websocket"
	TransportSocket    = "socket"
)

// longestTimeout is how long a client waits unless the handshake told it otherwise.
const longestTimeout = 10 * time.Second

// Harness answers the events of agents.
type Harness struct {
	Config
	Knowledge *knowledge.Base

	core  protocol.Core
	notes queue
	// unwritten is what the last write of Run has left.
	unwritten []*session
	calls     *http.Client // to external handlers
	streams   streams
	shaken    shaken

	rejected atomic.Int64 // notifications that were refused
}

// New makes the service over a core whose ledger has Projection. Run writes the notifications of
// agents.
func New(core protocol.Core, c Config) *Harness {
	if c.Timeout == 0 {
		c.Timeout = longestTimeout
	}
	if c.BatchSize == 0 {
		c.BatchSize = 100
	}
	if c.MaxDepth == 0 {
		c.MaxDepth = 10
	}
	if c.SocketAgent == "" {
		c.SocketAgent = "local"
	}
	h := &Harness{Config: c, Knowledge: knowledge.New(core.DB, core.Ledger), core: core, calls: handlerClient()}
	h.notes.init()
	return h
}

// holdTime is how long a call may be held: 80 % of what a client waits.
func (h *Harness) holdTime() time.Duration { return min(h.Config.Timeout, longestTimeout) * 8 / 10 }

// Timers returns none: a call is held for seconds, by its own goroutine.
func (h *Harness) Timers() map[string]clock.Handler { return nil }

// Run writes notifications until ctx ends, and then those that are left.
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
		h.core.Log.Error("agent events lost: write failed", "sessions", len(h.unwritten))
	}
	h.calls.CloseIdleConnections()
	return nil
}

// Stats are counters since the start.
type Stats struct {
	Rejected int64 // notifications that were refused
	Dropped  int64 // telemetry that there was no room for
	Queue    int   // notifications that wait to be written
}

// Stats reads the counters.
func (h *Harness) Stats() Stats {
	h.notes.mu.Lock()
	defer h.notes.mu.Unlock()
	return Stats{
		Rejected: h.rejected.Load(), Dropped: h.notes.lost,
		Queue: len(h.notes.kept.items) + len(h.notes.telemetry.items),
	}
}

// Conn is one client's connection, or one POST.
type Conn struct {
	transport string
	who       func(context.Context) (roster.Identity, error)
	stream    bool // needs a handshake of its own
	compat    bool
	shaken    atomic.Bool
}

func (h *Harness) newConn(transport string, who func(context.Context) (roster.Identity, error)) *Conn {
	return &Conn{transport: transport, who: who, stream: transport != TransportHTTP, compat: h.Config.Compat[transport]}
}

// Reply is what becomes of a message.
type Reply struct {
	JSON []byte // nil for no answer
	// Notified says that it was a notification. A stream does not answer one, even if JSON is set.
	Notified bool
	Broken   bool // it was no JSON
	Busy     bool // refused for now; the client may send it again
}

// Handle answers one message. It is the whole protocol; streams do the same in two steps, to
// answer many messages side by side.
func (h *Harness) Handle(ctx context.Context, c *Conn, text []byte) Reply {
	m, err := parseMessage(text)
	if err != nil {
		return Reply{JSON: errorReply(m.id, err), Broken: err.code == codeParse}
	}
	return h.answerMessage(ctx, c, &m)
}

// answerMessage answers a message that could be read.
func (h *Harness) answerMessage(ctx context.Context, c *Conn, m *message) Reply {
	who, err := c.who(ctx)
	if err != nil {
		return Reply{
			JSON:     errorReply(m.id, refuse(codeUnauthorized, "unauthorized: %s", err.Error())),
			Notified: !m.request(),
		}
	}
	if !m.request() {
		if err := h.takeNotification(ctx, c, who, m); err != nil {
			h.rejected.Add(1)
			h.core.Log.Debug("a notification was refused", "agent", who.Name, "reason", err.message)
			return Reply{JSON: errorReply(nil, err), Notified: true}
		}
		return Reply{Notified: true}
	}
	if later, over := h.refuseOverLimit(c, who, m); over {
		return later
	}
	result, problem := h.answerRequest(ctx, c, who, m)
	if problem != nil {
		return Reply{JSON: errorReply(m.id, problem)}
	}
	return Reply{JSON: resultReply(m.id, result)}
}

// answerRequest answers a request.
func (h *Harness) answerRequest(ctx context.Context, c *Conn, who roster.Identity, m *message) (wire.Raw, *rpcError) {
	switch m.method {
	case methodHandshake:
		return h.answerHandshake(c, who, m.params)
	case methodEvent, methodBatch, methodQuery:
	default:
		return nil, refuse(codeMethod, "Method not found: %.80q. There are %s, %s, %s and %s.", m.method, methodHandshake,
			methodEvent, methodBatch, methodQuery)
	}
	if c.stream && !c.shaken.Load() {
		return nil, refuse(codeHandshake, "handshake required: send %s first", methodHandshake)
	}
	switch m.method {
	case methodEvent:
		return h.decideEvent(ctx, c, who, m)
	case methodBatch:
		return h.decideBatch(ctx, c, who, m.params)
	}
	return h.answerQuery(ctx, c, who, m.params)
}
