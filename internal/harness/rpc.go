package harness

import (
	"bytes"
	"fmt"
	"strconv"

	"signalbox/internal/wire"
)

const (
	// maxLine is the longest message on a stream, and maxPost that of a POST.
	maxLine = 16 << 20
	maxPost = 2 << 20
	// maxNesting is one less than the limit of the reference client's decoder, so that we accept
	// nothing that it refuses.
	maxNesting = 127
)

// The codes of errors, as JSON-RPC and AHP have them.
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

// The methods.
const (
	methodHandshake = "ahp/handshake"
	methodEvent     = "ahp/event"
	methodQuery     = "ahp/query"
	methodBatch     = "ahp/batch"
)

// rpcError is an error as it is answered.
type rpcError struct {
	code    int
	message string
}

func (e *rpcError) Error() string { return e.message }

func refuse(code int, format string, args ...any) *rpcError {
	return &rpcError{code, fmt.Sprintf(format, args...)}
}

// message is one request or notification.
type message struct {
	id     wire.Raw // as it came, which is how it is echoed; nil for a notification
	method string
	params wire.Raw
	inside []map[string]wire.Raw // the members of params, of a payload in it, and of its arguments
}

func (m *message) request() bool { return m.id != nil }

// parseMessage reads one message. If there is an error, m still has the id, as far as it could
// be read, for the answer.
func parseMessage(text []byte) (m message, err *rpcError) {
	if deeper(text, maxNesting) {
		return m, refuse(codeParse, "The message is nested deeper than %d levels.", maxNesting)
	}
	levels, problem := wire.Nested(text, "params", "payload", "arguments")
	if problem != nil {
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

// deeper reports whether lists and objects are nested more than most levels deep.
func deeper(text []byte, most int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			if depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// resultReply is a response with a result.
func resultReply(id, result wire.Raw) []byte {
	out := make([]byte, 0, len(id)+len(result)+40)
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	out = append(out, `,"result":`...)
	out = append(out, result...)
	return append(out, '}')
}

// errorReply is a response with an error; without an id it is null.
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
