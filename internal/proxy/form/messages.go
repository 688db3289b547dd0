package form

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// block is a content block of a message, as far as it matters here.
type block struct {
	Type    string   `json:"type"`
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Toolset string   `json:"toolset_name"`
	Input   wire.Raw `json:"input"`
}

// clientRuns reports whether a block asks the client to do something. The provider's own
// tools have run already; what we do not know, and is a use of a tool, we take for one that
// has not.
func (b *block) clientRuns() bool {
	return strings.HasSuffix(b.Type, "tool_use") && b.Type != "server_tool_use" && b.Type != "mcp_tool_use"
}

func (b *block) call(arguments []byte) Call {
	c := Call{ID: b.ID, Kind: b.Type, Tool: b.Name, Toolset: b.Toolset, Arguments: arguments}
	if len(c.Arguments) == 0 {
		c.Arguments = []byte("{}")
	}
	c.check()
	return c
}

type messageUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

// into takes the numbers that are there: those of a stream are sums so far.
func (u *messageUsage) into(to *Usage) {
	for _, n := range [...]struct{ from, into *int64 }{
		{u.Input, &to.Input},
		{u.Output, &to.Output},
		{u.CacheRead, &to.CacheRead},
		{u.CacheWrite, &to.CacheWrite},
	} {
		if n.from != nil && *n.from >= 0 {
			*n.into = *n.from
		}
	}
}

// messages follows a stream of the Messages API.
type messages struct {
	about   Facts
	stopped bool
	started bool
	after   int                // the index after the last block
	moved   bool               // something has changed since sent
	blocks  map[int]*openBlock // those that have begun
	before  struct {           // as the client has it
		started, stopped bool
		next             int
		open             []int
	}
}

type openBlock struct {
	block
	written bytes.Buffer // of the arguments
}

func newMessages() *messages { return &messages{blocks: map[int]*openBlock{}} }

func (m *messages) Facts() Facts { return m.about }
func (m *messages) Whole() bool  { return m.stopped }

// pieceOfText is how most events of a stream begin, as the provider writes them.
var pieceOfText = []byte(`{"type":"content_block_delta",`)

func (m *messages) Next(f Frame) (Step, error) {
	now := m.step(nil)
	if f.Data == nil || !now.Open && bytes.HasPrefix(f.Data, pieceOfText) && !Messages.MayCall(f.Data) && IsWhole(f.Data) {
		return now, nil // it changes nothing
	}
	m.moved = true
	var e struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message *struct {
			ID      string        `json:"id"`
			Model   string        `json:"model"`
			Content []block       `json:"content"`
			Usage   *messageUsage `json:"usage"`
		} `json:"message"`
		Block *block `json:"content_block"`
		Delta struct {
			Type string `json:"type"`
			JSON string `json:"partial_json"`
		} `json:"delta"`
		Usage *messageUsage `json:"usage"`
	}
	if err := wire.UnmarshalPart(f.Data, &e); err != nil {
		return Step{}, fmt.Errorf("an event of the stream is no JSON that can be read: %w", err)
	}
	var calls []Call
	switch e.Type {
	case "message_start":
		m.started = true
		if e.Message != nil {
			m.about.ID, m.about.Model = e.Message.ID, e.Message.Model
			if e.Message.Usage != nil {
				e.Message.Usage.into(&m.about.Usage)
			}
			calls = callsIn(e.Message.Content)
			m.after = len(e.Message.Content)
		}
	case "content_block_start":
		if e.Block == nil {
			return Step{}, fmt.Errorf("a block of the stream begins without being said what it is")
		}
		if before := m.blocks[e.Index]; before != nil {
			calls = before.end(calls)
		}
		m.blocks[e.Index] = &openBlock{block: *e.Block}
		m.after = max(m.after, e.Index+1)
	case "content_block_delta":
		if b := m.blocks[e.Index]; b != nil {
			b.written.WriteString(e.Delta.JSON)
		}
	case "content_block_stop":
		if b := m.blocks[e.Index]; b != nil {
			calls = b.end(calls)
			delete(m.blocks, e.Index)
		}
	case "message_delta":
		if e.Usage != nil {
			e.Usage.into(&m.about.Usage)
		}
	case "message_stop":
		calls = m.endAll()
		m.stopped = true
	case "error":
		m.stopped = true // in the form's own way
		clear(m.blocks)
		return Step{Broken: true}, nil
	}
	return m.step(calls), nil
}

func (m *messages) endAll() (calls []Call) {
	for _, i := range slices.Sorted(maps.Keys(m.blocks)) {
		calls = m.blocks[i].end(calls)
	}
	clear(m.blocks)
	return calls
}

// end completes a block, which is a call or not.
func (b *openBlock) end(calls []Call) []Call {
	if !b.clientRuns() {
		return calls
	}
	arguments := b.written.Bytes()
	given := b.Input
	if len(given) > 0 && string(given) != "{}" && string(given) != "null" {
		if len(arguments) > 0 {
			c := b.call(arguments)
			c.Unclear = "its arguments are given twice"
			return append(calls, c)
		}
		arguments = given
	}
	return append(calls, b.call(arguments))
}

func (m *messages) step(calls []Call) Step {
	s := Step{Calls: calls}
	for _, b := range m.blocks {
		s.Open = s.Open || b.clientRuns()
	}
	return s
}

func (m *messages) Sent() {
	if !m.moved {
		return
	}
	m.moved = false
	m.before.started, m.before.stopped, m.before.next = m.started, m.stopped, m.after
	m.before.open = slices.Sorted(maps.Keys(m.blocks))
}

func (m *messages) Ending(text, model, gateID string) []byte {
	var out []byte
	if !m.before.started {
		out = append(out, event("message_start", Object{"type": "message_start", "message": emptyMessage(model, gateID)})...)
	}
	for _, i := range m.before.open {
		out = append(out, event("content_block_stop", Object{"type": "content_block_stop", "index": i})...)
	}
	i := m.before.next
	for _, e := range []Object{
		{"type": "content_block_start", "index": i, "content_block": Object{"type": "text", "text": ""}},
		{"type": "content_block_delta", "index": i, "delta": Object{"type": "text_delta", "text": text}},
		{"type": "content_block_stop", "index": i},
		{
			"type": "message_delta", "delta": Object{"stop_reason": "end_turn", "stop_sequence": nil},
			"usage": Object{"output_tokens": m.about.Usage.Output}, "gate_id": gateID,
		},
		{"type": "message_stop"},
	} {
		out = append(out, event(e["type"].(string), e)...)
	}
	return out
}

func (m *messages) Failing(kind, message string) []byte {
	return event("error", Object{"type": "error", "error": Object{"type": kind, "message": message}})
}

func emptyMessage(model, gateID string) Object {
	m := Object{
		"id": newReplyID("msg"), "type": "message", "role": "assistant", "model": model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": Object{"input_tokens": 0, "output_tokens": 0},
	}
	if gateID != "" {
		m["gate_id"] = gateID
	}
	return m
}

func messageReply(text, model, gateID string) []byte {
	m := emptyMessage(model, gateID)
	m["content"] = []Object{{"type": "text", "text": text}}
	m["stop_reason"] = "end_turn"
	return JSON(m)
}

// callsIn finds the calls among whole blocks.
func callsIn(content []block) (calls []Call) {
	for i := range content {
		if b := &content[i]; b.clientRuns() {
			calls = append(calls, b.call(b.Input))
		}
	}
	return calls
}

// readMessage reads a message that is no stream.
func readMessage(body []byte) (about Facts, calls []Call, err error) {
	var m struct {
		Type    string        `json:"type"`
		ID      string        `json:"id"`
		Model   string        `json:"model"`
		Content []block       `json:"content"`
		Usage   *messageUsage `json:"usage"`
	}
	if err := wire.UnmarshalPart(body, &m); err != nil {
		return about, nil, err
	}
	about.ID, about.Model = m.ID, m.Model
	if m.Usage != nil {
		m.Usage.into(&about.Usage)
	}
	return about, callsIn(m.Content), nil
}
