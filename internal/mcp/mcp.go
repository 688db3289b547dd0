// Package mcp lets agents that speak the Model Context Protocol use Signalbox: tools for
// the role that an agent plays in tasks, for asking for an approval, and for mail.
//
// A tool is a call of our own HTTP surface with the agent's own key, so it may do what
// the agent may and nothing else, and everything that is refused there is refused here,
// with the same words. The package holds no state: it makes envelopes, ids and times, and
// hands on what comes back. It knows the SDK and the forms of tasks, and no database.
package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/task"
	"signalbox/internal/wire"
)

// Caller makes calls of the HTTP surface as one agent.
type Caller func(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error)

// Remote calls the server at an address.
func Remote(base, key string, client *http.Client) Caller {
	return func(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
		req, err := newRequest(ctx, method, base+path, key, body)
		if err != nil {
			return 0, nil, err
		}
		res, err := client.Do(req)
		if err != nil {
			return 0, nil, err
		}
		defer func() { _ = res.Body.Close() }()
		answer, err := io.ReadAll(res.Body)
		return res.StatusCode, answer, err
	}
}

// Local calls a handler in this process, as who has made the request.
func Local(handler http.Handler, from *http.Request) Caller {
	return func(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
		req, err := newRequest(ctx, method, path, "", body)
		if err != nil {
			return 0, nil, err
		}
		req.Header.Set("Authorization", from.Header.Get("Authorization"))
		req.RequestURI, req.Host = path, from.Host
		w := &collected{header: http.Header{}, status: http.StatusOK}
		handler.ServeHTTP(w, req)
		return w.status, w.body.Bytes(), nil
	}
}

func newRequest(ctx context.Context, method, address, key string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		req.Body = http.NoBody
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return req, nil
}

// collected is an answer that stays in this process.
type collected struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (c *collected) Header() http.Header         { return c.header }
func (c *collected) Write(p []byte) (int, error) { return c.body.Write(p) }
func (c *collected) WriteHeader(status int)      { c.status = status }

// server is the tools of one agent.
type server struct {
	call Caller
	me   task.Me
	now  func() time.Time
}

// New makes the server for the agent that the caller calls as.
func New(ctx context.Context, version string, call Caller) (*sdk.Server, error) {
	s := &server{call: call, now: time.Now}
	status, answer, err := call(ctx, http.MethodGet, "/amp/me", nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, errors.New(string(answer))
	}
	if err := wire.UnmarshalPart(answer, &s.me); err != nil {
		return nil, err
	}
	out := sdk.NewServer(&sdk.Implementation{Name: "signalbox", Title: "Signalbox", Version: version}, &sdk.ServerOptions{
		Instructions: "Signalbox stands between agents and the people who answer for them. You are the agent " + s.me.Agent + s.roleText() + " Ask for approval before you do what cannot be undone.",
		Capabilities: &sdk.ServerCapabilities{},
	})
	for _, t := range s.tools() {
		if len(t.roles) > 0 && !slices.Contains(t.roles, s.me.Role) {
			continue
		}
		schema, err := t.schema()
		if err != nil {
			return nil, err
		}
		out.AddTool(&sdk.Tool{Name: t.name, Description: t.about, InputSchema: schema, Annotations: &sdk.ToolAnnotations{ReadOnlyHint: t.reads}}, t.handle(schema))
	}
	return out, nil
}

func (s *server) roleText() string {
	if s.me.Role == "" {
		return "."
	}
	return ", the " + string(s.me.Role) + " of tasks. Look into amp_inbox, acknowledge what you begin with amp_ack, send amp_heartbeat while you work, and amp_escalate what you cannot solve."
}

// Serve speaks over a stream of lines until it ends.
func Serve(ctx context.Context, version string, call Caller, in io.ReadCloser, out io.WriteCloser) error {
	s, err := New(ctx, version, call)
	if err != nil {
		return err
	}
	return s.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out})
}

// Handler speaks streamable HTTP. Each request stands for itself, so that any node can
// answer it; local is the surface that tools call. behind says that others than this
// machine reach the server, under a name of its own.
func Handler(version string, behind bool, local func() http.Handler) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		s, err := New(r.Context(), version, Local(local(), r))
		if err != nil {
			return nil // answered with 400: the key was looked at before
		}
		return s
	}, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true, MaxRequestBodyBytes: 2 * task.MaxDocument, DisableLocalhostProtection: behind})
}
