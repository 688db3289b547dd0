package roster

import (
	"cmp"
	"context"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// maxBody bounds the bodies of the operators' API; none of them is large.
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

var inWorkspace = wire.Param{Name: "workspace", Meaning: "the workspace it is in; default when absent"}

// Routes are the roster's part of the operators' API.
func (r *Roster) Routes() []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/agents", Summary: "List agents", Auth: wire.Viewer,
			Query:  append([]wire.Param{{Name: "workspace", Meaning: "only agents of this workspace"}}, wire.PageParams...),
			Answer: AgentPage{}, Handle: wire.List(r.getAgents),
		},
		{
			Method: "POST", Path: "/ops/agents", Summary: "Add an agent; its keys are shown this once", Auth: wire.Operator,
			Request: NewAgent{}, Answer: AddedAgent{}, Status: 201, Handle: wire.Take(http.StatusCreated, maxBody, r.postAgent),
		},
		{
			Method: "GET", Path: "/ops/agents/{name}", Summary: "Show an agent", Auth: wire.Viewer,
			Query: []wire.Param{inWorkspace}, Answer: Agent{}, Handle: wire.Answer(http.StatusOK, r.PathAgent),
		},
		{
			Method: "PATCH", Path: "/ops/agents/{name}",
			Summary: "Change an agent, suspend it or let it go on; rate_limit is a number of requests " +
				"a minute, 0 for no limit, or \"default\"", Auth: wire.Operator, Query: []wire.Param{inWorkspace},
			Request: AgentChange{}, Answer: Agent{}, Handle: wire.Take(http.StatusOK, maxBody, changeNamed(r.ChangeAgent)),
		},
		{
			Method: "DELETE", Path: "/ops/agents/{name}", Summary: "Remove an agent and its keys", Auth: wire.Operator,
			Query: []wire.Param{inWorkspace}, Status: 204, Handle: wire.Do(removeNamed(r.RemoveAgent)),
		},
		{
			Method: "GET", Path: "/ops/keys", Summary: "List keys, without their secrets", Auth: wire.Viewer,
			Query:  append([]wire.Param{{Name: "agent", Meaning: "only keys of this agent"}, inWorkspace}, wire.PageParams...),
			Answer: KeyPage{}, Handle: wire.List(r.getKeys),
		},
		{
			Method: "POST", Path: "/ops/keys", Summary: "Issue a further key for an agent", Auth: wire.Operator,
			Request: IssueKey{}, Answer: IssuedKey{}, Status: 201, Handle: r.postKey,
		},
		{
			Method: "POST", Path: "/ops/keys/{id}/rotate", Summary: "Replace a key; the old one works for 24 hours more",
			Auth: wire.Operator, Answer: IssuedKey{}, Status: 201, Handle: wire.Answer(http.StatusCreated, r.rotateKey),
		},
		{
			Method: "POST", Path: "/ops/keys/{id}/revoke", Summary: "Refuse a key from now on", Auth: wire.Operator,
			Answer: Key{}, Handle: wire.Answer(http.StatusOK, r.revokeKey),
		},
		{
			Method: "GET", Path: "/ops/workspaces", Summary: "List workspaces", Auth: wire.Viewer, Answer: WorkspaceList{},
			Handle: wire.Answer(http.StatusOK, r.getWorkspaces),
		},
		{
			Method: "POST", Path: "/ops/workspaces", Summary: "Add a workspace", Auth: wire.Admin, Request: NewWorkspace{},
			Answer: NewWorkspace{}, Status: 201, Handle: wire.Take(http.StatusCreated, maxBody, r.postWorkspace),
		},
		{
			Method: "PATCH", Path: "/ops/workspaces/{name}", Auth: wire.Admin,
			Summary: "Open a workspace to the agents of others, or close it: open_to is the list of all of them",
			Request: WorkspaceChange{}, Answer: Workspace{}, Handle: wire.Take(http.StatusOK, maxBody, r.patchWorkspace),
		},
		{
			Method: "GET", Path: "/ops/users", Summary: "List the users on whose behalf agents act", Auth: wire.Viewer,
			Query: []wire.Param{{Name: "workspace", Meaning: "only users of this workspace"}}, Answer: UserList{},
			Handle: wire.Answer(http.StatusOK, r.getUsers),
		},
		{
			Method: "POST", Path: "/ops/users", Auth: wire.Operator,
			Summary: "Add a user; the key with which they register agents is shown this once",
			Request: NewUser{}, Answer: AddedUser{}, Status: 201, Handle: wire.Take(http.StatusCreated, maxBody, r.postUser),
		},
		{
			Method: "GET", Path: "/ops/users/{name}", Summary: "Show a user", Auth: wire.Viewer,
			Query: []wire.Param{inWorkspace}, Answer: User{}, Handle: wire.Answer(http.StatusOK, r.getUser),
		},
		{
			Method: "PATCH", Path: "/ops/users/{name}", Auth: wire.Operator,
			Summary: "Change what agents may do for a user, suspend the user or let them go on",
			Query:   []wire.Param{inWorkspace}, Request: UserChange{}, Answer: User{},
			Handle: wire.Take(http.StatusOK, maxBody, changeNamed(r.ChangeUser)),
		},
		{
			Method: "DELETE", Path: "/ops/users/{name}", Summary: "Remove a user and their keys; their agents stay",
			Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Status: 204, Handle: wire.Do(removeNamed(r.RemoveUser)),
		},
		{
			Method: "POST", Path: "/ops/users/{name}/key", Summary: "Make a further key for a user, shown this once",
			Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Answer: IssuedKey{}, Status: 201,
			Handle: wire.Answer(http.StatusCreated, r.postUserKey),
		},
		{
			Method: "GET", Path: "/ops/owners", Summary: "List users, in the words of version 0.1", Auth: wire.Viewer,
			Query: []wire.Param{{Name: "workspace", Meaning: "only owners of this workspace"}}, Answer: OwnerList{},
			Handle: wire.Answer(http.StatusOK, r.getOwners),
		},
		{
			Method: "POST", Path: "/ops/owners", Summary: "Add a user, in the words of version 0.1", Auth: wire.Operator,
			Request: NewOwner{}, Answer: AddedOwner{}, Status: 201, Handle: wire.Take(http.StatusCreated, maxBody, r.postOwner),
		},
		{
			Method: "DELETE", Path: "/ops/owners/{name}", Summary: "Remove a user, in the words of version 0.1",
			Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Status: 204, Handle: wire.Do(removeNamed(r.RemoveUser)),
		},
		{
			Method: "POST", Path: "/ops/owners/{name}/key", Auth: wire.Operator,
			Summary: "Make a further key for a user, in the words of version 0.1",
			Query:   []wire.Param{inWorkspace}, Answer: IssuedKey{}, Status: 201,
			Handle: wire.Answer(http.StatusCreated, r.postUserKey),
		},
		{
			Method: "GET", Path: "/ops/invites", Summary: "List invites, by which agents may register", Auth: wire.Viewer,
			Answer: InviteList{}, Handle: wire.Answer(http.StatusOK, r.getInvites),
		},
		{
			Method: "POST", Path: "/ops/invites", Summary: "Make an invite; the code is shown this once", Auth: wire.Operator,
			Request: NewInvite{}, Answer: MadeInvite{}, Status: 201,
			Handle: wire.Take(http.StatusCreated, maxBody, r.postInvite),
		},
		{
			Method: "DELETE", Path: "/ops/invites/{id}", Summary: "End an invite", Auth: wire.Operator, Status: 204,
			Handle: wire.Do(r.deleteInvite),
		},
		{
			Method: "GET", Path: "/ops/operators", Summary: "List operators", Auth: wire.Viewer, Answer: OperatorList{},
			Handle: wire.Answer(http.StatusOK, r.getOperators),
		},
		{
			Method: "POST", Path: "/ops/operators", Summary: "Add an operator; the token is shown this once", Auth: wire.Admin,
			Request: NewOperator{}, Answer: AddedOperator{}, Status: 201,
			Handle: wire.Take(http.StatusCreated, maxBody, r.postOperator),
		},
		{
			Method: "PATCH", Path: "/ops/operators/{name}",
			Summary: "Set an operator's contacts for Slack, Telegram and e-mail; \"\" removes one", Auth: wire.Admin,
			Request: OperatorChange{}, Answer: Person{}, Handle: wire.Take(http.StatusOK, maxBody, r.patchOperator),
		},
		{
			Method: "DELETE", Path: "/ops/operators/{name}", Summary: "Remove an operator and their tokens", Auth: wire.Admin,
			Status: 204, Handle: wire.Do(r.deleteOperator),
		},
		{
			Method: "POST", Path: "/ops/operators/{name}/token",
			Summary: "Make a further token for an operator, shown this once", Auth: wire.Admin, Answer: AddedOperator{},
			Status: 201, Handle: wire.Answer(http.StatusCreated, r.postToken),
		},
	}
}

// WorkspaceOf is the workspace that a call is about: the one it names, the one it is
// confined to, or the default one. For a caller that is confined, any other does not exist.
func WorkspaceOf(ctx context.Context, named string) (string, error) {
	scope := wire.Scope(ctx)
	workspace := cmp.Or(named, scope, DefaultWorkspace)
	if !wire.InScope(ctx, workspace) {
		return "", From(ctx).RefusedWorkspace(fault.New(fault.NotFound,
			"There is no workspace %.80q for your token, which is for %q.", workspace, scope).About("workspace"))
	}
	return workspace, nil
}

// QueryWorkspace is the workspace that ?workspace= names, as far as the call may see it.
func QueryWorkspace(req *http.Request) (string, error) {
	return WorkspaceOf(req.Context(), req.URL.Query().Get("workspace"))
}

// SeenAgent finds an agent by name, or by id, in the workspace that a call names, as far as
// the call may see it.
func (r *Roster) SeenAgent(ctx context.Context, named, agent string) (Agent, error) {
	workspace, err := WorkspaceOf(ctx, named)
	if err != nil {
		return Agent{}, err
	}
	return r.Agent(ctx, workspace, agent)
}

// PathAgent is the agent that {name} in the path stands for, in the workspace that
// ?workspace= names.
func (r *Roster) PathAgent(req *http.Request) (Agent, error) {
	return r.SeenAgent(req.Context(), req.URL.Query().Get("workspace"), req.PathValue("name"))
}

// Handlers only translate: what a caller may see and do is decided by the methods they call.
func (r *Roster) getAgents(req *http.Request, p wire.Paging) (AgentPage, error) {
	return r.ListAgents(req.Context(), req.URL.Query().Get("workspace"), p.Cursor, p.Limit)
}

// postAgent is the one answer that holds the secrets of an agent's keys; they are stored
// nowhere.
func (r *Roster) postAgent(req *http.Request, n NewAgent) (AddedAgent, error) {
	a, issued, err := r.AddAgent(req.Context(), From(req.Context()), n)
	keys := map[KeyKind]string{}
	for _, k := range issued {
		keys[k.Key.Kind] = k.Secret
	}
	return AddedAgent{a, keys}, err
}

// changeNamed handles a call that changes what the path names, in the workspace that the query names.
func changeNamed[C, T any](
	change func(ctx context.Context, by Identity, workspace, name string, c C) (T, error),
) func(*http.Request, C) (T, error) {
	return func(req *http.Request, c C) (T, error) {
		workspace, err := QueryWorkspace(req)
		if err != nil {
			var none T
			return none, err
		}
		return change(req.Context(), From(req.Context()), workspace, req.PathValue("name"), c)
	}
}

// removeNamed handles a call that removes what the path names, in the workspace that the query names.
func removeNamed(remove func(ctx context.Context, by Identity, workspace, name string) error) func(*http.Request) error {
	return func(req *http.Request) error {
		workspace, err := QueryWorkspace(req)
		if err != nil {
			return err
		}
		return remove(req.Context(), From(req.Context()), workspace, req.PathValue("name"))
	}
}
