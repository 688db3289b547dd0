package directory

import (
	"context"
	"net"
	"net/http"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// registersPerMinute is how often one address may register agents without a key.
const registersPerMinute = 10

// Routes are the calls of agents, owners and operators about agents.
func (d *Directory) Routes() []wire.Route {
	page := []wire.Param{
		{Name: "tenant", Meaning: "the caller's own"},
		{Name: "search", Meaning: "part of a name, an alias or an address"},
	}
	// Calls with an agent's key. They share one rate limit.
	agents := []wire.Route{
		{Method: "GET", Path: "/v1/agents/me", Summary: "The calling agent", Answer: Me{}, Handle: roster.Answer(d.Me)},
		{
			Method: "PATCH", Path: "/v1/agents/me",
			Summary: "Change alias, delivery, metadata, capabilities or communication policy, or demand signatures", Request: ProfileDocument{},
			Answer: Updated{}, Handle: roster.AnswerBody(http.StatusOK, amp.MaxBody, d.Change),
		},
		{
			Method: "DELETE", Path: "/v1/agents/me", Summary: "Deregister: ends the keys, the queue and the address",
			Answer: Deregistered{}, Handle: roster.Answer(d.Leave),
		},
		{
			Method: "GET", Path: "/v1/agents/me/card", Summary: "The agent's card, unsigned", Answer: Card{},
			Handle: roster.Answer(d.Card),
		},
		{
			Method: "GET", Path: "/v1/agents", Summary: "List the agents of the tenant", Query: append(page, wire.PageParams...),
			Answer: AgentList{}, Handle: wire.List(d.getAgents),
		},
		{
			Method: "GET", Path: "/v1/agents/resolve/{address}", Summary: "Find an agent by its address, or a short form of it",
			Answer: Resolved{}, Handle: roster.AnswerAbout("address", d.Resolve),
		},
		{
			Method: "GET", Path: "/v1/agents/{address}", Summary: "The same as /v1/agents/resolve/{address}", Answer: Resolved{},
			Handle: roster.AnswerAbout("address", d.Resolve),
		},
		{
			Method: "POST", Path: "/v1/auth/rotate-key", Summary: "Replace the API key; the old one works for 24 hours more",
			Answer: RotatedKey{}, Handle: roster.Answer(d.RotateKey),
		},
		{
			Method: "POST", Path: "/v1/auth/rotate-keys", Summary: "Replace the public key, with a proof of the old one",
			Request: RotateDocument{}, Answer: RotatedKeys{},
			Handle: roster.AnswerBody(http.StatusOK, amp.MaxBody, d.RotateKeys),
		},
		{
			Method: "DELETE", Path: "/v1/auth/revoke-key", Summary: "Revoke the API key of this call",
			Answer: RevokedKey{}, Handle: roster.Answer(d.RevokeKey),
		},
	}
	for i := range agents {
		agents[i].Auth, agents[i].Rate = wire.Agent, amp.RequestsPerMinute
	}
	// Calls with another key, or none: the handlers find out whose it is.
	return append(agents, []wire.Route{
		{
			Method: "POST", Path: "/v1/register", Summary: "Register an agent; the API key is shown once",
			Request: RegisterDocument{}, Answer: Registered{}, Status: 201, Handle: d.postRegister,
			Proof: []string{"Authorization"},
		},
		{
			Method: "GET", Path: "/v1/auth/user-key", Summary: "Describe the owner's key", Answer: UserKey{},
			Handle: d.asOwner(roster.Answer(d.UserKey)), Proof: []string{wire.Demanded},
		},
		{
			Method: "GET", Path: "/v1/agents/owned", Summary: "List the agents of an owner", Answer: OwnedList{},
			Handle: d.asOwner(roster.Answer(d.Owned)), Proof: []string{wire.Demanded},
		},
		{
			Method: "DELETE", Path: "/v1/agents/owned/{agent_id}", Summary: "Remove an agent of an owner",
			Handle: d.asOwner(roster.AnswerAbout("agent_id", d.RemoveOwned)), Proof: []string{wire.Demanded},
		},
		{
			Method: "PATCH", Path: "/v1/agents/{id}",
			Summary: "Change what an agent has to keep and cannot lift: signatures, and whom it may write to", Auth: wire.Operator,
			Request: DutiesDocument{}, Answer: AgentDuties{}, Handle: d.patchDuties,
		},
		{
			Method: "POST", Path: "/v1/agents/{id}/suspend", Summary: "Suspend an agent, for some hours or until it is resumed",
			Auth: wire.Operator, Request: SuspendDocument{}, Answer: Suspension{}, Handle: d.postSuspend,
		},
		{
			Method: "POST", Path: "/v1/agents/{id}/unsuspend", Summary: "Resume a suspended agent", Auth: wire.Operator,
			Answer: Suspension{}, Handle: roster.AnswerAbout("id", d.Resume),
		},
	}...)
}

// caller identifies the caller of a call that needs no key, or takes keys of several kinds; the
// zero Identity for a call without one. A key that is refused is an error, not anonymity.
func (d *Directory) caller(r *http.Request) (roster.Identity, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return roster.Identity{}, nil
	}
	scheme, token, both := strings.Cut(header, " ")
	// MSG-7: some clients send the key without a scheme.
	if !both {
		token = scheme
	} else if !strings.EqualFold(scheme, "Bearer") {
		return roster.Identity{}, refusal.NoKey(fault.New(fault.Unauthenticated,
			"Send the key in the header Authorization: Bearer …."))
	}
	return d.core.Roster.Authenticate(r.Context(), strings.TrimSpace(token))
}

// asOwner wraps a handler so that only an owner's key is accepted.
func (d *Directory) asOwner(handle wire.Handler) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		by, err := d.caller(r)
		if err == nil {
			err = isOwner(by)
		}
		if err != nil {
			return err
		}
		return handle(w, r.WithContext(roster.With(r.Context(), by)))
	}
}

// isOwner refuses every caller but an owner.
func isOwner(by roster.Identity) error {
	if by.Kind != roster.HolderOwner {
		return fault.New(fault.Unauthenticated, "Send an owner's key in the header Authorization: Bearer uk_….")
	}
	return nil
}

// postRegister answers 201 for a new agent and 200 for one that registered again. Neither may be
// cached: the answer has the API key.
func (d *Directory) postRegister(w http.ResponseWriter, r *http.Request) error {
	by, err := d.caller(r)
	if err != nil {
		return err
	}
	left, err := d.takeRegistration(by, r)
	left.SetHeaders(w.Header())
	if err != nil {
		return err
	}
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	out, err := d.Register(r.Context(), by, body, r.UserAgent())
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if out.again {
		status = http.StatusOK
	}
	w.Header().Set("Cache-Control", "no-store")
	return wire.Reply(w, status, out)
}

// takeRegistration counts registrations without a key by the address that they come from. This
// machine is not counted: a script that registers a hundred agents is no attack.
func (d *Directory) takeRegistration(by roster.Identity, r *http.Request) (roster.Allowance, error) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); by.ID != "" || ip != nil && ip.IsLoopback() && !wire.ReachOf(r.Context()).Forwarded {
		return roster.Allowance{}, nil
	}
	return d.core.Roster.Take(roster.Identity{ID: "from:" + host, Name: host}, "registrations", registersPerMinute)
}

// getAgents answers GET /v1/agents. The cursor is the name of the last agent.
func (d *Directory) getAgents(r *http.Request, p wire.Paging) (AgentList, error) {
	after, err := wire.ParseCursor(p.Cursor, 1)
	if err != nil {
		return AgentList{}, err
	}
	q := r.URL.Query()
	return d.List(r.Context(), roster.From(r.Context()),
		Query{Tenant: q.Get("tenant"), Search: q.Get("search"), After: after[0], Limit: p.Limit})
}

// postSuspend suspends the agent that the path names.
func (d *Directory) postSuspend(w http.ResponseWriter, r *http.Request) error {
	return roster.AnswerBody(http.StatusOK, amp.MaxBody,
		func(ctx context.Context, who roster.Identity, body []byte) (Suspension, error) {
			order, err := readOrder(body)
			if err != nil {
				return Suspension{}, err
			}
			return d.Suspend(ctx, who, r.PathValue("id"), order)
		})(w, r)
}

// patchDuties changes the duties of the agent that the path names.
func (d *Directory) patchDuties(w http.ResponseWriter, r *http.Request) error {
	return roster.AnswerBody(http.StatusOK, amp.MaxBody,
		func(ctx context.Context, who roster.Identity, body []byte) (AgentDuties, error) {
			return d.ChangeDuties(ctx, who, r.PathValue("id"), body)
		})(w, r)
}
