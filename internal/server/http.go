package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mcp"
	"signalbox/internal/oidc"
	"signalbox/internal/policy"
	"signalbox/internal/refusal"
	"signalbox/internal/reload"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/server/answer"
	"signalbox/internal/server/openapi"
	"signalbox/internal/server/vigil"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// handler mounts every route on one mux. Two routes that conflict panic here, at the start, not at the first call.
// The description of the API is made from the same list, so no route can be missing in it.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	whole := s.outermost(mux)
	routes := append(s.core.routes(), s.ownRoutes()...)
	s.tools = mcp.NewHandler(mcp.Options{
		Version: Version, Behind: s.config.PublicURL != "", Roster: s.core.Roster, Handoffs: s.core.Handoffs,
		Tasks: s.core.services.tasks, Signals: s.core.services.signals, Mail: s.core.services.mail, Now: s.core.Now,
		Explain:    func(tool string, err error) error { return s.explain(err, "tool", tool) },
		SessionKey: []byte(s.core.Outbox.SecretFor("", "mcp-sessions", 0).Reveal()),
	})
	routes = append(routes, s.tools.Routes()...)
	routes = append(routes, s.resourceRoutes()...)
	// The description does not contain itself.
	document := openapi.Describe(Version, routes)
	for _, at := range []struct{ path, media string }{
		{"/openapi.json", "application/json"},
		{"/v1/openapi.json", "application/json"},
		{"/v1/openapi.yaml", "application/yaml"},
	} {
		routes = append(routes,
			wire.Route{
				Method: "GET", Path: at.path, Summary: "This description", Media: at.media,
				Handle: serveDocument(document, at.media),
			})
	}
	for i := range routes {
		mux.Handle(routes[i].Method+" "+routes[i].Path, s.serve(&routes[i]))
	}
	// The dashboard checks sessions and roles itself; its pages are not part of the API.
	dashboard := s.behindTheWall(s.core.web.Handler())
	mux.Handle("/ui/", dashboard)
	mux.Handle("GET /{$}", dashboard)
	return whole
}

// serveDocument answers with the description. JSON is valid YAML, so one text serves both media types.
func serveDocument(document []byte, media string) wire.Handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", media)
		_, _ = w.Write(document)
		return nil
	}
}

// serve wraps the handler of a route in what all calls have in common: authentication, known parameters, deadlines,
// the error form and metrics. Handlers return errors and never write one themselves.
func (s *Server) serve(route *wire.Route) http.Handler {
	count, name := s.metrics.Of(route), route.Method+" "+route.Path
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		// The listener's read timeout is for what is sent to us. A call without a
		// body has sent everything, and may take longer to be answered.
		control := http.NewResponseController(w)
		if r.Body == http.NoBody {
			_ = control.SetReadDeadline(time.Time{})
		}
		// Streams set a deadline of their own.
		_ = control.SetWriteDeadline(began.Add(2 * requestTimeout))
		counted, _ := w.(*answer.Writer) // of outermost, which gives it to every handler
		source, _, _ := net.SplitHostPort(r.RemoteAddr)
		r = r.WithContext(refusal.With(r.Context(), s.core.Refusals, refusal.Call{
			Source: source, Name: name,
		}))
		if within := r.Header.Get(behalf.WithinHeader); within != "" {
			r = r.WithContext(rulebook.WithClaims(r.Context(), behalf.Named{Claim: policy.Claim{Within: within}}))
		}
		if err := s.answer(counted, r, route); err != nil {
			refusal.Note(r.Context(), err)
			s.challenge(counted, r, route, err)
			err = s.explain(err, "method", r.Method, "path", route.Path, "request", w.Header().Get("X-Request-Id"))
			// A protocol may have an error form of its own.
			if route.Fail != nil {
				route.Fail(counted, err)
			} else {
				wire.Fail(counted, err)
			}
		}
		count(counted.Status, time.Since(began))
		if s.log.Enabled(r.Context(), slog.LevelDebug) {
			s.log.Debug("answered", "method", r.Method, "path", route.Path, "status", counted.Status, "took", time.Since(began))
		}
	})
}

// explain is the error that the caller sees. An error of the server's own is logged with
// its cause and with call, which says what was called; the caller gets a text without
// internals. Errors of the caller are not logged: anybody could fill the log with them.
func (s *Server) explain(err error, call ...any) error {
	err = store.Explain(err)
	if e := fault.From(err); e.Code.Status() >= 500 {
		s.log.Error("a call failed", append(call, "code", string(e.Code), "error", e.Error())...)
	}
	return err
}

// answer authenticates, counts the call against the rate limit, checks the parameters, and runs the handler, in this
// order. Nothing that costs more than a lookup happens before the caller is known.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, route *wire.Route) error {
	if err := s.edge.checkStranger(r, route); err != nil {
		return err
	}
	if route.Auth != wire.Public {
		who, err := s.caller(r, route.Auth)
		if err != nil {
			return err
		}
		if err := s.refuseAgents(r, route, who); err != nil {
			return err
		}
		if err := refuseWorkspace(r, who); err != nil {
			return err
		}
		// The headers are sent with a refusal too: they say when to try again.
		left, err := s.core.Roster.Admit(who, route.Rate)
		left.SetHeaders(w.Header())
		if err != nil {
			return err
		}
		ctx := r.Context()
		// A stream may last for days, so the key is checked again while it lasts.
		if route.Media == "text/event-stream" || wire.WantsEvents(r) {
			var end func()
			ctx, end = s.whileValid(r, route.Auth)
			defer end()
		}
		// The workspace in the context is the wall: services read it, and see nothing of others.
		r = r.WithContext(wire.WithScope(roster.With(ctx, who), who.Workspace))
	}
	if err := wire.KnownQuery(r, route); err != nil {
		return err
	}
	return route.Handle(w, r)
}

// caller authenticates a call and checks the role. A bearer token wins over a session of the dashboard. A session
// never counts for calls of agents: a page in a browser must not act as an agent.
func (s *Server) caller(r *http.Request, needed wire.Auth) (roster.Identity, error) {
	if r.Header.Get("Authorization") == "" && needed != wire.Agent && s.core.web.HasSession(r) {
		who, err := s.core.web.Caller(r)
		if err != nil {
			return who, err
		}
		return who, mayCall(who, needed)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if needed == wire.Agent && strings.HasPrefix(scheme, "amp_") {
		scheme, token = "Bearer", scheme // some mail clients send the key alone
	}
	if !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(token) == "" {
		wanted := fault.New(fault.Unauthenticated,
			"Send an operator's token in the header Authorization: Bearer sbx_op_…. On the server's "+
				"machine it is in the file %s of the data folder.", TokenFile)
		if needed == wire.Agent || needed == wire.Party {
			wanted = fault.New(fault.Unauthenticated,
				"Send a key of the agent in the header Authorization: Bearer rs-amp-…. An operator makes one with `signalbox "+
					"agents add` or `signalbox keys issue`.")
		}
		return roster.Identity{}, refusal.NoKey(wanted)
	}
	token = strings.TrimSpace(token)
	authenticate := s.core.Roster.Authenticate
	if r.URL.Path == mcp.Path && oidc.LooksLikeToken(token) {
		authenticate = s.core.Roster.AuthenticateToken
	}
	who, err := authenticate(r.Context(), token)
	if err != nil {
		return who, err
	}
	if rulebook.OtherWorkspace(who, r.Header.Get(behalf.WorkspaceHeader)) {
		return who, rulebook.RefuseWorkspace(who)
	}
	return who, mayCall(who, needed)
}

// refuseAgents refuses a call that decides or configures as an operator and comes from an agent's
// process. What only reads is for everybody who has a key.
func (s *Server) refuseAgents(r *http.Request, route *wire.Route, who roster.Identity) error {
	if who.Kind != roster.HolderOperator || route.Reads || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	return s.core.Kin.Check(r.Context(), r, who)
}

// behindTheWall refuses forms of the dashboard that an agent's process sends. Signing in is one of them.
func (s *Server) behindTheWall(dashboard http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			who, _ := s.core.web.Identify(r) // nobody yet, for who signs in
			if err := s.core.Kin.Check(r.Context(), r, who); err != nil {
				s.core.web.Refuse(w, r, err)
				return
			}
		}
		dashboard.ServeHTTP(w, r)
	})
}

// whileValid is a context that ends when the caller's key is revoked, expires, or loses its role. An error of the
// database does not end it: then nothing is known about the key. end has to be called.
func (s *Server) whileValid(r *http.Request, needed wire.Auth) (ctx context.Context, end func()) {
	shown := vigil.Of(r.Header.Get("Authorization"), r.Header.Get("Cookie"), r.Header.Get(behalf.WorkspaceHeader),
		strconv.FormatBool(r.URL.Path == mcp.Path), string(needed))
	return s.core.vigil.Watch(r.Context(), shown, func(ctx context.Context) bool {
		_, err := s.caller(r.WithContext(ctx), needed)
		return fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden)
	})
}

// mayCall checks that a caller of this kind and role may make a call that needs needed. Agents, owners and operators
// are apart: no role of an operator includes the calls of an agent. The texts say which key was used and which one is
// needed, since people mix them up.
func mayCall(who roster.Identity, needed wire.Auth) error {
	switch {
	case who.Kind == roster.HolderAgent && (needed == wire.Agent || needed == wire.Party):
		return nil
	case who.Kind == roster.HolderOperator && needed == wire.Party:
		return nil
	case needed == wire.Agent:
		return fault.New(fault.Forbidden,
			"This is the key of an %s, and the call is for agents. Use an agent's key, rs-amp-… or amp_live_sk_….", who.Kind)
	case who.Kind == roster.HolderAgent:
		return fault.New(fault.Forbidden, "This is an agent's key, and the call is for operators. Use an operator's token.")
	case who.Kind == roster.HolderOwner:
		return fault.New(fault.Forbidden,
			"This is an owner's key, which registers agents, and the call is for operators. Use an operator's token.")
	case !who.Role.Allows(roster.Role(needed)):
		return fault.New(fault.Forbidden, "This takes the role %s, and %s has the role %s. Ask an admin.", needed, who.Name,
			who.Role)
	}
	return nil
}

// outermost gives every request an id, turns a panic into an error of this one call, and
// answers unknown addresses in the common error form. ErrAbortHandler passes through: it
// is how a handler cuts off an answer that has already begun.
func (s *Server) outermost(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", strings.ToLower(rand.Text()[:16]))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		defer s.access.Begin(&w, &r)()
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				s.log.Error("a handler panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()),
					"request", w.Header().Get("X-Request-Id"))
				wire.Fail(w, fault.New(fault.Internal, "Something went wrong inside Signalbox. The server's log has the cause."))
			}
		}()
		r = federation.Canonical(s.edge.settle(r))
		secure(w, r)
		if err := s.edge.checkURL(r.URL); err != nil {
			wire.Fail(w, err)
			return
		}
		answered := &answer.Writer{ResponseWriter: w, Status: http.StatusOK, Request: r}
		mux.ServeHTTP(answered, r)
		if r.Pattern == "" {
			answer.Unknown(w, r, answered.Status)
		}
	})
}

// Logger makes the server's logger with the level and format of the configuration, which a reload can change.
func Logger(c *Config, out interface{ Write([]byte) (int, error) }) *slog.Logger {
	c.logs = reload.NewLogs(out, c.LogLevel, c.LogFormat)
	return c.logs.Logger()
}
