package roster

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/scope"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// User is a person or a team in a workspace on whose behalf agents act. An operator adds it; it ends when it is
// removed, and its entries stay. With a key of its own it registers agents, which it then owns: version 0.1 called a
// user an owner, and calls and keys keep that word.
//
// What always holds: the name is unique in the workspace, and so is the e-mail. Everything but the name is read from
// the entries about the user, never from a table.
type User struct {
	ID        string           `json:"id" example:"usr_01jqv3"`
	Name      string           `json:"name" example:"alice"`
	Workspace string           `json:"workspace" example:"default"`
	Email     string           `json:"email,omitzero" example:"alice@example.com"`
	Scopes    []string         `json:"scopes" doc:"what agents may do for them; [\"*\"] is everything"`
	Limits    map[string]int64 `json:"limits,omitzero" doc:"numbers that rules compare with, by name"`
	Suspended bool             `json:"suspended" doc:"nothing is done on their behalf"`
	AddedAt   time.Time        `json:"added_at"`
	Source    string           `json:"source" example:"hand" doc:"hand, or oidc for who came with a token"`
	Logins    []Login          `json:"logins,omitzero" doc:"by what issuers of tokens know them"`
}

// The kinds of the entries about users, whose subject is the user's id. owner.added and owner.removed are those of
// version 0.1.
const (
	kindUserAdded     = "user.added"
	kindUserChanged   = "user.changed"
	kindUserSuspended = "user.suspended"
	kindUserResumed   = "user.resumed"
	kindUserRemoved   = "user.removed"
)

type (
	// userSettings are all that can be changed of a user, and the body of user.changed: as they are after the change.
	userSettings struct {
		Email  string           `json:"email,omitzero"`
		Scopes []string         `json:"scopes"`
		Limits map[string]int64 `json:"limits,omitzero"`
	}
	// userAdded is the body of user.added.
	userAdded struct {
		Name string `json:"name"`
		userSettings
		Login *Login `json:"login,omitzero"` // of a user who came with a token
	}
)

// NewUser asks for a user.
type NewUser struct {
	Name      string           `json:"name" example:"alice"`
	Workspace string           `json:"workspace,omitempty"`
	Email     string           `json:"email,omitempty" example:"alice@example.com"`
	Scopes    *[]string        `json:"scopes,omitzero" doc:"everything when absent"`
	Limits    map[string]int64 `json:"limits,omitempty"`
}

// UserChange is what to change about a user; what is absent stays as it is.
type UserChange struct {
	Email     *string           `json:"email,omitzero"`
	Scopes    *[]string         `json:"scopes,omitzero"`
	Limits    *map[string]int64 `json:"limits,omitzero" doc:"all that they have from then on"`
	Suspended *bool             `json:"suspended,omitzero"`
}

var (
	limitForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	emailForm = regexp.MustCompile(`^[^\s@<>"]{1,64}@[^\s@<>"]{1,190}$`)
)

// check checks settings that need no table.
func (s *userSettings) check() error {
	if s.Email != "" && !emailForm.MatchString(s.Email) {
		return fault.New(fault.InvalidPayload, "The e-mail should be an address such as alice@example.com, and is %.80q.",
			s.Email).About("email")
	}
	for name, n := range s.Limits {
		if !limitForm.MatchString(name) || n < 0 {
			return fault.New(fault.InvalidPayload, "A limit has a name such as actions_per_minute and a number from 0 on. "+
				"%.80q is %d.", name, n).About("limits")
		}
	}
	if len(s.Limits) > 64 {
		return fault.New(fault.InvalidPayload, "There are %d limits; the most is 64.", len(s.Limits)).About("limits")
	}
	return scope.Check(s.Scopes)
}

// AddUser adds a user with a key, to the workspace that WorkspaceOf returns.
func (r *Roster) AddUser(ctx context.Context, by Identity, n NewUser) (User, Issued, error) {
	workspace, err := WorkspaceOf(ctx, n.Workspace)
	if err != nil {
		return User{}, Issued{}, err
	}
	if err := checkName(n.Name); err != nil {
		return User{}, Issued{}, err
	}
	body := userAdded{Name: n.Name, userSettings: userSettings{n.Email, []string{scope.All}, n.Limits}}
	if n.Scopes != nil {
		body.Scopes = append([]string{}, *n.Scopes...)
	}
	if err := body.check(); err != nil {
		return User{}, Issued{}, err
	}
	fresh, key := id.New("usr"), prepare(OwnerKey)
	var u User
	err = r.Write(ctx, func(tx *ledger.Tx) error {
		if err := RequireWorkspace(tx, workspace); err != nil {
			return err
		}
		if taken, err := exists(tx, "SELECT 1 FROM owner WHERE workspace = $1 AND name = $2", workspace, n.Name); err != nil {
			return err
		} else if taken {
			return fault.New(fault.AlreadyExists,
				"Workspace %q has a user %q already. `signalbox users key %s` makes a new key for them.", workspace, n.Name,
				n.Name).About("name")
		}
		if err := r.emailIsFree(tx, workspace, n.Email, fresh); err != nil {
			return err
		}
		tx.Append(ledger.Event{Workspace: workspace, Kind: kindUserAdded, Actor: by.Actor(), Subject: fresh, Body: body})
		u, err = r.user(tx.Prover(), workspace, fresh)
		issueToUser(tx, by, u, &key)
		return err
	})
	return u, key, err
}

// emailIsFree refuses an e-mail that another user of the workspace has: a user is found by it.
func (r *Roster) emailIsFree(tx *ledger.Tx, workspace, email, userID string) error {
	if email == "" {
		return nil
	}
	all, err := r.users(tx.Prover(), workspace)
	if err != nil {
		return err
	}
	for _, u := range all {
		if u.ID != userID && strings.EqualFold(u.Email, email) {
			return fault.New(fault.AlreadyExists, "The user %q of workspace %q has the e-mail %q already.", u.Name, workspace,
				email).About("email")
		}
	}
	return nil
}

// issueToUser appends the key and fills in whose it is.
func issueToUser(tx *ledger.Tx, by Identity, u User, key *Issued) {
	issue(tx, by, u.Workspace, u.ID, key)
	key.Key.Owner, key.Key.Workspace = u.Name, u.Workspace
}

// ChangeUser changes a user. What agents do on behalf of a suspended one is blocked, so that they are told why.
func (r *Roster) ChangeUser(ctx context.Context, by Identity, workspace, name string, c UserChange) (User, error) {
	var u User
	err := r.Write(ctx, func(tx *ledger.Tx) (err error) {
		if u, err = r.user(tx.Prover(), workspace, name); err != nil {
			return err
		}
		after := userSettings{u.Email, u.Scopes, u.Limits}
		if c.Email != nil {
			after.Email = *c.Email
		}
		if c.Scopes != nil {
			after.Scopes = append([]string{}, *c.Scopes...)
		}
		if c.Limits != nil {
			after.Limits = maps.Clone(*c.Limits)
		}
		if err := after.check(); err != nil {
			return err
		}
		if err := r.emailIsFree(tx, workspace, after.Email, u.ID); err != nil {
			return err
		}
		say := func(kind string, body any) {
			tx.Append(ledger.Event{Workspace: u.Workspace, Kind: kind, Actor: by.Actor(), Subject: u.ID, Body: body})
		}
		if c.Email != nil || c.Scopes != nil || c.Limits != nil {
			say(kindUserChanged, after)
		}
		if c.Suspended != nil && *c.Suspended != u.Suspended {
			say(map[bool]string{true: kindUserSuspended, false: kindUserResumed}[*c.Suspended], empty{})
		}
		u, err = r.user(tx.Prover(), workspace, u.ID)
		return err
	})
	return u, err
}

// RemoveUser removes a user and their keys. Their agents stay, without an owner: somebody
// who leaves must not stop what is running.
func (r *Roster) RemoveUser(ctx context.Context, by Identity, workspace, name string) error {
	return r.Write(ctx, func(tx *ledger.Tx) error {
		u, err := findUser(tx.Prover(), workspace, name)
		if err != nil {
			return err
		}
		tx.Append(ledger.Event{Workspace: workspace, Kind: kindUserRemoved, Actor: by.Actor(), Subject: u.ID, Body: empty{}})
		return nil
	})
}

// IssueUserKey makes a further key for a user. Those they had go on working until
// they are rotated or revoked.
func (r *Roster) IssueUserKey(ctx context.Context, by Identity, workspace, name string) (Issued, error) {
	key := prepare(OwnerKey)
	err := r.Write(ctx, func(tx *ledger.Tx) error {
		u, err := findUser(tx.Prover(), workspace, name)
		if err != nil {
			return err
		}
		issueToUser(tx, by, u, &key)
		return nil
	})
	return key, err
}

// findUser finds a user of a workspace by name, or by id, without the settings.
func findUser(p ledger.Prover, workspace, name string) (User, error) {
	found, err := store.All(p.Query, scanUser, selectUsers+"WHERE workspace = $1 AND (name = $2 OR id = $2)", workspace, name)
	if err == nil && len(found) == 0 {
		return User{}, fault.New(fault.NotFound,
			"There is no user %.80q in workspace %q. `signalbox users ls` lists those there are.", name,
			workspace).About("owner")
	}
	if err != nil {
		return User{}, err
	}
	return found[0], nil
}

const selectUsers = "SELECT id, name, workspace, added_at FROM owner "

func scanUser(scan store.Scan) (User, error) {
	var u User
	var at int64
	err := scan(&u.ID, &u.Name, &u.Workspace, &at)
	u.AddedAt = time.UnixMicro(at).UTC()
	return u, err
}

// user finds a user by name, or by id, with what the ledger says of them.
func (r *Roster) user(p ledger.Prover, workspace, name string) (u User, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		if u, err = findUser(p, workspace, name); err != nil {
			return false, err
		}
		f, _, err := prove(p, u.ID, "")
		known := f.user != nil && f.user.Name == u.Name && f.user.Workspace == u.Workspace
		if known {
			u = f.user.addedAt(u.AddedAt)
		}
		return known, err
	})
	if err == nil && !agree {
		err = contradicted(p, "owner", u.ID, u.Name)
	}
	return u, err
}

// set takes over settings. A user of version 0.1 has none, and agents may do everything for them.
func (u *User) set(s userSettings) {
	u.Email, u.Scopes, u.Limits = s.Email, s.Scopes, s.Limits
	if u.Scopes == nil {
		u.Scopes = []string{scope.All}
	}
}

func (u User) addedAt(at time.Time) User { u.AddedAt = at; return u }

// users are those of a workspace, or all for "", by workspace and name. They are few, so that there are no pages.
func (r *Roster) users(p ledger.Prover, workspace string) ([]User, error) {
	all, err := store.All(p.Query, scanUser, selectUsers+"WHERE $1 = '' OR workspace = $1 ORDER BY workspace, name", workspace)
	if err != nil || len(all) == 0 {
		return all, err
	}
	entries, err := p.Entries(ledger.Query{Workspace: workspace, Kinds: aboutUsers})
	if err != nil {
		return nil, err
	}
	said := map[string]*facts{}
	for i := range entries {
		e := &entries[i]
		if said[e.Subject] == nil {
			said[e.Subject] = &facts{}
		}
		if err := said[e.Subject].follow(e); err != nil {
			return nil, err
		}
	}
	for i, u := range all {
		if f := said[u.ID]; f == nil || f.user == nil {
			return nil, contradicted(p, "owner", u.ID, u.Name)
		}
		all[i] = said[u.ID].user.addedAt(u.AddedAt)
	}
	return all, nil
}

// User finds a user of a workspace by name, or by id.
func (r *Roster) User(ctx context.Context, workspace, name string) (User, error) {
	return r.user(r.ledger.Prover(ctx), workspace, name)
}

// Users lists the users by workspace and name that the caller may see: all, or those of a
// workspace.
func (r *Roster) Users(ctx context.Context, workspace string) ([]User, error) {
	workspace, visible := wire.Within(ctx, workspace)
	if !visible {
		return []User{}, nil
	}
	return r.users(r.ledger.Prover(ctx), workspace)
}

// userByEmail is the id of the user of a workspace with an e-mail, "" for none.
func (r *Roster) userByEmail(p ledger.Prover, workspace, email string) (string, error) {
	all, err := r.users(p, workspace)
	i := slices.IndexFunc(all, func(u User) bool { return u.Email != "" && strings.EqualFold(u.Email, email) })
	if err != nil || i < 0 {
		return "", err
	}
	return all[i].ID, nil
}
