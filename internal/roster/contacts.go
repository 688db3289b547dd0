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
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

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
