package form

import (
	"errors"
	"strings"

	"signalbox/internal/wire"
)

// errNoFollow says that a conversation has no form in which the results of these calls could be given.
var errNoFollow = errors.New("the results of these calls cannot be given")

// Follow makes the request that goes on with a conversation after a reply whose calls were not run:
// the reply as the model's turn, and for each of its calls an error result that says why. The reply
// is not a stream; see Whole.
func (f *Form) Follow(request, reply []byte, why string) ([]byte, error) {
	members, err := wire.Members(request)
	if err != nil {
		return nil, err
	}
	_, calls, err := f.Reply(reply)
	if err != nil {
		return nil, err
	}
	if len(calls) == 0 {
		return nil, errNoFollow
	}
	if err := f.follow(members, reply, calls, why); err != nil {
		return nil, err
	}
	return wire.Marshal(members)
}

// extend adds turns to the list of them in a request.
func extend(members map[string]wire.Raw, name string, turns ...any) error {
	var all []any
	if err := wire.UnmarshalPart(members[name], &all); err != nil {
		return err
	}
	text, err := wire.Marshal(append(all, turns...))
	members[name] = text
	return err
}

// followMessage is Form.Follow of the Messages API. A thread that the provider keeps knows the reply
// under an id that the client has not seen.
func followMessage(members map[string]wire.Raw, reply []byte, calls []Call, why string) error {
	if members["thread"] != nil {
		return errNoFollow
	}
	var m struct {
		Content wire.Raw `json:"content"`
	}
	if err := wire.UnmarshalPart(reply, &m); err != nil {
		return err
	}
	results := make([]Object, len(calls))
	for i, c := range calls {
		results[i] = Object{"type": "tool_result", "tool_use_id": c.ID, "is_error": true, "content": why}
	}
	return extend(members, "messages", Object{"role": "assistant", "content": m.Content},
		Object{"role": "user", "content": results})
}

// followCompletion is Form.Follow of chat completions, which have no mark for an error.
func followCompletion(members map[string]wire.Raw, reply []byte, calls []Call, why string) error {
	var m struct {
		Choices []struct {
			Message wire.Raw `json:"message"`
		} `json:"choices"`
	}
	if err := wire.UnmarshalPart(reply, &m); err != nil {
		return err
	}
	if len(m.Choices) != 1 {
		return errNoFollow
	}
	turns := []any{m.Choices[0].Message}
	for _, c := range calls {
		if c.ID == "" { // the older form with one call
			return errNoFollow
		}
		turns = append(turns, Object{"role": "tool", "tool_call_id": c.ID, "content": "Error: " + why})
	}
	return extend(members, "messages", turns...)
}

// followResponse is Form.Follow of the Responses API. What the provider keeps is continued by its id.
func followResponse(members map[string]wire.Raw, reply []byte, calls []Call, why string) error {
	var m struct {
		ID     string     `json:"id"`
		Output []wire.Raw `json:"output"`
	}
	if err := wire.UnmarshalPart(reply, &m); err != nil {
		return err
	}
	var turns []any
	kept := string(members["store"]) != "false"
	if !kept {
		for _, item := range m.Output {
			turns = append(turns, item)
		}
	}
	for _, c := range calls {
		output, ok := strings.CutSuffix(c.Kind, "_call")
		if !ok || output != "function" && output != "custom_tool" || c.ID == "" {
			return errNoFollow
		}
		turns = append(turns, Object{"type": c.Kind + "_output", "call_id": c.ID, "output": "Error: " + why})
	}
	if kept {
		if members["conversation"] == nil {
			members["previous_response_id"] = wire.AppendText(nil, m.ID)
		}
		members["input"] = wire.Raw("[]")
	} else if text, ok := wire.Text(members["input"]); ok { // a text stands for one message of the user
		members["input"] = JSON([]Object{{"role": "user", "content": text}})
	}
	return extend(members, "input", turns...)
}

// Whole is the reply that a stream makes, as an SDK puts it together, as far as a conversation goes on
// with it.
func (f *Form) Whole(stream []byte) ([]byte, error) {
	var frames Frames
	frames.Push(stream)
	w := whole{}
	for {
		one, ok := frames.Next()
		if !ok {
			break
		}
		var p piece
		if one.Data == nil || string(one.Data) == "[DONE]" {
			continue
		}
		if err := wire.UnmarshalPart(one.Data, &p); err != nil {
			return nil, err
		}
		if err := w.add(&p); err != nil {
			return nil, err
		}
	}
	return w.reply(f)
}

// piece is an event of a stream of any form, with what a reply is made of.
type piece struct {
	Type     string `json:"type"`
	Index    int    `json:"index"`
	Response struct {
		ID string `json:"id"`
	} `json:"response"`
	Item    wire.Raw `json:"item"`
	Block   Object   `json:"content_block"`
	Delta   wire.Raw `json:"delta"` // an object in messages, a text in responses
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content   string     `json:"content"`
			ToolCalls []toolCall `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
}

// whole is a reply that is put together.
type whole struct {
	blocks []Object // of a message
	inputs []string // their arguments, which come in pieces
	text   string   // of a chat
	calls  []toolCall
	id     string // of a response
	items  []wire.Raw
}

// add takes one event. Pieces are joined in the order in which they come.
func (w *whole) add(p *piece) error {
	switch p.Type {
	case "response.created":
		w.id = p.Response.ID
	case "response.output_item.done":
		w.items = append(w.items, p.Item)
	case "content_block_start":
		w.blocks, w.inputs = append(w.blocks, p.Block), append(w.inputs, "")
	case "content_block_delta":
		if p.Index < 0 || p.Index >= len(w.blocks) {
			return nil
		}
		b, delta := w.blocks[p.Index], Object{}
		if err := wire.UnmarshalPart(p.Delta, &delta); err != nil {
			return err
		}
		for name, more := range delta {
			switch text, isText := more.(string); {
			case name == "partial_json":
				w.inputs[p.Index] += text
			case name == "citation":
				had, _ := b["citations"].([]any)
				b["citations"] = append(had, more)
			case isText && name != "type":
				had, _ := b[name].(string)
				b[name] = had + text
			}
		}
	}
	for _, c := range p.Choices {
		if c.Index != 0 {
			continue
		}
		w.text += c.Delta.Content
		for _, t := range c.Delta.ToolCalls {
			w.addCall(t)
		}
	}
	return nil
}

// addCall takes a piece of a call of a chat.
func (w *whole) addCall(t toolCall) {
	if t.Index == nil || *t.Index < 0 || *t.Index > len(w.calls) || t.Function == nil {
		return
	}
	if *t.Index == len(w.calls) {
		w.calls = append(w.calls, toolCall{ID: t.ID, Type: "function", Function: &Function{}})
	}
	to := w.calls[*t.Index].Function
	to.Name, to.Arguments = to.Name+t.Function.Name, to.Arguments+t.Function.Arguments
}

// reply is the whole, in its form.
func (w *whole) reply(f *Form) ([]byte, error) {
	switch f {
	case Responses:
		return wire.Marshal(Object{"id": w.id, "output": w.items})
	case Chat:
		calls := make([]Object, len(w.calls))
		for i, c := range w.calls {
			calls[i] = Object{"id": c.ID, "type": c.Type, "function": c.Function}
		}
		message := Object{"role": "assistant", "content": w.text, "tool_calls": calls}
		return wire.Marshal(Object{"choices": []Object{{"index": 0, "message": message}}})
	}
	for i, input := range w.inputs {
		if input != "" {
			w.blocks[i]["input"] = wire.Raw(input)
		}
	}
	return wire.Marshal(Object{"role": "assistant", "content": w.blocks})
}
