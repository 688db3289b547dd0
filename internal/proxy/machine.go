package proxy

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/signalbox/signalbox/internal/wire"
)

// call is something that a model wants its client to do.
type call struct {
	ID        string
	Kind      string // as the provider names it: tool_use, function_call, …
	Tool      string
	Toolset   string
	Arguments []byte // as the model wrote them
	Item      []byte // the block or item, where it is at hand
	// Unclear says why rules cannot see what the call would do.
	Unclear string
}

// usage is what a reply took, in tokens.
type usage struct {
	Input, Output, CacheRead, CacheWrite int64
}

// facts are what a reply says of itself.
type facts struct {
	id, model string
	usage     usage
}

// step is what a frame is to the calls in its stream.
type step struct {
	open  bool   // after it a call has begun that is not whole
	calls []call // those that it completes
	// broken says that the provider ends the stream with an error. What was begun and is
	// not whole will never be.
	broken bool
}

// machine follows a stream of one form: where calls begin and end, whether it is whole, and
// how it can be ended early.
type machine interface {
	// next takes the next frame. An error says that it cannot be read.
	next(f frame) (step, error)
	// sent notes that all frames up to now were given to the client.
	sent()
	// whole reports whether the stream has come to its end.
	whole() bool
	facts() facts
	// ending are frames that end what was sent, with last words.
	ending(text, model, gateID string) []byte
	// failing is a frame that ends what was sent with an error.
	failing(kind, message string) []byte
}

// form is one of the three forms of calls and replies.
type form struct {
	name    string // as rules see it in event.kind
	machine func() machine
	// reply reads a reply that is no stream.
	reply func(body []byte) (facts, []call, error)
	// message is a reply with a text of ours.
	message func(text, model, gateID string) []byte
	beat    []byte // keeps a stream alive
}

var (
	messagesForm  = &form{"messages", func() machine { return newMessages() }, readMessage, messageReply, []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n")}
	chatForm      = &form{"chat.completions", func() machine { return newChat() }, readCompletion, completionReply, comment}
	responsesForm = &form{"responses", func() machine { return newResponses() }, readResponse, responseReply, comment}
	comment       = []byte(": waiting\n\n")
)

// newReplyID makes the id of a reply of ours. It is no id of the provider's, so that a
// conversation that it keeps cannot go on from what it never said.
func newReplyID(prefix string) string { return prefix + "_sbx" + strings.ToLower(rand.Text()) }

// jsonText is a value of ours as JSON.
func jsonText(v any) []byte {
	text, err := wire.Marshal(v)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	return text
}

func event(name string, data any) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, jsonText(data))
}

type object = map[string]any

// isObject reports whether text is one JSON object that rules can see.
func isObject(text []byte) bool {
	_, err := wire.Members(text)
	return err == nil
}

// check says what is unclear about a call's arguments, which should be a JSON object.
func (c *call) check() {
	if c.Unclear == "" && !isObject(c.Arguments) {
		c.Unclear = "its arguments are no JSON object"
	}
}
