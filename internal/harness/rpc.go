package harness

import (
	"bytes"
	"fmt"
	"strconv"

	"signalbox/internal/harness/external"
	"signalbox/internal/wire"
)

const (
	// maxLine is the longest message on a stream, and maxPost that of a POST, in bytes. 2
	// MiB is the limit of the reference server for a POST, so a client that works there
	// works here.
	maxLine    = 16 << 20
	maxPost    = 2 << 20
	maxNesting = external.MaxNesting
)

// The codes of errors. Those from -32700 to -32600 are JSON-RPC's, the others are AHP's
// and ours.
const (
	codeParse        = -32700
	codeInvalid      = -32600
	codeMethod       = -32601
	codeParams       = -32602
	codeHandler      = -32603
	codeVersion      = -32000
	codeHandshake    = -32001
	codeUnauthorized = -32004
	codeOverloaded   = -32005
)

// The methods of AHP.
const (
	methodHandshake = "ahp/handshake"
	methodEvent     = "ahp/event"
	methodQuery     = "ahp/query"
	methodBatch     = "ahp/batch"
)

// rpcError is an error as it is answered. Its text reaches the agent, so it says what
// was wrong and what would be right, and never holds a secret.
type rpcError struct {
	code    int
	message string
}

func (e *rpcError) Error() string { return e.message }

// refuse makes the error that answers a message.
func refuse(code int, format string, args ...any) *rpcError {
	return &rpcError{code, fmt.Sprintf(format, args...)}
}

// message is one request or notification. Its members share memory with the text that
// was parsed.
type message struct {
	id     wire.Raw // as it came, which is how it is echoed; nil for a notification
	method string
	params wire.Raw
	inside []map[string]wire.Raw // the members of params, of a payload in it, and of its arguments
}

// request reports whether somebody waits for an answer (AHP-3, AHP-4).
func (m *message) request() bool { return m.id != nil }

// parseMessage parses one message. With an error, m still has the id if it could be
// read, so that the answer reaches the call that waits for it.
func parseMessage(text []byte) (m message, err *rpcError) {
	// First, and without recursion: a parser that goes as deep as the text does would not
	// come back.
	if wire.Depth(text) > maxNesting {
		return m, refuse(codeParse, "The message is nested deeper than %d levels.", maxNesting)
	}
	levels, problem := wire.Nested(text, "params", "payload", "arguments")
	if problem != nil {
		// AHP-5: valid JSON that is not an object is another mistake than broken JSON.
		if first := bytes.TrimLeft(text, " \t\r\n"); len(first) > 0 && first[0] != '{' && wire.Raw(text).IsValid() {
			return m, refuse(codeInvalid, "Invalid JSON-RPC message: it should be one object; several events go into %s.",
				methodBatch)
		}
		return m, refuse(codeParse, "Parse error: %s", problem.Error())
	}
	members := levels[0]
	m.inside = levels[1:]
	switch id := members["id"]; id.Kind() {
	case '"', '0':
		m.id = id
	case 'n': // an id that is null makes it a notification
	default:
		if id != nil {
			return m, refuse(codeInvalid, "Invalid JSON-RPC message: the id should be a string or a number.")
		}
	}
	var ok bool
	if version, ok := wire.Text(members["jsonrpc"]); !ok || version != "2.0" {
		return m, refuse(codeInvalid, `Invalid JSON-RPC message: jsonrpc should be "2.0".`)
	}
	if m.method, ok = wire.Text(members["method"]); !ok {
		return m, refuse(codeInvalid, "Invalid JSON-RPC message: method should be a string, such as %q.", methodEvent)
	}
	if m.params, ok = members["params"]; !ok {
		return m, refuse(codeInvalid, "Invalid JSON-RPC message: params is missing; it may be null.")
	}
	return m, nil
}

// resultReply is a response with a result. The id goes back byte for byte: the
// reference client drops a response whose id is not the text that it sent (AHP-3).
func resultReply(id, result wire.Raw) []byte {
	out := make([]byte, 0, len(id)+len(result)+40)
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	out = append(out, `,"result":`...)
	out = append(out, result...)
	return append(out, '}')
}

// errorReply is a response with an error. Without an id it is null, as JSON-RPC has it;
// the reference server writes "" (AHP-55).
func errorReply(id wire.Raw, e *rpcError) []byte {
	if id == nil {
		id = wire.Raw("null")
	}
	text, err := wire.Marshal(e.message)
	if err != nil { // a text that was repeated was not UTF-8
		text = []byte(strconv.QuoteToASCII("Parse error"))
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, e.code, text)
}
