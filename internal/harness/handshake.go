package harness

import (
	"context"
	"sync"

	"signalbox/internal/harness/shape"
	"signalbox/internal/harness/spool"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// answerHandshake answers ahp/handshake, opens the connection for events, and queues
// the opening of the session. It may come again at any time. The ids are noted and bind
// nothing: A3S Code sends events with others (AHP-22).
func (h *Harness) answerHandshake(ctx context.Context, c *Conn, who roster.Identity, params wire.Raw) (wire.Raw,
	*rpcError,
) {
	got, err := readParams(params, shape.HandshakeParams)
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	// AHP-20: a handshake that fails opens nothing.
	if version, _ := wire.Text(got["protocol_version"]); !compatible(version) {
		return nil, refuse(codeVersion, "Unsupported protocol version: %.40s; this harness speaks %s", version, Version)
	}
	c.greeted.Store(true)
	framework := FrameworkOf(got["agent_info"])
	c.a3s.Store(framework == FrameworkA3S)
	h.handshakes.setFramework(who.ID, framework)
	session, _ := wire.Text(got["session_id"])
	h.noteProcess(ctx, c, who, keyOf(session))
	h.handshakes.add(who.ID, keyOf(session))
	h.notes.add(&notification{
		who: who, session: keyOf(session), info: got["agent_info"], at: h.core.Now().UnixMicro(), kept: true,
	})
	var offline *spool.Greeting
	if got["spool"] != nil { // an extension: the client keeps what it does while we are away
		if offline, err = h.spools.Greet(ctx, who, got["spool"]); err != nil {
			return nil, refuse(codeHandler, "Handler error: %s", err.Error())
		}
	}
	result, err := wire.Marshal(greeting{
		Version: Version, Spool: offline,
		Info:   info{Name: "signalbox", Version: h.Config.Version, Capabilities: capabilities},
		Config: limits{h.Config.Timeout.Milliseconds(), h.Config.BatchSize, h.Config.MaxDepth},
	})
	if err != nil {
		return nil, refuse(codeHandler, "Handler error: %s", err.Error())
	}
	return result, nil
}

// greeting is the result of a handshake, with the limits that we enforce. There is no
// session_token: the reference client ignores it.
type (
	greeting struct {
		Version string `json:"protocol_version"`
		Info    info   `json:"harness_info"`
		Config  limits `json:"config"`

		Spool *spool.Greeting `json:"spool,omitzero"`
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

// capabilities are the types of events and the methods that we answer. They are free
// strings in AHP.
var capabilities = []string{
	"pre_action", "post_action", "pre_prompt", "post_response", "session_start", "session_end", "error", "heartbeat",
	"success",
	"idle", "intent_detection", "context_perception", "memory_recall", "planning", "reasoning", "rate_limit",
	"confirmation",
	"run_lifecycle", "task_list", "verification", "query", "batch",
}

// requireHandshake refuses a POST that had no handshake before it, if the configuration
// asks for one (AHP-21), and notes which process asks. Streams are checked elsewhere, by their own connection. A
// handshake is looked for in memory first and then in the table of sessions, where
// restarts and other nodes have left theirs.
func (h *Harness) requireHandshake(ctx context.Context, c *Conn, who roster.Identity, session string) *rpcError {
	h.noteProcess(ctx, c, who, keyOf(session))
	key := ""
	switch {
	case c.stream || h.Config.HTTPHandshake == HandshakeOff || h.Config.HTTPHandshake == "":
		return nil
	case h.Config.HTTPHandshake == HandshakeSession:
		key = keyOf(session)
		if h.handshakes.has(who.ID + " " + key) {
			return nil
		}
	case h.handshakes.has(who.ID):
		return nil
	}
	var one int
	if h.core.DB.QueryRow(ctx,
		"SELECT 1 FROM harness_session WHERE agent = $1 AND ($2 = '' OR session = $2) AND greeted = $3 LIMIT 1",
		[]any{who.ID, key, true}, &one) != nil {
		return refuse(codeHandshake, "handshake required: send %s first", methodHandshake)
	}
	h.handshakes.add(who.ID, key)
	return nil
}

// handshakes is a cache of which agents and sessions had a handshake. It can only answer
// yes: what it does not know is looked up in the table of sessions.
type handshakes struct {
	mu        sync.Mutex
	known     map[string]bool
	framework map[string]string // by agent, what its last handshake says
}

// maxHandshakes bounds the cache. When it is full everything is forgotten, which costs
// lookups and nothing else.
const maxHandshakes = 100_000

// add remembers a handshake of the agent, and of one of its sessions.
func (s *handshakes) add(agent, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxHandshakes {
		s.known = map[string]bool{}
	}
	s.known[agent], s.known[agent+" "+session] = true, true
}

// setFramework remembers what an agent calls itself.
func (s *handshakes) setFramework(agent, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.framework == nil || len(s.framework) >= maxHandshakes {
		s.framework = map[string]string{}
	}
	s.framework[agent] = name
}

// has reports whether an agent ("id") or a session ("id session") is known.
func (s *handshakes) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name]
}
