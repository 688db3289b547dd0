package harness

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Call is a call of AHP over HTTP, as /openapi.json describes it: JSON-RPC 2.0.
type Call struct {
	Version string   `json:"jsonrpc" example:"2.0"`
	ID      string   `json:"id,omitempty" doc:"absent for a notification" example:"1"`
	Method  string   `json:"method" doc:"ahp/handshake, ahp/event, ahp/batch, ahp/query" example:"ahp/event"`
	Params  wire.Raw `json:"params"`
}

// Reply is the answer to a [Call].
type Reply struct {
	Version string   `json:"jsonrpc"`
	ID      string   `json:"id"`
	Result  wire.Raw `json:"result,omitempty"`
	Error   wire.Raw `json:"error,omitempty"`
}

// Routes are the calls of AHP, and what operators see of sessions. /ahp is lenient
// about the query and has no role: AHP has its own keys, errors and statuses.
func (h *Harness) Routes() []wire.Route {
	inWorkspace := wire.Param{Name: "workspace", Meaning: "the workspace; default when absent"}
	agent := wire.Param{Name: "agent", Meaning: "only sessions of the agent with this name or id"}
	ofAgent := wire.Param{Name: "agent", Meaning: "the agent whose session it is, if two have one of that name"}
	page := func(more ...wire.Param) []wire.Param { return append(more, wire.PageParams...) }
	return append([]wire.Route{
		{
			Method: "POST", Path: "/ahp",
			Summary: "AHP 2.4: one JSON-RPC request or notification, with an agent's key as X-API-Key or bearer token",
			Request: Call{}, Answer: Reply{}, Lenient: true, Handle: h.post, Proof: []string{wire.Demanded},
		},
		{
			Method: "GET", Path: "/ahp", Summary: "AHP 2.4 over WebSocket, with an agent's key as api_key or token in the query",
			Media: "application/json", Status: http.StatusSwitchingProtocols, Lenient: true, Handle: h.upgrade,
			Proof: []string{wire.Demanded},
		},
		{
			Method: "GET", Path: "/ops/sessions", Summary: "Sessions of agents under the harness, the newest first",
			Auth: wire.Viewer, Query: page(inWorkspace, agent, behalf.UserParams[0]), Answer: SessionPage{},
			Handle: wire.Answer(http.StatusOK, h.getSessions),
		},
		{
			Method: "GET", Path: "/ops/sessions/{id}",
			Summary: "A session: statistics, runs, the task list, the last verification, a timeline", Auth: wire.Viewer,
			Query: page(inWorkspace, ofAgent), Answer: Session{}, Handle: wire.Answer(http.StatusOK, h.getSession),
		},
	}, append(h.Knowledge.Routes(), h.spools.Routes()...)...)
}

// sessionFilter reads ?workspace=, ?agent=, ?limit= and ?cursor=.
func sessionFilter(r *http.Request) (SessionFilter, error) {
	limit, err := wire.Limit(r)
	q := r.URL.Query()
	return SessionFilter{q.Get("workspace"), q.Get("agent"), q.Get("user"), q.Get("cursor"), limit}, err
}

// getSessions answers GET /ops/sessions.
func (h *Harness) getSessions(r *http.Request) (SessionPage, error) {
	f, err := sessionFilter(r)
	if err != nil {
		return SessionPage{}, err
	}
	return h.Sessions(r.Context(), f)
}

// getSession answers GET /ops/sessions/{id}.
func (h *Harness) getSession(r *http.Request) (Session, error) {
	f, err := sessionFilter(r)
	if err != nil {
		return Session{}, err
	}
	return h.Session(r.Context(), r.PathValue("id"), f)
}

// credentials are the keys that a call shows, in the order in which they are tried.
// Only a WebSocket may have its key in the query: a browser's WebSocket cannot set
// headers.
func credentials(r *http.Request, query bool) (keys []string) {
	if key := r.Header.Get("X-API-Key"); key != "" {
		keys = append(keys, key)
	}
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		keys = append(keys, strings.TrimSpace(token))
	}
	if !query {
		return keys
	}
	// AHP-12: clients of 2.3 append the key raw, even to an address that has a query
	// already. So it is tried both decoded and as it is, also behind a second question
	// mark.
	for part := range strings.FieldsFuncSeq(r.URL.RawQuery, func(c rune) bool { return c == '&' || c == '?' }) {
		name, value, _ := strings.Cut(part, "=")
		if name != "api_key" && name != "token" {
			continue
		}
		if decoded, err := url.QueryUnescape(value); err == nil {
			keys = append(keys, decoded)
		}
		keys = append(keys, value)
	}
	return keys
}

// authenticate returns the first of the call's keys that belongs to an agent. An
// operator's token is refused: AHP is for agents, and an operator has no steps to be
// decided.
func (h *Harness) authenticate(r *http.Request, query bool) (key string, err error) {
	err = refusal.NoKey(fault.New(fault.Unauthenticated,
		"Send a key of the agent as X-API-Key, or as Authorization: Bearer."))
	for _, key := range credentials(r, query) {
		var who roster.Identity
		if who, err = h.core.Roster.Authenticate(r.Context(), key); err != nil {
			continue
		}
		if who.Kind == roster.HolderAgent {
			return key, nil
		}
		err = fault.New(fault.Unauthenticated, "This is the key of an %s, and AHP is for agents.", who.Kind)
	}
	return "", err
}

// keyHolder tells who holds the key, and asks the roster each time: the key may have
// been revoked since the last message (AHP-9).
func (h *Harness) keyHolder(key string) func(context.Context) (roster.Identity, error) {
	return func(ctx context.Context) (roster.Identity, error) { return h.core.Roster.Authenticate(ctx, key) }
}

// post answers one message over HTTP. AHP-10 and AHP-11 say which status goes with
// which reply.
func (h *Harness) post(w http.ResponseWriter, r *http.Request) error {
	key, err := h.authenticate(r, false)
	c := h.newConn(TransportHTTP, h.keyHolder(key))
	if err != nil {
		text, _ := wire.Read(w, r, maxPost) // what cannot be read is nobody's
		m, _ := parseMessage(text)
		problem := refuse(codeUnauthorized, "unauthorized: %s", fault.From(err).Message)
		if blocked := h.blockInstead(r.Context(), c, "", &m, problem); blocked != nil {
			refusal.Note(r.Context(), err)
			return writeReply(w, http.StatusOK, blocked)
		}
		return unauthorized(w, r, err)
	}
	if err := wire.IsJSON(r); err != nil {
		return err
	}
	var head beginning
	r.Body = io.NopCloser(io.TeeReader(r.Body, &head))
	text, err := wire.Read(w, r, maxPost)
	if err != nil {
		m := message{}
		m.id, m.method = Head(head)
		problem := refuse(codeParams, "%s", fault.From(err).Message)
		if blocked := h.blockInstead(r.Context(), c, h.agentOf(r.Context(), c), &m, problem); blocked != nil {
			return writeReply(w, http.StatusOK, blocked)
		}
		return err
	}
	reply := h.Handle(r.Context(), c, text)
	if c.compat { // A3S Code cannot decode an id that is null
		reply.JSON = bytes.Replace(reply.JSON, []byte(`{"jsonrpc":"2.0","id":null,`), []byte(`{"jsonrpc":"2.0","id":"",`), 1)
	}
	switch {
	case len(reply.JSON) == 0:
		w.WriteHeader(http.StatusNoContent)
		return nil
	case reply.Broken:
		return writeReply(w, http.StatusBadRequest, reply.JSON)
	case reply.Busy:
		return writeReply(w, http.StatusTooManyRequests, reply.JSON)
	}
	// AHP-10: clients take any other status for a broken transport and do not read the
	// body.
	return writeReply(w, http.StatusOK, reply.JSON)
}

// beginning keeps the first maxHead bytes that are written to it.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), maxHead-len(*b))]...)
	return len(p), nil
}

// unauthorized answers a call without a good key with 401 and an error of JSON-RPC.
// Other errors, such as a database that is away, are passed on.
func unauthorized(w http.ResponseWriter, r *http.Request, err error) error {
	if !fault.Is(err, fault.Unauthenticated) {
		return err
	}
	refusal.Note(r.Context(), err)
	return writeReply(w, http.StatusUnauthorized,
		errorReply(nil, refuse(codeUnauthorized, "unauthorized: %s", fault.From(err).Message)))
}

// writeReply writes a message as the body of a response.
func writeReply(w http.ResponseWriter, status int, text []byte) error {
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(text) // if the client has gone, there is nobody to tell
	return nil
}
