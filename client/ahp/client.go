package ahp

import (
	"context"
	"crypto/rand"
	"encoding/json" // the client brings a WebSocket and nothing else beside the standard library
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"signalbox/client/internal/strict"
)

// Version is the version of AHP that a client speaks.
const Version = "2.4"

// Client talks to one harness.
type Client struct {
	carrier        carrier
	session, agent string
	timeout        time.Duration
	shaken         atomic.Bool
}

// carrier brings messages to the harness and answers back.
type carrier interface {
	// call sends a request and returns the response with its id.
	call(ctx context.Context, id string, message []byte) ([]byte, error)
	// tell sends a notification. Nothing is known of what becomes of it.
	tell(ctx context.Context, message []byte) error
	close() error
}

// Option changes how a Client works.
type Option func(*settings)

type settings struct {
	key, session, agent string
	timeout             time.Duration
}

// WithKey gives the agent's key, for HTTP and WebSockets.
func WithKey(key string) Option { return func(s *settings) { s.key = key } }

// WithSession names the session and the agent of events that do not say so themselves.
func WithSession(session, agent string) Option {
	return func(s *settings) { s.session, s.agent = session, agent }
}

// WithTimeout sets how long an answer may take, 10 seconds when it is not given.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

func gather(options []Option) settings {
	s := settings{session: newID(), agent: newID(), timeout: 10 * time.Second}
	for _, o := range options {
		o(&s)
	}
	return s
}

// newID is a random UUID, as other clients have them.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Dial connects to a harness: http:// or https:// for one POST an event, ws:// or wss://
// for a WebSocket, unix: and a path for a Unix socket.
func Dial(ctx context.Context, target string, options ...Option) (*Client, error) {
	s := gather(options)
	if scheme, _, _ := strings.Cut(target, ":"); scheme == "http" || scheme == "https" {
		u, err := url.Parse(target)
		if err != nil || u.Host == "" {
			return nil, errors.New("ahp: the address should look like https://signalbox.example.com/ahp")
		}
		return s.client(newPoster(u.String(), s.key)), nil
	}
	stream, err := OpenStream(ctx, target, s.key)
	if err != nil {
		return nil, err
	}
	return s.client(newTalk(stream)), nil
}

// Spawn starts a harness as a program and talks over its standard input and output. Its
// standard error is the command's, to be set before.
func Spawn(command *exec.Cmd, options ...Option) (*Client, error) {
	stream, err := StartStream(command)
	if err != nil {
		return nil, err
	}
	return gather(options).client(newTalk(stream)), nil
}

func (s settings) client(c carrier) *Client {
	return &Client{carrier: c, session: s.session, agent: s.agent, timeout: s.timeout}
}

// Close ends the connection. Calls that wait fail.
func (c *Client) Close() error { return c.carrier.close() }

// Harness is what a harness says of itself.
type Harness struct {
	Version      string // of the protocol
	Name         string
	Capabilities []string
	Timeout      time.Duration // zero when it does not say
	BatchSize    int
	MaxDepth     int
}

// ProtocolError is an answer that is an error, or none that can be read.
type ProtocolError struct {
	Code    int // of JSON-RPC, 0 when the answer is none
	Message string
}

func (e *ProtocolError) Error() string {
	if e.Code == 0 {
		return "ahp: " + e.Message
	}
	return fmt.Sprintf("ahp: %s (%d)", e.Message, e.Code)
}

// Handshake agrees on the version and says what the agent can do. It comes before
// everything else.
func (c *Client) Handshake(ctx context.Context, capabilities ...string) (Harness, error) {
	if capabilities == nil {
		capabilities = []string{}
	}
	result, err := c.call(ctx, "ahp/handshake", map[string]any{
		"protocol_version": Version, "session_id": c.session, "agent_id": c.agent,
		"agent_info": map[string]any{"framework": "signalbox-go", "version": Version, "capabilities": capabilities},
	})
	if err != nil {
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
	return h, nil
}

var errHandshake = errors.New("ahp: there was no handshake; call Handshake first")

// Decide asks what to do. With an error the decision is a refusal.
func (c *Client) Decide(ctx context.Context, e Event) (Decision, error) {
	d, err := c.decide(ctx, e)
	if err != nil {
		return Refusal(e.Type, err.Error()), err
	}
	return d, nil
}

func (c *Client) decide(ctx context.Context, e Event) (Decision, error) {
	switch {
	case !c.shaken.Load():
		return Decision{}, errHandshake
	case told[e.Type]:
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

// Tell sends an event that has no decision. That it was sent is all that is known.
func (c *Client) Tell(ctx context.Context, e Event) error {
	switch {
	case !c.shaken.Load():
		return errHandshake
	case !told[e.Type]:
		return fmt.Errorf("ahp: %s is decided about; use Decide", e.Type)
	}
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "ahp/event", "params": c.complete(e)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.carrier.tell(ctx, message)
}

// Batch asks about many events at once, of those that have the generic decision or none.
// With an error every decision is a refusal.
func (c *Client) Batch(ctx context.Context, events []Event) ([]Decision, error) {
	decisions, err := c.batch(ctx, events)
	if err == nil {
		return decisions, nil
	}
	decisions = make([]Decision, len(events))
	for i, e := range events {
		decisions[i] = Refusal(e.Type, err.Error())
	}
	return decisions, err
}

func (c *Client) batch(ctx context.Context, events []Event) ([]Decision, error) {
	if !c.shaken.Load() {
		return nil, errHandshake
	}
	all := make([]Event, len(events))
	for i, e := range events {
		if !told[e.Type] && e.Type != PreAction && e.Type != PrePrompt {
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
		return nil, &ProtocolError{0, fmt.Sprintf("there are %d decisions about %d events", len(got), len(events))}
	}
	decisions := make([]Decision, len(events))
	for i, raw := range got {
		if decisions[i], err = decodeDecision(PreAction, raw); err != nil {
			return nil, &ProtocolError{0, err.Error()}
		}
	}
	return decisions, nil
}

// Answer is the answer to a question.
type Answer struct {
	Answer       json.RawMessage `json:"answer"`
	Reason       string          `json:"reason"`
	Alternatives []string        `json:"alternatives"`
}

// Query asks a question.
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
			return Answer{}, &ProtocolError{0, "the answer has no right " + name}
		}
	}
	return a, nil
}

// call makes a request and reads the result, in the order in which the protocol's first
// client looks at it.
func (c *Client) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	id := newID()
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	text, err := c.carrier.call(ctx, id, message)
	if err != nil {
		return nil, err
	}
	return readResult(id, text)
}

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
		return nil, &ProtocolError{0, "the answer is to another request"}
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
