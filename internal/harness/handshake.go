package harness

import (
	"context"
	"sync"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// answerHandshake answers ahp/handshake. Streams need one before anything else.
func (h *Harness) answerHandshake(c *Conn, who roster.Identity, params wire.Raw) (wire.Raw, *rpcError) {
	got, err := readParams(params, handshakeParams)
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	if version, _ := wire.Text(got["protocol_version"]); !compatible(version) {
		return nil, refuse(codeVersion, "Unsupported protocol version: %.40s; this harness speaks %s", version, Version)
	}
	c.shaken.Store(true)
	session, _ := wire.Text(got["session_id"])
	h.shaken.add(who.ID, keyOf(session))
	h.notes.add(&notification{
		who: who, session: keyOf(session), info: got["agent_info"], at: h.core.Now().UnixMicro(), kept: true,
	})
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

// capabilities are the types of events and the methods that we answer.
var capabilities = []string{
	"pre_action", "post_action", "pre_prompt", "post_response", "session_start", "session_end", "error", "heartbeat",
	"success",
	"idle", "intent_detection", "context_perception", "memory_recall", "planning", "reasoning", "rate_limit",
	"confirmation",
	"run_lifecycle", "task_list", "verification", "query", "batch",
}

// requireHandshake refuses a POST without a handshake before it, where the configuration asks
// for one.
func (h *Harness) requireHandshake(ctx context.Context, c *Conn, who roster.Identity, session string) *rpcError {
	key := ""
	switch {
	case c.stream || h.Config.HTTPHandshake == HandshakeOff || h.Config.HTTPHandshake == "":
		return nil
	case h.Config.HTTPHandshake == HandshakeSession:
		key = keyOf(session)
		if h.shaken.has(who.ID + " " + key) {
			return nil
		}
	case h.shaken.has(who.ID):
		return nil
	}
	var one int
	if h.core.DB.QueryRow(ctx,
		"SELECT 1 FROM harness_session WHERE agent = $1 AND ($2 = '' OR session = $2) AND greeted = $3 LIMIT 1",
		[]any{who.ID, key, true}, &one) != nil {
		return refuse(codeHandshake, "handshake required: send %s first", methodHandshake)
	}
	h.shaken.add(who.ID, key)
	return nil
}

// shaken remembers in memory which agents and sessions had a handshake. After a restart they
// are looked up in the table of sessions.
type shaken struct {
	mu    sync.Mutex
	known map[string]bool
}

// maxShaken is how many are remembered; when there are more, all are forgotten.
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
