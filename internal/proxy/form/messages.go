package form

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// block is a content block of a message, with the fields that matter here.
type block struct {
	Type    string   `json:"type"`
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Toolset string   `json:"toolset_name"`
	Input   wire.Raw `json:"input"`
}

// clientRuns reports whether a block asks the client to do something. server_tool_use and mcp_tool_use
// have run at the provider. A use of a tool of any other kind is taken for one that has not
// (PRX-17).
func (b *block) clientRuns() bool {
	return strings.HasSuffix(b.Type, "tool_use") && b.Type != "server_tool_use" && b.Type != "mcp_tool_use"
}

// call makes a call of a block and its arguments.
func (b *block) call(arguments []byte) Call {
	c := Call{ID: b.ID, Kind: b.Type, Tool: b.Name, Toolset: b.Toolset, Arguments: arguments}
	if len(c.Arguments) == 0 {
		c.Arguments = []byte("{}")
	}
	c.check()
	return c
}

// messages is the Machine of the Messages API. A call is a content block, from content_block_start to
// content_block_stop; its arguments arrive in pieces.
type messages struct {
	about   Facts
	stopped bool
	started bool
	after   int                // the index after the last block
	moved   bool               // something has changed since Sent
	blocks  map[int]*openBlock // blocks that have begun and not ended, by index
	before  struct {           // the same, as far as the client has the stream
		started, stopped bool
		next             int
		open             []int
	}
}

// openBlock is a block that has begun.
type openBlock struct {
	block
	written bytes.Buffer // the arguments so far
}

func newMessages() *messages { return &messages{blocks: map[int]*openBlock{}} }

func (m *messages) Facts() Facts   { return m.about }
func (m *messages) Complete() bool { return m.stopped }

// pieceOfText is how most events of a stream begin, as the provider writes them. Outside of a call such
// an event changes nothing, and need not be decoded if it is complete and has no word of a call.
var pieceOfText = []byte(`{"type":"content_block_delta",`)

// Next reads one event. Events of unknown types change nothing, and are passed on (PRX-10).
func (m *messages) Next(f Frame) (Step, error) {
	now := m.step(nil)
	m.about.Text += textIn(f.Data)
	if f.Data == nil ||
		!now.Open && bytes.HasPrefix(f.Data, pieceOfText) && !Messages.MayCall(f.Data) && IsCompleteObject(f.Data) {
		return now, nil
	}
	m.moved = true
	var e struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message *struct {
			ID      string   `json:"id"`
			Model   string   `json:"model"`
			Content []block  `json:"content"`
			Usage   wire.Raw `json:"usage"`
		} `json:"message"`
		Block *block `json:"content_block"`
		Delta struct {
			Type string `json:"type"`
			JSON string `json:"partial_json"`
		} `json:"delta"`
		Usage wire.Raw `json:"usage"`
	}
	if err := wire.UnmarshalPart(f.Data, &e); err != nil {
		return Step{}, fmt.Errorf("cannot read an event of the stream as JSON: %w", err)
	}
	var calls []Call
	switch e.Type {
	// A message that begins with content would hide calls from the events of blocks.
	case "message_start":
		m.started = true
		if e.Message != nil {
			m.about.ID, m.about.Model = e.Message.ID, e.Message.Model
			m.about.takeMessage(readMessageUsage(e.Message.Usage), false)
			calls = callsIn(e.Message.Content)
			m.after = len(e.Message.Content)
		}
	case "content_block_start":
		if e.Block == nil {
			return Step{}, fmt.Errorf("a content_block_start event has no content_block")
		}
		// A second start with the same index ends the first: what it was must not be forgotten.
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
		m.about.takeMessage(readMessageUsage(e.Usage), true)
	// The end of the message ends every block in it.
	case "message_stop":
		calls = m.endAll()
		m.stopped = true
	case "error":
		m.stopped = true // an error event is a proper end
		clear(m.blocks)
		return Step{Broken: true}, nil
	}
	return m.step(calls), nil
}

// endAll ends all blocks, in order. A provider that omits content_block_stop hides no call by it.
func (m *messages) endAll() (calls []Call) {
	for _, i := range slices.Sorted(maps.Keys(m.blocks)) {
		calls = m.blocks[i].end(calls)
	}
	clear(m.blocks)
	return calls
}

// end adds a block to calls if it is one. Arguments are either complete in the block's start or written
// in pieces; a block with both is unclear, since clients may read either.
func (b *openBlock) end(calls []Call) []Call {
	if !b.clientRuns() {
		return calls
	}
	// Most blocks start with an empty input, and their arguments follow in pieces.
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

// step is a Step with these calls, and whether a call is open.
func (m *messages) step(calls []Call) Step {
	s := Step{Calls: calls}
	for _, b := range m.blocks {
		s.Open = s.Open || b.clientRuns()
	}
	return s
}

// Sent takes over the position, if it has changed: it is called for every piece of text.
func (m *messages) Sent() {
	if !m.moved {
		return
	}
	m.moved = false
	m.before.started, m.before.stopped, m.before.next = m.started, m.stopped, m.after
	m.before.open = slices.Sorted(maps.Keys(m.blocks))
}

// Ending closes the blocks that the client has open, and adds a block with the text.
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

// Failing is an error event, on which SDKs raise.
func (m *messages) Failing(kind, message string) []byte {
	return event("error", Object{"type": "error", "error": Object{"type": kind, "message": message}})
}

// emptyMessage is a message of ours without content. gate_id is a field of ours, which SDKs keep and
// ignore.
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

// messageReply is Form.Message of the Messages API.
func messageReply(text, model, gateID string) []byte {
	m := emptyMessage(model, gateID)
	m["content"] = []Object{{"type": "text", "text": text}}
	m["stop_reason"] = "end_turn"
	return JSON(m)
}

// callsIn finds the calls among complete blocks.
func callsIn(content []block) (calls []Call) {
	for i := range content {
		if b := &content[i]; b.clientRuns() {
			calls = append(calls, b.call(b.Input))
		}
	}
	return calls
}

// message is a reply of the Messages API.
type message struct {
	Type    string   `json:"type"`
	ID      string   `json:"id"`
	Model   string   `json:"model"`
	Content []block  `json:"content"`
	Usage   wire.Raw `json:"usage"`
}

// light reads a message; see light.go.
func (m *message) light(body []byte) bool {
	return EachMember(body, func(name, value []byte) bool {
		switch string(name) {
		case "type":
			return IsText(value, &m.Type)
		case "id":
			return IsText(value, &m.ID)
		case "model":
			return IsText(value, &m.Model)
		case "content":
			return EachItem(value, func(item []byte) bool {
				m.Content = append(m.Content, block{})
				return m.Content[len(m.Content)-1].light(item)
			})
		case "usage":
			m.Usage = value
		}
		return true
	}) && wire.Strict(body)
}

// light reads a block.
func (b *block) light(text []byte) bool {
	return EachMember(text, func(name, value []byte) bool {
		switch string(name) {
		case "type":
			return IsText(value, &b.Type)
		case "id":
			return IsText(value, &b.ID)
		case "name":
			return IsText(value, &b.Name)
		case "toolset_name":
			return IsText(value, &b.Toolset)
		case "input":
			b.Input = value
		}
		return true
	})
}

// readMessage is Form.Reply of the Messages API.
func readMessage(body []byte) (about Facts, calls []Call, err error) {
	var m message
	if !m.light(body) {
		m = message{}
		if err := wire.UnmarshalPart(body, &m); err != nil {
			return about, nil, err
		}
	}
	about.ID, about.Model, about.Text = m.ID, m.Model, int64(len(body))
	about.takeMessage(readMessageUsage(m.Usage), true)
	return about, callsIn(m.Content), nil
}
