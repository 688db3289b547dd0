package roster

import (
	"cmp"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

const maxBody = 1 << 20

// The answers of the operators' API.
type (
	// AgentPage is a page of agents.
	AgentPage struct {
		Agents []Agent `json:"agents"`
		Next   string  `json:"next"`
	}
	// AddedAgent is a new agent with its keys, by kind, shown this once.
	AddedAgent struct {
		Agent Agent              `json:"agent"`
		Keys  map[KeyKind]string `json:"keys"`
	}
)

var (
	inWorkspace = wire.Param{Name: "workspace", Meaning: "the workspace it is in; default when absent"}
	pageParams  = []wire.Param{
		{Name: "limit", Meaning: "how many at the most, 1 to 1000; 100 when absent", Number: true},
		{Name: "cursor", Meaning: "the value of next from the page before"},
	}
)

// Routes are the roster's part of the operators' API.
func (r *Roster) Routes() []wire.Route {
	return []wire.Route{
		{Method: "GET", Path: "/ops/agents", Summary: "List agents", Auth: wire.Viewer, Query: append([]wire.Param{{Name: "workspace", Meaning: "only agents of this workspace"}}, pageParams...), Answer: AgentPage{}, Handle: r.getAgents},
		{Method: "POST", Path: "/ops/agents", Summary: "Add an agent; its keys are shown this once", Auth: wire.Operator, Request: NewAgent{}, Answer: AddedAgent{}, Status: 201, Handle: r.postAgent},
		{Method: "GET", Path: "/ops/agents/{name}", Summary: "Show an agent", Auth: wire.Viewer, Query: []wire.Param{inWorkspace}, Answer: Agent{}, Handle: r.getAgent},
		{Method: "PATCH", Path: "/ops/agents/{name}", Summary: "Change an agent, suspend it or let it go on; rate_limit is a number of requests a minute, 0 for no limit, or \"default\"", Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Request: AgentChange{}, Answer: Agent{}, Handle: r.patchAgent},
		{Method: "DELETE", Path: "/ops/agents/{name}", Summary: "Remove an agent and its keys", Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Status: 204, Handle: r.deleteAgent},
		{Method: "GET", Path: "/ops/keys", Summary: "List keys, without their secrets", Auth: wire.Viewer, Query: append([]wire.Param{{Name: "agent", Meaning: "only keys of this agent"}, inWorkspace}, pageParams...), Answer: KeyPage{}, Handle: r.getKeys},
		{Method: "POST", Path: "/ops/keys", Summary: "Issue a further key for an agent", Auth: wire.Operator, Request: IssueKey{}, Answer: IssuedKey{}, Status: 201, Handle: r.postKey},
		{Method: "POST", Path: "/ops/keys/{id}/rotate", Summary: "Replace a key; the old one works for 24 hours more", Auth: wire.Operator, Answer: IssuedKey{}, Status: 201, Handle: r.rotateKey},
		{Method: "POST", Path: "/ops/keys/{id}/revoke", Summary: "Refuse a key from now on", Auth: wire.Operator, Answer: Key{}, Handle: r.revokeKey},
		{Method: "GET", Path: "/ops/workspaces", Summary: "List workspaces", Auth: wire.Viewer, Answer: WorkspaceList{}, Handle: r.getWorkspaces},
		{Method: "POST", Path: "/ops/workspaces", Summary: "Add a workspace", Auth: wire.Admin, Request: NewWorkspace{}, Answer: NewWorkspace{}, Status: 201, Handle: r.postWorkspace},
		{Method: "GET", Path: "/ops/owners", Summary: "List owners, who may register agents", Auth: wire.Viewer, Query: []wire.Param{{Name: "workspace", Meaning: "only owners of this workspace"}}, Answer: OwnerList{}, Handle: r.getOwners},
		{Method: "POST", Path: "/ops/owners", Summary: "Add an owner; the key is shown this once", Auth: wire.Operator, Request: NewOwner{}, Answer: AddedOwner{}, Status: 201, Handle: r.postOwner},
		{Method: "DELETE", Path: "/ops/owners/{name}", Summary: "Remove an owner and their keys; their agents stay", Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Status: 204, Handle: r.deleteOwner},
		{Method: "POST", Path: "/ops/owners/{name}/key", Summary: "Make a further key for an owner, shown this once", Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Answer: IssuedKey{}, Status: 201, Handle: r.postOwnerKey},
		{Method: "GET", Path: "/ops/invites", Summary: "List invites, by which agents may register", Auth: wire.Viewer, Answer: InviteList{}, Handle: r.getInvites},
		{Method: "POST", Path: "/ops/invites", Summary: "Make an invite; the code is shown this once", Auth: wire.Operator, Request: NewInvite{}, Answer: MadeInvite{}, Status: 201, Handle: r.postInvite},
		{Method: "DELETE", Path: "/ops/invites/{id}", Summary: "End an invite", Auth: wire.Operator, Status: 204, Handle: r.deleteInvite},
		{Method: "GET", Path: "/ops/operators", Summary: "List operators", Auth: wire.Viewer, Answer: OperatorList{}, Handle: r.getOperators},
		{Method: "POST", Path: "/ops/operators", Summary: "Add an operator; the token is shown this once", Auth: wire.Admin, Request: NewOperator{}, Answer: AddedOperator{}, Status: 201, Handle: r.postOperator},
		{Method: "PATCH", Path: "/ops/operators/{name}", Summary: "Set by what Slack, Telegram and e-mail know an operator; \"\" takes a contact away", Auth: wire.Admin, Request: OperatorChange{}, Answer: Person{}, Handle: r.patchOperator},
		{Method: "DELETE", Path: "/ops/operators/{name}", Summary: "Remove an operator and their tokens", Auth: wire.Admin, Status: 204, Handle: r.deleteOperator},
		{Method: "POST", Path: "/ops/operators/{name}/token", Summary: "Make a further token for an operator, shown this once", Auth: wire.Admin, Answer: AddedOperator{}, Status: 201, Handle: r.postToken},
	}
}

// WorkspaceOf is the workspace that a call is about: the one it names, the one it is
// confined to, or the first one. Another than its own is not there for it.
func WorkspaceOf(req *http.Request, named string) (string, error) {
	scope := wire.Scope(req.Context())
	workspace := cmp.Or(named, scope, DefaultWorkspace)
	if !wire.InScope(req.Context(), workspace) {
		return "", fault.New(fault.NotFound, "There is no workspace %.80q for your token, which is for %q.", workspace, scope).About("workspace")
	}
	return workspace, nil
}

// QueryWorkspace is the workspace that ?workspace= names, as far as the call may see it.
func QueryWorkspace(req *http.Request) (string, error) {
	return WorkspaceOf(req, req.URL.Query().Get("workspace"))
}

// PathAgent is the agent that {name} in the path stands for, in the workspace that
// ?workspace= names.
func (r *Roster) PathAgent(req *http.Request) (Agent, error) {
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return Agent{}, err
	}
	return r.Agent(req.Context(), workspace, req.PathValue("name"))
}

func (r *Roster) getAgents(w http.ResponseWriter, req *http.Request) error {
	limit, err := wire.Limit(req)
	if err != nil {
		return err
	}
	after, err := wire.ReadCursor(req, 2)
	if err != nil {
		return err
	}
	workspace := cmp.Or(req.URL.Query().Get("workspace"), wire.Scope(req.Context()))
	if !wire.InScope(req.Context(), workspace) {
		return wire.Reply(w, http.StatusOK, AgentPage{Agents: []Agent{}})
	}
	agents, err := r.Agents(req.Context(), workspace, [2]string(after), limit)
	if err != nil {
		return err
	}
	page := AgentPage{Agents: agents}
	if len(agents) == limit {
		last := agents[limit-1]
		page.Next = wire.Cursor(last.Workspace, last.Name)
	}
	return wire.Reply(w, http.StatusOK, page)
}

func (r *Roster) postAgent(w http.ResponseWriter, req *http.Request) error {
	var n NewAgent
	if err := wire.ReadJSON(w, req, maxBody, &n); err != nil {
		return err
	}
	var err error
	if n.Workspace, err = WorkspaceOf(req, n.Workspace); err != nil {
		return err
	}
	a, issued, err := r.AddAgent(req.Context(), From(req.Context()), n)
	if err != nil {
		return err
	}
	keys := map[KeyKind]string{}
	for _, k := range issued {
		keys[k.Key.Kind] = k.Secret
	}
	return wire.Reply(w, http.StatusCreated, AddedAgent{a, keys})
}

func (r *Roster) getAgent(w http.ResponseWriter, req *http.Request) error {
	a, err := r.PathAgent(req)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, a)
}

func (r *Roster) patchAgent(w http.ResponseWriter, req *http.Request) error {
	var c AgentChange
	if err := wire.ReadJSON(w, req, maxBody, &c); err != nil {
		return err
	}
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return err
	}
	a, err := r.ChangeAgent(req.Context(), From(req.Context()), workspace, req.PathValue("name"), c)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, a)
}

func (r *Roster) deleteAgent(w http.ResponseWriter, req *http.Request) error {
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return err
	}
	if err := r.RemoveAgent(req.Context(), From(req.Context()), workspace, req.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
