package roster

import (
	"net/http"

	"signalbox/internal/wire"
)

// The answers and requests about operators, owners and workspaces.
type (
	// OperatorList is all operators.
	OperatorList struct {
		Operators []Person `json:"operators"`
	}
	// NewOperator asks for an operator.
	NewOperator struct {
		Name      string `json:"name"`
		Role      string `json:"role,omitempty"`
		Workspace string `json:"workspace,omitempty"`
	}
	// OperatorChange is what to change about an operator. A contact that is "" is
	// removed, one that is not named stays.
	OperatorChange struct {
		Contacts map[string]string `json:"contacts"`
	}
	// WorkspaceList is all workspaces that the caller may see.
	WorkspaceList struct {
		Workspaces []string `json:"workspaces"`
		// OpenTo are the workspaces that are open to others, each with those others.
		OpenTo map[string][]string `json:"open_to,omitempty"`
	}
	// NewWorkspace asks for a workspace.
	NewWorkspace struct {
		Name string `json:"name"`
	}
	// AddedOperator is a new operator, or one with a new token, shown this once.
	AddedOperator struct {
		Operator *Person `json:"operator,omitempty"`
		Token    string  `json:"token"`
	}
	// UserList is all users that the caller may see.
	UserList struct {
		Users []User `json:"users"`
	}
	// AddedUser is a new user with a key, shown this once.
	AddedUser struct {
		User User   `json:"user"`
		Key  string `json:"key" doc:"with which the user registers agents"`
	}
	// OwnerList is UserList in the words of version 0.1.
	OwnerList struct {
		Owners []User `json:"owners"`
	}
	// NewOwner is NewUser in the words of version 0.1.
	NewOwner struct {
		Name      string `json:"name"`
		Workspace string `json:"workspace,omitempty"`
	}
	// AddedOwner is AddedUser in the words of version 0.1.
	AddedOwner struct {
		Owner User   `json:"owner"`
		Key   string `json:"key"`
	}
)

func (r *Roster) getOperators(req *http.Request) (OperatorList, error) {
	all, err := r.Operators(req.Context(), wire.Scope(req.Context()))
	return OperatorList{all}, err
}

func (r *Roster) postOperator(req *http.Request, in NewOperator) (AddedOperator, error) {
	p, token, err := r.AddOperator(req.Context(), From(req.Context()), in.Name, in.Role, in.Workspace)
	return AddedOperator{&p, token.Secret}, err
}

func (r *Roster) patchOperator(req *http.Request, in OperatorChange) (Person, error) {
	return r.ChangeOperator(req.Context(), From(req.Context()), req.PathValue("name"), in)
}

func (r *Roster) deleteOperator(req *http.Request) error {
	return r.RemoveOperator(req.Context(), From(req.Context()), req.PathValue("name"))
}

func (r *Roster) postToken(req *http.Request) (AddedOperator, error) {
	token, err := r.NewToken(req.Context(), From(req.Context()), req.PathValue("name"))
	return AddedOperator{Token: token.Secret}, err
}

func (r *Roster) getWorkspaces(req *http.Request) (WorkspaceList, error) {
	return r.listWorkspaces(req.Context())
}

func (r *Roster) postWorkspace(req *http.Request, in NewWorkspace) (NewWorkspace, error) {
	return in, r.AddWorkspace(req.Context(), From(req.Context()), in.Name)
}

func (r *Roster) getUsers(req *http.Request) (UserList, error) {
	all, err := r.Users(req.Context(), req.URL.Query().Get("workspace"))
	return UserList{all}, err
}

func (r *Roster) getUser(req *http.Request) (User, error) {
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return User{}, err
	}
	return r.User(req.Context(), workspace, req.PathValue("name"))
}

func (r *Roster) postUser(req *http.Request, in NewUser) (AddedUser, error) {
	u, key, err := r.AddUser(req.Context(), From(req.Context()), in)
	return AddedUser{u, key.Secret}, err
}

func (r *Roster) postUserKey(req *http.Request) (IssuedKey, error) {
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return IssuedKey{}, err
	}
	k, err := r.IssueUserKey(req.Context(), From(req.Context()), workspace, req.PathValue("name"))
	return IssuedKey(k), err
}

func (r *Roster) getOwners(req *http.Request) (OwnerList, error) {
	all, err := r.getUsers(req)
	return OwnerList{all.Users}, err
}

func (r *Roster) postOwner(req *http.Request, in NewOwner) (AddedOwner, error) {
	added, err := r.postUser(req, NewUser{Name: in.Name, Workspace: in.Workspace})
	return AddedOwner{added.User, added.Key}, err
}
