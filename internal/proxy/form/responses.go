package form

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"signalbox/internal/wire"
)

// item is one of what a response puts out.
type item struct {
	Type      string   `json:"type"`
	ID        string   `json:"id"`
	CallID    string   `json:"call_id"`
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Arguments string   `json:"arguments"`
	Input     string   `json:"input"`
	Action    wire.Raw `json:"action"`
	Status    string   `json:"status"`
}

// ranAlready are the calls that the provider runs itself.
var ranAlready = []string{
	"file_search_call", "web_search_call", "code_interpreter_call", "image_generation_call",
	"mcp_call", "tool_search_call",
}

// clientRuns reports whether an item asks the client to do something. What we do not know
// and is a call, we take for one that has not run.
func (i *item) clientRuns() bool {
	return (strings.HasSuffix(i.Type, "_call") || strings.HasSuffix(i.Type, "_request")) &&
		!slices.Contains(ranAlready, i.Type)
}

// call is an item as a call. raw is the whole item.
func (i *item) call(raw wire.Raw) Call {
	c := Call{ID: i.CallID, Kind: i.Type, Tool: i.Name, Toolset: i.Namespace, Item: raw}
	if c.ID == "" {
		c.ID = i.ID
	}
	if c.Tool == "" {
		c.Tool = strings.TrimSuffix(i.Type, "_call")
	}
	switch {
	case i.Type == "custom_tool_call":
		c.Arguments = JSON(Object{"input": i.Input})
	case i.Type == "function_call" || i.Arguments != "":
		c.Arguments = []byte(i.Arguments)
	case len(i.Action) > 0 && string(i.Action) != "null":
		c.Arguments = i.Action
	default:
		c.Arguments = raw
	}
	if len(c.Arguments) == 0 {
		c.Arguments = []byte("{}")
	}
	c.check()
	return c
}

type responseUsage struct {
	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	Details struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

// response is a response of the Responses API, as far as it matters here.
type response struct {
	ID     string         `json:"id"`
	Model  string         `json:"model"`
	Output []wire.Raw     `json:"output"`
	Usage  *responseUsage `json:"usage"`
}

func (r *response) into(about *Facts) {
	about.ID, about.Model = r.ID, r.Model
	if r.Usage != nil {
		about.Usage = split(r.Usage.Input, r.Usage.Output, r.Usage.Details.Cached)
	}
}

// calls finds the calls in the output. seen are those that were judged as they came.
func (r *response) calls(seen map[string]string) (calls []Call, err error) {
	for _, raw := range r.Output {
		var i item
		if err := wire.UnmarshalPart(raw, &i); err != nil {
			return nil, err
		}
		if c := i.call(raw); i.clientRuns() && (seen == nil || seen[c.ID] != c.same()) {
			calls = append(calls, c)
		}
	}
	return calls, nil
}

// same tells calls apart.
func (c *Call) same() string { return c.Kind + " " + c.Tool + " " + string(c.Arguments) }

// responses follows a stream of the Responses API.
type responses struct {
	about  Facts
	ended  bool
	number int64             // of the last event
	open   map[int]Call      // calls that have begun
	seen   map[string]string // calls that were given, by id
	items  []wire.Raw        // those that are done
	after  int               // the place after the last item
	begun  bool
	before struct {
		begun  bool
		number int64
		items  int
		next   int
	}
}

func newResponses() *responses {
	return &responses{number: -1, open: map[int]Call{}, seen: map[string]string{}}
}

func (r *responses) Facts() Facts { return r.about }
func (r *responses) Whole() bool  { return r.ended }

func (r *responses) Next(f Frame) (Step, error) {
	if f.Data == nil || string(f.Data) == "[DONE]" {
		return Step{Open: len(r.open) > 0}, nil
	}
	var e struct {
		Type     string    `json:"type"`
		Number   *int64    `json:"sequence_number"`
		Index    int       `json:"output_index"`
		Item     wire.Raw  `json:"item"`
		Response *response `json:"response"`
	}
	if err := wire.UnmarshalPart(f.Data, &e); err != nil {
		return Step{}, fmt.Errorf("an event of the stream is no JSON that can be read: %w", err)
	}
	if e.Number != nil {
		r.number = *e.Number
	}
	r.begun = true
	var calls []Call
	if e.Response != nil {
		e.Response.into(&r.about)
		var err error
		if calls, err = e.Response.calls(r.seen); err != nil {
			return Step{}, err
		}
	}
	if len(e.Item) > 0 {
		var i item
		if err := wire.UnmarshalPart(e.Item, &i); err != nil {
			return Step{}, fmt.Errorf("an item of the stream cannot be read: %w", err)
		}
		r.after = max(r.after, e.Index+1)
		switch {
		case e.Type == "response.output_item.done":
			delete(r.open, e.Index)
			r.items = append(r.items, slices.Clone(e.Item))
			if i.clientRuns() {
				calls = append(calls, i.call(slices.Clone(e.Item)))
			}
		case i.clientRuns():
			r.open[e.Index] = i.call(slices.Clone(e.Item))
		}
	}
	switch e.Type {
	case "error":
		r.ended = true
		clear(r.open)
		return Step{Broken: true}, nil
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		r.ended = true
		for _, at := range slices.Sorted(maps.Keys(r.open)) {
			c := r.open[at]
			c.Unclear = "it was never completed"
			calls = append(calls, c)
		}
		clear(r.open)
	}
	for _, c := range calls {
		r.seen[c.ID] = c.same()
	}
	return Step{Open: len(r.open) > 0, Calls: calls}, nil
}

func (r *responses) Sent() {
	r.before.begun, r.before.number, r.before.items, r.before.next = r.begun, r.number, len(r.items), r.after
}

func (r *responses) Ending(text, model, gateID string) []byte {
	if r.before.begun {
		model = r.about.Model
	}
	number := r.before.number
	if !r.before.begun {
		number = -1
	}
	var out []byte
	put := func(name string, e Object) {
		number++
		e["type"], e["sequence_number"] = name, number
		out = append(out, event(name, e)...)
	}
	whole := ownResponse(model, gateID)
	if !r.before.begun {
		begun := maps.Clone(whole)
		begun["status"], begun["output"] = "in_progress", []any{}
		put("response.created", Object{"response": begun})
	}
	at, id := r.before.next, newReplyID("msg")
	part := Object{"type": "output_text", "text": text, "annotations": []any{}}
	message := Object{"id": id, "type": "message", "role": "assistant", "status": "completed", "content": []Object{part}}
	put("response.output_item.added",
		Object{
			"output_index": at,
			"item":         Object{"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []any{}},
		})
	put("response.content_part.added",
		Object{
			"item_id": id, "output_index": at, "content_index": 0,
			"part": Object{"type": "output_text", "text": "", "annotations": []any{}},
		})
	put("response.output_text.delta",
		Object{"item_id": id, "output_index": at, "content_index": 0, "delta": text, "logprobs": []any{}})
	put("response.output_text.done",
		Object{"item_id": id, "output_index": at, "content_index": 0, "text": text, "logprobs": []any{}})
	put("response.content_part.done", Object{"item_id": id, "output_index": at, "content_index": 0, "part": part})
	put("response.output_item.done", Object{"output_index": at, "item": message})
	output := []any{}
	for _, raw := range r.items[:r.before.items] {
		output = append(output, raw)
	}
	whole["output"] = append(output, message)
	put("response.completed", Object{"response": whole})
	return out
}

func (r *responses) Failing(kind, message string) []byte {
	// The member error makes every generation of the SDK throw.
	return event("error", Object{
		"type": "error", "code": kind, "message": message, "param": nil,
		"sequence_number": r.before.number + 1, "error": OpenAIError(kind, message),
	})
}

func ownResponse(model, gateID string) Object {
	r := Object{
		"id": newReplyID("resp"), "object": "response", "created_at": time.Now().Unix(), "status": "completed",
		"model": model, "gate_id": gateID,
		"error": nil, "incomplete_details": nil, "instructions": nil, "metadata": Object{}, "parallel_tool_calls": true,
		"tool_choice": "auto", "tools": []any{}, "output": []any{},
		"usage": Object{
			"input_tokens": 0, "input_tokens_details": Object{"cached_tokens": 0}, "output_tokens": 0,
			"output_tokens_details": Object{"reasoning_tokens": 0}, "total_tokens": 0,
		},
	}
	return r
}

func responseReply(text, model, gateID string) []byte {
	r := ownResponse(model, gateID)
	r["output"] = []Object{{
		"id": newReplyID("msg"), "type": "message", "role": "assistant", "status": "completed",
		"content": []Object{{"type": "output_text", "text": text, "annotations": []any{}}},
	}}
	return JSON(r)
}

// readResponse reads a response that is no stream.
func readResponse(body []byte) (about Facts, calls []Call, err error) {
	var r response
	if err := wire.UnmarshalPart(body, &r); err != nil {
		return about, nil, err
	}
	r.into(&about)
	calls, err = r.calls(nil)
	return about, calls, err
}
