package mcp

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/roster"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// sessionHeader names the session of a call.
const sessionHeader = "Mcp-Session-Id"

const (
	// sessionTimeout is how long a session is kept that nobody uses.
	sessionTimeout = 30 * time.Minute
	// maxSessions is how many sessions of one agent are kept; a new one ends the oldest.
	maxSessions = 16
	// maxEnded is how many ids of ended sessions are remembered.
	maxEnded = 10_000
)

// Handler speaks MCP over streamable HTTP. The request's context says which agent calls.
//
// A client that begins with initialize has a session, and gets answers as streams: if the connection drops, it asks
// for the rest with Last-Event-ID. A session is kept by one node and until a restart; its id is signed, for the agent
// and its role, so a call that names it is answered on its own by every other node, and after a restart. A client that
// names another id is told that there is no such session, and begins again. All other calls are answered on their own.
type Handler struct {
	options Options
	// lasting has the sessions. single answers a call with one JSON document; streamed can say that it still waits.
	lasting, single, streamed http.Handler

	// mu guards the sessions of this node, in the order in which they began, and the ids of those that were ended.
	mu    sync.Mutex
	open  []session
	ended map[string]bool
}

// session is a session that this node keeps, for as long as its server has one.
type session struct {
	id, agent string
	server    *sdk.Server
	began     time.Time
}

// lives reports whether the session was not ended meanwhile. One that has just got its id is about to begin.
func (s session) lives() bool {
	for range s.server.Sessions() {
		return true
	}
	return time.Since(s.began) < time.Minute
}

// close ends the session.
func (s session) close() {
	for one := range s.server.Sessions() {
		_ = one.Close()
	}
}

// NewHandler makes the handler. A server is made for each request, since the list of tools depends on the agent's role;
// that takes microseconds.
func NewHandler(o Options) *Handler {
	h := &Handler{options: o, ended: map[string]bool{}}
	handler := func(lasting bool, how sdk.StreamableHTTPOptions) http.Handler {
		how.Stateless, how.DisableLocalhostProtection, how.MaxRequestBodyBytes = !lasting, o.Behind, maxBody
		return identified(sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
			s := serverOf(r.Context(), o)
			if !lasting {
				return s.offer(nil)
			}
			var out *sdk.Server
			out = s.offer(func() string { return h.begin(s, out) })
			return out
		}, &how))
	}
	h.lasting = handler(true, sdk.StreamableHTTPOptions{EventStore: &replay{}, SessionTimeout: sessionTimeout})
	h.single = handler(false, sdk.StreamableHTTPOptions{JSONResponse: true})
	h.streamed = handler(false, sdk.StreamableHTTPOptions{})
	return h
}

// maxBody is the largest request that is read: a document, with what JSON-RPC puts around it.
const maxBody = 2 * amp.MaxDocument

// Close ends all sessions.
func (h *Handler) Close() {
	h.mu.Lock()
	all := h.open
	h.open = nil
	h.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}

// ServeHTTP finds out whether a call belongs to a session, and of which kind it is.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, who := r.Header.Get(sessionHeader), serverOf(r.Context(), h.options)
	kept := h.keeps(id)
	switch {
	case id != "" && !h.gave(who, id), r.Method == http.MethodGet && id != "" && !kept:
		http.Error(w, "There is no such session. Send initialize again, without "+sessionHeader+".", http.StatusNotFound)
	case r.Method == http.MethodDelete && id != "":
		h.end(id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "", r.Method == http.MethodDelete:
		// The server says nothing by itself, so there is nothing to listen to.
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "The server sends nothing unasked. POST a message, or GET with Last-Event-ID to resume an answer.",
			http.StatusMethodNotAllowed)
	case kept:
		h.lasting.ServeHTTP(w, r)
	default:
		r.Header.Del(sessionHeader)
		h.alone(r).ServeHTTP(w, r)
	}
}

// alone is who answers a call without a session that this node keeps: the first call of a new session, or one on its
// own. It reads the body and puts it back.
func (h *Handler) alone(r *http.Request) http.Handler {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	var call struct {
		Method string `json:"method"`
	}
	switch {
	case err == nil && wire.UnmarshalPart(body, &call) == nil && call.Method == "initialize":
		return h.lasting
	case bytes.Contains(body, []byte(`"progressToken"`)): // elsewhere in the text it does no harm
		return h.streamed
	}
	return h.single
}

// begin gives a new session its id, and ends the oldest of an agent that has too many.
func (h *Handler) begin(s *server, out *sdk.Server) string {
	random := rand.Text()
	id := random + "-" + h.sign(s, random)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = slices.DeleteFunc(h.open, func(one session) bool { return !one.lives() })
	theirs := func(one session) bool { return one.agent == s.who.ID }
	if count(h.open, theirs) >= maxSessions {
		at := slices.IndexFunc(h.open, theirs)
		go h.open[at].close() // it waits for the calls of the session
		h.open = slices.Delete(h.open, at, at+1)
	}
	h.open = append(h.open, session{id, s.who.ID, out, time.Now()})
	return id
}

// count is for how many of a list is holds.
func count[T any](list []T, is func(T) bool) (n int) {
	for _, one := range list {
		if is(one) {
			n++
		}
	}
	return n
}

// sign binds an id to an agent and its role: with another role it has other tools, and needs another session.
func (h *Handler) sign(s *server, random string) string {
	mac := hmac.New(sha256.New, h.options.SessionKey)
	for _, part := range []string{random, s.who.ID, string(s.role)} {
		mac.Write([]byte(part + "\n")) // no part has a line break
	}
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// gave reports whether an id was given to this agent, on any node, and the session was not ended here.
func (h *Handler) gave(s *server, id string) bool {
	random, signature, _ := strings.Cut(id, "-")
	h.mu.Lock()
	defer h.mu.Unlock()
	return hmac.Equal([]byte(signature), []byte(h.sign(s, random))) && !h.ended[id]
}

// keeps reports whether this node has the session.
func (h *Handler) keeps(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.open {
		if s.id == id {
			return s.lives()
		}
	}
	return false
}

// end ends a session for good.
func (h *Handler) end(id string) {
	h.mu.Lock()
	if len(h.ended) >= maxEnded {
		clear(h.ended)
	}
	h.ended[id] = true
	var found []session
	for _, s := range h.open {
		if s.id == id {
			found = append(found, s)
		}
	}
	h.mu.Unlock()
	for _, s := range found {
		s.close()
	}
}

// theRequest is where the SDK hands the context of the HTTP request on to a tool.
const theRequest = "request"

// identified tells the SDK who calls, so that one agent cannot use the session of another, and a tool of a lasting
// session learns who calls now. The key was checked before, and goes no further.
func identified(next http.Handler) http.Handler {
	checked := func(ctx context.Context, _ string, r *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: roster.From(ctx).ID, Extra: map[string]any{theRequest: r.Context()}}, nil
	}
	inner := auth.RequireBearerToken(checked, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer checked")
		inner.ServeHTTP(w, r)
	})
}

// requestOf is the context of the HTTP request that called a tool.
func requestOf(extra *sdk.RequestExtra) (context.Context, error) {
	if extra != nil && extra.TokenInfo != nil {
		if request, ok := extra.TokenInfo.Extra[theRequest].(context.Context); ok {
			return request, nil
		}
	}
	return nil, errors.New("the call came without a request")
}
