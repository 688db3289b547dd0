package roster

import (
	"context"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Operators are people. Names are unique over all workspaces, because gates name approvers and
// entries name actors by them. A role includes those below it: viewer, operator, admin.

// system is the actor of what the server does by itself.
var system = Identity{Role: Admin}

// FirstOperator is the name of the operator that a first start makes.
const FirstOperator = "admin"

// Bootstrap makes what a new server needs: a workspace and an operator. It does
// nothing on a server that has them.
func (r *Roster) Bootstrap(ctx context.Context) error {
	person := id.New("operator")
	return r.Write(ctx, func(tx *ledger.Tx) error {
		if there, err := exists(tx, "SELECT 1 FROM workspace LIMIT 1"); err != nil || there {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: DefaultWorkspace, Kind: "workspace.added", Actor: "system",
			Subject: DefaultWorkspace, Body: empty{},
		})
		tx.Append(ledger.Event{
			Kind: "operator.added", Actor: "system", Subject: person,
			Body: operatorAdded{Name: FirstOperator, Role: Admin},
		})
		return nil
	})
}

// AddOperator adds a person, with a token. With a workspace they are confined to it. A caller
// who is confined to a workspace can add people to that one only.
func (r *Roster) AddOperator(ctx context.Context, by Identity, name, role, workspace string) (Person, Issued, error) {
	if workspace != "" || wire.Scope(ctx) != "" {
		var err error
		if workspace, err = WorkspaceOf(ctx, workspace); err != nil {
			return Person{}, Issued{}, err
		}
	}
	if err := checkName(name); err != nil {
		return Person{}, Issued{}, err
	}
	if role == "" {
		role = string(Operator)
	}
	if err := oneOf("role", role, Roles); err != nil {
		return Person{}, Issued{}, err
	}
	if slices.Contains(Roles, name) && name != role {
		// Gates name approvers by role or by name: this name would be taken for the role.
		return Person{}, Issued{},
			fault.New(fault.InvalidPayload,
				"%q is a role, and gates ask for operators by role or by name. Choose another name.", name).About("name")
	}
	p := Person{ID: id.New("operator"), Name: name, Role: Role(role), Workspace: workspace, Contacts: map[string]string{}}
	token := prepare(OperatorKey)
	token.Key.Operator = name
	err := r.Write(ctx, func(tx *ledger.Tx) error {
		if taken, err := exists(tx, "SELECT 1 FROM operator WHERE name = $1", name); err != nil {
			return err
		} else if taken {
			return fault.New(fault.AlreadyExists,
				"There is an operator %q already. `signalbox operators token %s` makes a new token for them.", name,
				name).About("name")
		}
		if workspace != "" {
			if err := RequireWorkspace(tx, workspace); err != nil {
				return err
			}
		}
		p.AddedAt = tx.Now()
		tx.Append(ledger.Event{
			Workspace: workspace, Kind: "operator.added", Actor: by.Actor(), Subject: p.ID,
			Body: operatorAdded{name, p.Role, workspace},
		})
		issue(tx, by, workspace, p.ID, &token)
		return nil
	})
	return p, token, err
}

// RemoveOperator removes a person and their tokens. The last admin stays.
func (r *Roster) RemoveOperator(ctx context.Context, by Identity, name string) error {
	return r.Write(ctx, func(tx *ledger.Tx) error {
		p, err := OperatorFor(tx, by, name)
		if err != nil {
			return err
		}
		if p.Role == Admin && p.Workspace == "" {
			var admins int
			if err := tx.QueryRow("SELECT count(*) FROM operator WHERE role = $1 AND workspace = ''", []any{string(Admin)},
				&admins); err != nil {
				return err
			}
			if admins == 1 {
				return fault.New(fault.Conflict, "%q is the last admin. Add another admin first; otherwise nobody could.", name)
			}
		}
		tx.Append(ledger.Event{
			Workspace: p.Workspace, Kind: "operator.removed", Actor: by.Actor(), Subject: p.ID,
			Body: empty{},
		})
		return nil
	})
}

// NewToken makes a further token for an operator. Those they had go on working
// until they are rotated or revoked.
func (r *Roster) NewToken(ctx context.Context, by Identity, name string) (Issued, error) {
	token := prepare(OperatorKey)
	token.Key.Operator = name
	err := r.Write(ctx, func(tx *ledger.Tx) error {
		p, err := OperatorFor(tx, by, name)
		if err != nil {
			return err
		}
		issue(tx, by, p.Workspace, p.ID, &token)
		return nil
	})
	return token, err
}

// LocalToken makes a token for an admin, for the token file of a node that does not have it.
// Whoever can start a server on the database can do everything anyway.
func (r *Roster) LocalToken(ctx context.Context) (Issued, error) {
	all, err := r.Operators(ctx, "")
	if err != nil {
		return Issued{}, err
	}
	for _, p := range all {
		if p.Role == Admin && p.Workspace == "" {
			return r.NewToken(ctx, system, p.Name)
		}
	}
	return Issued{}, fault.New(fault.Conflict, "There is no admin in this database; its operators were changed by hand.")
}

// FindOperator finds an operator by name, inside a transaction.
func FindOperator(tx *ledger.Tx, name string) (Person, error) {
	return provenOperator(tx.Prover(), func(query store.Query) (Person, map[string]string, error) {
		return operatorBy(query, "name", name)
	})
}

// provenOperator reads an operator, and checks that the ledger says the same of them, and of the contacts by which
// they were found.
func provenOperator(p ledger.Prover, read func(store.Query) (Person, map[string]string, error)) (found Person, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		var contacts map[string]string
		if found, contacts, err = read(p.Query); err != nil {
			return false, err
		}
		f, _, err := prove(p, found.ID, "")
		agree := f.isOf(&holding{who: found.Identity()})
		for channel, contact := range contacts {
			agree = agree && f.contacts[channel] == contact
		}
		return agree, err
	})
	if err == nil && !agree {
		err = contradicted(p, "operator", found.ID, found.Name)
	}
	return found, err
}

// OperatorFor finds an operator whom the caller may see: a caller who is confined to a
// workspace sees only operators who are confined to it too.
func OperatorFor(tx *ledger.Tx, by Identity, name string) (Person, error) {
	p, err := FindOperator(tx, name)
	if err == nil && by.Workspace != "" && by.Workspace != p.Workspace {
		return Person{}, noOperator(name)
	}
	return p, err
}

// noOperator is also the answer for an operator whom the caller may not see.
func noOperator(name string) error {
	return fault.New(fault.NotFound, "There is no operator %.80q. `signalbox operators ls` lists those there are.", name)
}

// AddWorkspace adds a workspace.
func (r *Roster) AddWorkspace(ctx context.Context, by Identity, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if by.Workspace != "" {
		return fault.New(fault.Forbidden, "Your token is for workspace %q alone. Ask an admin of the whole server.",
			by.Workspace)
	}
	return r.Write(ctx, func(tx *ledger.Tx) error {
		if taken, err := exists(tx, "SELECT 1 FROM workspace WHERE name = $1", name); err != nil {
			return err
		} else if taken {
			return fault.New(fault.AlreadyExists, "There is a workspace %q already.", name).About("name")
		}
		tx.Append(ledger.Event{Workspace: name, Kind: "workspace.added", Actor: by.Actor(), Subject: name, Body: empty{}})
		return nil
	})
}

// Identity is the operator as a caller, for requests that were authenticated without a key,
// such as those of a dashboard session.
func (p Person) Identity() Identity {
	return Identity{Kind: HolderOperator, ID: p.ID, Name: p.Name, Role: p.Role, Workspace: p.Workspace}
}

// OperatorByID finds the operator with the id.
func (r *Roster) OperatorByID(ctx context.Context, operatorID string) (Identity, error) {
	return r.operator(ctx, "id", operatorID)
}

// OperatorByName finds the operator with the name.
func (r *Roster) OperatorByName(ctx context.Context, name string) (Identity, error) {
	return r.operator(ctx, "name", name)
}

// operator finds an operator by a column.
func (r *Roster) operator(ctx context.Context, column, value string) (Identity, error) {
	found, err := provenOperator(r.ledger.Prover(ctx), func(query store.Query) (Person, map[string]string, error) {
		return operatorBy(query, column, value)
	})
	if err != nil {
		return Identity{}, err
	}
	return found.Identity(), nil
}

// operatorBy finds an operator by a column, which is a word of the program and never input.
func operatorBy(query store.Query, column, value string) (Person, map[string]string, error) {
	found, err := store.All(query, scanPerson, selectPerson+" WHERE "+column+" = $1", value)
	if err == nil && len(found) == 0 {
		err = noOperator(value)
	}
	if err != nil {
		return Person{}, nil, err
	}
	return found[0], nil, nil
}
