package roster

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"

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

// A contact ties an operator to an account of another service. It decides whose vote a press
// of a button is, so a contact belongs to one operator, and only an admin sets it. Forms are
// strict: a name that people can choose themselves, such as a Slack handle, is refused.

// contactForms say what a contact looks like, by channel.
var contactForms = map[string]struct {
	form    *regexp.Regexp
	example string
}{
	"slack":    {regexp.MustCompile(`^[UW][A-Z0-9]{2,30}$`), "the member id, such as U024BE7LH"},
	"telegram": {regexp.MustCompile(`^[1-9][0-9]{0,18}$`), "the user's number, such as 4711"},
	"email":    {regexp.MustCompile(`^[^@\s]{1,64}@[^@\s]{1,190}$`), "an address, such as ann@example.com"},
}

// ContactChannels are the channels that contacts belong to.
func ContactChannels() []string { return slices.Sorted(maps.Keys(contactForms)) }

// checkContact returns the contact as it is stored, "" for one that is to be removed.
func checkContact(channel, contact string) (string, error) {
	if err := oneOf("contacts", channel, ContactChannels()); err != nil {
		return "", err
	}
	if contact == "" {
		return "", nil
	}
	known := contactForms[channel]
	ok := known.form.MatchString(contact)
	if channel == "email" {
		contact = strings.ToLower(contact)
		parsed, err := mail.ParseAddress(contact)
		ok = ok && err == nil && parsed.Address == contact
	}
	if !ok {
		return "", fault.New(fault.InvalidPayload, "The contact for %s should be %s. It is %.80q.", channel, known.example,
			contact).About("contacts")
	}
	return contact, nil
}

// ChangeOperator changes the contacts of an operator. Nothing is appended if nothing differs.
func (r *Roster) ChangeOperator(ctx context.Context, by Identity, name string, change OperatorChange) (Person, error) {
	wanted := map[string]string{}
	for channel, contact := range change.Contacts {
		checked, err := checkContact(channel, contact)
		if err != nil {
			return Person{}, err
		}
		wanted[channel] = checked
	}
	var p Person
	err := r.Write(ctx, func(tx *ledger.Tx) error {
		found, err := OperatorFor(tx, by, name)
		if err != nil {
			return err
		}
		one := []Person{found}
		if err := addContacts(tx.Query, one); err != nil {
			return err
		}
		p = one[0]
		before := maps.Clone(p.Contacts)
		for channel, contact := range wanted {
			if err := checkFree(tx, by, p, channel, contact); err != nil {
				return err
			}
			p.Contacts[channel] = contact
		}
		maps.DeleteFunc(p.Contacts, func(_, contact string) bool { return contact == "" })
		if maps.Equal(before, p.Contacts) {
			return nil
		}
		tx.Append(ledger.Event{
			Workspace: p.Workspace, Kind: "operator.changed", Actor: by.Actor(), Subject: p.ID,
			Body: operatorChanged{maps.Clone(p.Contacts)},
		})
		return nil
	})
	return p, err
}

// checkFree refuses a contact that belongs to another operator: a press of a button could
// not be attributed to one of them.
func checkFree(tx *ledger.Tx, by Identity, p Person, channel, contact string) error {
	var holder, workspace string
	err := tx.QueryRow("SELECT o.name, o.workspace FROM operator_contact c JOIN operator o ON o.id = c.operator WHERE "+
		"c.channel = $1 AND c.contact = $2", []any{channel, contact}, &holder, &workspace)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case holder == p.Name:
		return nil
	case by.Workspace != "" && by.Workspace != workspace:
		holder = "another operator"
	}
	return fault.New(fault.AlreadyExists,
		"This contact for %s belongs to %s. A contact belongs to one person; remove it there first.", channel,
		holder).About("contacts")
}

// selectPerson reads operators without their contacts.
const selectPerson = "SELECT id, name, role, workspace, added_at FROM operator"

// scanPerson reads a row of selectPerson; contacts are added apart.
func scanPerson(scan func(...any) error) (Person, error) {
	p := Person{Contacts: map[string]string{}}
	var at int64
	err := scan(&p.ID, &p.Name, &p.Role, &p.Workspace, &at)
	p.AddedAt = time.UnixMicro(at).UTC()
	return p, err
}

// addContacts reads the contacts of all operators, of whom there are few.
func addContacts(query store.Query, people []Person) error {
	type row struct{ operator, channel, contact string }
	all, err := store.All(query, func(scan store.Scan) (c row, err error) {
		err = scan(&c.operator, &c.channel, &c.contact)
		return c, err
	}, "SELECT operator, channel, contact FROM operator_contact")
	if err != nil {
		return err
	}
	for _, c := range all {
		for i := range people {
			if people[i].ID == c.operator {
				people[i].Contacts[c.channel] = c.contact
			}
		}
	}
	return nil
}

// ByContact finds the operator with the contact. The channel must have authenticated the
// person who uses it.
func (r *Roster) ByContact(ctx context.Context, channel, contact string) (Identity, error) {
	p, err := provenOperator(r.ledger.Prover(ctx), func(query store.Query) (Person, map[string]string, error) {
		found, err := store.All(query, scanPerson, `SELECT o.id, o.name, o.role, o.workspace, o.added_at
FROM operator_contact c JOIN operator o ON o.id = c.operator WHERE c.channel = $1 AND c.contact = $2`, channel, contact)
		if err == nil && len(found) == 0 {
			err = fault.New(fault.NotFound,
				"No operator has this %s contact. An admin sets it with `signalbox operators set NAME --%s CONTACT`.",
				channel, channel)
		}
		if err != nil {
			return Person{}, nil, err
		}
		return found[0], map[string]string{channel: contact}, nil
	})
	if err != nil {
		return Identity{}, err
	}
	return p.Identity(), nil
}
