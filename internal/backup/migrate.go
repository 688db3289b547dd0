package backup

import (
	"context"
	"math"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/dump"
	"signalbox/internal/store"
)

// Migrated says what a migration has moved.
type Migrated struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Entries int64  `json:"entries"`
	Root    string `json:"root"` // of all of them
}

// Move is a migration: from one database to another, empty one. Both have the tables of this program.
type Move struct {
	Parts
	From, To *store.DB
	Dir      string // the data folder, which stays
	Now      func() time.Time
}

// Migrate copies the ledger to the other database, with all that follows from it and what stands beside it. No server may
// work on it. The database that it leaves is closed from the beginning on, and the other one until the end, so that at no
// time two can be opened: a crash leaves none, and the same call goes on. The one that was left is not changed otherwise.
func Migrate(ctx context.Context, m Move, progress func(done, total int64)) (Migrated, error) {
	out := Migrated{From: m.From.Name(), To: m.To.Name()}
	v, err := m.leave(ctx)
	if err != nil {
		return out, err
	}
	closed := dump.Closed{State: dump.Receiving, Other: out.From, At: m.Now(), Key: v.Key}
	w, err := dump.Begin(ctx, m.To, m.Projections, closed, func(w *dump.Writer) { w.Expect(v.Size, v.Root) })
	if err != nil {
		return out, err
	}
	for w.Tree.Size < v.Head {
		entries, err := dump.Page(ctx, m.From, w.Tree.Size, v.Head)
		if err == nil {
			err = w.Add(ctx, entries)
		}
		if err != nil {
			return out, err
		}
		progress(w.Tree.Size, v.Head)
	}
	for after := int64(0); ; {
		page, err := dump.Checkpoints(ctx, m.From, after, math.MaxInt64)
		if err == nil && len(page) > 0 {
			err, after = w.AddCheckpoints(ctx, page), page[len(page)-1].Size
		}
		if err != nil {
			return out, err
		}
		if len(page) == 0 {
			break
		}
	}
	out.Entries, out.Root = w.Tree.Size, w.Tree.Root().String()
	if v.Closed.State == dump.Leaving {
		if err := v.Close(ctx, m.From, dump.Left, out.To, w.Tree.Size, m.Now()); err != nil {
			return out, err
		}
	}
	s := m.carried(v)
	return out, w.Finish(ctx, dump.View{Cursors: s.Cursors, Tables: s.Tables}, nil, m.Now())
}

// leave closes the database that the ledger is in, unless it is closed for this migration already.
func (m Move) leave(ctx context.Context) (dump.View, error) {
	v, err := dump.Look(ctx, m.From, m.Tables)
	if err != nil {
		return v, err
	}
	switch c := v.Closed; {
	case c == nil && v.Key == "":
		return v, fault.New(fault.NotFound, "There is no ledger in the database to migrate from (%s).", m.From.Name())
	case c == nil:
		// What differs from what was signed stays where it is, as evidence.
		if err := ledger.Compare(ctx, m.From, m.Dir); err != nil {
			return v, err
		}
		if err := dump.Empty(ctx, m.To); err != nil {
			return v, err
		}
		if err := v.Close(ctx, m.From, dump.Leaving, m.To.Name(), 0, m.Now()); err != nil {
			return v, err
		}
		return dump.Look(ctx, m.From, m.Tables)
	case c.State == dump.Leaving && c.Other == m.To.Name():
	case c.State == dump.Left && c.Other == m.To.Name() && dump.InUse(ctx, m.To) != nil: // all but the last step
	default:
		return v, fault.Wrap(c, fault.Conflict, "%s", c.Error())
	}
	return v, nil
}

// CancelMigration opens the database again that a migration was to leave. What was copied stays closed for good.
func CancelMigration(ctx context.Context, from *store.DB) error {
	v, err := dump.Look(ctx, from, nil)
	if err != nil {
		return err
	}
	return v.Reopen(ctx, from)
}
