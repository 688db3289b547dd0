package proxy

import (
	"slices"
	"strconv"

	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/proxy/meter"
	"signalbox/internal/wire"
)

// request is what rules and the proxy look at in a request to a model. body is set to nil when the
// request has been sent, and listed when a gate has been opened for the reply, so that a call that is
// held afterwards does not keep it in memory.
type request struct {
	form      *form.Form // nil for a batch
	kind      string
	provider  string
	body      []byte
	model     string
	stream    bool
	maxTokens int64
	tools     []string
	thread    thread
	cwd       string     // where the client works, if it says so
	listed    wire.Raw   // the messages or the input, where results of tools are; a part of body
	batch     []wire.Raw // the calls of a batch
	file      string     // that has them
	replies   int64      // how many are asked for, if not one
	// background says that the provider makes the reply when nobody waits for it.
	background bool
}

// thread says whether the provider keeps the conversation. A request that continues one repeats
// neither tools nor history (PRX-23).
type thread struct {
	kept      bool   // the reply can be continued by its id
	continues string // the id of what it goes on from, "" for a new one
	unknown   bool   // we have not seen its beginning, so its tools are not to be remembered
}

// anyRequest is a request as JSON, with the fields of all forms. Limits are read as floats, since clients
// in dynamic languages write 1e3.
type anyRequest struct {
	Model     string        `json:"model"`
	Stream    bool          `json:"stream"`
	MaxTokens float64       `json:"max_tokens"`
	MaxCompl  float64       `json:"max_completion_tokens"`
	MaxOutput float64       `json:"max_output_tokens"`
	Tools     []form.Tool   `json:"tools"`
	Functions []form.Tool   `json:"functions"`
	Servers   []form.Server `json:"mcp_servers"`
	Thread    *struct {
		Type     string `json:"type"`
		Previous string `json:"previous_message_id"`
	} `json:"thread"`
	Previous     string   `json:"previous_response_id"`
	Conversation wire.Raw `json:"conversation"`
	Store        *bool    `json:"store"`
	Requests     []struct {
		Params wire.Raw `json:"params"`
	} `json:"requests"`
	File       string   `json:"input_file_id"`
	Replies    wire.Raw `json:"n"`
	Background wire.Raw `json:"background"`
}

// light reads a request that has the common members alone; see form/light.go.
func (a *anyRequest) light(text []byte) bool {
	return form.EachMember(text, func(name, value []byte) bool {
		switch string(name) {
		case "model":
			return form.IsText(value, &a.Model)
		case "stream":
			a.Stream = string(value) == "true"
			return a.Stream || string(value) == "false"
		case "max_tokens":
			n, err := strconv.ParseUint(string(value), 10, 32)
			a.MaxTokens = float64(n)
			return err == nil
		case "tools":
			return form.EachItem(value, func(item []byte) bool {
				a.Tools = append(a.Tools, form.Tool{})
				return a.Tools[len(a.Tools)-1].Light(item)
			})
		}
		return !slices.Contains(uncommon, string(name))
	}) && wire.Strict(text)
}

// uncommon are the other members of anyRequest.
var uncommon = []string{
	"max_completion_tokens", "max_output_tokens", "functions", "mcp_servers", "thread", "previous_response_id", "conversation",
	"store", "requests", "input_file_id", "n", "background",
}

// read decodes the body. With strict, all of it has to be valid JSON; without, the members that hold
// the conversation are skipped, which is most of a request's bytes. What the caller may rely on
// is the same: the fields that rules read are decoded strictly either way.
func (q *request) read(strict bool) error {
	var a anyRequest
	listed := "messages"
	if q.form == form.Responses {
		listed = "input"
	}
	// Two of the names in one object would let us and the provider read different ones; ok is false
	// then, and decoding all of it reports the duplicate.
	rest, said, ok := form.Without(q.body, listed)
	if strict || !ok {
		rest = q.body // if it is broken, decoding says where
	}
	if !a.light(rest) {
		a = anyRequest{}
		if err := wire.UnmarshalPart(rest, &a); err != nil {
			return err
		}
	}
	q.model, q.stream = a.Model, a.Stream
	q.file, q.background = a.File, string(a.Background) == "true"
	if len(a.Replies) > 0 {
		if n, err := strconv.ParseFloat(string(a.Replies), 64); err == nil {
			q.replies = int64(min(max(n, 0), 1e6))
		}
	}
	q.maxTokens = int64(min(max(a.MaxTokens, a.MaxCompl, a.MaxOutput), 1e15))
	for _, list := range [][]form.Tool{a.Tools, a.Functions} {
		for i := range list {
			q.tools = append(q.tools, list[i].Names()...)
		}
	}
	for _, s := range a.Servers {
		q.tools = append(q.tools, "mcp:"+s.Name, "mcp:"+s.URL)
	}
	q.thread = threadOf(q.form, &a)
	q.listed, q.cwd = said.Listed, form.FolderOf(q.form, said)
	for _, one := range a.Requests {
		q.batch = append(q.batch, one.Params)
	}
	return nil
}

// atMost is what the request may take depends on.
func (q *request) atMost(bytes int64) meter.Request {
	return meter.Request{Model: q.model, Bytes: bytes, MaxTokens: q.maxTokens, Replies: q.replies}
}

// threadOf finds out whether the provider keeps the conversation. OpenAI does unless store is false;
// Anthropic does if the request has a thread.
func threadOf(f *form.Form, a *anyRequest) (t thread) {
	switch {
	case f == form.Messages && a.Thread != nil:
		return thread{kept: true, continues: a.Thread.Previous}
	case f == form.Responses:
		t.kept = a.Store == nil || *a.Store
		t.continues = a.Previous
		if name, ok := wire.Text(a.Conversation); ok {
			t.continues = name
		} else if len(a.Conversation) > 0 && string(a.Conversation) != "null" {
			var c struct {
				ID string `json:"id"`
			}
			_ = wire.UnmarshalPart(a.Conversation, &c) // anything but an object has no id
			t.continues = c.ID
		}
	}
	return t
}

// event is what rules see of a request, except for its text, which only some rules need
// (form.Prompt).
func (q *request) event(project, run string) policy.Event {
	return policy.Event{
		Point: policy.OnPrompt, Protocol: Name, Kind: q.kind, Provider: q.provider, Model: q.model, MaxTokens: q.maxTokens,
		Tools: q.tools, Thread: q.thread.continues, Project: project, Run: run,
		Fill: func(e *policy.Event) { _ = policy.DecodeData(q.body, &e.Payload) }, // it was read before
	}
}
