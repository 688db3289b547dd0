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
	// OwnerList is all owners that the caller may see.
	OwnerList struct {
		Owners []Owner `json:"owners"`
	}
	// NewOwner asks for an owner.
	NewOwner struct {
		Name      string `json:"name"`
		Workspace string `json:"workspace,omitempty"`
	}
	// AddedOwner is a new owner with a key, shown this once.
	AddedOwner struct {
		Owner Owner  `json:"owner"`
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

func (r *Roster) getOwners(req *http.Request) (OwnerList, error) {
	all, err := r.Owners(req.Context(), req.URL.Query().Get("workspace"))
	return OwnerList{all}, err
}

func (r *Roster) postOwner(req *http.Request, in NewOwner) (AddedOwner, error) {
	o, key, err := r.AddOwner(req.Context(), From(req.Context()), in.Workspace, in.Name)
	return AddedOwner{o, key.Secret}, err
}

func (r *Roster) deleteOwner(req *http.Request) error {
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return err
	}
	return r.RemoveOwner(req.Context(), From(req.Context()), workspace, req.PathValue("name"))
}

func (r *Roster) postOwnerKey(req *http.Request) (IssuedKey, error) {
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return IssuedKey{}, err
	}
	k, err := r.IssueOwnerKey(req.Context(), From(req.Context()), workspace, req.PathValue("name"))
	return IssuedKey(k), err
}
