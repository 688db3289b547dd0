package form

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"signalbox/internal/wire"
)

// item is one output item of a response, with the fields of all kinds that matter here.
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

// providerRuns are the kinds of calls that the provider runs itself; when they are in a reply they have
// run (PRX-16).
var providerRuns = []string{
	"file_search_call", "web_search_call", "code_interpreter_call", "image_generation_call",
	"mcp_call", "tool_search_call",
}

// clientRuns reports whether an item asks the client to do something, or to approve something. A call of
// an unknown kind is taken for one (PRX-17).
func (i *item) clientRuns() bool {
	return (strings.HasSuffix(i.Type, "_call") || strings.HasSuffix(i.Type, "_request")) &&
		!slices.Contains(providerRuns, i.Type)
}

// call makes a call of an item. Kinds differ in where they have their arguments; of an unknown kind, the
// whole item (raw) is the arguments, so that rules and people see everything.
func (i *item) call(raw wire.Raw) Call {
	c := Call{ID: i.CallID, Kind: i.Type, Tool: i.Name, Toolset: i.Namespace, Item: raw}
	if c.ID == "" {
		c.ID = i.ID
	}
	// Built-in tools, such as a shell, have no name; their kind stands for it.
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

// response is a response of the Responses API, with the fields that matter here. Events of a stream
// repeat it.
type response struct {
	ID     string     `json:"id"`
	Model  string     `json:"model"`
	Output []wire.Raw `json:"output"`
	Usage  wire.Raw   `json:"usage"`
	Tier   wire.Raw   `json:"service_tier"`
	Status string     `json:"status"`
}

// into takes over what the response says of itself.
func (r *response) into(about *Facts) {
	about.ID, about.Model, about.Later = r.ID, r.Model, r.Status == "queued" || r.Status == "in_progress"
	tier, _ := wire.Text(r.Tier)
	about.takeOpenAI(r.Usage, tier)
}

// calls finds the calls in the output, without those in seen, which were reported before. The final
// event of a stream repeats all output; a call that differs there from what was reported is a new
// one and judged again.
func (r *response) calls(seen map[string]string) (calls []Call, err error) {
	for _, raw := range r.Output {
		var i item
		if err := wire.UnmarshalPart(raw, &i); err != nil {
			return nil, err
		}
		if c := i.call(raw); i.clientRuns() && (seen == nil || seen[c.ID] != c.identity()) {
			calls = append(calls, c)
		}
	}
	return calls, nil
}

// identity is equal for calls that ask for the same.
func (c *Call) identity() string { return c.Kind + " " + c.Tool + " " + string(c.Arguments) }

// responses is the Machine of the Responses API. A call is an output item, from output_item.added to
// output_item.done. Events are numbered without gaps, and frames of ours continue the numbers.
type responses struct {
	about  Facts
	ended  bool
	number int64             // sequence_number of the last event
	open   map[int]Call      // calls that have begun and are not done, by output_index
	seen   map[string]string // calls that were reported, by id; see identity
	items  []wire.Raw        // items that are done, for the final event of Ending
	after  int               // the output_index after the last item
	begun  bool
	before struct { // the same, as far as the client has the stream
		begun  bool
		number int64
		items  int
		next   int
	}
}

func newResponses() *responses {
	return &responses{number: -1, open: map[int]Call{}, seen: map[string]string{}}
}

func (r *responses) Facts() Facts   { return r.about }
func (r *responses) Complete() bool { return r.ended }

// Next reads one event. Items and responses are looked for in every event, whatever its type, so that a
// new type of event cannot bring a call past the rules.
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
		return Step{}, fmt.Errorf("cannot read an event of the stream as JSON: %w", err)
	}
	if e.Number != nil {
		r.number = *e.Number
	}
	r.begun = true
	// Pieces, and what is in none of them. Later events repeat what the pieces had.
	if strings.HasSuffix(e.Type, ".delta") {
		r.about.Text += textIn(f.Data)
	}
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
			return Step{}, fmt.Errorf("cannot read an output item of the stream: %w", err)
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
	// A response that ends with a call in the middle: report the call, so that it needs a person.
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		r.ended = true
		for _, at := range slices.Sorted(maps.Keys(r.open)) {
			c := r.open[at]
			c.Unclear = "it was never completed"
			calls = append(calls, c)
		}
		clear(r.open)
	}
	// The final event repeats the items. What was reported is not reported twice.
	for _, c := range calls {
		r.seen[c.ID] = c.identity()
	}
	return Step{Open: len(r.open) > 0, Calls: calls}, nil
}

// Sent takes over the position.
func (r *responses) Sent() {
	r.before.begun, r.before.number, r.before.items, r.before.next = r.begun, r.number, len(r.items), r.after
}

// Ending adds an output item with the text, by all the events that SDKs expect of one, and completes the
// response with the items that the client has.
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
	// The response that ends the stream has an id of ours, also if it began with the provider's.
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
			"item": Object{
				"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []any{},
			},
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

// Failing is an error event with the next number.
func (r *responses) Failing(kind, message string) []byte {
	// Older SDKs give an error event to the caller as an item. With the member error all of them raise.
	return event("error", Object{
		"type": "error", "code": kind, "message": message, "param": nil,
		"sequence_number": r.before.number + 1, "error": OpenAIError(kind, message),
	})
}

// ownResponse is a response of ours without output.
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

// responseReply is Form.Message of the Responses API.
func responseReply(text, model, gateID string) []byte {
	r := ownResponse(model, gateID)
	r["output"] = []Object{{
		"id": newReplyID("msg"), "type": "message", "role": "assistant", "status": "completed",
		"content": []Object{{"type": "output_text", "text": text, "annotations": []any{}}},
	}}
	return JSON(r)
}

// readResponse is Form.Reply of the Responses API.
func readResponse(body []byte) (about Facts, calls []Call, err error) {
	var r response
	if err := wire.UnmarshalPart(body, &r); err != nil {
		return about, nil, err
	}
	r.into(&about)
	about.Text = int64(len(body))
	calls, err = r.calls(nil)
	return about, calls, err
}
