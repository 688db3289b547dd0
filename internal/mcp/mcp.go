package mcp

import (
	"context"
	"net/http"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/mail"
	"signalbox/internal/roster"
	"signalbox/internal/signal"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Options are what the tools call.
type Options struct {
	Version string
	Behind  bool // others than this machine reach the server, under a name of its own
	Roster  *roster.Roster
	Tasks   *task.Tasks
	Signals *signal.Signals
	Mail    *mail.Mail
	Now     func() time.Time
	// Explain is what the caller of a tool hears of an error; it logs what the server has to
	// answer for.
	Explain func(tool string, err error) error
}

// Handler speaks streamable HTTP with agents, each in the context of its request. Each request
// stands for itself, so that any node can answer it.
func Handler(o Options) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		s, err := newServer(o, roster.From(r.Context()))
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

// server is the tools of one agent.
type server struct {
	Options
	who  roster.Identity
	role amp.Role // in tasks, "" for none
}

// newServer makes the server of an agent.
func newServer(o Options, who roster.Identity) (*sdk.Server, error) {
	s := &server{Options: o, who: who, role: task.MeOf(who).Role}
	out := sdk.NewServer(&sdk.Implementation{Name: "signalbox", Title: "Signalbox", Version: o.Version},
		&sdk.ServerOptions{
			Instructions: "Signalbox stands between agents and the people who answer for them. You are the agent " + who.Name +
				s.roleText() + " Ask for approval before you do what cannot be undone.",
			Capabilities: &sdk.ServerCapabilities{},
		})
	for _, t := range slices.Concat(s.taskTools(), s.approvalTools(), s.mailTools()) {
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

func (s *server) roleText() string {
	if s.role == "" {
		return "."
	}
	return ", the " + string(s.role) +
		" of tasks. Look into amp_inbox, acknowledge what you begin with amp_ack, send amp_heartbeat while you work, and " +
		"amp_escalate what you cannot solve."
}

// handle reads the arguments and calls the tool, as the agent and within its limits. What is
// wrong is told to the model, who can repair it.
func (s *server) handle(t tool, schema object) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		args, problem := t.read(req.Params.Arguments, schema)
		if problem != "" {
			return result([]byte(problem), true), nil
		}
		_, err := s.Roster.Admit(s.who, t.rate)
		var out outcome
		if err == nil {
			// The SDK makes the context; who calls, and what they may see, is said again.
			out, err = t.do(wire.WithScope(roster.With(ctx, s.who), s.who.Workspace), args)
		}
		if err != nil {
			return result(t.errorText(s.Explain(t.name, err)), true), nil
		}
		return result(out.text, out.refused), nil
	}
}

// result is what the model sees.
func result(text []byte, failed bool) *sdk.CallToolResult {
	out := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}, IsError: failed}
	if wire.Valid(text) {
		out.StructuredContent = wire.Raw(text)
	}
	return out
}
