package roster

import (
	"cmp"
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
	// taken away, one that is not named stays.
	OperatorChange struct {
		Contacts map[string]string `json:"contacts"`
	}
	// WorkspaceList is all workspaces that the caller may see.
	WorkspaceList struct {
		Workspaces []string `json:"workspaces"`
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

func (r *Roster) getOperators(w http.ResponseWriter, req *http.Request) error {
	all, err := r.Operators(req.Context(), wire.Scope(req.Context()))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, OperatorList{all})
}

func (r *Roster) postOperator(w http.ResponseWriter, req *http.Request) error {
	var in NewOperator
	if err := wire.ReadJSON(w, req, maxBody, &in); err != nil {
		return err
	}
	if in.Workspace != "" || wire.Scope(req.Context()) != "" {
		var err error
		if in.Workspace, err = WorkspaceOf(req, in.Workspace); err != nil {
			return err
		}
	}
	p, token, err := r.AddOperator(req.Context(), From(req.Context()), in.Name, in.Role, in.Workspace)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, AddedOperator{&p, token.Secret})
}

func (r *Roster) patchOperator(w http.ResponseWriter, req *http.Request) error {
	var in OperatorChange
	if err := wire.ReadJSON(w, req, maxBody, &in); err != nil {
		return err
	}
	p, err := r.ChangeOperator(req.Context(), From(req.Context()), req.PathValue("name"), in)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, p)
}

func (r *Roster) deleteOperator(w http.ResponseWriter, req *http.Request) error {
	if err := r.RemoveOperator(req.Context(), From(req.Context()), req.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (r *Roster) postToken(w http.ResponseWriter, req *http.Request) error {
	token, err := r.NewToken(req.Context(), From(req.Context()), req.PathValue("name"))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, AddedOperator{Token: token.Secret})
}

func (r *Roster) getWorkspaces(w http.ResponseWriter, req *http.Request) error {
	all, err := r.Workspaces(req.Context(), wire.Scope(req.Context()))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, WorkspaceList{all})
}

func (r *Roster) postWorkspace(w http.ResponseWriter, req *http.Request) error {
	var in NewWorkspace
	if err := wire.ReadJSON(w, req, maxBody, &in); err != nil {
		return err
	}
	if err := r.AddWorkspace(req.Context(), From(req.Context()), in.Name); err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, in)
}

func (r *Roster) getOwners(w http.ResponseWriter, req *http.Request) error {
	workspace := cmp.Or(req.URL.Query().Get("workspace"), wire.Scope(req.Context()))
	if !wire.InScope(req.Context(), workspace) {
		return wire.Reply(w, http.StatusOK, OwnerList{[]Owner{}})
	}
	all, err := r.Owners(req.Context(), workspace)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, OwnerList{all})
}

func (r *Roster) postOwner(w http.ResponseWriter, req *http.Request) error {
	var in NewOwner
	if err := wire.ReadJSON(w, req, maxBody, &in); err != nil {
		return err
	}
	workspace, err := WorkspaceOf(req, in.Workspace)
	if err != nil {
		return err
	}
	o, key, err := r.AddOwner(req.Context(), From(req.Context()), workspace, in.Name)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, AddedOwner{o, key.Secret})
}

func (r *Roster) deleteOwner(w http.ResponseWriter, req *http.Request) error {
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return err
	}
	if err := r.RemoveOwner(req.Context(), From(req.Context()), workspace, req.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (r *Roster) postOwnerKey(w http.ResponseWriter, req *http.Request) error {
	workspace, err := QueryWorkspace(req)
	if err != nil {
		return err
	}
	k, err := r.IssueOwnerKey(req.Context(), From(req.Context()), workspace, req.PathValue("name"))
	return replyIssued(w, k, err)
}
