package dump

import (
	"context"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Writer fills a database with the entries of a ledger, and with the tables that follow from them. Begin makes it, also
// in the middle of what another had begun; Finish ends it. Until then the database is closed. It is not safe for
// concurrent use; two at once fail, and harm nothing.
type Writer struct {
	db     *store.DB
	all    []ledger.Projection
	closed Closed
	Tree   ledger.Frontier // over what is there
	at     int64
	known  map[int64]tlog.Hash // roots that the tree must have at these sizes
}

// Expect has the tree compared with a root when it has this size.
func (w *Writer) Expect(size int64, root tlog.Hash) { w.known[size] = root }

// Begin closes an empty database, or finds out how far one was filled for the same reason. expect is called before
// what is there is compared.
func Begin(ctx context.Context, db *store.DB, all []ledger.Projection, closed Closed, expect func(*Writer)) (*Writer,
	error,
) {
	w := &Writer{db: db, all: all, closed: closed, known: map[int64]tlog.Hash{}}
	expect(w)
	known, err := knownKey(ctx, db.Read)
	if err != nil {
		return nil, err
	}
	head, err := headOf(ctx, db.Read)
	if err != nil {
		return nil, err
	}
	before := parseClosed(known)
	switch {
	case known == "" && head == 0:
		err := db.Bookkeep(ctx, "ledger_tree", func(tx *store.Tx) error { return set(tx, "", closed.text()) })
		return w, err
	case before == nil:
		return nil, fault.New(fault.Conflict,
			"The database is not empty: a ledger with %d entries is in it. Use an empty one, or move this one away.", head)
	case before.State != closed.State || before.Other != closed.Other || before.Key != closed.Key:
		return nil, fault.Wrap(*before, fault.Conflict, "The database is not empty. %s", before.Error())
	}
	w.closed.At = before.At
	for w.Tree.Size < head {
		entries, err := Page(ctx, db, w.Tree.Size, head)
		if err != nil {
			return nil, err
		}
		if err := w.grow(entries); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Grow adds an entry to a tree, if it is the one that follows.
func Grow(tree *ledger.Frontier, e *ledger.Entry) error {
	if e.Seq != tree.Size+1 {
		return fault.New(fault.LedgerMismatch, "Entry %d of the ledger is missing, and entry %d stands in its place.",
			tree.Size+1, e.Seq)
	}
	tree.Add(tlog.RecordHash(e.Record))
	return nil
}

// grow adds entries to the tree and compares its roots with those that are known.
func (w *Writer) grow(entries []ledger.Entry) error {
	for i := range entries {
		if err := Grow(&w.Tree, &entries[i]); err != nil {
			return err
		}
		w.at = entries[i].At.UnixMicro()
		if root, ok := w.known[w.Tree.Size]; ok && root != w.Tree.Root() {
			return fault.New(fault.LedgerMismatch,
				"The first %d entries do not have the root that was signed: they are of another history, or were changed.",
				w.Tree.Size)
		}
	}
	return nil
}

// Add adds the entries that follow those that are there, and applies them to the tables, in one transaction.
func (w *Writer) Add(ctx context.Context, entries []ledger.Entry) error {
	before := w.Tree.Size
	if err := ctx.Err(); err != nil { // SQLite would go on
		return err
	}
	if err := w.grow(entries); err != nil {
		return err
	}
	tx, err := w.db.Begin(ctx, "ledger_head")
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var head int64
	if err := tx.QueryRow("SELECT seq FROM ledger_head WHERE id = 1", nil, &head); err != nil {
		return err
	}
	if head != before {
		return fault.New(fault.Conflict, "Another program fills this database at the same time. Wait until it has ended.")
	}
	for i := range entries {
		if err := w.put(tx, &entries[i]); err != nil {
			return err
		}
	}
	_, err = tx.Commit(false)
	return err
}

// put adds one entry and what follows from it, as ledger.Tx does when it is appended.
func (w *Writer) put(tx *store.Tx, e *ledger.Entry) error {
	var salt, body any
	if e.Body != nil {
		salt, body = e.Salt, e.Body
	}
	tx.Exec("INSERT INTO ledger_entry (seq, workspace, kind, subject, trace, record, salt, body) VALUES ($1, $2, $3, $4, "+
		"$5, $6, $7, $8)", e.Seq, e.Workspace, e.Kind, e.Subject, e.Trace, e.Record, salt, body)
	tx.Exec("UPDATE ledger_head SET seq = $1, at = $2 WHERE id = 1", e.Seq, e.At.UnixMicro())
	for _, p := range w.all {
		if apply := p.Apply[e.Kind]; apply != nil {
			if err := apply(tx, e); err != nil {
				return fault.Wrap(err, fault.Internal, "Entry %d (%s) cannot be applied to the tables.", e.Seq, e.Kind)
			}
		}
	}
	return nil
}

// AddCheckpoints adds checkpoints that were signed over what is there.
func (w *Writer) AddCheckpoints(ctx context.Context, all []Checkpoint) error {
	return w.db.Bookkeep(ctx, "ledger_tree", func(tx *store.Tx) error {
		for _, c := range all {
			tx.Exec("INSERT INTO ledger_checkpoint (size, note) VALUES ($1, $2) ON CONFLICT (size) DO NOTHING", c.Size, c.Note)
		}
		return nil
	})
}

// Finish builds the tree, adds what stands beside the ledger and, if there is one, a last entry about it all; and opens
// the database, in the same transaction.
func (w *Writer) Finish(ctx context.Context, v View, last *ledger.Event, now time.Time) error {
	size, root, err := ledger.Grow(ctx, w.db)
	if err != nil {
		return err
	}
	if size != w.Tree.Size || root != w.Tree.Root() {
		return fault.New(fault.LedgerMismatch,
			"The tree in the database is over %d entries, and %d were written; or its root is another.", size, w.Tree.Size)
	}
	tx, err := w.db.Begin(ctx, "ledger_head")
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := set(tx, w.closed.text(), w.closed.Key); err != nil {
		return err
	}
	for name, seq := range v.Cursors {
		tx.Exec("INSERT INTO ledger_cursor (name, seq, holder, held_until) VALUES ($1, $2, '', 0)", name, min(seq, size))
	}
	for _, t := range v.Tables {
		t.insert(tx)
	}
	if last != nil {
		if now.UnixMicro() < w.at {
			now = time.UnixMicro(w.at) // times never go back (LED-5)
		}
		e, err := ledger.Seal(*last, size+1, now)
		if err != nil {
			return err
		}
		if err := w.put(tx, e); err != nil {
			return err
		}
	}
	_, err = tx.Commit(false)
	return err
}

// insert adds the rows in place of what the entries have left in the table.
func (t Table) insert(tx *store.Tx) {
	tx.Exec("DELETE FROM " + t.Name)
	for _, row := range t.Rows {
		args, marks := make([]any, len(row)), make([]string, len(row))
		for i, v := range row {
			marks[i] = "$" + strconv.Itoa(i+1)
			switch {
			case v.Number != nil:
				args[i] = *v.Number
			case v.Text != nil:
				args[i] = *v.Text
			case v.Bytes != nil:
				args[i] = v.Bytes
			}
		}
		tx.Exec("INSERT INTO "+t.Name+" ("+strings.Join(t.Columns, ", ")+") VALUES ("+strings.Join(marks, ", ")+
			")", args...)
	}
}
