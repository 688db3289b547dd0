package form

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// Call is something that a model wants its client to do.
type Call struct {
	ID        string
	Kind      string // as the provider names it: tool_use, function_call, …
	Tool      string
	Toolset   string
	Arguments []byte // as the model wrote them
	Item      []byte // the block or item, where it is at hand
	// Unclear says why rules cannot see what the call would do.
	Unclear string
}

// Usage is what a reply took, in tokens.
type Usage struct {
	Input, Output, CacheRead, CacheWrite int64
}

// Facts are what a reply says of itself.
type Facts struct {
	ID, Model string
	Usage     Usage
}

// Step is what a frame is to the calls in its stream.
type Step struct {
	Open  bool   // after it a call has begun that is not whole
	Calls []Call // those that it completes
	// Broken says that the provider ends the stream with an error. What was begun and is
	// not whole will never be.
	Broken bool
}

// Machine follows a stream of one form: where calls begin and end, whether it is whole, and
// how it can be ended early.
type Machine interface {
	// Next takes the next frame. An error says that it cannot be read.
	Next(f Frame) (Step, error)
	// Sent notes that all frames up to now were given to the client.
	Sent()
	// Whole reports whether the stream has come to its end.
	Whole() bool
	// Facts are what the stream has said of itself.
	Facts() Facts
	// Ending are frames that end what was sent, with last words.
	Ending(text, model, gateID string) []byte
	// Failing is a frame that ends what was sent with an error.
	Failing(kind, message string) []byte
}

// Form is one of the three forms of calls and replies.
type Form struct {
	Name    string // as rules see it in event.kind
	Machine func() Machine
	// Reply reads a reply that is no stream.
	Reply func(body []byte) (Facts, []Call, error)
	// Message is a reply with a text of ours.
	Message func(text, model, gateID string) []byte
	Beat    []byte // keeps a stream alive
	// marks are the words of which every reply with a call has one.
	marks []string
}

// MayCall reports whether a reply can hold a call. Words may be written with escapes.
func (f *Form) MayCall(text []byte) bool {
	return bytes.Contains(text, []byte(`\u`)) || slices.ContainsFunc(f.marks, func(mark string) bool {
		return bytes.Contains(text, []byte(mark))
	})
}

// The forms.
var (
	Messages = &Form{"messages", func() Machine {
		return newMessages()
	}, readMessage, messageReply, []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n"), []string{"tool_use"}}
	Chat = &Form{"chat.completions", func() Machine {
		return newChat()
	}, readCompletion, completionReply, comment, []string{"tool_calls", "function_call"}}
	Responses = &Form{"responses", func() Machine {
		return newResponses()
	}, readResponse, responseReply, comment, []string{"_call", "_request"}}
	comment = []byte(": waiting\n\n")
)

// newReplyID makes the id of a reply of ours. It is no id of the provider's, so that a
// conversation that it keeps cannot go on from what it never said.
func newReplyID(prefix string) string { return prefix + "_sbx" + strings.ToLower(rand.Text()) }

// JSON is a value of ours as JSON.
func JSON(v any) []byte {
	text, err := wire.Marshal(v)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	return text
}

func event(name string, data any) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, JSON(data))
}

// Object is a JSON object of ours.
type Object = map[string]any

// OpenAIError is an error as OpenAI writes it.
func OpenAIError(kind, message string) Object {
	return Object{"message": message, "type": kind, "param": nil, "code": kind}
}

// IsObject reports whether text is one JSON object that rules can see.
func IsObject(text []byte) bool {
	_, err := wire.Members(text)
	return err == nil
}

// check says what is unclear about a call's arguments, which should be a JSON object.
func (c *Call) check() {
	if c.Unclear == "" && !IsObject(c.Arguments) {
		c.Unclear = "its arguments are no JSON object"
	}
}
