package harness

import (
	"context"
	"net/http"
	"sync"
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
	return protocol.Protocol{Name: Name, Label: "Harness", Migrations: Migrations, Projection: Projection(), Readers: Readers()}
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
	// Handlers are the addresses of those who answer a type of event in place of us.
	Handlers map[Type]string
	// Compat are the listeners that take what A3S Code sends, by their transport.
	Compat map[string]bool
	// SocketAgent is the name of the agent that the Unix socket stands for.
	SocketAgent string
	Version     string // of this program, as handshakes tell it
}

// What a failing policy is answered with.
const (
	BlockOnFailure = "block"
	ErrorOnFailure = "error"
)

// What a POST needs before it.
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

// longestTimeout is how long a client waits that was told nothing.
const longestTimeout = 10 * time.Second

// Harness answers the events of agents.
type Harness struct {
	Config
	Knowledge *knowledge.Base

	core  protocol.Core
	notes queue
	// unwritten is what Run could not write yet.
	unwritten []*session
	calls     *http.Client // to external handlers
	streams   streams
	shaken    shaken

	rejected atomic.Int64 // notifications that were refused
}

// New makes the service over a core whose ledger has Projection. While Run is running, what
// agents tell is written down.
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

// Timers are none: a call is held for seconds, by its own goroutine.
func (h *Harness) Timers() map[string]clock.Handler { return nil }

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
	return Stats{Rejected: h.rejected.Load(), Dropped: h.notes.lost, Queue: len(h.notes.kept.items) + len(h.notes.telemetry.items)}
}

// hold is how long a call may be held: 80 % of what a client waits.
func (h *Harness) hold() time.Duration { return min(h.Config.Timeout, longestTimeout) * 8 / 10 }

// Conn is one client's connection, or one POST.
type Conn struct {
	transport string
	who       func(context.Context) (roster.Identity, error)
	stream    bool // needs a handshake of its own
	compat    bool
	shaken    atomic.Bool
}

func (h *Harness) conn(transport string, who func(context.Context) (roster.Identity, error)) *Conn {
	return &Conn{transport: transport, who: who, stream: transport != TransportHTTP, compat: h.Config.Compat[transport]}
}

// Reply is what becomes of a message.
type Reply struct {
	JSON []byte // nil when nothing is said
	// Told says that it was a notification: a stream says nothing to it, whatever JSON is.
	Told   bool
	Broken bool // it was no JSON
	Busy   bool // it was not taken, and may be later
}

// Handle answers one message. It is the whole protocol; streams take it apart, to answer
// many side by side.
func (h *Harness) Handle(ctx context.Context, c *Conn, text []byte) Reply {
	m, err := parseMessage(text)
	if err != nil {
		return Reply{JSON: errorReply(m.id, err), Broken: err.code == codeParse}
	}
	return h.answer(ctx, c, &m)
}

// answer answers a message that could be read.
func (h *Harness) answer(ctx context.Context, c *Conn, m *message) Reply {
	who, err := c.who(ctx)
	if err != nil {
		return Reply{JSON: errorReply(m.id, refuse(codeUnauthorized, "unauthorized: %s", err.Error())), Told: !m.request()}
	}
	if !m.request() {
		if err := h.told(ctx, c, who, m); err != nil {
			h.rejected.Add(1)
			h.core.Log.Debug("a notification was refused", "agent", who.Name, "reason", err.message)
			return Reply{JSON: errorReply(nil, err), Told: true}
		}
		return Reply{Told: true}
	}
	if later, over := h.limited(c, who, m); over {
		return later
	}
	result, problem := h.call(ctx, c, who, m)
	if problem != nil {
		return Reply{JSON: errorReply(m.id, problem)}
	}
	return Reply{JSON: resultReply(m.id, result)}
}

// call answers a request.
func (h *Harness) call(ctx context.Context, c *Conn, who roster.Identity, m *message) (wire.Raw, *rpcError) {
	switch m.method {
	case methodHandshake:
		return h.handshake(c, who, m.params)
	case methodEvent, methodBatch, methodQuery:
	default:
		return nil, refuse(codeMethod, "Method not found: %.80q. There are %s, %s, %s and %s.", m.method, methodHandshake, methodEvent, methodBatch, methodQuery)
	}
	if c.stream && !c.shaken.Load() {
		return nil, refuse(codeHandshake, "handshake required: send %s first", methodHandshake)
	}
	switch m.method {
	case methodEvent:
		return h.event(ctx, c, who, m)
	case methodBatch:
		return h.batch(ctx, c, who, m.params)
	}
	return h.query(ctx, c, who, m.params)
}

// handshake opens a connection for what follows.
func (h *Harness) handshake(c *Conn, who roster.Identity, params wire.Raw) (wire.Raw, *rpcError) {
	if params.Kind() != '{' {
		return nil, refuse(codeParams, "Invalid params: they should be an object, and are %s", shown(params))
	}
	got, err := wire.Members(params)
	if err == nil {
		err = fits(got, handshakeParams)
	}
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	if version, _ := wire.Text(got["protocol_version"]); !compatible(version) {
		return nil, refuse(codeVersion, "Unsupported protocol version: %.40s; this harness speaks %s", version, Version)
	}
	c.shaken.Store(true)
	session, _ := wire.Text(got["session_id"])
	h.shaken.add(who.ID, keyOf(session))
	h.notes.add(&told{who: who, session: keyOf(session), info: got["agent_info"], at: h.core.Now().UnixMicro(), kept: true})
	result, err := wire.Marshal(greeting{
		Version: Version,
		Info:    info{Name: "signalbox", Version: h.Config.Version, Capabilities: capabilities},
		Config:  limits{h.Config.Timeout.Milliseconds(), h.Config.BatchSize, h.Config.MaxDepth},
	})
	if err != nil {
		return nil, refuse(codeHandler, "Handler error: %s", err.Error())
	}
	return result, nil
}

type (
	greeting struct {
		Version string `json:"protocol_version"`
		Info    info   `json:"harness_info"`
		Config  limits `json:"config"`
	}
	info struct {
		Name         string   `json:"name"`
		Version      string   `json:"version"`
		Capabilities []string `json:"capabilities"`
	}
	limits struct {
		TimeoutMS int64 `json:"timeout_ms"`
		BatchSize int   `json:"batch_size"`
		MaxDepth  int64 `json:"max_depth"`
	}
)

// capabilities is everything there is.
var capabilities = []string{
	"pre_action", "post_action", "pre_prompt", "post_response", "session_start", "session_end", "error", "heartbeat", "success",
	"idle", "intent_detection", "context_perception", "memory_recall", "planning", "reasoning", "rate_limit", "confirmation",
	"run_lifecycle", "task_list", "verification", "query", "batch",
}

// shaken remembers who has shaken hands, for those who ask for that of POSTs. What is not
// in memory, as after a restart, is looked up in the sessions that handshakes opened.
type shaken struct {
	mu    sync.Mutex
	known map[string]bool
}

// maxShaken bounds the memory; a full one starts anew.
const maxShaken = 100_000

func (s *shaken) add(agent, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxShaken {
		s.known = map[string]bool{}
	}
	s.known[agent], s.known[agent+" "+session] = true, true
}

func (s *shaken) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name]
}
