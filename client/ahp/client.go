package ahp

import (
	"context"
	"crypto/rand"
	"encoding/json" // the client brings a WebSocket and nothing else beside the standard library
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/client/internal/strict"
)

// Version is the version of AHP that a client speaks.
const Version = "2.4"

// Client talks to one harness over one connection, or in POSTs. Dial or Spawn makes it,
// Close ends it. Before anything else it needs a handshake, which it remembers for its
// whole life.
type Client struct {
	carrier        carrier
	session, agent string
	timeout        time.Duration
	shaken         atomic.Bool
	spool          *Spool   // nil for none
	putOff         sync.Map // digests of events that the harness has answered with defer
	// down is why the last handshake did not reach the harness: with a spool it is not tried again for each event.
	down atomic.Pointer[unreachableError]
}

// carrier carries messages to the harness and answers back: multiplexer over a stream, poster
// over HTTP. Its methods are called by many goroutines at once.
type carrier interface {
	// call sends a request and returns the response with its id.
	call(ctx context.Context, id string, message []byte) ([]byte, error)
	// notify sends a notification. Nothing is known of what becomes of it.
	notify(ctx context.Context, message []byte) error
	close() error
}

// Option changes how a Client works.
type Option func(*settings)

// settings are what options change.
type settings struct {
	key, session, agent string
	timeout             time.Duration
	check               func(net.Conn) error
	spool               *Spool
}

// WithCheck has a connection to a Unix socket looked at before anything is sent over it: an error
// refuses it. It is for clients that want to know which process listens there.
func WithCheck(check func(net.Conn) error) Option { return func(s *settings) { s.check = check } }

// WithKey gives the agent's key, for HTTP and WebSockets. A Unix socket takes none.
func WithKey(key string) Option { return func(s *settings) { s.key = key } }

// WithSession sets the session and the agent of events that do not name their own.
// Approvals are bound to the session, so an agent that restarts and wants to find its
// approvals again uses the same one. Without this option both are random.
func WithSession(session, agent string) Option {
	return func(s *settings) { s.session, s.agent = session, agent }
}

// WithTimeout sets how long one answer may take; 10 seconds without it. A harness holds
// a call that a person decides for most of that time, so a shorter timeout turns
// waiting into refusals.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// gather applies the options to the defaults.
func gather(options []Option) settings {
	s := settings{session: newID(), agent: newID(), timeout: 10 * time.Second}
	for _, o := range options {
		o(&s)
	}
	return s
}

// newID is a random UUID of version 4, which is what the reference client sends.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Dial connects to a harness: http:// or https:// for one POST per event, ws:// or
// wss:// for a WebSocket, unix: and a path for a Unix socket. HTTP does not connect
// until the first call.
func Dial(ctx context.Context, target string, options ...Option) (*Client, error) {
	s := gather(options)
	if scheme, _, _ := strings.Cut(target, ":"); scheme == "http" || scheme == "https" {
		u, err := url.Parse(target)
		if err != nil || u.Host == "" {
			return nil, errors.New("ahp: the address should look like https://signalbox.example.com/ahp")
		}
		return s.client(newPoster(u.String(), s.key)), nil
	}
	stream, err := OpenStream(ctx, target, s.key, options...)
	if err != nil && s.spool != nil && Unreachable(err) {
		return s.client(absent{err}), nil
	}
	if err != nil {
		return nil, err
	}
	return s.client(newMultiplexer(stream)), nil
}

// Spawn starts a harness as a program and talks over its standard input and output. The
// caller sets the command's standard error before. Close ends the program.
func Spawn(command *exec.Cmd, options ...Option) (*Client, error) {
	stream, err := StartStream(command)
	if err != nil {
		return nil, err
	}
	return gather(options).client(newMultiplexer(stream)), nil
}

// client makes a client on a carrier.
func (s settings) client(c carrier) *Client {
	return &Client{carrier: c, session: s.session, agent: s.agent, timeout: s.timeout, spool: s.spool}
}

// Close ends the connection, or the program. Calls that wait fail, which is a refusal.
func (c *Client) Close() error { return c.carrier.close() }

// Harness is what a harness says about itself in a handshake. The limits are for the
// agent to keep; the client does not enforce them.
type Harness struct {
	Version      string // of the protocol
	Name         string
	Capabilities []string
	Timeout      time.Duration // zero when it does not say
	BatchSize    int
	MaxDepth     int
	// SpoolKey is the key of the lists that the harness gives to clients with a spool, for [OpenSpool].
	SpoolKey string
	// Offline says that the harness could not be reached, and that the spool answers in its place.
	Offline bool
}

// ProtocolError is an error that the harness answered, or an answer that is not one.
type ProtocolError struct {
	Code    int // of JSON-RPC; 0 if the answer could not be used
	Message string
}

// Error is the message, with the code of JSON-RPC if there is one.
func (e *ProtocolError) Error() string {
	if e.Code == 0 {
		return "ahp: " + e.Message
	}
	return fmt.Sprintf("ahp: %s (%d)", e.Message, e.Code)
}

// Handshake agrees on the version and tells the harness what the agent can do. Call it
// before everything else, on every transport: a server may demand it of POSTs too.
func (c *Client) Handshake(ctx context.Context, capabilities ...string) (Harness, error) {
	if capabilities == nil {
		capabilities = []string{}
	}
	params := map[string]any{
		"protocol_version": Version, "session_id": c.session, "agent_id": c.agent,
		"agent_info": map[string]any{"framework": "signalbox-go", "version": Version, "capabilities": capabilities},
	}
	if c.spool != nil {
		_ = c.spool.introduce(params) // without one the harness decides, and nothing is allowed while it is away
	}
	c.down.Store(nil)
	result, err := c.call(ctx, "ahp/handshake", params)
	if c.spool != nil && Unreachable(err) {
		c.down.Store(&unreachableError{err})
		c.shaken.Store(true)
		return Harness{Offline: true}, nil
	}
	if err != nil {
		if c.spool != nil && answered(err) {
			c.spool.forgetList()
		}
		return Harness{}, err
	}
	var got struct {
		Version *string `json:"protocol_version"`
		Info    *struct {
			Name         *string   `json:"name"`
			Version      *string   `json:"version"`
			Capabilities *[]string `json:"capabilities"`
		} `json:"harness_info"`
		Config struct {
			Timeout *uint64 `json:"timeout_ms"`
			Batch   *uint32 `json:"batch_size"`
			Depth   *uint32 `json:"max_depth"`
		} `json:"config"`
		Spool *spoolGreeting `json:"spool"`
	}
	if err := json.Unmarshal(result, &got); err != nil {
		return Harness{}, &ProtocolError{0, "the handshake cannot be read: " + err.Error()}
	}
	if got.Version == nil || got.Info == nil || got.Info.Name == nil || got.Info.Version == nil ||
		got.Info.Capabilities == nil {
		return Harness{}, &ProtocolError{
			0,
			"the handshake cannot be read: protocol_version, or name, version or capabilities of harness_info is missing",
		}
	}
	h := Harness{Version: *got.Version, Name: *got.Info.Name, Capabilities: *got.Info.Capabilities}
	if t := got.Config.Timeout; t != nil {
		h.Timeout = time.Duration(min(*t, 1<<40)) * time.Millisecond
	}
	if n := got.Config.Batch; n != nil {
		h.BatchSize = int(*n)
	}
	if n := got.Config.Depth; n != nil {
		h.MaxDepth = int(*n)
	}
	c.shaken.Store(true)
	if c.spool != nil && got.Spool != nil {
		h.SpoolKey = got.Spool.Server
		err = c.spoolBack(ctx, got.Spool)
	}
	return h, err
}

var errHandshake = errors.New("ahp: there was no handshake; call Handshake first")

// Decide asks for a decision. With an error the decision is a refusal of the event's
// type, so the caller may go by Decision.Allowed alone.
func (c *Client) Decide(ctx context.Context, e Event) (Decision, error) {
	e = c.complete(e)
	d, err := c.decide(ctx, e)
	switch {
	case err != nil && c.spool != nil:
		return c.spool.Answer(e, c.unlessPutOff(e, err))
	case err != nil:
		return Refusal(e.Type, err.Error()), err
	case c.spool != nil && d.Word == "defer":
		c.putOff.Store(sameAgain(e), true)
	}
	return d, nil
}

// decide asks, and knows no refusal: with an error the decision is empty.
func (c *Client) decide(ctx context.Context, e Event) (Decision, error) {
	switch {
	case !c.shaken.Load():
		return Decision{}, errHandshake
	case reportOnly[e.Type]:
		return Decision{}, fmt.Errorf("ahp: %s has no decision; use Tell", e.Type)
	}
	result, err := c.call(ctx, "ahp/event", c.complete(e))
	if err != nil {
		return Decision{}, err
	}
	d, err := decodeDecision(e.Type, result)
	if err != nil {
		return Decision{}, &ProtocolError{0, err.Error()}
	}
	return d, nil
}

// Tell sends an event that has no decision. nil says that it was sent, and nothing
// about what the harness did with it.
func (c *Client) Tell(ctx context.Context, e Event) error {
	switch {
	case !c.shaken.Load():
		return errHandshake
	case !reportOnly[e.Type]:
		return fmt.Errorf("ahp: %s asks for a decision; use Decide", e.Type)
	}
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "ahp/event", "params": c.complete(e)})
	if err != nil {
		return err
	}
	if down := c.down.Load(); down != nil {
		return down
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.carrier.notify(ctx, message)
}

// Batch asks about many events in one call: pre_action, pre_prompt, and events without
// a decision. There is one decision per event, in order. With an error every decision
// is a refusal, unless a spool allows it.
func (c *Client) Batch(ctx context.Context, events []Event) ([]Decision, error) {
	decisions, err := c.batch(ctx, events)
	if err == nil {
		return decisions, nil
	}
	decisions = make([]Decision, len(events))
	for i, e := range events {
		decisions[i] = Refusal(e.Type, err.Error())
		if c.spool != nil && !reportOnly[e.Type] {
			e = c.complete(e)
			decisions[i], _ = c.spool.Answer(e, c.unlessPutOff(e, err)) // err says why
		}
	}
	return decisions, err
}

// batch asks, and knows no refusal. A number of decisions that is not the number of
// events is an error: nobody could say which decision is whose.
func (c *Client) batch(ctx context.Context, events []Event) ([]Decision, error) {
	if !c.shaken.Load() {
		return nil, errHandshake
	}
	all := make([]Event, len(events))
	for i, e := range events {
		if !reportOnly[e.Type] && e.Type != PreAction && e.Type != PrePrompt {
			return nil, fmt.Errorf("ahp: %s cannot be in a batch; use Decide", e.Type)
		}
		all[i] = c.complete(e)
	}
	result, err := c.call(ctx, "ahp/batch", map[string]any{"events": all})
	if err != nil {
		return nil, err
	}
	members, err := strict.Object(result)
	if err != nil {
		return nil, &ProtocolError{0, "the decisions cannot be read: " + err.Error()}
	}
	var got []json.RawMessage
	if err := json.Unmarshal(members["decisions"], &got); err != nil || len(got) != len(events) {
		return nil, &ProtocolError{0, fmt.Sprintf("%d decisions for %d events", len(got), len(events))}
	}
	decisions := make([]Decision, len(events))
	for i, raw := range got {
		if decisions[i], err = decodeDecision(PreAction, raw); err != nil {
			return nil, &ProtocolError{0, err.Error()}
		}
	}
	return decisions, nil
}

// Answer is the answer to a query. What Answer holds depends on the query type.
type Answer struct {
	Answer       json.RawMessage `json:"answer"`
	Reason       string          `json:"reason"`
	Alternatives []string        `json:"alternatives"`
}

// Query asks a question. An error is no answer: it neither permits nor refuses.
func (c *Client) Query(ctx context.Context, queryType string, payload any) (Answer, error) {
	if !c.shaken.Load() {
		return Answer{}, errHandshake
	}
	result, err := c.call(ctx, "ahp/query",
		map[string]any{"session_id": c.session, "agent_id": c.agent, "query_type": queryType, "payload": payload})
	if err != nil {
		return Answer{}, err
	}
	members, err := strict.Object(result)
	if err != nil {
		return Answer{}, &ProtocolError{0, "the answer cannot be read: " + err.Error()}
	}
	a := Answer{Answer: members["answer"]}
	if a.Answer == nil {
		return Answer{}, &ProtocolError{0, "the answer has no member answer"}
	}
	for name, field := range map[string]any{"reason": &a.Reason, "alternatives": &a.Alternatives} {
		if raw := members[name]; raw != nil && json.Unmarshal(raw, field) != nil {
			return Answer{}, &ProtocolError{0, "the answer has no valid " + name}
		}
	}
	return a, nil
}

// call sends a request and returns its result, within the client's timeout.
func (c *Client) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	id := newID()
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if down := c.down.Load(); down != nil {
		return nil, down
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	text, err := c.carrier.call(ctx, id, message)
	if err != nil {
		return nil, err
	}
	return readResult(id, text)
}

// readResult reads the result out of a response to the request with the id. The checks
// have the order of the reference client, so that both name the same mistake. A result
// of null is none.
func readResult(id string, text []byte) (json.RawMessage, error) {
	members, err := strict.Object(text)
	if err != nil {
		return nil, &ProtocolError{0, "the answer cannot be read: " + err.Error()}
	}
	var version, gotID string
	var failure struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	switch {
	case json.Unmarshal(members["jsonrpc"], &version) != nil || version != "2.0":
		return nil, &ProtocolError{0, `the answer is not of JSON-RPC "2.0"`}
	case json.Unmarshal(members["id"], &gotID) != nil || gotID != id:
		return nil, &ProtocolError{0, "the answer has the id of another request"}
	case kindOf(members["error"]) == isObject:
		if err := json.Unmarshal(members["error"], &failure); err != nil {
			return nil, &ProtocolError{0, "the error cannot be read: " + err.Error()}
		}
		return nil, &ProtocolError{failure.Code, failure.Message}
	case members["result"] == nil || string(members["result"]) == "null":
		return nil, &ProtocolError{0, "the answer has no result"}
	}
	return members["result"], nil
}
