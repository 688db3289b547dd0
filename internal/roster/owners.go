package roster

import (
	"context"
	"database/sql"
	"errors"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
)

// AddOwner adds an owner with a key, to the workspace that WorkspaceOf returns.
func (r *Roster) AddOwner(ctx context.Context, by Identity, workspace, name string) (Owner, Issued, error) {
	workspace, err := WorkspaceOf(ctx, workspace)
	if err != nil {
		return Owner{}, Issued{}, err
	}
	if err := checkName(name); err != nil {
		return Owner{}, Issued{}, err
	}
	o := Owner{ID: id.New("usr"), Name: name, Workspace: workspace}
	key := prepare(OwnerKey)
	err = r.Write(ctx, func(tx *ledger.Tx) error {
		if err := RequireWorkspace(tx, workspace); err != nil {
			return err
		}
		if taken, err := exists(tx, "SELECT 1 FROM owner WHERE workspace = $1 AND name = $2", workspace, name); err != nil {
			return err
		} else if taken {
			return fault.New(fault.AlreadyExists,
				"Workspace %q has an owner %q already. `signalbox owners key %s` makes a new key for them.", workspace, name,
				name).About("name")
		}
		o.AddedAt = tx.Now()
		tx.Append(ledger.Event{
			Workspace: workspace, Kind: "owner.added", Actor: by.Actor(), Subject: o.ID,
			Body: ownerAdded{name},
		})
		issueToOwner(tx, by, o, &key)
		return nil
	})
	return o, key, err
}

// issueToOwner appends the key and fills in whose it is.
func issueToOwner(tx *ledger.Tx, by Identity, o Owner, key *Issued) {
	issue(tx, by, o.Workspace, o.ID, key)
	key.Key.Owner, key.Key.Workspace = o.Name, o.Workspace
}

// RemoveOwner removes an owner and their keys. Their agents stay, without an owner: somebody
// who leaves must not stop what is running.
func (r *Roster) RemoveOwner(ctx context.Context, by Identity, workspace, name string) error {
	return r.Write(ctx, func(tx *ledger.Tx) error {
		o, err := findOwner(tx, workspace, name)
		if err != nil {
			return err
		}
		tx.Append(ledger.Event{Workspace: workspace, Kind: "owner.removed", Actor: by.Actor(), Subject: o.ID, Body: empty{}})
		return nil
	})
}

// IssueOwnerKey makes a further key for an owner. Those they had go on working until
// they are rotated or revoked.
func (r *Roster) IssueOwnerKey(ctx context.Context, by Identity, workspace, name string) (Issued, error) {
	key := prepare(OwnerKey)
	err := r.Write(ctx, func(tx *ledger.Tx) error {
		o, err := findOwner(tx, workspace, name)
		if err != nil {
			return err
		}
		issueToOwner(tx, by, o, &key)
		return nil
	})
	return key, err
}

// findOwner finds an owner of a workspace by name, or by id.
func findOwner(tx *ledger.Tx, workspace, name string) (Owner, error) {
	o := Owner{Workspace: workspace}
	err := tx.QueryRow("SELECT id, name FROM owner WHERE workspace = $1 AND (name = $2 OR id = $2)",
		[]any{workspace, name}, &o.ID, &o.Name)
	if errors.Is(err, sql.ErrNoRows) {
		return o, fault.New(fault.NotFound,
			"There is no owner %.80q in workspace %q. `signalbox owners ls` lists those there are.", name,
			workspace).About("owner")
	}
	return o, err
}
