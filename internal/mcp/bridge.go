package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Bridge forwards the messages of an MCP client that speaks over a stream of lines to the tools of
// a server at /mcp, and the answers back, until the stream or ctx ends. It adds the agent's key.
// It understands only as much of the messages as that takes, so new tools need no new bridge.
//
// At the end of the stream calls that still wait are cancelled, and their answers dropped: nobody
// could read them.
func Bridge(ctx context.Context, base, key string, in io.ReadCloser, out io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	near, err := (&sdk.IOTransport{Reader: in, Writer: out}).Connect(ctx)
	if err != nil {
		cancel()
		return err
	}
	b := &bridge{client: near, calls: map[jsonrpc.ID]context.CancelFunc{}}
	client := &http.Client{
		Transport: &carrier{base: base, key: key, agreed: &b.agreed},
		// A redirect would carry the key to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	b.server = &sdk.StreamableClientTransport{
		Endpoint: base + "/mcp", HTTPClient: client, DisableStandaloneSSE: true,
		MaxRetries: -1,
	}
	defer func() {
		cancel()
		b.running.Wait()
		_ = near.Close()
	}()
	for {
		msg, err := near.Read(ctx)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		// Only requests are forwarded. The server never calls the client, so answers mean nothing.
		if req, ok := msg.(*jsonrpc.Request); ok {
			b.forward(ctx, req)
		}
	}
}

// bridge is the connection to one client, and the calls that it waits for.
type bridge struct {
	// client is the stream to the MCP client, server makes connections to /mcp.
	client sdk.Connection
	server sdk.Transport
	// running are the calls under way; Bridge waits for them before it closes the stream.
	running sync.WaitGroup
	agreed  version

	// mu guards calls.
	mu    sync.Mutex
	calls map[jsonrpc.ID]context.CancelFunc
}

// forward handles one message of the client. Calls run beside each other, since one may wait long
// for a person. A cancelled call is not answered, as MCP demands.
func (b *bridge) forward(ctx context.Context, req *jsonrpc.Request) {
	switch {
	case req.IsCall():
		ctx, end := b.trackCall(ctx, req.ID)
		b.running.Go(func() {
			defer end()
			answer := b.call(ctx, req)
			if ctx.Err() == nil { // what was cancelled is not answered
				_ = b.client.Write(ctx, answer) // a client that has gone ends the stream
			}
		})
	case req.Method == "notifications/cancelled":
		// Each call is a request of its own to the server, and ends with it.
		var params struct {
			RequestID any `json:"requestId"`
		}
		if wire.UnmarshalPart(req.Params, &params) == nil {
			b.cancel(params.RequestID)
		}
	default:
		b.running.Go(func() { _, _ = b.send(ctx, req) }) // nobody waits for an answer
	}
}

// trackCall makes a call cancellable by its id, until end is called.
func (b *bridge) trackCall(ctx context.Context, id jsonrpc.ID) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[id] = cancel
	return ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.calls, id)
		cancel()
	}
}

// cancel ends a call. An unknown id means that its answer is already on the way.
func (b *bridge) cancel(named any) {
	id, err := jsonrpc.MakeID(named)
	b.mu.Lock()
	defer b.mu.Unlock()
	if cancel := b.calls[id]; err == nil && cancel != nil {
		cancel()
	}
}

// call is the server's answer to a call, or one that says why there is none. A tool call that
// fails is a result with isError, so that the model hears why and may try again; an error of
// JSON-RPC would reach only the client.
func (b *bridge) call(ctx context.Context, req *jsonrpc.Request) jsonrpc.Message {
	msg, err := b.send(ctx, req)
	if err == nil {
		b.agreed.learn(req, msg)
		return msg
	}
	text := err.Error()
	if e, ok := errors.AsType[*fault.Error](err); ok {
		text = e.Message
	}
	answer := &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: text}}
	if req.Method == "tools/call" {
		if said, err := wire.Marshal(object{
			"content": []object{{"type": "text", "text": "The call failed: " + text}},
			"isError": true,
		}); err == nil {
			answer = &jsonrpc.Response{ID: req.ID, Result: said}
		}
	}
	return answer
}

// send sends one message over a connection of its own. To the server each message stands for
// itself, and one that fails must not end those that follow.
func (b *bridge) send(ctx context.Context, req *jsonrpc.Request) (jsonrpc.Message, error) {
	far, err := b.server.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = far.Close() }()
	if err := far.Write(ctx, req); err != nil || !req.IsCall() {
		return nil, err
	}
	for {
		msg, err := far.Read(ctx)
		if note, ok := msg.(*jsonrpc.Request); err == nil && ok {
			_ = b.client.Write(ctx, note) // that the call still waits
			continue
		}
		return msg, err
	}
}

// version is the MCP version that client and server have agreed on. Later requests must carry it
// in a header, which the client on the stream does not know of.
type version struct {
	mu   sync.Mutex
	text string
}

// learn notes the version if msg is the answer to initialize.
func (v *version) learn(req *jsonrpc.Request, msg jsonrpc.Message) {
	answer, ok := msg.(*jsonrpc.Response)
	if !ok || req.Method != "initialize" {
		return
	}
	var agreed struct {
		Version string `json:"protocolVersion"`
	}
	if wire.UnmarshalPart(answer.Result, &agreed) == nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.text = agreed.Version
	}
}

// get is the version, "" before initialize was answered.
func (v *version) get() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text
}

// carrier is the HTTP transport to the server. It adds key and version to each request, and turns
// error answers in our form into errors that say what is wrong.
type carrier struct {
	base, key string
	agreed    *version
}

// unreachable is the code of an error that no server has answered with. Only its text is seen.
const unreachable fault.Code = "unreachable"

// versionHeader is the header that MCP demands after initialize.
const versionHeader = "Mcp-Protocol-Version"

// RoundTrip changes a copy: a transport must not touch the caller's request.
func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+c.key)
	// The header is missing only on initialize itself.
	if known := c.agreed.get(); known != "" && r.Header.Get(versionHeader) == "" {
		r.Header.Set(versionHeader, known)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil && r.Context().Err() == nil {
		return nil, fault.Wrap(err, unreachable, "Signalbox at %s cannot be reached, so nothing was done: %v. "+
			"Try again in a minute; if that does not help, a person has to start it with `signalbox up`.", c.base, err)
	}
	if err != nil || res.StatusCode < http.StatusBadRequest {
		return res, err
	}
	return errorIn(res)
}

// maxRefusal is how many bytes of an error answer are read.
const maxRefusal = 1 << 20

// errorIn is the error that an answer carries in our form. Answers in another form, such as a
// proxy's, are left to the SDK with their body intact.
func errorIn(res *http.Response) (*http.Response, error) {
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		return nil, err
	}
	var said wire.ErrorBody
	if wire.UnmarshalPart(text, &said) == nil && said.Message != "" {
		return nil, &fault.Error{Code: said.Error, Message: said.Message, Field: said.Field, Details: said.Details}
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	return res, nil
}
