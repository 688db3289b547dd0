package deliver

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Summary is a delivery as operators see it in a list, without its payload.
type Summary struct {
	ID        string     `json:"id"`
	Workspace string     `json:"workspace"`
	Status    string     `json:"status"`
	Sender    string     `json:"sender"`
	Target    string     `json:"target"`
	Entry     int64      `json:"entry"` // the entry with the payload
	Attempts  int64      `json:"attempts"`
	LastError string     `json:"last_error"`
	QueuedAt  time.Time  `json:"queued_at"`
	NextAt    *time.Time `json:"next_at"`    // null when it is due, waits its turn or has ended
	GiveUpAt  *time.Time `json:"give_up_at"` // null when it has ended
	EndedAt   *time.Time `json:"ended_at"`
}

// Detail is a delivery with everything that happened to it.
type Detail struct {
	Summary `json:"delivery"`
	// Behind is the delivery to the same target that has to end first, "" for none.
	Behind string `json:"behind"`
	Events []Try  `json:"events"`
}

// Try is one try of a delivery, or its revival by an operator.
type Try struct {
	Kind    string     `json:"kind"` // succeeded, failed, given_up or resent
	At      time.Time  `json:"at"`
	Actor   string     `json:"actor"`
	Attempt int64      `json:"attempt,omitzero"`
	Status  int        `json:"status,omitzero"`
	Class   string     `json:"class,omitzero"`
	Text    string     `json:"text,omitzero"`
	TookMS  int64      `json:"took_ms,omitzero"`
	NextAt  *time.Time `json:"next_at,omitzero"`
}

// Filter selects deliveries. Empty fields select everything.
type Filter struct {
	Workspace string
	Status    string // pending, delivered or dead
	Target    string
}

// columns are those that scanSummary reads, in its order.
const columns = "id, workspace, status, sender, target, entry, attempts, last_error, " +
	"queued_at, due_at, give_up_at, ended_at"

// scanSummary reads one row of columns. Times of 0 are absent ones.
func scanSummary(scan func(...any) error) (Summary, error) {
	var s Summary
	var queuedAt, dueAt, giveUpAt, endedAt int64
	if err := scan(&s.ID, &s.Workspace, &s.Status, &s.Sender, &s.Target, &s.Entry, &s.Attempts, &s.LastError, &queuedAt,
		&dueAt, &giveUpAt, &endedAt); err != nil {
		return s, err
	}
	s.QueuedAt, s.NextAt, s.EndedAt = time.UnixMicro(queuedAt).UTC(), store.Moment(dueAt), store.Moment(endedAt)
	if s.Status == Pending {
		s.GiveUpAt = store.Moment(giveUpAt)
	}
	return s, nil
}

// List lists the deliveries that the caller may see, newest first, older than the given id; "" is from
// the newest.
func (o *Outbox) List(ctx context.Context, f Filter, before string, limit int) ([]Summary, error) {
	var visible bool
	if f.Workspace, visible = wire.Within(ctx, f.Workspace); !visible {
		return []Summary{}, nil
	}
	if f.Status != "" && !slices.Contains(Statuses, f.Status) {
		return nil, fault.New(fault.InvalidRequest, "The status should be one of %s, and is %.40q.",
			strings.Join(Statuses, ", "), f.Status).About("status")
	}
	var where store.Where
	if before != "" {
		where.And("id < %s", before)
	}
	where.Equal("workspace", f.Workspace)
	where.Equal("target", f.Target)
	// The status is part of the SQL text: partial indexes are used only for constants. It is one of
	// Statuses, so nothing can be injected.
	if f.Status != "" {
		where.And("status = '" + f.Status + "'")
		if f.Status != Delivered {
			where.And("status <> 'delivered'")
		}
	}
	return store.All(o.db.Reading(ctx), scanSummary,
		"SELECT "+columns+" FROM delivery WHERE "+where.String()+" ORDER BY id DESC LIMIT "+where.Mark(limit),
		where.Args()...)
}

// Reference is the receiver's name for a delivery, "" if it has not arrived or has none.
func (o *Outbox) Reference(ctx context.Context, id string) (string, error) {
	var reference string
	err := o.db.Read.QueryRowContext(ctx, "SELECT reference FROM delivery WHERE id = $1", id).Scan(&reference)
	if errors.Is(err, sql.ErrNoRows) {
		return "", noDelivery(id)
	}
	return reference, err
}

// noDelivery is also the answer about deliveries of other workspaces.
func noDelivery(id string) error {
	return fault.New(fault.NotFound, "There is no delivery %.80q. GET /ops/deliveries lists those there are.", id)
}

// Get reads a delivery with its history. A delivery of a workspace that the caller may not see does not
// exist for it.
func (o *Outbox) Get(ctx context.Context, id string) (Detail, error) {
	d := Detail{Events: []Try{}}
	var err error
	d.Summary, err = scanSummary(o.db.Read.QueryRowContext(ctx, "SELECT "+columns+" FROM delivery WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !wire.InScope(ctx, d.Workspace) {
		return Detail{}, noDelivery(id)
	}
	if err != nil {
		return d, err
	}
	err = o.db.Read.QueryRowContext(ctx,
		"SELECT l.delivery FROM delivery_lane l JOIN delivery d ON d.order_key = l.order_key WHERE d.id = $1 AND d.status "+
			"= 'pending' AND l.delivery <> d.id", id).Scan(&d.Behind)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return d, err
	}
	entries, err := o.ledger.Entries(ctx, ledger.Query{After: d.Entry, Subject: id, Limit: 1000})
	if err != nil {
		return d, err
	}
	for i := range entries {
		t, err := asTry(&entries[i])
		if err != nil {
			return d, err
		}
		d.Events = append(d.Events, t)
	}
	return d, nil
}

// asTry reads a Try from an entry. One whose body was erased has only its kind and time.
func asTry(e *ledger.Entry) (Try, error) {
	t := Try{Kind: strings.TrimPrefix(e.Kind, "delivery."), At: e.At, Actor: e.Actor}
	if e.Kind == kindResent || e.Body == nil {
		return t, nil
	}
	var b tried
	if err := e.Decode(&b); err != nil {
		return t, err
	}
	t.Attempt, t.Status, t.Class, t.Text = b.Attempt, b.Status, b.Class, b.Text
	t.TookMS, t.NextAt = b.TookMS, store.Moment(b.NextAt)
	return t, nil
}

// Resend revives a dead delivery, at the end of its lane and with its full time, or makes one that waits
// for its next try due at once. The id stays, so that a receiver which has it drops it.
func (o *Outbox) Resend(ctx context.Context, by roster.Identity, id string) (Summary, error) {
	read := func(tx *ledger.Tx) (Summary, error) {
		return scanSummary(func(dest ...any) error {
			return tx.QueryRow("SELECT "+columns+" FROM delivery WHERE id = $1", []any{id}, dest...)
		})
	}
	var s Summary
	err := o.ledger.Write(ctx, func(tx *ledger.Tx) (err error) {
		s, err = read(tx)
		switch {
		case errors.Is(err, sql.ErrNoRows), err == nil && !wire.InScope(ctx, s.Workspace):
			return noDelivery(id)
		case err != nil:
			return err
		case s.Status == Delivered:
			return fault.New(fault.Conflict, "The delivery %s was delivered on %s. It is not sent again.", id,
				s.EndedAt.Format(time.RFC3339))
		case s.Status == Pending && s.NextAt == nil:
			return nil // it is due, or waits only for deliveries before it
		}
		tx.Append(ledger.Event{Workspace: s.Workspace, Kind: kindResent, Actor: by.Actor(), Subject: id, Body: empty{}})
		s, err = read(tx)
		return err
	})
	o.Wake()
	return s, err
}

// ByReference is the id of the newest delivery to a target that its receiver knows by the reference, "" if there is
// none.
func (o *Outbox) ByReference(ctx context.Context, target, reference string) (id string, err error) {
	err = o.db.QueryRow(ctx, "SELECT id FROM delivery WHERE target = $1 AND reference = $2 ORDER BY id DESC LIMIT 1",
		[]any{target, reference}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, err
}
