package mcp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/behalf"
	"signalbox/internal/handoff"
	"signalbox/internal/mail"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/signal"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Options are the services that the tools call, and what they need to know of the server.
type Options struct {
	Version string
	// Behind says that others than this machine reach the server, under a name of its own. It turns
	// off the SDK's check that the Host header is localhost, which guards servers on loopback against
	// DNS rebinding.
	Behind   bool // others than this machine reach the server, under a name of its own
	Roster   *roster.Roster
	Handoffs *handoff.Handoffs
	Tasks    *task.Tasks
	Signals  *signal.Signals
	Mail     *mail.Mail
	Now      func() time.Time
	// Explain turns an error into what the caller may hear. It logs the ones that are the server's
	// own fault, because the SDK would not.
	Explain func(tool string, err error) error
}

// Handler speaks MCP over streamable HTTP. The request's context says which agent calls. Each
// request is answered on its own, without a session, so any node can answer it and a restart ends
// nothing. The list of tools depends on the agent's role, hence a server is made for each request;
// that takes microseconds.
func Handler(o Options) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		s, err := newServer(r.Context(), o)
		if err != nil {
			_ = o.Explain("", err)
			return nil // answered with 400
		}
		return s
	}, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: 2 * amp.MaxDocument,
		DisableLocalhostProtection: o.Behind,
	})
}

// server is the set of tools of one agent, for one request.
type server struct {
	Options
	// The agent whose key came with the request, and its role in tasks.
	who  roster.Identity
	role amp.Role // in tasks, "" for none
	// refused notes that a call was refused. The SDK makes a context of its own for tools.
	refused func(error)
}

// newServer makes the MCP server of an agent, which the request's context names, with the tools of its role.
func newServer(request context.Context, o Options) (*sdk.Server, error) {
	who := roster.From(request)
	s := &server{
		Options: o, who: who, role: task.MeOf(who).Role, refused: func(err error) { refusal.Note(request, err) },
	}
	out := sdk.NewServer(&sdk.Implementation{Name: "signalbox", Title: "Signalbox", Version: o.Version},
		&sdk.ServerOptions{
			Instructions: "Signalbox stands between agents and the people who answer for them. You are the agent " + who.Name +
				s.roleText() + " Ask for approval before you do what cannot be undone.",
			// Nothing is announced beyond tools: we send no notifications, as no client wakes up for one.
			Capabilities: &sdk.ServerCapabilities{},
		})
	for _, t := range slices.Concat(s.taskTools(), s.approvalTools(), s.mailTools()) {
		// A tool that an agent may not use is not listed: a model tries what it sees.
		if len(t.roles) > 0 && !slices.Contains(t.roles, s.role) {
			continue
		}
		schema, err := t.schema()
		if err != nil {
			return nil, err
		}
		out.AddTool(&sdk.Tool{
			Name: t.name, Description: t.about, InputSchema: schema,
			Annotations: &sdk.ToolAnnotations{ReadOnlyHint: t.reads},
		}, s.handle(t, schema))
	}
	return out, nil
}

// roleText tells the model which role it plays and what that asks of it. It is part of the
// server's instructions, which clients put into the prompt.
func (s *server) roleText() string {
	if s.role == "" {
		return "."
	}
	return ", the " + string(s.role) +
		" of tasks. Look into amp_inbox, acknowledge what you begin with amp_ack, send amp_heartbeat while you work, and " +
		"amp_escalate what you cannot solve."
}

// handle reads the arguments and calls the tool, as the agent and within its rate limits. Every
// problem is a result with isError, and never a JSON-RPC error: the model sees results, and can
// repair what it sent.
func (s *server) handle(t tool, schema object) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		args, problem := t.read(req.Params.Arguments, schema)
		if problem != "" {
			return result([]byte(problem), true), nil
		}
		// Rate limits count calls of tools as they count the HTTP calls of the same purpose.
		_, err := s.Roster.Admit(s.who, t.rate)
		said := claimsIn(req.Params.Meta)
		if err == nil {
			_, err = rulebook.Admit(ctx, s.Roster, s.who, said)
		}
		if err == nil { // also for tools about which no rule is asked
			err = s.Handoffs.Admit(ctx, s.who, said.Claim, said.User)
		}
		var out outcome
		if err == nil {
			// The SDK makes the context; who calls, what they may see and what they claim is said again.
			ctx = rulebook.WithClaims(ctx, said)
			out, err = t.do(wire.WithScope(roster.With(ctx, s.who), s.who.Workspace), args)
		}
		if err != nil {
			s.refused(err)
			return result(t.errorText(s.Explain(t.name, err)), true), nil
		}
		return result(out.text, out.refused), nil
	}
}

// claimsIn is what a call of a tool says of itself in _meta. What is there and is no text proves nothing, and is refused
// like a token that is none.
func claimsIn(meta sdk.Meta) (c behalf.Named) {
	c.User, _ = meta["user"].(string)
	c.Workspace, _ = meta["workspace"].(string)
	switch given := meta["delegation"].(type) {
	case nil:
	case string:
		c.Claim.Token = given
	default:
		c.Claim.Hops = true
	}
	if given, there := meta["user_token"]; there && given != nil {
		c.UserToken = fmt.Sprint(given)
	}
	return c
}

// result is what the model sees: the text, and the same as structured content where it is JSON,
// for clients that read that instead.
func result(text []byte, failed bool) *sdk.CallToolResult {
	out := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}, IsError: failed}
	if wire.Valid(text) {
		out.StructuredContent = wire.Raw(text)
	}
	return out
}
