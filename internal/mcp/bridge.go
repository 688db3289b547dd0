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

// Bridge hands the messages of a client that speaks over a stream of lines on to the tools of a
// server, and hands its answers back, until the stream or ctx ends. It adds the agent's key,
// and understands as much of the messages as that takes.
func Bridge(ctx context.Context, base, key string, in io.ReadCloser, out io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	near, err := (&sdk.IOTransport{Reader: in, Writer: out}).Connect(ctx)
	if err != nil {
		cancel()
		return err
	}
	b := &bridge{near: near, calls: map[jsonrpc.ID]context.CancelFunc{}}
	client := &http.Client{
		Transport: &carrier{key: key, spoken: &b.spoken},
		// the key is for this server
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	b.far = &sdk.StreamableClientTransport{
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
		if req, ok := msg.(*jsonrpc.Request); ok { // the server asks nothing, so nothing is answered
			b.take(ctx, req)
		}
	}
}

// bridge is one client, and the calls that it waits for.
type bridge struct {
	near    sdk.Connection
	far     sdk.Transport
	running sync.WaitGroup
	spoken  version

	mu    sync.Mutex
	calls map[jsonrpc.ID]context.CancelFunc
}

// take hands a message on. Calls may wait long for people, and do not hold up one another.
func (b *bridge) take(ctx context.Context, req *jsonrpc.Request) {
	switch {
	case req.IsCall():
		ctx, end := b.begin(ctx, req.ID)
		b.running.Go(func() {
			defer end()
			answer := b.call(ctx, req)
			if ctx.Err() == nil { // what was cancelled is not answered
				_ = b.near.Write(ctx, answer) // a client that has gone ends the stream
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

func (b *bridge) begin(ctx context.Context, id jsonrpc.ID) (context.Context, func()) {
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

func (b *bridge) cancel(named any) {
	id, err := jsonrpc.MakeID(named)
	b.mu.Lock()
	defer b.mu.Unlock()
	if cancel := b.calls[id]; err == nil && cancel != nil {
		cancel()
	}
}

// call is the server's answer to a call, or one that says why there is none. The model hears
// what kept a tool from being called, and may try again.
func (b *bridge) call(ctx context.Context, req *jsonrpc.Request) jsonrpc.Message {
	msg, err := b.send(ctx, req)
	if err == nil {
		b.spoken.learn(req, msg)
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

// send sends one message, each over a connection of its own: to the server each stands for
// itself, and one that fails must not end those that follow.
func (b *bridge) send(ctx context.Context, req *jsonrpc.Request) (jsonrpc.Message, error) {
	far, err := b.far.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = far.Close() }()
	if err := far.Write(ctx, req); err != nil || !req.IsCall() {
		return nil, err
	}
	return far.Read(ctx)
}

// version is the version of MCP that client and server have agreed upon.
type version struct {
	mu   sync.Mutex
	text string
}

// learn looks whether an answer is that of the server to the client's first call.
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

func (v *version) get() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text
}

// carrier adds to each request whose it is and which version it speaks, and reads refusals.
type carrier struct {
	key    string
	spoken *version
}

const versionHeader = "Mcp-Protocol-Version"

func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+c.key)
	if known := c.spoken.get(); known != "" && r.Header.Get(versionHeader) == "" {
		r.Header.Set(versionHeader, known)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || res.StatusCode < http.StatusBadRequest {
		return res, err
	}
	return refusal(res)
}

// maxRefusal is how much of an answer that is an error is read.
const maxRefusal = 1 << 20

// refusal is the error that an answer carries in our form. Others are left to the SDK.
func refusal(res *http.Response) (*http.Response, error) {
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
