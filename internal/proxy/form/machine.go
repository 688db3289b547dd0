package form

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// Call is a tool call: something that a model wants its client to do. A reader makes it when the call
// is complete in the reply; it is judged, and perhaps shown to a person, and not changed.
type Call struct {
	ID        string // the provider's, under which the client reports the result
	Kind      string // as the provider names it: tool_use, function_call, …
	Tool      string
	Toolset   string // the group that the tool belongs to, such as browser; "" for most
	Arguments []byte // as the model wrote them, or {} if it wrote none
	Item      []byte // the whole item, in the form that has it at hand
	// Object are the arguments as rules see them, nil if they have to be read for that (policy.DecodeData).
	Object map[string]any
	// Unclear says why rules cannot see what the call would do, "" if they can. Such a call needs a
	// person (PRX-20).
	Unclear string
}

// Step is what one frame means for the calls in its stream.
type Step struct {
	Open  bool   // a call has begun, with this frame or before, that is not complete
	Calls []Call // the calls that this frame completes
	// Broken says that the provider ends the stream with an error. Calls that have begun and are
	// not complete will never be.
	Broken bool
}

// Machine follows one stream: where calls begin and end, whether it is complete, and how it can be
// ended early. It has two positions: how far the provider's stream was read (Next), and how much of
// it the client has (Sent). Ending and Failing continue from the second. It is not safe for
// concurrent use.
type Machine interface {
	// Next reads the next frame. An error says that it cannot be understood; the machine is of no
	// use for judging after that.
	Next(f Frame) (Step, error)
	// Sent says that the client has all frames that were read so far.
	Sent()
	// Complete reports whether the stream has come to its end, as its form has it. A stream that stops
	// before is broken off.
	Complete() bool
	// Facts are what the stream has said of itself so far.
	Facts() Facts
	// Ending makes the frames that end the client's stream properly, with a text of ours as the
	// model's last words. If the client has nothing yet, they are a stream of their own. model is
	// used in that case.
	Ending(text, model, gateID string) []byte
	// Failing makes the frame that ends the client's stream with an error of the provider's form.
	Failing(kind, message string) []byte
}

// Form is one of the three forms of calls and replies. There are three values, Messages, Chat and
// Responses, which are never changed and are compared by address.
type Form struct {
	Name    string         // event.kind
	Machine func() Machine // follows one stream of this form
	// Reply reads a reply that is not a stream: its facts, and all calls in it.
	Reply func(body []byte) (Facts, []Call, error)
	// Message makes a complete reply with a text of ours, under an id of its own (PRX-36).
	Message func(text, model, gateID string) []byte
	// follow adds to the members of a request what Follow says.
	follow func(members map[string]wire.Raw, reply []byte, calls []Call, why string) error
	Beat   []byte // a frame that keeps a stream alive, and that SDKs skip (PRX-29)
	// marks are words of which every reply with a call has at least one.
	marks []string
}

// MayCall reports whether a reply can hold a call. It may be wrong in one direction only: without any
// of the words there is no call. A word may be written with escapes, so any escape counts.
func (f *Form) MayCall(text []byte) bool {
	return bytes.Contains(text, []byte(`\u`)) || slices.ContainsFunc(f.marks, func(mark string) bool {
		return bytes.Contains(text, []byte(mark))
	})
}

// The forms.
var (
	// Messages is Anthropic's Messages API.
	Messages = &Form{
		Name: "messages", Machine: func() Machine { return newMessages() }, Reply: readMessage, Message: messageReply,
		follow: followMessage,
		Beat:   []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n"), marks: []string{"tool_use"},
	}
	// Chat is OpenAI's chat completions.
	Chat = &Form{
		Name: "chat.completions", Machine: func() Machine { return newChat() }, Reply: readCompletion,
		Message: completionReply, follow: followCompletion, Beat: comment, marks: []string{"tool_calls", "function_call"},
	}
	// Responses is OpenAI's Responses API.
	Responses = &Form{
		Name: "responses", Machine: func() Machine { return newResponses() }, Reply: readResponse,
		Message: responseReply, follow: followResponse, Beat: comment, marks: []string{"_call", "_request"},
	}
	// comment is a comment of SSE. OpenAI's SDKs give a ping event to the caller as an item.
	comment = []byte(": waiting\n\n")
)

// newReplyID makes the id of a reply of ours. The provider does not know it, so a client that continues
// the conversation from it is told so and sends the whole history (PRX-36).
func newReplyID(prefix string) string { return prefix + "_sbx" + strings.ToLower(rand.Text()) }

// JSON encodes a value that we have made ourselves, of maps, texts and numbers. It cannot fail.
func JSON(v any) []byte {
	text, err := wire.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// event is one server-sent event with a name.
func event(name string, data any) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, JSON(data))
}

// Object is a JSON object that we make.
type Object = map[string]any

// OpenAIError is an error as OpenAI writes it. SDKs look at code or at type; both are kind.
func OpenAIError(kind, message string) Object {
	return Object{"message": message, "type": kind, "param": nil, "code": kind}
}

// IsObject reports whether text is one JSON object that rules can be shown: strictly valid, no name
// twice.
func IsObject(text []byte) bool {
	_, err := wire.Members(text)
	return err == nil
}

// check marks a call as unclear if its arguments are not a JSON object, unless it is marked already.
func (c *Call) check() {
	if c.Unclear != "" {
		return
	}
	// What Data refuses may still be an object, as one with a NUL in a text.
	data, err := wire.Data(c.Arguments)
	if c.Object, _ = data.(map[string]any); err == nil && c.Object != nil {
		return
	}
	if c.Object = nil; !IsObject(c.Arguments) {
		c.Unclear = "its arguments are not a JSON object"
	}
}
