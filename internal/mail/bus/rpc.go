package bus

import (
	"bufio"
	"errors"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// rpcError is an error of JSON-RPC, with the protocol's numbers.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *rpcError) Error() string { return e.Message }

// The errors of JSON-RPC, and those of the bus.
const (
	codeParse       = -32700
	codeRequest     = -32600
	codeMethod      = -32601
	codeParams      = -32602
	codeMail        = -32000
	codeNoComponent = -32001
	codeTaken       = -32002
	codeStranger    = -32003
	codeNoTopic     = -32004
	codeFull        = -32005
	codeTooLarge    = -32006
	codeLimited     = -32007
)

func noComponent(name string) error {
	return &rpcError{codeNoComponent, "component_not_found", map[string]string{"name": name}}
}

func badParams(format string, args ...any) error {
	return &rpcError{codeParams, fault.New(fault.InvalidField, format, args...).Message, nil}
}

// asRPC is any error as one of JSON-RPC. What mail refuses keeps its code as the message,
// and its sentence beside it.
func asRPC(err error) *rpcError {
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e
	}
	e := fault.From(err)
	return &rpcError{codeMail, string(e.Code), map[string]string{"message": e.Message}}
}

// request is one message of a component.
type request struct {
	id     wire.Raw // nil for a notification, which is not answered
	method string
	params wire.Raw
}

// parse reads a line.
func parse(line []byte) (request, error) {
	var r request
	if raw := wire.Raw(line); !raw.IsValid() {
		return r, &rpcError{codeParse, "The line is not JSON.", nil}
	}
	members, err := wire.Members(line)
	if err != nil {
		return r, &rpcError{codeRequest, fault.From(err).Message, nil}
	}
	version, _ := wire.Text(members["jsonrpc"])
	method, ok := wire.Text(members["method"])
	r = request{members["id"], method, members["params"]}
	if kind := r.id.Kind(); r.id != nil && kind != '"' && kind != '0' && kind != 'n' {
		return request{}, &rpcError{codeRequest, "The id should be a text or a number.", nil}
	}
	if version != "2.0" || !ok || method == "" {
		return r, &rpcError{
			codeRequest,
			`A line should be a request such as {"jsonrpc":"2.0","method":"bus.discover","params":{},"id":1}.`, nil,
		}
	}
	return r, nil
}

// read reads the params, which may be absent.
func (r request) read(into any) error {
	if r.params == nil {
		return nil
	}
	if r.params.Kind() != '{' {
		return badParams("The params should be an object.")
	}
	if err := wire.UnmarshalPart(r.params, into); err != nil {
		return &rpcError{codeParams, fault.From(err).Message, nil}
	}
	return nil
}

// answer is the line that answers a request.
func answer(id wire.Raw, result any, err error) []byte {
	type head struct {
		Version string `json:"jsonrpc"`
	}
	if id == nil {
		id = wire.Raw("null")
	}
	if err != nil {
		return encode(struct {
			head
			Error *rpcError `json:"error"`
			ID    wire.Raw  `json:"id"`
		}{head{"2.0"}, asRPC(err), id})
	}
	return encode(struct {
		head
		Result any      `json:"result"`
		ID     wire.Raw `json:"id"`
	}{head{"2.0"}, result, id})
}

// push is a line that nobody has asked for.
func push(method string, params any) []byte {
	return encode(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", method, params})
}

func encode(v any) []byte {
	line, err := wire.Marshal(v)
	if err != nil { // texts of ours, and JSON that was read before
		return []byte(`{"jsonrpc":"2.0","error":{"code":-32603,"message":"The answer cannot be written."},"id":null}` + "\n")
	}
	return append(line, '\n')
}

// readLine reads a line of at most so many bytes. A longer one is read to its end, and is
// an error of its own: the next may be right.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > most+1; !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		case tooLong:
			return nil, &rpcError{codeTooLarge, "message_too_large", map[string]int{"max_message_bytes": most}}
		}
		return line[:len(line)-1], nil
	}
}
