package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Routes are the proxy itself, and the calls with which operators set it up. The proxy's own routes
// have no Auth: handle finds the agent, in ways that no other route has.
func (p *Proxy) Routes() []wire.Route {
	inWorkspace := []wire.Param{{Name: "workspace", Meaning: "the workspace of the agent; default when absent"}}
	var routes []wire.Route
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		routes = append(routes, wire.Route{
			Method: method, Path: "/v1/proxy/{path...}",
			Summary: "The model proxy: what Anthropic has below its address, and below openai/ what OpenAI has",
			Media:   "application/json", Lenient: true, Handle: p.handle, Proof: []string{wire.Demanded},
		})
	}
	return append(append(routes, p.vault.Routes(p.core.Ledger)...),
		wire.Route{
			Method: "GET", Path: "/ops/proxy/keys", Summary: "The providers' keys in the vault, without the keys",
			Auth: wire.Admin, Answer: ProviderKeys{},
			Handle: wire.Answer(http.StatusOK, func(r *http.Request) (ProviderKeys, error) {
				return p.Keys(r.Context())
			}),
		},
		wire.Route{
			Method: "PUT", Path: "/ops/proxy/keys/{provider}", Summary: "Put a provider's key into the vault",
			Auth: wire.Admin, Request: NewProviderKey{}, Answer: ProviderKeys{},
			Handle: wire.Take(http.StatusOK, maxBody, p.putKey),
		},
		wire.Route{
			Method: "DELETE", Path: "/ops/proxy/keys/{provider}", Summary: "Take a provider's key out of the vault",
			Auth: wire.Admin, Query: []wire.Param{{Name: "workspace", Meaning: "whose key; that of all when absent"}},
			Answer: ProviderKeys{}, Handle: wire.Answer(http.StatusOK, p.deleteKey),
		},
		wire.Route{
			Method: "GET", Path: "/ops/agents/{name}/proxy",
			Summary: "How an agent's calls through the proxy are treated", Auth: wire.Viewer, Query: inWorkspace,
			Answer: Settings{}, Handle: wire.Answer(http.StatusOK, p.getSettings),
		},
		wire.Route{
			Method: "PUT", Path: "/ops/agents/{name}/proxy",
			Summary: "Set how an agent's calls through the proxy are treated", Auth: wire.Operator, Query: inWorkspace,
			Request: NewSettings{}, Answer: Settings{}, Handle: wire.Take(http.StatusOK, maxBody, p.putSettings),
		},
	)
}

// handle carries a call. It returns no error: every answer of ours has the provider's form
// (PRX-50), which the server's own error handling does not know.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) error {
	x := &exchange{
		p: p, w: w, r: r, control: http.NewResponseController(w), header: r.Header.Clone(), began: time.Now(),
	}
	x.out = &output{x: x, deadline: x.began.Add(writeTime)} // the server's own write deadline
	defer x.recover()
	if err := x.carry(); err != nil {
		refusal.Note(r.Context(), err)
		x.writeFailure(failureOf(err))
	}
	return nil
}

// recover ends a call that panicked. ErrAbortHandler goes on, since it is how a connection is broken
// off on purpose. The path is not logged, since it may hold a key (PRX-4).
func (x *exchange) recover() {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	x.p.core.Log.Error("panic while carrying a call", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	x.writeFailure(failure{
		status: http.StatusInternalServerError, kind: "api_error",
		message: "Something went wrong inside Signalbox. The server's log has the cause.",
	})
}

// maxBody is the largest body of an operator's call. Those of agents have limits of their own
// (endpoint.most).
const maxBody = 1 << 20

func (p *Proxy) putKey(r *http.Request, in NewProviderKey) (ProviderKeys, error) {
	return p.PutKey(r.Context(), roster.From(r.Context()), r.PathValue("provider"), in)
}

func (p *Proxy) deleteKey(r *http.Request) (ProviderKeys, error) {
	return p.RemoveKey(r.Context(), roster.From(r.Context()), r.PathValue("provider"), r.URL.Query().Get("workspace"))
}

func (p *Proxy) getSettings(r *http.Request) (Settings, error) {
	a, err := p.core.Roster.PathAgent(r)
	return p.settingsOf(a.ID), err
}

func (p *Proxy) putSettings(r *http.Request, in NewSettings) (Settings, error) {
	a, err := p.core.Roster.PathAgent(r)
	if err != nil {
		return Settings{}, err
	}
	return p.Configure(r.Context(), roster.From(r.Context()), a, in)
}
