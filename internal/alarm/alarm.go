package alarm

import (
	"context"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Alarm is one thing that people should look at.
type Alarm struct {
	ID        string `json:"id"`
	Workspace string `json:"workspace,omitempty"` // "" if it is about the whole server
	// Kind is a word for programs, such as operator_refused.
	Kind string `json:"kind"`
	// Agent is the id of the agent that it is about, "" if it is about none, or nobody knows which.
	Agent string `json:"agent,omitempty"`
	// Title says in one sentence what happened, and Detail the rest, with what to do. An agent must not be
	// able to choose the title: alarms that differ in it are different alarms.
	Title    string     `json:"title"`
	Detail   string     `json:"detail,omitempty"`
	RaisedAt time.Time  `json:"raised_at"`
	ClosedAt *time.Time `json:"closed_at"`
	ClosedBy string     `json:"closed_by,omitempty"`
	Note     string     `json:"note,omitempty"` // of who closed it
}

// Raised is the kind of the entry by which an alarm begins.
const Raised = "alarm.raised"

const kindClosed = "alarm.closed"

// The bodies of the entries. Names are stored, so they never change.
type (
	raised struct {
		Kind   string `json:"kind"`
		Agent  string `json:"agent,omitzero"`
		Title  string `json:"title"`
		Detail string `json:"detail,omitzero"`
	}
	closed struct {
		By   string `json:"by"`
		Note string `json:"note,omitzero"`
	}
)

// Migrations make the table of alarms.
var Migrations = store.Migrations{Package: "alarm", Steps: []string{`
CREATE TABLE alarm (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  kind {text} NOT NULL,
  agent {text} NOT NULL,
  title {text} NOT NULL,
  detail {text} NOT NULL,
  raised_at {bigint} NOT NULL,
  closed_at {bigint} NOT NULL,
  closed_by {text} NOT NULL,
  note {text} NOT NULL
) {strict};
CREATE INDEX alarm_open ON alarm (workspace, kind, agent, title) WHERE closed_at = 0;
`}}

// Projection is what the entries do to the table.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name: "alarm", Tables: ledger.Tables("alarm (id)"),
		Apply: map[string]ledger.Apply{
			Raised: func(tx *store.Tx, e *ledger.Entry) error {
				var b raised
				if err := e.Decode(&b); err != nil {
					return err
				}
				tx.Exec("INSERT INTO alarm (id, workspace, kind, agent, title, detail, raised_at, closed_at, closed_by, note) "+
					"VALUES ($1, $2, $3, $4, $5, $6, $7, 0, '', '')",
					e.Subject, e.Workspace, b.Kind, b.Agent, b.Title, b.Detail, e.At.UnixMicro())
				return nil
			},
			kindClosed: func(tx *store.Tx, e *ledger.Entry) error {
				var b closed
				if err := e.Decode(&b); err != nil {
					return err
				}
				tx.Exec("UPDATE alarm SET closed_at = $2, closed_by = $3, note = $4 WHERE id = $1",
					e.Subject, e.At.UnixMicro(), b.By, b.Note)
				return nil
			},
		},
	}
}

// Alarms are the alarms of a server. It is safe for concurrent use.
type Alarms struct {
	db     *store.DB
	ledger *ledger.Ledger
}

// New makes the alarms of a server. The ledger must have Projection.
func New(db *store.DB, l *ledger.Ledger) *Alarms { return &Alarms{db, l} }

// Raise raises an alarm, unless the same is open.
func (a *Alarms) Raise(ctx context.Context, one Alarm) error {
	return a.ledger.Write(ctx, func(tx *ledger.Tx) error { return Raise(tx, one) })
}

// Raise is Alarms.Raise in the caller's transaction.
func Raise(tx *ledger.Tx, one Alarm) error {
	open, err := store.All(tx.Query, store.Text,
		"SELECT id FROM alarm WHERE workspace = $1 AND kind = $2 AND agent = $3 AND title = $4 AND closed_at = 0",
		one.Workspace, one.Kind, one.Agent, one.Title)
	if err != nil || len(open) > 0 {
		return err
	}
	tx.Append(ledger.Event{
		Workspace: one.Workspace, Kind: Raised, Actor: "system", Subject: id.New("alarm"),
		Body: raised{one.Kind, one.Agent, one.Title, one.Detail},
	})
	return nil
}

// maxNote is the longest note, in bytes.
const maxNote = 4000

// Close says that somebody has looked at an alarm. It is then no longer shown, and may be raised again.
func (a *Alarms) Close(ctx context.Context, by roster.Identity, alarmID, note string) (Alarm, error) {
	if len(note) > maxNote {
		return Alarm{}, fault.New(fault.InvalidPayload, "The note has %d bytes; the most is %d.", len(note), maxNote).
			About("note")
	}
	err := a.ledger.Write(ctx, func(tx *ledger.Tx) error {
		found, err := one(ctx, tx.Query, alarmID)
		if err != nil {
			return err
		}
		if found.ClosedAt != nil {
			return fault.New(fault.Conflict, "%s has closed this alarm at %s.", found.ClosedBy,
				found.ClosedAt.Format(time.RFC3339))
		}
		tx.Append(ledger.Event{
			Workspace: found.Workspace, Kind: kindClosed, Actor: by.Actor(), Subject: alarmID, Body: closed{by.Name, note},
		})
		return nil
	})
	if err != nil {
		return Alarm{}, err
	}
	return a.Get(ctx, alarmID)
}

const columns = "SELECT id, workspace, kind, agent, title, detail, raised_at, closed_at, closed_by, note FROM alarm"

func scan(scan store.Scan) (a Alarm, err error) {
	var raisedAt, closedAt int64
	err = scan(&a.ID, &a.Workspace, &a.Kind, &a.Agent, &a.Title, &a.Detail, &raisedAt, &closedAt, &a.ClosedBy, &a.Note)
	a.RaisedAt, a.ClosedAt = *store.Moment(raisedAt), store.Moment(closedAt)
	return a, err
}

// one reads an alarm. One of another workspace does not exist for whoever is confined to one.
func one(ctx context.Context, query store.Query, alarmID string) (Alarm, error) {
	found, err := store.All(query, scan, columns+" WHERE id = $1", alarmID)
	if err == nil && (len(found) == 0 || !wire.InScope(ctx, found[0].Workspace)) {
		err = fault.New(fault.NotFound, "There is no alarm %.80q. `signalbox alarms ls` lists those that are open.", alarmID)
	}
	if err != nil {
		return Alarm{}, err
	}
	return found[0], nil
}

// Get reads an alarm.
func (a *Alarms) Get(ctx context.Context, alarmID string) (Alarm, error) {
	return one(ctx, a.db.Reading(ctx), alarmID)
}

// Open counts the alarms that are open and that the caller may see, which may be more than List lists.
func (a *Alarms) Open(ctx context.Context) (n int64, err error) {
	err = a.db.Read.QueryRowContext(ctx, "SELECT count(*) FROM alarm WHERE closed_at = 0 AND ($1 = '' OR workspace = $1)",
		wire.Scope(ctx)).Scan(&n)
	return n, store.Explain(err)
}

// Stands reports whether an alarm of a kind about the whole server is open.
func (a *Alarms) Stands(ctx context.Context, kind string) (bool, error) {
	var n int64
	err := a.db.Read.QueryRowContext(ctx, "SELECT count(*) FROM alarm WHERE closed_at = 0 AND workspace = '' AND kind = $1",
		kind).Scan(&n)
	return n > 0, store.Explain(err)
}

// List lists up to 200 alarms that the caller may see, the newest first: those that are open, or all.
func (a *Alarms) List(ctx context.Context, all bool) ([]Alarm, error) {
	var where []string
	var args []any
	if scope := wire.Scope(ctx); scope != "" {
		where, args = append(where, "workspace = $1"), append(args, scope)
	}
	if !all {
		where = append(where, "closed_at = 0")
	}
	query := columns
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	return store.All(a.db.Reading(ctx), scan, query+" ORDER BY id DESC LIMIT 200", args...)
}
