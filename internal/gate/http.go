package gate

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

const maxBody = 1 << 20

// The bodies of the operators' API.
type (
	// GatePage is a page of gates.
	GatePage struct {
		Gates []Gate `json:"gates"`
		Next  string `json:"next"`
	}
	// Decision is what is sent with an approval or a rejection; all of it may be left out.
	Decision struct {
		Note     string   `json:"note,omitempty"`
		Modified wire.Raw `json:"modified,omitzero"`
		For      string   `json:"for,omitempty"`
	}
	// Delegation lets another operator cast one's votes.
	Delegation struct {
		Delegate string    `json:"delegate"`
		Until    time.Time `json:"until"`
	}
)

// Routes are the gates' part of the operators' API. Whether an operator may decide
// is a matter of the gate's rules, so looking is all that the routes ask for.
func (g *Gates) Routes() []wire.Route {
	list := []wire.Param{
		{Name: "status", Meaning: "pending, approved or rejected"},
		{Name: "workspace", Meaning: "only gates of this workspace"},
		{Name: "project", Meaning: "only gates of this project"},
		{Name: "agent", Meaning: "only gates of the agent with this name or id"},
		{Name: "limit", Meaning: "how many at the most, 1 to 1000; 100 when absent", Number: true},
		{Name: "cursor", Meaning: "the value of next from the page before"},
	}
	return []wire.Route{
		{Method: "GET", Path: "/ops/gates", Summary: "List gates: those that wait by risk, others the newest first", Auth: wire.Viewer, Query: list, Answer: GatePage{}, Handle: g.getGates},
		{Method: "GET", Path: "/ops/gates/{id}", Summary: "Show a gate", Auth: wire.Viewer, Answer: Gate{}, Handle: g.getGate},
		{Method: "POST", Path: "/ops/gates/{id}/approve", Summary: "Approve; 409 already_resolved when somebody was first", Auth: wire.Viewer, Request: Decision{}, Answer: Gate{}, Handle: g.decide(true)},
		{Method: "POST", Path: "/ops/gates/{id}/reject", Summary: "Reject; the note reaches the agent", Auth: wire.Viewer, Request: Decision{}, Answer: Gate{}, Handle: g.decide(false)},
		{Method: "POST", Path: "/ops/delegations", Summary: "Let another operator cast your votes until a date", Auth: wire.Operator, Request: Delegation{}, Answer: Delegation{}, Status: 201, Handle: g.postDelegation},
		{Method: "DELETE", Path: "/ops/delegations/{delegate}", Summary: "End a delegation at once", Auth: wire.Operator, Status: 204, Handle: g.deleteDelegation},
	}
}

func (g *Gates) getGates(w http.ResponseWriter, r *http.Request) error {
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	status, err := parseStatus(q.Get("status"))
	if err != nil {
		return err
	}
	after, err := readPlace(r)
	if err != nil {
		return err
	}
	workspace := cmp.Or(q.Get("workspace"), wire.Scope(r.Context()))
	if !wire.InScope(r.Context(), workspace) {
		return wire.Reply(w, http.StatusOK, GatePage{Gates: []Gate{}})
	}
	f := Filter{Status: status, Workspace: workspace, Project: q.Get("project")}
	if agent := q.Get("agent"); agent != "" {
		if f.Agents, err = g.roster.AgentIDs(r.Context(), workspace, agent); err != nil {
			return err
		}
		if len(f.Agents) == 0 {
			return wire.Reply(w, http.StatusOK, GatePage{Gates: []Gate{}})
		}
	}
	gates, next, err := g.List(r.Context(), f, after, limit)
	if err != nil {
		return err
	}
	page := GatePage{Gates: gates}
	if next != nil {
		page.Next = wire.Cursor(strconv.FormatInt(next.Risk, 10), strconv.FormatInt(next.Opened, 10))
	}
	return wire.Reply(w, http.StatusOK, page)
}

func readPlace(r *http.Request) (*Place, error) {
	parts, err := wire.ReadCursor(r, 2)
	if err != nil || parts[1] == "" {
		return nil, err
	}
	risk, err := strconv.ParseInt(parts[0], 10, 64)
	opened, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || err2 != nil {
		return nil, fault.New(fault.InvalidRequest, "The cursor is not one that this listing gave. Use the value of next from the page before, or leave it out.").About("cursor")
	}
	return &Place{risk, opened}, nil
}

func (g *Gates) getGate(w http.ResponseWriter, r *http.Request) error {
	found, err := g.Get(r.Context(), r.PathValue("id"))
	if err == nil && !wire.InScope(r.Context(), found.Workspace) {
		err = noGate(found.ID)
	}
	if err != nil {
		return err
	}
	if found.Receipts, err = g.Receipts(r.Context(), found.ID); err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, found)
}

func (g *Gates) decide(approve bool) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var d Decision
		if r.ContentLength != 0 {
			if err := wire.ReadJSON(w, r, maxBody, &d); err != nil {
				return err
			}
		}
		found, err := g.Vote(r.Context(), roster.From(r.Context()), r.PathValue("id"), Ballot{approve, d.Note, d.Modified, d.For})
		if err != nil {
			return err
		}
		return wire.Reply(w, http.StatusOK, found)
	}
}

func (g *Gates) postDelegation(w http.ResponseWriter, r *http.Request) error {
	var d Delegation
	if err := wire.ReadJSON(w, r, maxBody, &d); err != nil {
		return err
	}
	if err := g.Delegate(r.Context(), roster.From(r.Context()), d.Delegate, d.Until); err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, d)
}

func (g *Gates) deleteDelegation(w http.ResponseWriter, r *http.Request) error {
	if err := g.Undelegate(r.Context(), roster.From(r.Context()), r.PathValue("delegate")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
