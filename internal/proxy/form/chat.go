package form

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"signalbox/internal/wire"
)

// toolCall is a tool call of a chat, whole or a piece of one.
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

// Function is a function that is declared, or called.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// said is a message of a chat, or a piece of one.
type said struct {
	ToolCalls []toolCall `json:"tool_calls"`
	Function  *Function  `json:"function_call"` // the form before tool calls
}

type chatUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// usage counts cached tokens apart from the others.
func (u chatUsage) usage() Usage { return split(u.Prompt, u.Completion, u.Details.Cached) }

func split(input, output, cached int64) Usage {
	cached = max(0, min(cached, input))
	return Usage{Input: max(0, input-cached), Output: max(0, output), CacheRead: cached}
}

// chat follows a stream of chat completions. The calls of a choice are whole when the
// choice has finished.
type chat struct {
	about    Facts
	created  int64
	ended    bool            // [DONE], or an error
	choices  map[int]*choice // that have begun
	before   map[int]bool    // choices that the client has seen, and whether they have finished
	beforeID string
}

type choice struct {
	finished bool
	calls    map[int]*Call // by index; -1 is the form before tool calls
}

func newChat() *chat { return &chat{choices: map[int]*choice{}} }

func (c *chat) Facts() Facts { return c.about }

func (c *chat) Whole() bool {
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

func (c *chat) Next(f Frame) (Step, error) {
	if f.Data == nil {
		return c.step(nil), nil
	}
	if string(f.Data) == "[DONE]" {
		c.ended = true
		return c.step(c.finish(nil)), nil
	}
	var e struct {
		ID      string     `json:"id"`
		Model   string     `json:"model"`
		Created int64      `json:"created"`
		Usage   *chatUsage `json:"usage"`
		Error   wire.Raw   `json:"error"`
		Choices []struct {
			Index  int     `json:"index"`
			Delta  said    `json:"delta"`
			Finish *string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := wire.UnmarshalPart(f.Data, &e); err != nil {
		return Step{}, fmt.Errorf("a chunk of the stream is no JSON that can be read: %w", err)
	}
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
	if e.Usage != nil {
		c.about.Usage = e.Usage.usage()
	}
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

// add puts a piece to what there is of the calls.
func (c *choice) add(piece said) {
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

func (c *choice) at(i int) *Call {
	if c.calls[i] == nil {
		c.calls[i] = &Call{}
	}
	return c.calls[i]
}

// finish completes the calls of choices, of all of them when none are named.
func (c *chat) finish(done []int) (calls []Call) {
	if c.ended {
		done = slices.Sorted(maps.Keys(c.choices))
	}
	for _, i := range done {
		one := c.choices[i]
		for _, n := range slices.Sorted(maps.Keys(one.calls)) {
			calls = append(calls, one.calls[n].settled())
		}
		clear(one.calls)
	}
	return calls
}

// settled is a call that is whole. A custom tool takes text.
func (c *Call) settled() Call {
	if c.Kind == "custom" {
		c.Arguments = JSON(Object{"input": string(c.Arguments)})
	}
	if len(c.Arguments) == 0 {
		c.Arguments = []byte("{}")
	}
	c.check()
	return *c
}

func (c *chat) step(calls []Call) Step {
	s := Step{Calls: calls}
	for _, one := range c.choices {
		s.Open = s.Open || len(one.calls) > 0
	}
	return s
}

func (c *chat) Sent() {
	c.beforeID = c.about.ID
	c.before = map[int]bool{}
	for i, one := range c.choices {
		c.before[i] = one.finished
	}
}

func (c *chat) Ending(text, model, gateID string) []byte {
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

func (c *chat) Failing(kind, message string) []byte {
	return fmt.Appendf(nil, "data: %s\n\n", JSON(Object{"error": OpenAIError(kind, message)}))
}

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

// readCompletion reads a completion that is no stream.
func readCompletion(body []byte) (about Facts, calls []Call, err error) {
	var m struct {
		ID      string    `json:"id"`
		Model   string    `json:"model"`
		Usage   chatUsage `json:"usage"`
		Choices []struct {
			Message said `json:"message"`
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
			calls = append(calls, c.calls[n].settled())
		}
	}
	return Facts{m.ID, m.Model, m.Usage.usage()}, calls, nil
}
