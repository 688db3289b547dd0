package bus

import (
	"bufio"
	"errors"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// rpcError is an error of JSON-RPC. Message is a word of the protocol where it has one.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *rpcError) Error() string { return e.Message }

// The numbers of errors: those of JSON-RPC, -32000 for everything that mail refuses, and those that
// the protocol gives to the bus.
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

// noComponent is the answer about a component that is not connected.
func noComponent(name string) error {
	return &rpcError{codeNoComponent, "component_not_found", map[string]string{"name": name}}
}

// badParams is the answer to wrong params, with what they should be.
func badParams(format string, args ...any) error {
	return &rpcError{codeParams, fault.New(fault.InvalidField, format, args...).Message, nil}
}

// asRPC turns any error into one of JSON-RPC. An error of mail keeps its code as the message and its
// sentence in the data.
func asRPC(err error) *rpcError {
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e
	}
	e := fault.From(err)
	return &rpcError{codeMail, string(e.Code), map[string]string{"message": e.Message}}
}

// request is one line of a component.
type request struct {
	id     wire.Raw // nil for a notification, which is not answered
	method string
	params wire.Raw
}

// parse reads a request. With an error the request has as much as is needed to answer it: its id.
func parse(line []byte) (request, error) {
	var r request
	if raw := wire.Raw(line); !raw.IsValid() {
		return r, &rpcError{codeParse, "The line is not JSON.", nil}
	}
	members, err := wire.Members(line)
	if err != nil {
		return r, &rpcError{codeRequest, fault.From(err).Message, nil}
	}
	// Strict about the version: a client of JSON-RPC 1.0 expects other answers.
	version, _ := wire.Text(members["jsonrpc"])
	method, ok := wire.Text(members["method"])
	r = request{members["id"], method, members["params"]}
	// The id is echoed as it is, so an object would be echoed too.
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

// read decodes the params, if there are any. Unknown members are ignored.
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

// answer is the line with the result of a request, or its error. The id of a line that could not be
// read is null.
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

// push is a line that the bus sends unasked: a notification of JSON-RPC.
func push(method string, params any) []byte {
	return encode(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", method, params})
}

// encode is a value as one line. It always returns a line, since the other side waits for one.
func encode(v any) []byte {
	line, err := wire.Marshal(v)
	if err != nil { // cannot happen: texts of ours, and JSON that was parsed before
		return []byte(`{"jsonrpc":"2.0","error":{"code":-32603,"message":"The answer cannot be written."},"id":null}` + "\n")
	}
	return append(line, '\n')
}

// readLine reads a line of at most so many bytes. A longer one is read to its end without being kept,
// and is an rpcError: the connection goes on with the next line.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	line, tooLong, err := wire.ReadLine(r, most)
	switch {
	case err != nil:
		return nil, err
	case tooLong:
		return nil, &rpcError{codeTooLarge, "message_too_large", map[string]int{"max_message_bytes": most}}
	}
	return line[:len(line)-1], nil
}
