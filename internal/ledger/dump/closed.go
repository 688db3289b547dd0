package dump

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/store"
)

// State is why a database is closed.
type State string

// The states of closed databases.
const (
	Restoring State = "restoring" // it is being filled from a backup
	Receiving State = "receiving" // it is being filled from another database
	Leaving   State = "leaving"   // it is being copied to another database
	Left      State = "left"      // it was copied, and the other one goes on
)

// Closed is what stands in a closed database in place of the ledger's key.
type Closed struct {
	State State
	Other string // the backup's number, or the kind of the other database
	At    time.Time
	Key   string // the verifier key of the ledger
}

// text is the form in which it is stored.
func (c Closed) text() string {
	return strings.Join([]string{"closed", string(c.State), c.Other, strconv.FormatInt(c.At.Unix(), 10), c.Key}, " ")
}

// parseClosed reads what text writes; nil for a key, or nothing.
func parseClosed(text string) *Closed {
	if !strings.HasPrefix(text, "closed ") {
		return nil
	}
	parts := append(strings.SplitN(text, " ", 5), "", "", "", "")
	at, _ := strconv.ParseInt(parts[3], 10, 64)
	return &Closed{State(parts[1]), parts[2], time.Unix(at, 0).UTC(), parts[4]}
}

// kinds are the databases, by the names of package store, as people know them.
var kinds = map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}

// Error says what to do about a closed database.
func (c Closed) Error() string {
	day := c.At.Format("2006-01-02 15:04")
	switch c.State {
	case Restoring:
		return fmt.Sprintf("A restore of backup %s into this database was begun at %s and has not ended. Run "+
			"`signalbox restore` again with the same backup: it goes on where it was.", c.Other, day)
	case Receiving:
		return fmt.Sprintf("A migration from %s into this database was begun at %s and has not ended. Run `signalbox migrate` "+
			"again: it goes on where it was.", kinds[c.Other], day)
	case Leaving:
		return fmt.Sprintf("A migration from this database to %s was begun at %s and has not ended. Run `signalbox migrate` "+
			"again, or with --cancel to stay here.", kinds[c.Other], day)
	case Left:
		return fmt.Sprintf("This database was migrated to %s at %s. The ledger goes on there: set `db` to its address, or leave "+
			"it empty for SQLite. Two servers with one key would make two histories.", kinds[c.Other], day)
	}
	return "This database was closed by a newer Signalbox. Run that version."
}

// InUse is an error that says why the database is closed, nil if it is not.
func InUse(ctx context.Context, db *store.DB) error {
	known, err := knownKey(ctx, db.Read)
	if err != nil {
		return err
	}
	if c := parseClosed(known); c != nil {
		return fault.Wrap(c, fault.LedgerMismatch, "%s", c.Error())
	}
	return nil
}

// Close closes the database that was looked at, because it is copied to another one. No server may work on it: on SQLite
// the lock on the data folder says so, on PostgreSQL that nobody holds a lease, as every server does. With a head it is an
// error if another entry was added meanwhile.
func (v View) Close(ctx context.Context, db *store.DB, state State, other string, head int64, now time.Time) error {
	return db.Bookkeep(ctx, "ledger_tree", func(tx *store.Tx) error {
		if db.Name() == "postgres" {
			var name string
			err := tx.QueryRow("SELECT name FROM ledger_cursor WHERE held_until > $1 ORDER BY name LIMIT 1",
				[]any{now.UnixMicro()}, &name)
			if err == nil {
				return fault.New(fault.Conflict, "A server works on this database: it holds the lease %q. Stop every node; after one "+
					"was killed it takes half a minute.", name)
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		var at int64
		if err := tx.QueryRow("SELECT seq FROM ledger_head WHERE id = 1", nil, &at); err != nil {
			return err
		}
		if head > 0 && at != head {
			return fault.New(fault.Conflict, "A server has written to this database meanwhile. Stop every node, and run "+
				"`signalbox migrate` again: it goes on where it was.")
		}
		return set(tx, v.known, Closed{state, other, now, v.Key}.text())
	})
}

// Reopen takes back that a database was to be left, if nothing has been opened in its place.
func (v View) Reopen(ctx context.Context, db *store.DB) error {
	if v.Closed == nil || v.Closed.State != Leaving {
		return fault.New(fault.Conflict, "No migration from this database is under way.")
	}
	return db.Bookkeep(ctx, "ledger_tree", func(tx *store.Tx) error { return set(tx, v.known, v.Key) })
}

// set moves the text in the place of the key from one to another; it is an error if it was not the first.
func set(tx *store.Tx, from, to string) error {
	var now string
	if err := tx.QueryRow("SELECT vkey FROM ledger_tree WHERE id = 1", nil, &now); err != nil {
		return err
	}
	if now != from {
		return fault.New(fault.Conflict, "Another program works on this database at the same time. Wait until it has ended.")
	}
	tx.Exec("UPDATE ledger_tree SET vkey = $1 WHERE id = 1", to)
	return nil
}

// Empty is an error for a database that holds a ledger, or a part of one.
func Empty(ctx context.Context, db *store.DB) error {
	known, err := knownKey(ctx, db.Read)
	if err != nil {
		return err
	}
	head, err := headOf(ctx, db.Read)
	if err == nil && (known != "" || head > 0) {
		err = fault.New(fault.Conflict,
			"The database to migrate to is not empty: it has a ledger of %d entries. Use an empty one, or move it away.", head)
	}
	return err
}
