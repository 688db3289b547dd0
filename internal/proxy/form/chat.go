package form

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"signalbox/internal/wire"
)

// toolCall is a tool call of a chat, complete or a piece of one. Name and arguments of a piece are
// added to those of the pieces before it.
type toolCall struct {
	Index    *int      `json:"index"`
	ID       string    `json:"id"`
	Type     string    `json:"type"`
	Function *Function `json:"function"`
	Custom   *struct {
		Name  string `json:"name"`
		Input string `json:"input"`
	} `json:"custom"`
}

// Function is a function that a request declares or a reply calls.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// chatMessage is a message of a chat, or a piece of one, without its text.
type chatMessage struct {
	ToolCalls []toolCall `json:"tool_calls"`
	Function  *Function  `json:"function_call"` // the older form, with one call
}

// chat is the Machine of chat completions. Calls arrive in pieces that name their choice and their
// index; all calls of a choice are complete when the choice has a finish_reason, or at [DONE].
type chat struct {
	about    Facts
	created  int64
	ended    bool            // [DONE], or an error
	choices  map[int]*choice // choices that have begun, by index
	before   map[int]bool    // choices that the client has, and whether they have finished there
	beforeID string          // the id of the reply, if the client has it
}

// choice is one of the answers of a completion; most have one.
type choice struct {
	finished bool
	calls    map[int]*Call // that are not complete, by index; -1 is the older form's one call
}

func newChat() *chat { return &chat{choices: map[int]*choice{}} }

func (c *chat) Facts() Facts { return c.about }

// Complete is true after [DONE] or an error, and also if every choice has finished: some servers that
// speak this form send no [DONE].
func (c *chat) Complete() bool {
	if c.ended {
		return true
	}
	for _, one := range c.choices {
		if !one.finished {
			return false
		}
	}
	return len(c.choices) > 0
}

// Next reads one chunk.
func (c *chat) Next(f Frame) (Step, error) {
	if f.Data == nil {
		return c.step(nil), nil
	}
	// The end of the stream completes whatever calls are open, finish_reason or not.
	if string(f.Data) == "[DONE]" {
		c.ended = true
		return c.step(c.finish(nil)), nil
	}
	var e struct {
		ID      string   `json:"id"`
		Model   string   `json:"model"`
		Created int64    `json:"created"`
		Usage   wire.Raw `json:"usage"`
		Tier    wire.Raw `json:"service_tier"`
		Error   wire.Raw `json:"error"`
		Choices []struct {
			Index  int         `json:"index"`
			Delta  chatMessage `json:"delta"`
			Finish *string     `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := wire.UnmarshalPart(f.Data, &e); err != nil {
		return Step{}, fmt.Errorf("cannot read a chunk of the stream as JSON: %w", err)
	}
	// An error instead of a chunk. Calls that have begun will not be completed.
	if len(e.Error) > 0 && string(e.Error) != "null" {
		c.ended = true
		clear(c.choices)
		return Step{Broken: true}, nil
	}
	if e.ID != "" {
		c.about.ID, c.created = e.ID, e.Created
	}
	if e.Model != "" {
		c.about.Model = e.Model
	}
	tier, _ := wire.Text(e.Tier)
	c.about.takeOpenAI(e.Usage, tier)
	c.about.Text += textIn(f.Data)
	// A chunk may finish several choices. Their calls are complete after all pieces were added.
	var done []int
	for _, piece := range e.Choices {
		one := c.choices[piece.Index]
		if one == nil {
			one = &choice{calls: map[int]*Call{}}
			c.choices[piece.Index] = one
		}
		one.add(piece.Delta)
		if piece.Finish != nil {
			one.finished = true
			done = append(done, piece.Index)
		}
	}
	return c.step(c.finish(done)), nil
}

// add adds a piece to the calls of the choice. A piece without an index has that of its place in the
// list.
func (c *choice) add(piece chatMessage) {
	if f := piece.Function; f != nil {
		one := c.at(-1)
		one.Kind = "function_call"
		one.Tool += f.Name
		one.Arguments = append(one.Arguments, f.Arguments...)
	}
	for i, t := range piece.ToolCalls {
		if t.Index != nil {
			i = *t.Index
		}
		t.into(c.at(i))
	}
}

// into adds a piece to a call.
func (t *toolCall) into(one *Call) {
	one.Kind = "tool_calls"
	if t.ID != "" {
		one.ID = t.ID
	}
	if f := t.Function; f != nil {
		one.Tool += f.Name
		one.Arguments = append(one.Arguments, f.Arguments...)
	}
	if t.Custom != nil {
		one.Kind = "custom"
		one.Tool += t.Custom.Name
		one.Arguments = append(one.Arguments, t.Custom.Input...)
	}
}

// at is the call with the index, which begins with it if there is none.
func (c *choice) at(i int) *Call {
	if c.calls[i] == nil {
		c.calls[i] = &Call{}
	}
	return c.calls[i]
}

// finish completes the calls of the choices that are done, or of all if the stream has ended. It
// returns them in the order of choices and indexes.
func (c *chat) finish(done []int) (calls []Call) {
	if c.ended {
		done = slices.Sorted(maps.Keys(c.choices))
	}
	for _, i := range done {
		one := c.choices[i]
		for _, n := range slices.Sorted(maps.Keys(one.calls)) {
			calls = append(calls, one.calls[n].completed())
		}
		clear(one.calls)
	}
	return calls
}

// completed is the call when it is complete. The input of a custom tool is text; rules see it as the
// argument input.
func (c *Call) completed() Call {
	if c.Kind == "custom" {
		c.Arguments = JSON(Object{"input": string(c.Arguments)})
	}
	if len(c.Arguments) == 0 {
		c.Arguments = []byte("{}")
	}
	c.check()
	return *c
}

// step is a Step with these calls, and whether a call is open.
func (c *chat) step(calls []Call) Step {
	s := Step{Calls: calls}
	for _, one := range c.choices {
		s.Open = s.Open || len(one.calls) > 0
	}
	return s
}

// Sent takes over which choices the client has, and how far.
func (c *chat) Sent() {
	c.beforeID = c.about.ID
	c.before = map[int]bool{}
	for i, one := range c.choices {
		c.before[i] = one.finished
	}
}

// Ending adds the text to every choice that the client has and that has not finished, and ends the
// stream.
func (c *chat) Ending(text, model, gateID string) []byte {
	// A stream that has begun keeps its id, model and time; SDKs put chunks together by them.
	id := c.beforeID
	if id == "" {
		id = newReplyID("chatcmpl")
	} else {
		model = c.about.Model
	}
	created := c.created
	if created == 0 {
		created = time.Now().Unix()
	}
	var open []int
	for _, i := range slices.Sorted(maps.Keys(c.before)) {
		if !c.before[i] {
			open = append(open, i)
		}
	}
	if len(c.before) == 0 {
		open = []int{0}
	}
	var out []byte
	for _, i := range open {
		for _, choice := range []Object{
			{"index": i, "delta": Object{"role": "assistant", "content": text}, "finish_reason": nil},
			{"index": i, "delta": Object{}, "finish_reason": "stop"},
		} {
			chunk := Object{
				"id": id, "object": "chat.completion.chunk", "created": created, "model": model,
				"choices": []Object{choice}, "gate_id": gateID,
			}
			out = fmt.Appendf(out, "data: %s\n\n", JSON(chunk))
		}
	}
	return append(out, "data: [DONE]\n\n"...)
}

// Failing is a chunk with an error, on which SDKs raise.
func (c *chat) Failing(kind, message string) []byte {
	return fmt.Appendf(nil, "data: %s\n\n", JSON(Object{"error": OpenAIError(kind, message)}))
}

// completionReply is Form.Message of chat completions.
func completionReply(text, model, gateID string) []byte {
	return JSON(Object{
		"id": newReplyID("chatcmpl"), "object": "chat.completion", "created": time.Now().Unix(), "model": model,
		"gate_id": gateID,
		"choices": []Object{{
			"index": 0, "message": Object{"role": "assistant", "content": text, "refusal": nil},
			"logprobs": nil, "finish_reason": "stop",
		}},
		"usage": Object{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
	})
}

// readCompletion is Form.Reply of chat completions.
func readCompletion(body []byte) (about Facts, calls []Call, err error) {
	var m struct {
		ID      string   `json:"id"`
		Model   string   `json:"model"`
		Usage   wire.Raw `json:"usage"`
		Tier    wire.Raw `json:"service_tier"`
		Choices []struct {
			Message chatMessage `json:"message"`
		} `json:"choices"`
	}
	if err := wire.UnmarshalPart(body, &m); err != nil {
		return about, nil, err
	}
	for _, one := range m.Choices {
		c := &choice{calls: map[int]*Call{}}
		for i := range one.Message.ToolCalls {
			one.Message.ToolCalls[i].Index = &i
		}
		c.add(one.Message)
		for _, n := range slices.Sorted(maps.Keys(c.calls)) {
			calls = append(calls, c.calls[n].completed())
		}
	}
	about = Facts{ID: m.ID, Model: m.Model, Text: int64(len(body))}
	tier, _ := wire.Text(m.Tier)
	about.takeOpenAI(m.Usage, tier)
	return about, calls, nil
}
