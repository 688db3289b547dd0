package harness

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/harness/external"
	"signalbox/internal/harness/handon"
	"signalbox/internal/harness/knowledge"
	"signalbox/internal/harness/spool"
	"signalbox/internal/proc"
	"signalbox/internal/protocol"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Protocol is AHP 2.4, for the server's list.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Harness", Migrations: Migrations, Projection: Projection(), Readers: Readers(),
		Said: slices.Concat([]string{kindSettled, kindOpened, kindNoted, kindReported}, stepKinds, spool.Said()),
	}
}

// Config is what an operator sets, under harness.* in the configuration. New fills in
// the defaults. It does not change after New.
type Config struct {
	Timeout   time.Duration // how long clients wait for an answer; 10s when zero
	BatchSize int           // 100 when zero
	MaxDepth  int64         // 10 when zero
	// OnFailure is what a client hears when the policy cannot be evaluated. Empty means
	// BlockOnFailure: clients that fail open would read an error as permission (AHP-35).
	OnFailure string
	// HTTPHandshake says which handshake a POST needs: HandshakeOff, HandshakeCredential or
	// HandshakeSession. Streams always need one (AHP-20, AHP-21).
	HTTPHandshake string
	// Handlers are the URLs of external handlers by the type of event that they answer.
	// They are asked after the policy has allowed an event, so they can refuse and never
	// permit more (AHP-52).
	Handlers map[Type]string
	// Compat are the transports all of whose clients are A3S Code (AHP-53).
	Compat map[string]bool
	// SocketAgent is the name of the agent that every connection to the Unix socket acts
	// as.
	SocketAgent string
	// Shared says that users whom the folder of the Unix socket lets in may connect too. Each acts as an
	// agent of its own: SocketAgent, a hyphen and the user's number.
	Shared  bool
	Version string // of this program, as handshakes tell it
}

// Values of Config.OnFailure.
const (
	BlockOnFailure = "block"
	ErrorOnFailure = "error"
)

// Values of Config.HTTPHandshake: none, one for each key, or one for each session.
const (
	HandshakeOff        = "off"
	HandshakeCredential = "credential"
	HandshakeSession    = "session"
)

// The transports, as settings and entries name them. `harness stdio` arrives as one of
// the last two.
const (
	TransportHTTP      = "http"
	TransportWebSocket = "websocket"
	TransportSocket    = "socket"
)

// longestTimeout is how long the reference client waits for any answer. A longer
// harness.timeout is announced in handshakes, but a call is not held for longer than
// this: the client may not read it.
const longestTimeout = 10 * time.Second

// Harness answers the events of agents, over every transport. The server makes one, and
// calls Run beside the listeners; it is safe for use by many goroutines. It keeps no
// decision in memory: what a restart loses are queued notifications and the cache of
// handshakes.
type Harness struct {
	Config
	Knowledge *knowledge.Base

	core   protocol.Core
	spools *spool.Spools
	handOn *handon.Desk
	notes  queue
	// unwritten are the sessions that the last write of Run could not write. Only Run uses
	// it.
	unwritten  []*session
	calls      *http.Client // to external handlers
	streams    streams
	handshakes handshakes

	rejected atomic.Int64 // notifications that were refused
}

// New makes the service over a core whose ledger has Projection. Nothing runs until Run
// is called, but events are answered from now on.
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
	h := &Harness{Config: c, Knowledge: knowledge.New(core.DB, core.Ledger), core: core, calls: external.Client()}
	h.spools, h.handOn = spool.New(core, Name), handon.New(core)
	core.Gates.ProveApprovals(Name, readApproval)
	h.notes.init()
	return h
}

// holdTime is how long one call may take, held by a gate or not: 80 % of the time that
// a client waits (AHP-34). The rest is for the commit and for the way back.
func (h *Harness) holdTime() time.Duration { return min(h.Config.Timeout, longestTimeout) * 8 / 10 }

// Timers returns no timers: a call is held for seconds, by the goroutine that answers
// it.
func (h *Harness) Timers() map[string]clock.Handler { return nil }

// Run writes notifications until ctx ends. Then it waits for the open streams, since
// they may still queue something, and writes what is left within flushTime.
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

// Stats are counters since the start of this process, for /metrics.
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

// Conn is one connection of a client, or one POST. A transport makes it and passes it
// to Handle with each message. It lives as long as the connection; its state is only
// whether there was a handshake.
type Conn struct {
	transport string
	// who tells the identity behind the connection. It is asked again for every message, so
	// that a revoked key and a suspended agent are noticed (AHP-9).
	who     func(context.Context) (roster.Identity, error)
	stream  bool // needs a handshake of its own
	compat  bool // every client here is A3S Code
	greeted atomic.Bool
	a3s     atomic.Bool // the handshake says so
	// peer is the process at the other end of a Unix socket, and spoke says that it is known whose it is.
	peer  proc.Peer
	spoke atomic.Bool
}

// noteProcess tells the wall which process speaks for an agent, once for a connection: what it starts
// must not decide about it.
func (h *Harness) noteProcess(ctx context.Context, c *Conn, who roster.Identity, session string) {
	switch {
	case c.spoke.Swap(true):
	case c.transport == TransportSocket:
		h.core.Kin.Speaks(ctx, c.peer, who, session)
	default:
		h.core.Kin.SpeaksHTTP(ctx, who, session)
	}
}

// newConn makes the state of a connection over a transport.
func (h *Harness) newConn(transport string, who func(context.Context) (roster.Identity, error)) *Conn {
	return &Conn{transport: transport, who: who, stream: transport != TransportHTTP, compat: h.Config.Compat[transport]}
}

// Outcome is what a transport does about a message: which text it sends back, if any.
type Outcome struct {
	JSON []byte // nil for no answer
	// Notified says that it was a notification. A stream does not answer one, even if JSON is set.
	Notified bool
	Broken   bool // it was no JSON
	Busy     bool // refused for now; the client may send it again
}

// Handle answers one message. It is the whole protocol for one message at a time.
// Streams do the same in two steps, parseMessage and answerMessage, to answer many
// messages side by side.
func (h *Harness) Handle(ctx context.Context, c *Conn, text []byte) Outcome {
	m, err := parseMessage(text)
	if err != nil {
		return h.refuseText(ctx, c, h.agentOf(ctx, c), &m, text, err)
	}
	return h.answerMessage(ctx, c, &m)
}

// agentOf is the id of the agent behind a connection, "" if it cannot be known.
func (h *Harness) agentOf(ctx context.Context, c *Conn) string {
	who, err := c.who(ctx)
	if err != nil {
		return ""
	}
	return who.ID
}

// answerMessage answers a message that could be parsed. Identity comes first, then the
// rate limit, then the method. A notification is not limited: it costs no decision, and
// its queue is bounded.
func (h *Harness) answerMessage(ctx context.Context, c *Conn, m *message) Outcome {
	who, err := c.who(ctx)
	if err != nil {
		refusal.Note(ctx, err)
		out := h.refuseRequest(ctx, c, "", m, refuse(codeUnauthorized, "unauthorized: %s", err.Error()))
		out.Notified = !m.request()
		return out
	}
	if !m.request() {
		if err := h.takeNotification(ctx, c, who, m); err != nil {
			h.rejected.Add(1)
			h.core.Log.Debug("notification refused", "agent", who.Name, "reason", err.message)
			return Outcome{JSON: errorReply(nil, err), Notified: true}
		}
		return Outcome{Notified: true}
	}
	if later, over := h.refuseOverLimit(ctx, c, who, m); over {
		return later
	}
	result, problem := h.answerRequest(ctx, c, who, m)
	if problem != nil {
		return h.refuseRequest(ctx, c, who.ID, m, problem)
	}
	return Outcome{JSON: resultReply(m.id, result)}
}

// answerRequest dispatches a request by its method.
func (h *Harness) answerRequest(ctx context.Context, c *Conn, who roster.Identity, m *message) (wire.Raw, *rpcError) {
	switch m.method {
	case methodHandshake:
		return h.answerHandshake(ctx, c, who, m.params)
	case methodEvent, methodBatch, methodQuery:
	default:
		return nil, refuse(codeMethod, "Method not found: %.80q. There are %s, %s, %s and %s.", m.method, methodHandshake,
			methodEvent, methodBatch, methodQuery)
	}
	// AHP-20: the reference server has no such check, since it keeps no state. On a stream
	// it costs nothing, and a client that skips the handshake also skips the check of
	// versions.
	if c.stream && !c.greeted.Load() {
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
