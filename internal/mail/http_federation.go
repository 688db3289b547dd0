package mail

import (
	"context"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/wire"
)

// RequestPath is where a request goes: CanonicalPath, and for a message that another host
// forwards, which has no agent's key, the call for those.
func RequestPath(r *http.Request) string {
	path := CanonicalPath(r.URL.EscapedPath())
	if path == "/v1/route" && r.Header.Get(federation.HostHeader) != "" && r.Header.Get("Authorization") == "" {
		return "/v1/mesh/route"
	}
	return path
}

func (m *Mail) meshRoutes() []wire.Route {
	return []wire.Route{
		{Method: "POST", Path: "/v1/mesh/route", Summary: "A message from another host of this provider, which proves who it is; also at /v1/route with X-Forwarded-From", RequestMedia: "application/json", Answer: Answer{}, Handle: m.postMesh},
		{Method: "GET", Path: "/v1/agents/by-name/{address}", Summary: "Whether an agent is on this host, for another host of this provider", Answer: Located{}, Handle: m.getByName},
	}
}

// Located says that an agent is here.
type Located struct {
	Address string `json:"address"`
	Host    string `json:"host"`
}

// Locate finds an agent of this host, for another host of this provider.
func (m *Mail) Locate(ctx context.Context, address string) (Located, error) {
	a, err := m.Domains.Parse(address)
	if err != nil || !m.Domains.Ours(a.Provider) {
		return Located{}, fault.New(fault.NotFound, "%.254q is no address of this provider.", address)
	}
	found, err := m.Directory.Find(ctx, m.Domains.Home(a))
	return Located{found.Address, m.Mesh.Host}, err
}

func (m *Mail) getByName(w http.ResponseWriter, r *http.Request) error {
	if _, err := m.Federation.VerifyHost(federation.ReadHostCall(r), nil); err != nil {
		return err
	}
	out, err := m.Locate(r.Context(), r.PathValue("address"))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, out)
}

func (m *Mail) postMesh(w http.ResponseWriter, r *http.Request) error {
	call := federation.ReadHostCall(r)
	if err := m.Federation.AdmitHost(call); err != nil {
		return err
	}
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	proved, err := m.Federation.VerifyHost(call, body)
	if err != nil {
		return err
	}
	answer, err := m.ImportForwarded(r.Context(), body, Forwarded{r.Header.Get("X-AMP-Envelope-Id"), r.Header.Get("X-AMP-Sender-Key"), proved})
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, answer)
}

// Accepted is the answer to another provider.
type Accepted struct {
	Accepted  bool   `json:"accepted"`
	ID        string `json:"id"`
	Delivered bool   `json:"delivered"`
	Method    string `json:"method"`
}

func (m *Mail) postFederation(w http.ResponseWriter, r *http.Request) error {
	call := federation.ReadCall(r)
	if err := m.Federation.Admit(call); err != nil {
		return err
	}
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	left, err := m.Federation.Verify(r.Context(), call, body)
	left.SetHeaders(w.Header())
	if err != nil {
		return err
	}
	answer, err := m.Import(r.Context(), call.Provider, body, call.Replaces)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, Accepted{true, answer.ID, answer.Status == Delivered, answer.Method})
}

// failPeer is fail, with what other providers look for.
func failPeer(w http.ResponseWriter, err error) {
	no := false
	failWith(w, fault.From(err), &no)
}
