package mail

import (
	"net/http"

	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/wire"
)

// meshRoutes are the calls of other hosts of this provider. They take no key of an agent;
// federation.VerifyHost checks the host's proof.
func (m *Mail) meshRoutes() []wire.Route {
	return append(m.Homes.Routes(), []wire.Route{
		{
			Method: "POST", Path: "/v1/mesh/route",
			Summary: "A message from another host of this provider, which proves who it is; also at /v1/route with " +
				"X-Forwarded-From", Request: amp.MeshDocument{}, Answer: Answer{}, Also: http.StatusAccepted, Handle: m.postMesh,
			Proof: []string{federation.ProofHeader},
		},
		{
			Method: "GET", Path: "/v1/agents/by-name/{address}",
			Summary: "Whether an agent is on this host, for another host of this provider", Answer: Located{},
			Handle: wire.Answer(http.StatusOK, m.getByName), Proof: []string{federation.ProofHeader},
		},
	}...)
}

// getByName tells another host whether an agent is on this one. Only hosts of the mesh may ask, or
// anybody could list the agents.
func (m *Mail) getByName(r *http.Request) (Located, error) {
	if _, err := m.Federation.VerifyHost(federation.ReadHostCall(r), nil); err != nil {
		return Located{}, err
	}
	return m.Locate(r.Context(), r.PathValue("address"))
}

// postMesh accepts a message that another host forwards. The host is checked by name before its
// body is read, and by its proof, which covers the body, after.
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
	answer, err := m.ImportForwarded(r.Context(), body,
		Forwarded{call.Host, r.Header.Get("X-AMP-Envelope-Id"), r.Header.Get("X-AMP-Sender-Key"), proved})
	if err != nil {
		return err
	}
	return wire.Reply(w, answeredWith(answer), answer)
}

// answeredWith is the status of an answer about a message. MSG-34: 202 means that a person decides first.
func answeredWith(a Answer) int {
	if a.Status == Held {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// postFederation accepts a message from another provider. What can be refused by the headers alone
// is refused before the body is read.
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
	return wire.Reply(w, answeredWith(answer), Accepted{true, answer.ID, answer.Status == Delivered, answer.Method})
}
